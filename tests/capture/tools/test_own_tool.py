"""The documentation's example is a tool like any other, and every tool is documented."""

from __future__ import annotations

import re
import sys
import types
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penrose_ray.capture.tools import registry
from penrose_ray.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from penrose_ray.capture.tools.trace import Trace

    Make = Callable[..., Trace]

DOCS = Path(__file__).parents[3] / "docs" / "tools.md"


def _install(monkeypatch: pytest.MonkeyPatch, value: str, name: str = "busiest") -> None:
    point = EntryPoint(name, value, registry.GROUP)
    monkeypatch.setattr(
        registry, "entry_points", lambda *, group: [point] if group == "penrose.tools" else []
    )


def test_example_of_the_documentation_is_found_and_runs(monkeypatch: pytest.MonkeyPatch, trace: Make) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(code.strip().splitlines()) <= 40
    module = types.ModuleType("my_package")
    exec(code, module.__dict__)  # noqa: S102 - the documentation's own text
    monkeypatch.setitem(sys.modules, "my_package", module)
    _install(monkeypatch, "my_package:Busiest")
    (tool,) = registry.load(["busiest"])
    findings = tool.run([trace([("a", 0, 5), ("b", 5, 50)]), trace([])])
    assert findings.frame.to_dict("records") == [{"rank": "rank 0", "kernel": "b", "longest_ns": 45.0}]
    assert len(findings.advice) == 1


@pytest.mark.parametrize("value", ["no_such_package:Tool", "pathlib:Nothing", "pathlib:Path"])
def test_broken_package_is_named(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    _install(monkeypatch, value)
    with pytest.raises(ConfigError, match=r"busiest|pathlib"):
        registry.load(["busiest"])


def test_foreign_tool_cannot_replace_a_built_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, "pathlib:Path", name="atomics")
    assert registry.load(["atomics", "atomics"])[0].name == "atomics"


def test_every_tool_has_its_section() -> None:
    text = DOCS.read_text()
    assert all(f"\n### {name}\n" in text and f"(#{name})" in text for name in registry.BUILT_IN)
