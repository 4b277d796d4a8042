"""`penrose capture` on a real OpenCL program, and `penrose inspect -t`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import needs
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[..., tuple[int, str, str]]

SAMPLE = Path(__file__).parents[2] / "penrose_ray" / "capture" / "samples" / "sort.json.gz"
PROGRAM = """
import sys
import pyopencl as cl
context = cl.Context([device for platform in cl.get_platforms() for device in platform.get_devices()][:1])
queue = cl.CommandQueue(context)
program = cl.Program(context, "kernel void one(global int *x) { x[get_global_id(0)]++; }"
                              "kernel void two(global int *x) { x[get_global_id(0)]--; }").build()
one, two = cl.Kernel(program, "one"), cl.Kernel(program, "two")
buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4096)
for step in range(100):
    one(queue, (64,), (16,), buffer)
    two(queue, (8, 4), None, buffer)
    queue.finish()
sys.exit(int(sys.argv[1]))
"""


@needs.COMPILER
def test_every_launch_of_an_unmodified_program_reaches_the_tools(call: Call) -> None:
    pytest.importorskip("pyopencl")
    options = ("-t", "kernel_frequency,timeline_gaps", "--format", "json")
    code, out, err = call("capture", *options, "--", sys.executable, "-c", PROGRAM, "0")
    assert code == 0, err
    kernels, gaps = json.loads(out)
    assert {row["kernel"]: row["count"] for row in kernels["rows"]} == {"one": 100, "two": 100}
    assert sum(row["timed"] for row in kernels["rows"]) > 150
    assert gaps["tool"] == "timeline_gaps"


@needs.COMPILER
def test_a_rate_thins_times_and_no_counts_and_the_status_is_passed_on(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyopencl")
    monkeypatch.setenv("PENROSE_SAMPLING_RATE", "10")
    code, out, _ = call("capture", "--format", "json", "--", sys.executable, "-c", PROGRAM, "7")
    (kernels,) = json.loads(out)
    assert code == 7
    assert sum(row["count"] for row in kernels["rows"]) == 200
    assert 5 <= sum(row["timed"] for row in kernels["rows"]) <= 50


def test_wrong_rate_and_unknown_tool_name_the_remedy(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, err = call("inspect", "-t", "no_such_tool", SAMPLE)
    assert code == 10
    assert "kernel_frequency" in err
    monkeypatch.setenv("PENROSE_SAMPLING_RATE", "0")
    code, _, err = call("capture", "--", "true")
    assert code == 10
    assert "PENROSE_SAMPLING_RATE" in err


def test_inspect_shows_ranks_together_and_writes_a_page(call: Call, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    options = ("-t", "kernel_frequency", "--format", "json", "--html", page)
    code, out, _ = call("inspect", *options, SAMPLE, SAMPLE)
    (kernels,) = json.loads(out)
    assert code == 0
    assert sum(row["count"] for row in kernels["rows"]) == 31_200
    assert kernels["figures"]["activities"] == 31_200
    text = page.read_text()
    assert "<svg" in text
    assert "http" not in text


def test_redacted_output_names_no_kernel(call: Call) -> None:
    code, plain, _ = call("inspect", "-t", "kernel_frequency", "--format", "csv", SAMPLE)
    names = {line.split(",")[1] for line in plain.splitlines()[1:]}
    assert code == 0
    for form in ("json", "csv", "table"):
        _, out, err = call("inspect", "-t", "kernel_frequency", "--format", form, "--redact", SAMPLE)
        assert not any(name in out + err for name in names)


def test_a_cut_off_file_is_said_but_its_name_is_not_when_redacted(call: Call, tmp_path: Path) -> None:
    cut = tmp_path / "secret_project.json.gz"
    cut.write_bytes(SAMPLE.read_bytes()[: SAMPLE.stat().st_size // 2])
    code, _, err = call("inspect", "-t", "kernel_frequency", cut)
    assert code == 0
    assert "secret_project.json.gz: The file is cut off" in err
    _, out, err = call("inspect", "-t", "kernel_frequency", "--redact", cut)
    assert "secret" not in out + err
    assert "warning" in err


def test_redacted_summary_names_no_file(call: Call, tmp_path: Path) -> None:
    cut = tmp_path / "secret_project.json.gz"
    cut.write_bytes(SAMPLE.read_bytes()[: SAMPLE.stat().st_size // 2])
    empty = tmp_path / "secret_model.json"
    empty.touch()
    for form in ("json", "csv", "table"):
        _, out, err = call("inspect", "--redact", "--format", form, cut, empty)
        assert "secret" not in out + err
        assert str(tmp_path) not in out + err
        assert "file 2" in out
        assert "is empty" in out


def test_labels_and_notes_of_tools_say_neither_who_nor_where(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch calls its files after the host that they come from."""
    monkeypatch.setattr("socket.gethostname", lambda: "gpu-box-17")
    path = tmp_path / "gpu-box-17_4711.pt.trace.json.gz"
    path.write_bytes(SAMPLE.read_bytes())
    page = tmp_path / "page.html"
    code, out, err = call("inspect", "-t", "kernel_frequency", "--html", page, "--format", "csv", path)
    assert code == 0
    assert "<name>_4711.pt.trace.json.gz" in out
    assert "&lt;name&gt;_4711.pt.trace.json.gz" in page.read_text()
    assert "gpu-box-17" not in out + err + page.read_text()


MARKED = """
import penrose_ray as pr
from penrose_ray.actors.programs import sort, stencil
stencil.run(lambda: False, max_steps=20)
with pr.annotate("second half"):
    sort.run(lambda: False, max_steps=3)
"""


@needs.COMPILER
def test_a_region_of_a_captured_program_is_shown_alone(call: Call) -> None:
    tools = ["capture", "-t", "kernel_frequency", "--format", "json", "--source", "opencl"]
    program = ["--", sys.executable, "-c", MARKED]

    code, out, err = call(*tools, *program)
    assert code == 0, err
    everything = {row["kernel"]: row["count"] for row in json.loads(out)[0]["rows"]}
    code, out, err = call(*tools, "--region", "second half", *program)
    assert code == 0, err
    half = {row["kernel"]: row["count"] for row in json.loads(out)[0]["rows"]}
    code, out, err = call(*tools, "--region", "third half", *program)
    assert (code, out) == (10, ""), err
    assert "there are second half." in err

    assert half
    assert set(half) < set(everything)
    assert all(everything[kernel] == count for kernel, count in half.items())


def test_one_region_of_a_file_is_shown_alone(call: Call, tmp_path: Path) -> None:
    place = {"ph": "X", "pid": 1, "tid": 1}
    events: list[dict[str, object]] = [
        {**place, "cat": "user_annotation", "name": "eval", "ts": 100, "dur": 50}
    ]
    for number, ts in enumerate((10, 110, 120), start=1):
        args = {"correlation": number, "device": 0, "stream": 7}
        events += [
            {**place, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": ts, "dur": 1, "args": args},
            {**place, "cat": "kernel", "name": "k", "ts": ts + 2, "dur": 3, "args": args},
        ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))

    code, out, err = call("inspect", "-t", "kernel_frequency", "--region", "eval", "--format", "json", path)
    assert code == 0, err
    assert json.loads(out)[0]["rows"][0]["count"] == 2
    shown = ("inspect", "-t", "kernel_frequency", "--format", "json", "--region")
    page = tmp_path / "page.html"
    code, out, err = call(*shown, "test", "--html", page, path)
    assert (code, out, page.exists()) == (10, "", False)
    assert "There is no region 'test'; there are eval." in err
    assert "nothing ran inside a region 'test'" in err
    code, out, err = call(*shown, "test", "--redact", path)
    assert (code, out, "eval" in err) == (10, "", False)
    other = tmp_path / "other.json"
    other.write_text(path.read_text().replace('"eval"', '"test"'))
    code, out, err = call(*shown, "test", path, other)
    assert code == 0, err
    assert json.loads(out)[0]["rows"][0]["count"] == 2, "one rank of two has it"
