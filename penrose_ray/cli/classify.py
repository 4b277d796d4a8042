"""`penrose classify`: which runs of kernels are the same application."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penrose_ray.capture.events import KernelKind
from penrose_ray.capture.replay import ReplaySource
from penrose_ray.cli.output import Format, FormatOption, print_rows, say
from penrose_ray.errors import TraceError
from penrose_ray.snippet.cutter import SnippetCutter
from penrose_ray.snippet.index import SnippetIndex
from penrose_ray.snippet.minhash import DEFAULT_SCHEME, scheme

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penrose_ray.snippet.cutter import Snippet

_POLL = 65_536


def classify(
    files: Annotated[list[Path], typer.Argument(help="Trace files, compressed or not.")],
    length: Annotated[int, typer.Option("--length", min=8, help="Launches of a snippet (L).")] = 10_000,
    similarity: Annotated[
        float, typer.Option("--similarity", min=0.0, max=1.0, help="Least Jaccard similarity (tau).")
    ] = 0.85,
    scheme_id: Annotated[str, typer.Option("--scheme", help="Snippet scheme.")] = DEFAULT_SCHEME,
    form: FormatOption = Format.TABLE,
) -> None:
    """Cut traces into snippets and number the classes that these fall into.

    Example: penrose classify first.json.gz second.json.gz --length 2000 --format json

    The Jaccard similarity is that to the class' representative, 1 for the snippet that founded it.
    """
    index: SnippetIndex[int] = SnippetIndex(scheme_id, similarity)
    windows: list[dict[str, object]] = []
    errors: list[dict[str, str]] = []
    for path in files:
        try:
            snippets = list(_snippets(path, length, scheme_id))
        except TraceError as error:
            errors.append({"file": str(path), "error": str(error)})
            continue
        windows.extend(_numbered(str(path), snippets, index))
    if form is Format.JSON:
        _print_json(windows, len(index), errors)
    else:
        title = f"{len(index)} classes of snippets of {length:,} launches"
        print_rows(windows, ("file", "index", "launches", "class", "jaccard"), form, title)
        for each in errors:
            say(f"{each['file']}: {each['error']}")
    if len(errors) == len(files):
        raise TraceError("None of the files can be read.", remedy="See the error of each file.")


def _snippets(path: Path, length: int, scheme_id: str) -> Iterator[Snippet]:
    source = ReplaySource(path)
    source.open()
    cutter = SnippetCutter(length, scheme(scheme_id))
    try:
        while not source.exhausted:
            batch = source.poll(_POLL)
            yield from cutter.push(batch.take(batch.kind == KernelKind.KERNEL), source.names)
        yield from cutter.finish()
    finally:
        source.close()


def _numbered(file: str, snippets: list[Snippet], index: SnippetIndex[int]) -> Iterator[dict[str, object]]:
    for position, snippet in enumerate(snippets):
        found = index.find(snippet.signature)
        if found is None:
            found = (len(index), 1.0)
            index.add(len(index), snippet.signature)
        yield {
            "file": file,
            "index": position,
            "launches": snippet.launches,
            "class": found[0],
            "jaccard": round(found[1], 4),
        }


def _print_json(windows: list[dict[str, object]], classes: int, errors: list[dict[str, str]]) -> None:
    import json  # noqa: PLC0415 - one caller

    typer.echo(json.dumps({"windows": windows, "classes": classes, "errors": errors}, indent=2))
