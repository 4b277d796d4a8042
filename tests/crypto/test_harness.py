"""The benchmarks' harness, on a clock that each contender moves by hand."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

spec = importlib.util.spec_from_file_location(
    "benchmark_harness", Path(__file__).parents[2] / "benchmarks" / "harness.py"
)
assert spec is not None
assert spec.loader is not None
harness = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = harness  # dataclasses look their module up
spec.loader.exec_module(harness)


def test_contenders_take_turns_after_one_run_to_warm_up() -> None:
    order: list[str] = []
    a, b = (harness.Contender(name, lambda name=name: order.append(name)) for name in "ab")
    harness.take_turns([a, b], rounds=3)
    assert "".join(order) == "ab" + "ab" * 3


def test_medians_are_per_operation() -> None:
    now = 0.0
    costs = iter([99.0, 4.0, 2.0, 40.0])  # the first run only warms up

    def run() -> None:
        nonlocal now
        now += next(costs)

    timings = harness.take_turns([harness.Contender("a", run, 2)], rounds=3, clock=lambda: now)
    assert timings["a"].seconds == (2.0, 1.0, 20.0)
    assert timings["a"].median_s == 2.0


def test_result_is_one_json_line_with_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    harness.finish({"ratio": harness.significant(123.456), "absent": harness.significant(None)})
    result = json.loads(capsys.readouterr().out)
    assert (result["ratio"], result["absent"]) == (123.5, None)
    assert {"cpu", "cores", "load_1min", "python", "system"} <= set(result["machine"])
