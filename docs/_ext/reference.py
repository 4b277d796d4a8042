"""Directives whose text is made from the code: commands, configuration keys, the report on the wire."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import typer._click
import typer.cli
import typer.main
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

from penrose_ray import wire
from penrose_ray.cli.app import COMMANDS, application
from penrose_ray.cli.schema import Kind, attribute_docstrings, json_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from docutils import nodes
    from sphinx.application import Sphinx


def commands(_: str) -> str:
    """Every command with its options, as Markdown."""
    command = typer.main.get_command(application(*COMMANDS))
    context = typer._click.Context(command)  # noqa: SLF001 - what `typer utils docs` does
    text = typer.cli.get_docs_for_click(obj=command, ctx=context, name="penrose")
    _, _, below = text.partition("\n## ")
    return re.sub(r"^Example: (.+)$", r"Example: `\1`", f"## {below}", flags=re.MULTILINE).replace(
        str(Path.home()), "~"
    )


def keys(kind: str) -> str:
    """Every key of a kind of configuration file, as Markdown tables."""
    schema = json_schema(Kind(kind))
    return "\n".join(_table(schema, schema, ""))


def fields(_: str) -> str:
    """The fields of a report in the order in which they are sent."""
    said = attribute_docstrings(wire.Report)
    rows = [
        f"| {number} | `{each.name}` | {_type_name(each.type)} | {said.get(each.name, '')} |"
        for number, each in enumerate(msgspec.structs.fields(wire.Report))
    ]
    return "\n".join(["| | field | type | what it says |", "|---|---|---|---|", *rows])


def _type_name(kind: Any) -> str:  # noqa: ANN401 - an annotation
    return str(getattr(kind, "__supertype__", kind).__name__)


def _table(whole: dict[str, Any], part: dict[str, Any], path: str) -> Iterator[str]:
    """The table of a section, those of the sections below it after it."""
    below = []
    if path:
        yield f"## `[{path}]`"
    yield f"\n{part.get('description', '')}\n"
    yield "| key | type | default | what it does |\n|---|---|---|---|"
    for name, value in part.get("properties", {}).items():
        inner = _section(whole, value)
        place = f"{path}.{name}".lstrip(".")
        if inner:
            below.append((place, inner))
        text = value.get("description") or (inner or {}).get("description", "")
        default = f"`{_short(value['default'])}`" if "default" in value else ""
        yield f"| `{name}` | {_kind(value, inner)} | {default} | {text.replace('|', ' or ')} |"
    yield ""
    for place, inner in below:
        yield from _table(whole, inner, place)


def _section(whole: dict[str, Any], value: dict[str, Any]) -> dict[str, Any] | None:
    """The table that a key holds, or a list or dictionary of tables."""
    inner = [value, value.get("items", {}), value.get("additionalProperties", {}), *value.get("anyOf", ())]
    names = (each["$ref"] for each in inner if isinstance(each, dict) and "$ref" in each)
    found = next(names, None)
    return None if found is None else whole["$defs"][found.rpartition("/")[2]]


def _kind(value: dict[str, Any], inner: dict[str, Any] | None) -> str:
    if inner:
        return "tables" if value.get("type") == "array" else "table"
    if "enum" in value:
        return ", ".join(f"`{each}`" for each in value["enum"])
    return str(value.get("type", "one of several"))


def _short(value: Any) -> str:  # noqa: ANN401 - a JSON value
    text = json.dumps(value)
    return text if len(text) <= 30 else "..."  # noqa: PLR2004 - as wide as a column should be


class Generated(SphinxDirective):
    """`{from-code} NAME ARGUMENT`: Markdown made by a function above."""

    required_arguments = 1
    optional_arguments = 1
    makers: ClassVar[dict[str, Callable[[str], str]]] = {"commands": commands, "keys": keys, "fields": fields}

    def run(self) -> list[nodes.Node]:
        """The nodes of the text."""
        text = self.makers[self.arguments[0]](self.arguments[1] if len(self.arguments) > 1 else "")
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def unlink_folders(app: Sphinx, doctree: nodes.document) -> None:
    """Leave the text of links to folders, which a code host shows and a site does not have."""
    page = Path(app.env.doc2path(app.env.docname))
    for link in list(doctree.findall(addnodes.pending_xref)):
        if link["reftype"] == "myst" and (page.parent / str(link["reftarget"])).is_dir():
            link.replace_self(link.children)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("doctree-read", unlink_folders)
    app.add_directive("from-code", Generated)
    return {"parallel_read_safe": True}
