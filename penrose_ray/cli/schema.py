"""JSON schemas of the configuration files, from the classes that read them."""

from __future__ import annotations

import ast
import inspect
import textwrap
from enum import StrEnum
from typing import TYPE_CHECKING, Any, assert_never

import msgspec

from penrose_ray.draft import CounterDraft
from penrose_ray.histogram import Axis, Counter, CounterSet
from penrose_ray.policy import OwnerPolicy
from penrose_ray.settings import EnrolmentSettings, Section, Settings
from penrose_ray.task import Task

if TYPE_CHECKING:
    from collections.abc import Iterator

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_REFERENCE = "#/$defs/{name}"
_TASK_PARTS = (Task, CounterDraft, CounterSet, Counter, Axis)


class Kind(StrEnum):
    """What a configuration file is for."""

    SERVICE = "service"
    SIMULATION = "simulation"
    POLICY = "policy"
    ENROLMENT = "enrolment"

    @property
    def model(self) -> type[Section]:
        """The class that reads such a file."""
        match self:
            case Kind.SERVICE:
                return Settings
            case Kind.SIMULATION:
                from penrose_ray.sim.settings import SimulationSettings  # noqa: PLC0415 - imports numpy

                return SimulationSettings
            case Kind.POLICY:
                return OwnerPolicy
            case Kind.ENROLMENT:
                return EnrolmentSettings
        assert_never(self)


def kind_of(table: dict[str, Any]) -> Kind:
    """The kind whose keys a table has most of; the first one named in `Kind` when it has none."""
    return max(Kind, key=lambda kind: len(table.keys() & kind.model.model_fields.keys()))


def json_schema(kind: Kind) -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of a kind of file, each key with its description."""
    schema = kind.model.model_json_schema()
    parts = schema.get("$defs", {})
    for model in _models(kind.model):
        _describe(parts.get(model.__name__, schema), model)
    if kind is Kind.SERVICE:
        _add_task(schema)
    _drop_titles(schema)
    return {"$schema": _DIALECT, "title": f"penrose-ray: {kind}", **schema}


def _models(model: type[Section]) -> Iterator[type[Section]]:
    """A section's class and those of the sections below it."""
    yield model
    for field in model.model_fields.values():
        for each in _classes(field.annotation):
            if issubclass(each, Section):
                yield from _models(each)


def _classes(annotation: Any) -> Iterator[type]:  # noqa: ANN401 - an annotation is any object
    if isinstance(annotation, type) and not hasattr(annotation, "__args__"):
        yield annotation
    for each in getattr(annotation, "__args__", ()):
        yield from _classes(each)


def _add_task(schema: dict[str, Any]) -> None:
    """`[task]` is a Task without its key, in which short forms of counter sets may stand."""
    _, parts = msgspec.json.schema_components(_TASK_PARTS, ref_template=_REFERENCE)
    for struct in _TASK_PARTS:
        _describe(parts[struct.__name__], struct)
    task = parts["Task"]
    del task["properties"]["public_key"]
    task["properties"]["counters"] = {
        "type": "array",
        "items": {"$ref": _REFERENCE.format(name="CounterDraft")},
        "description": "Short form: a counter set of one axis for each vendor.",
    }
    task["required"] = ["name", "demo"]
    schema["$defs"] |= parts
    schema["properties"]["task"] = {"$ref": _REFERENCE.format(name="Task")}


def _describe(schema: dict[str, Any], kind: type) -> None:
    own = [each for each in kind.__mro__ if each.__module__.startswith("penrose_ray.")]
    for each in reversed(own):
        for name, text in attribute_docstrings(each).items():
            schema["properties"][name]["description"] = text


def attribute_docstrings(kind: type) -> dict[str, str]:
    """The string below each attribute of a class, in one line."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    found = {}
    if isinstance(body, ast.ClassDef):
        for above, below in zip(body.body, body.body[1:], strict=False):
            match above, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                    value=ast.Constant(value=str() as text)
                ):
                    found[name] = " ".join(text.split())
    return found


def _drop_titles(schema: Any) -> None:  # noqa: ANN401 - a JSON value
    """Take out the titles that only repeat a key's name."""
    if isinstance(schema, dict):
        if isinstance(schema.get("title"), str):
            del schema["title"]
        for each in schema.values():
            _drop_titles(each)
    elif isinstance(schema, list):
        for each in schema:
            _drop_titles(each)
