"""Which windows of recorded launch streams belong together: snippet and index over arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penrose_ray.errors import ConfigError
from penrose_ray.snippet.cutter import SnippetCutter
from penrose_ray.snippet.index import SnippetIndex
from penrose_ray.snippet.minhash import DEFAULT_SCHEME, scheme

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penrose_ray.snippet.cutter import Launches, Snippet


@dataclass(frozen=True, slots=True)
class ClassifiedWindow:
    """A snippet and the class it joined, numbered from 0 in the order in which classes were founded."""

    stream: int
    """Position of the launch stream among those that were given."""
    index: int
    """Number of the window within its stream."""
    class_: int
    jaccard: float
    """Estimated similarity to the class' representative; 1 for a window that founds a class."""
    snippet: Snippet


@dataclass(frozen=True, slots=True)
class Classification:
    """All windows in order, and how many classes they made."""

    windows: tuple[ClassifiedWindow, ...]
    classes: int


def classify(
    streams: Iterable[tuple[Launches, Sequence[str]]],
    snippet_launches: int,
    *,
    scheme_id: str = DEFAULT_SCHEME,
    similarity: float = 0.85,
) -> Classification:
    """Cut launch streams into snippets and match them, all against one index.

    Args:
        streams: for each its launches in launch order and the name table that they index.
        snippet_launches: L, at least the gram of the scheme.
        scheme_id: a key of SCHEMES.
        similarity: tau.

    Raises:
        ConfigError: no such scheme, or L is shorter than a gram.
    """
    wanted = scheme(scheme_id)
    if snippet_launches < wanted.gram:
        raise ConfigError(
            f"A snippet of {snippet_launches} launches is shorter than a gram of {wanted.gram}.",
            remedy=f"Ask for {wanted.gram} launches or more.",
        )
    index: SnippetIndex[int] = SnippetIndex(scheme_id, similarity)
    windows: list[ClassifiedWindow] = []
    for number, (launches, names) in enumerate(streams):
        cutter = SnippetCutter(snippet_launches, wanted)
        snippets = [*cutter.push(launches, names), *cutter.finish()]
        for place, snippet in enumerate(snippets):
            class_, jaccard = _join(index, snippet)
            windows.append(ClassifiedWindow(number, place, class_, jaccard, snippet))
    return Classification(tuple(windows), len(index))


def _join(index: SnippetIndex[int], snippet: Snippet) -> tuple[int, float]:
    if found := index.find(snippet.signature):
        return found
    made = len(index)
    index.add(made, snippet.signature)
    return made, 1.0
