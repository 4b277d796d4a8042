"""What every tool must survive: nothing, one kernel, a gap, counters that are NaN, two devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from penrose_ray.capture.tools.page import page
from penrose_ray.capture.tools.redact import redacted
from penrose_ray.capture.tools.registry import available, load
from penrose_ray.histogram import Counter

if TYPE_CHECKING:
    from collections.abc import Callable

    from penrose_ray.capture.tools.base import Findings, Tool
    from penrose_ray.capture.tools.trace import Trace

    Make = Callable[..., Trace]

NAMES = tuple(available())
KERNEL = ("void secret_project::gemm<float>(float*)", 100, 300)


@pytest.fixture(params=NAMES)
def tool(request: pytest.FixtureRequest) -> Tool:
    (made,) = load([request.param])
    return made


def check(tool: Tool, findings: Findings) -> None:
    assert findings.tool == tool.name
    assert tuple(findings.frame.columns) == tool.columns
    assert set(tool.secret) <= set(tool.columns)
    assert all(0 <= each.confidence <= 1 and each.text and each.evidence for each in findings.advice)
    assert findings.tool in page([findings], title="t")


def test_tool_says_what_it_is(tool: Tool) -> None:
    assert tool.name in NAMES
    assert tool.columns
    assert tool.blind_to.endswith(".")
    assert type(tool).__doc__


def test_no_rank_at_all(tool: Tool) -> None:
    findings = tool.run([])
    check(tool, findings)
    assert len(findings.frame) == 0
    assert findings.advice == ()


def test_empty_stream(tool: Tool, trace: Make) -> None:
    findings = tool.run([trace([])])
    check(tool, findings)
    assert findings.advice == ()


def test_one_kernel(tool: Tool, trace: Make) -> None:
    check(tool, tool.run([trace([KERNEL])]))


def test_gap_and_unknown_times(tool: Tool, trace: Make) -> None:
    kernels = [KERNEL, ("b", 0, 0), ("b", 400, 450)]
    check(tool, tool.run([trace(kernels, gap=[0, 1, 0], correlation=[1, 2, 3])]))


def test_counters_that_were_not_measured_change_nothing_else(tool: Tool, trace: Make) -> None:
    nothing = {Counter("dram__bytes.sum", "byte", "ncu", "nvidia"): [np.nan, np.nan]}
    with_nan = tool.run([trace([KERNEL, ("b", 400, 450)], counters=nothing)])
    check(tool, with_nan)
    assert not any("nan" in f"{each.text} {each.evidence}" for each in with_nan.advice)


def test_two_devices_are_kept_apart_or_added_never_mixed_up(tool: Tool, trace: Make) -> None:
    kernels = [KERNEL, ("b", 400, 450), KERNEL, ("b", 400, 450)]
    both = tool.run([trace(kernels, device=[0, 0, 1, 1], queue=[0, 0, 1, 1])])
    check(tool, both)


def test_second_run_starts_from_nothing(tool: Tool, trace: Make) -> None:
    made = trace([KERNEL, ("ncclKernel_AllReduce", 200, 900), ("c", 950, 1000)], queue=[0, 1, 0])
    first = tool.run([made])
    second = tool.run([made])
    assert first.frame.equals(second.frame)
    assert first.figures.keys() == second.figures.keys()


def test_redacted_findings_hold_no_name(tool: Tool, trace: Make) -> None:
    made = trace([KERNEL] * 40, label="alice-secret_host")
    (findings,) = redacted([tool.run([made])], [tool], b"s" * 32)
    text = page([findings], title="t") + findings.frame.to_csv()
    assert "secret" not in text
