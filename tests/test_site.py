"""The documentation site: everything has its entry, commands and code in the pages are real, it builds."""

from __future__ import annotations

import ast
import contextlib
import importlib
import itertools
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import typer.main

from penrose_ray import wire
from penrose_ray.cli.app import COMMANDS, application
from penrose_ray.cli.schema import Kind, attribute_docstrings, json_schema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""Of the click that typer brings."""
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def require_sphinx() -> None:
    with contextlib.suppress(ImportError):
        importlib.import_module("tpm2_pytss")  # imported after sphinx it would be a mock of itself
    pytest.importorskip("sphinx", reason="the site needs the extra `docs`")


@pytest.fixture(scope="module")
def reference() -> Iterator[ModuleType]:
    """The extension that writes the reference pages."""
    require_sphinx()
    folder = str(ROOT / "docs" / "_ext")
    sys.path.insert(0, folder)
    yield importlib.import_module("reference")
    sys.path.remove(folder)


def tree() -> Any:  # noqa: ANN401 - typer's own click
    return typer.main.get_command(application(*COMMANDS))


def leaves(command: Any, path: str = "penrose") -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    """Every command that does something, with its full name."""
    below = getattr(command, "commands", None)
    if below is None:
        yield path, command
    else:
        for name, each in below.items():
            yield from leaves(each, f"{path} {name}")


LEAVES = dict(leaves(tree()))


def blocks(language: str) -> list[tuple[Path, str]]:
    """Code of that language in the pages."""
    return [
        (page, body)
        for page in PAGES
        for _, name, body in BLOCK.findall(page.read_text())
        if name == language
    ]


def console_lines() -> list[tuple[str, str]]:
    """Commands for a shell, with the page that shows them."""
    return [
        (page.name, line.strip().removeprefix("$ "))
        for page, body in blocks("console")
        for line in body.replace("\\\n", " ").splitlines()
        if line.strip().startswith("$ ")
    ]


@pytest.mark.parametrize("name", sorted(LEAVES))
def test_every_command_has_help_an_example_and_an_entry(reference: ModuleType, name: str) -> None:
    help_text = LEAVES[name].help or ""
    assert re.search(rf"^Example: .*\b{name}\b", help_text, re.MULTILINE), f"{name}: no example of its own"
    assert re.search(rf"^##+ `{name}`$", reference.commands(""), re.MULTILINE)
    for parameter in LEAVES[name].params:
        if parameter.param_type_name == "option":
            assert parameter.help, f"{name} {parameter.opts}"


@pytest.mark.parametrize("kind", list(Kind))
def test_every_key_has_an_entry(reference: ModuleType, kind: Kind) -> None:
    page = reference.keys(str(kind))
    schema = json_schema(kind)
    for part in (schema, *schema.get("$defs", {}).values()):
        for key in part.get("properties", {}):
            (row, *_) = re.findall(rf"^\| `{key}` \|.*\|$", page, re.MULTILINE)
            assert not row.endswith("|  |"), f"{kind}: {key} is not explained"


def test_every_field_of_a_report_has_an_entry(reference: ModuleType) -> None:
    names = [each.name for each in msgspec.structs.fields(wire.Report)]
    page = reference.fields("")
    assert set(attribute_docstrings(wire.Report)) == set(names)
    assert re.findall(r"^\| \d+ \| `(\w+)`", page, re.MULTILINE) == names


def refuse_wrong(line: str, where: str) -> None:
    """Fail unless penrose takes the words of this line: its command, options and all that is needed."""
    line = re.sub(r"\$\(.*?\)", "", line.partition("  #")[0])
    for part in re.split(r"\s(?:&&|\||>)\s", line):
        words = list(itertools.dropwhile(lambda word: "=" in word, shlex.split(part, comments=True)))
        if not words or Path(words[0]).name != "penrose":
            continue
        command, rest = tree(), words[1:]
        while rest and rest[0] in getattr(command, "commands", {}):
            command, rest = command.commands[rest[0]], rest[1:]
        assert not hasattr(command, "commands"), f"{where}: {part}: no such command"
        try:
            command.make_context(str(command.name), rest)
        except typer.Exit:
            continue  # help was asked for
        except UsageError as error:
            pytest.fail(f"{where}: {part}: {error}")


@pytest.mark.parametrize(("page", "line"), console_lines())
def test_a_shown_command_exists_and_takes_these_words(page: str, line: str) -> None:
    refuse_wrong(line, page)


@pytest.mark.parametrize("name", sorted(LEAVES))
def test_the_example_of_a_command_is_one_that_it_takes(name: str) -> None:
    for line in re.findall(r"^Example: (.*)$", LEAVES[name].help or "", re.MULTILINE):
        refuse_wrong(line, name)


@pytest.mark.parametrize(("page", "line"), console_lines())
def test_a_shown_target_of_make_exists(page: str, line: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for words in re.findall(r"\bmake((?: [a-z-]+)+)", line.partition("#")[0]):
        assert set(words.split()) <= targets, f"{page}: {line}"


@pytest.mark.parametrize(("page", "code"), blocks("python"), ids=lambda value: getattr(value, "name", ""))
def test_python_in_a_page_parses_and_its_imports_exist(page: Path, code: str) -> None:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("penrose_ray"):
            module = importlib.import_module(node.module or "")
            for each in node.names:
                assert hasattr(module, each.name), f"{page}: {node.module}.{each.name}"
        elif isinstance(node, ast.Import):
            for each in node.names:
                importlib.import_module(each.name)


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    require_sphinx()
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-c", "docs", "-b", "html"]
    done = subprocess.run(
        [*command, "-d", str(tmp_path / "doctrees"), ".", str(tmp_path / "site")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    commands = (tmp_path / "site" / "docs" / "reference" / "commands.html").read_text()
    assert all(f"{name.replace(' ', '-')}" in commands for name in LEAVES)
    front = (tmp_path / "site" / "docs" / "index.html").read_text()
    assert 'href="what-leaves.html"' in front
