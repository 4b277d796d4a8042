"""`penrose config`: what a configuration comes to, where it comes from, and its schema."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from penrose_ray.cli.schema import Kind, json_schema, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Call = Callable[..., tuple[int, str, str]]

ROOT = Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "configs").glob("*.toml"))
LAPTOP = ROOT / "configs" / "laptop.toml"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests and the developer's shell may have set some."""
    for name in list(os.environ):
        if name.startswith("PENROSE__"):
            monkeypatch.delenv(name)


def rows(call: Call, *arguments: object) -> dict[str, tuple[object, str]]:
    code, out, err = call("config", "show", *arguments, "--format", "json")
    assert code == 0, err
    return {row["key"]: (row["value"], row["origin"]) for row in json.loads(out)}


def properties(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every key of a schema, with what the schema says of it."""
    for name, part in {"": schema, **schema.get("$defs", {})}.items():
        for key, value in part.get("properties", {}).items():
            yield f"{name}.{key}", value


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_sample_is_accepted_by_its_loader_and_by_its_schema(call: Call, path: Path) -> None:
    shown = rows(call, path)
    assert any(origin.startswith(f"{path}, line ") for _, origin in shown.values())
    table = tomllib.loads(path.read_text())
    jsonschema.validate(table, json_schema(kind_of(table)))


def test_samples_of_every_kind_are_there() -> None:
    assert {kind_of(tomllib.loads(path.read_text())) for path in CONFIGS} == set(Kind)


def test_each_value_has_the_origin_that_won(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENROSE__SERVICE__PORT", "8555")
    monkeypatch.setenv("PENROSE__SERVICE__SHARDS", "5")
    shown = rows(call, LAPTOP, "--set", "service.shards=3", "--set", "clients.2.seed=4")

    line = 1 + LAPTOP.read_text().splitlines().index('host = "127.0.0.1"')
    assert shown["service.host"] == ("127.0.0.1", f"{LAPTOP}, line {line}")
    assert shown["service.port"] == (8555, "Variable PENROSE__SERVICE__PORT")
    assert shown["service.shards"] == (3, "--set service.shards")
    assert shown["clients.2.seed"] == (4, "--set clients.2.seed")
    assert shown["clients.0.seed"][0] == 1
    assert shown["service.most_shards"] == (0, "default")
    assert shown["task.rotation_s"] == (3600, "default")
    assert shown["task.demo"][0] is True


def test_the_table_shows_the_same_rows(call: Call) -> None:
    code, out, _ = call("config", "show", LAPTOP, "--format", "csv")
    lines = out.splitlines()
    assert code == 0
    assert lines[0] == "key,value,origin"
    assert len(lines) == 1 + len(rows(call, LAPTOP))
    assert 'service.archive,"""""",default' in lines


def test_simulations_take_set_and_policies_do_not(call: Call) -> None:
    gate = ROOT / "configs" / "sim-gate.toml"
    assert rows(call, gate, "--set", "fleet.clients=7")["fleet.clients"] == (7, "--set fleet.clients")
    code, _, err = call("config", "show", ROOT / "configs" / "policy.toml", "--set", "allow_demo=true")
    assert code == 10
    assert "takes no --set" in err


def test_a_variable_cannot_weaken_a_policy(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENROSE__LEAST_CONTRIBUTORS", "1")
    assert rows(call, ROOT / "configs" / "policy.toml")["least_contributors"][0] == 10


@pytest.mark.parametrize(
    ("override", "hidden", "shown"),
    [
        ("clients.0.issuer_url=https://ann:s3cret@issuer/", "s3cret", "https://***@issuer/"),
        ("service.archive=s3://key:s3cret@bucket/sums", "s3cret", "s3://***@bucket/sums"),
        (
            'transport.tor={home="t", torrc=["HashedControlPassword 16:AB", "NumCPUs 2"]}',
            "16:AB",
            "['HashedControlPassword ***', 'NumCPUs 2']",
        ),
    ],
)
def test_secrets_are_hidden(call: Call, override: str, hidden: str, shown: str) -> None:
    found = rows(call, LAPTOP, "--set", override)
    assert hidden not in str(found)
    assert shown in [str(value) for value, _ in found.values()]


def test_a_secret_instead_of_a_variables_name_is_refused(call: Call) -> None:
    code, _, err = call("config", "show", LAPTOP, "--set", "design_server.passphrase_variable=a b")
    assert code == 10
    assert "design_server.passphrase_variable" in err


@pytest.mark.parametrize(
    ("override", "nearest"),
    [("service.prot=1", "'port'"), ("task.cover_rat=0.1", "'cover_rate'")],
)
def test_an_unknown_key_is_refused_with_the_nearest(call: Call, override: str, nearest: str) -> None:
    code, out, err = call("config", "show", LAPTOP, "--set", override)
    assert (code, out) == (10, "")
    assert f"Did you mean {nearest}?" in err


@pytest.mark.parametrize("kind", list(Kind))
def test_the_stored_schema_is_the_one_of_the_code(call: Call, kind: Kind) -> None:
    code, out, _ = call("config", "schema", kind)
    assert code == 0
    stored = ROOT / "configs" / "schema" / f"{kind}.json"
    assert stored.read_text() == out, f"run make schema: {stored.name} is out of date"


@pytest.mark.parametrize("kind", list(Kind))
def test_every_key_has_a_description(kind: Kind) -> None:
    found = dict(properties(json_schema(kind)))
    assert len(found) > 5
    assert [key for key, value in found.items() if not {"description", "$ref"} & value.keys()] == []


@pytest.mark.parametrize("kind", list(Kind))
def test_a_schema_is_valid_and_refuses_an_unknown_key(kind: Kind) -> None:
    schema = json_schema(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    problems = jsonschema.Draft202012Validator(schema).iter_errors({"unknown_key": 1})
    assert any("unknown_key" in each.message for each in problems)
