"""What an operator may do to snippet classes while the service runs: list, merge, split."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penrose_ray.errors import ConfigError
from penrose_ray.types import ClassId

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penrose_ray.snippet.journal import SnippetClass
    from penrose_ray.task import Task

_SETTLED = 2
"""Times that reports are regrouped: the second one finds those that were under way."""


class Parts(Protocol):
    """Matcher, shards and gateway, wherever they run."""

    def classes(self) -> Sequence[SnippetClass]:
        """All classes."""
        ...

    def merge(self, kept: ClassId, gone: ClassId) -> None:
        """Let the matcher make one class an alias of another."""
        ...

    def found(self, class_id: ClassId, signature: bytes) -> SnippetClass:
        """Let the matcher found a class beside `class_id`."""
        ...

    def match(self, gpu_model: str, signatures: Sequence[bytes]) -> Sequence[SnippetClass]:
        """The class of each signature."""
        ...

    def signatures(self, class_id: ClassId) -> Mapping[bytes, bytes]:
        """Signatures by snippet hash in the open sums of a class, on all shards."""
        ...

    def split(self, class_id: ClassId, classes: Mapping[bytes, ClassId]) -> None:
        """Let all shards give reports of a class to others, by snippet hash."""
        ...

    def forget_classes(self) -> None:
        """Let the gateway ask the matcher again."""
        ...

    def hold(self, *, held: bool) -> None:
        """Let no bucket move between shards, or let them move again."""
        ...


class Classes:
    """Names are hexadecimal, as in frames. A call that was interrupted may be repeated."""

    def __init__(self, parts: Parts, task: Task) -> None:
        self._parts = parts
        self._has_noise = task.noise_sigma > 0

    def list(self) -> list[dict[str, str]]:
        """Every class that was ever founded, with the one that it was merged into."""
        return [
            {
                "class_id": each.class_id.hex(),
                "gpu_model": each.gpu_model,
                "snippet_hash": each.snippet_hash.hex(),
                "merged_into": each.alias_of.hex() if each.alias_of else "",
            }
            for each in self._parts.classes()
        ]

    def merge(self, kept: str, gone: str) -> str:
        """Hand the sums of both over as one from the next release on.

        Raises:
            ConfigError: no such classes, or of two GPU models; or the task has noise, which hides r reports
                of a client in a sum: a merged one could hold r of each class.
        """
        if self._has_noise:
            raise ConfigError(
                "Classes of a task with noise are not merged: it hides what a client may send of one class.",
                remedy="Add the opened sums of both classes up in the analysis.",
            )
        self._parts.merge(_id(kept), _id(gone))
        return kept

    def split(self, class_id: str, snippet_hash: str) -> str:
        """Found a class for the reports that are nearer to that snippet, those of open batches included.

        Reports of classes that were merged into this one are looked at, too. Where the snippet founded one of
        them, the merge is undone.

        Returns:
            The new class.

        Raises:
            ConfigError: no such class, the snippet founded it, or no report of it in an open batch has it.
        """
        parts, old = self._parts, _id(class_id)
        wanted = _bytes(snippet_hash)
        if any((each.class_id, each.snippet_hash) == (old, wanted) for each in parts.classes()):
            raise ConfigError(
                f"The snippet {snippet_hash} founded class {class_id} and stays in it.",
                remedy="Name a snippet of the program that is to leave.",
            )
        parts.hold(held=True)
        try:
            members = [old, *(each.class_id for each in parts.classes() if each.alias_of == old)]
            known = {each: found for one in members for each, found in parts.signatures(one).items()}
            if wanted not in known:
                raise ConfigError(
                    f"No report of class {class_id} in an open batch has the snippet {snippet_hash}.",
                    remedy="Take one from the operators' query on partial_histograms.",
                )
            made = parts.found(old, known[wanted])
            parts.forget_classes()
            for member in members * _SETTLED:
                signatures = parts.signatures(member)
                matched = parts.match(made.gpu_model, list(signatures.values()))
                pairs = zip(signatures, (each.class_id for each in matched), strict=True)
                parts.split(member, {each: new for each, new in pairs if new not in (old, member)})
        finally:
            parts.hold(held=False)
        return made.class_id.hex()


def _id(text: str) -> ClassId:
    return ClassId(_bytes(text))


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise ConfigError(
            f"{text!r} is no class or snippet: they have hexadecimal digits.",
            remedy="Copy it from: penrose classes list CONFIG.",
        ) from error
