"""Damage that profilers are known to do to their files: good part, count and warning, or one clear error."""

from __future__ import annotations

import gzip
import json
import tarfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penrose_ray.capture.formats import read_recording
from penrose_ray.capture.summary import FileSummary, summarise
from penrose_ray.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penrose_ray.capture.recording import Recording

    Kernel = Callable[..., dict[str, Any]]
    Write = Callable[..., Path]
    Damage = Callable[..., Recording]


@pytest.fixture
def damaged(kernel_event: Kernel, write_kineto: Write) -> Callable[..., Recording]:
    """Three kernels, 2 of them with text replaced in the JSON."""

    def read(*replaced: tuple[str, str | bytes], **changed: object) -> Recording:
        events = [kernel_event(1, "first"), kernel_event(2, "second", **changed), kernel_event(3, "third")]
        path = write_kineto(events)
        data = path.read_bytes()
        for old, new in replaced:
            assert old.encode() in data
            data = data.replace(old.encode(), new.encode() if isinstance(new, str) else new)
        path.write_bytes(data)
        return read_recording(path)

    return read


def _names(recording: Recording) -> list[str]:
    return [recording.names[name] for name in recording.batch.name_id]


@pytest.mark.parametrize("token", ["inf", "-inf", "Infinity", "nan", "NaN", "N/A"])
def test_bare_token_as_duration_leaves_the_launch_without_times(damaged: Damage, token: str) -> None:
    recording = damaged(('"name": "second", "pid": 0, "tid": 7, "ts": 20.0, "dur": 5.0',
                         f'"name": "second", "pid": 0, "tid": 7, "ts": 20.0, "dur": {token}'))  # fmt: skip
    assert _names(recording) == ["first", "second", "third"]
    assert recording.batch.end_ns.tolist() == [15_000, 0, 35_000]
    assert np.isnan(recording.batch.counters[1, 0])
    assert recording.tally.bad_timestamps == 1
    assert "1 events were not valid JSON and were repaired." in recording.tally.warnings


def test_bare_not_available_among_the_arguments_costs_nothing(damaged: Damage) -> None:
    recording = damaged(('"correlation": 2', '"correlation": 2, "est. achieved occupancy %": N/A'))
    assert recording.batch.end_ns.tolist() == [15_000, 25_000, 35_000]
    assert recording.tally.damaged == 0


def test_quotes_inside_a_name_are_kept(damaged: Damage) -> None:
    recording = damaged(("second", 'operator"" _x<"a">'))
    assert _names(recording) == ["first", 'operator"" _x<"a">', "third"]


def test_one_quote_inside_a_name_is_kept(damaged: Damage) -> None:
    assert _names(damaged(("second", 'sec"ond'))) == ["first", 'sec"ond', "third"]


def test_windows_path_in_a_name_is_kept(damaged: Damage) -> None:
    assert _names(damaged(("second", r"C:\path\kernel"))) == ["first", r"C:\path\kernel", "third"]


def test_name_that_is_not_utf8_is_replaced_where_it_is_broken(damaged: Damage) -> None:
    assert _names(damaged(("second", b"sec\xffond"))) == ["first", "sec\ufffdond", "third"]


def test_control_character_in_a_name_becomes_a_space(damaged: Damage) -> None:
    assert _names(damaged(("second", b"sec\nond"))) == ["first", "sec ond", "third"]


def test_event_of_zeros_has_no_times(damaged: Damage) -> None:
    recording = damaged(ts=0, dur=0)
    assert _names(recording) == ["first", "second", "third"]
    assert recording.tally.bad_timestamps == 1
    assert np.isnan(recording.batch.counters[1, 0])


@pytest.mark.parametrize(
    ("ts", "dur"), [(20.0, -0.001), (-5.0, 1.0), (20.0, 1e300), (2**70, 5), (20.0, 2**63), ("soon", 5)]
)
def test_impossible_times_are_counted_and_not_believed(damaged: Damage, ts: object, dur: object) -> None:
    recording = damaged(ts=ts, dur=dur)
    assert _names(recording) == ["first", "second", "third"]
    assert recording.tally.bad_timestamps == 1
    assert recording.batch.end_ns.tolist() == [15_000, 0, 35_000]


def test_numbers_beyond_64_bits_do_not_stop_the_reader(damaged: Damage) -> None:
    recording = damaged(('"correlation": 2', '"External id": 36893488147419103232, "correlation": 2'))
    assert recording.batch.correlation.tolist() == [1, 2, 3]


def test_numbers_in_strings_and_floats_are_read(damaged: Damage) -> None:
    recording = damaged(
        ('"correlation": 2', '"correlation": "2"'), ('"stream": 7', '"stream": 7.0'), ts="20.5", dur="4"
    )
    assert recording.batch.correlation.tolist() == [1, 2, 3]
    assert recording.batch.stream.tolist() == [7, 7, 7]
    assert (recording.batch.start_ns[1], recording.batch.end_ns[1]) == (20_500, 24_500)


def test_absolute_microseconds_with_fraction_keep_their_nanoseconds(damaged: Damage) -> None:
    """1712195495505582.988 us do not fit a double: neighbouring doubles are 250 ns apart."""
    recording = damaged(('"ts": 20.0', '"ts": 1712195495505582.988'), ('"dur": 5.0', '"dur": 4.928'))
    assert recording.batch.start_ns[1] == 1_712_195_495_505_582_988
    assert recording.batch.end_ns[1] - recording.batch.start_ns[1] == 4_928


@pytest.mark.parametrize("cut", [-2, -30, -120])
def test_truncated_json_yields_what_is_whole(kernel_event: Kernel, write_kineto: Write, cut: int) -> None:
    path = write_kineto([kernel_event(number) for number in range(1, 101)])
    path.write_bytes(path.read_bytes()[:cut])
    recording = read_recording(path)
    assert len(recording.batch) == (100 if cut == -2 else 99)
    assert any("does not end" in warning for warning in recording.tally.warnings)
    assert recording.tally.damaged == (0 if cut == -2 else 1)


def test_list_without_its_closing_bracket_is_whole(kernel_event: Kernel, tmp_path: Path) -> None:
    path = tmp_path / "open.json"
    path.write_text("[" + ",\n".join(json.dumps(kernel_event(number)) for number in (1, 2)) + ",\n")
    assert read_recording(path).batch.correlation.tolist() == [1, 2]


def test_truncated_gzip_yields_what_is_whole(kernel_event: Kernel, write_kineto: Write) -> None:
    path = write_kineto(
        [kernel_event(number, f"kernel {number * 7919}") for number in range(1, 5001)], name="t.json.gz"
    )
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    found = summarise(path)
    assert found.error == ""
    assert 1000 < found.kernels < 5000
    assert any("cut off or damaged" in warning for warning in found.health.warnings)


def test_damaged_event_in_the_middle_marks_a_gap(kernel_event: Kernel, write_kineto: Write) -> None:
    path = write_kineto([kernel_event(number, f"k{number}") for number in range(1, 6)])
    path.write_bytes(path.read_bytes().replace(b'"k3", "pid": 0', b'"k3", "pid": }{'))
    recording = read_recording(path)
    assert _names(recording) == ["k1", "k2", "k4", "k5"]
    assert recording.tally.damaged == 1
    assert recording.batch.gap.any()


def test_graph_replays_sharing_a_correlation_stay_in_start_order(
    kernel_event: Kernel, write_kineto: Write
) -> None:
    events = [kernel_event(9, name) for name in ("c", "a", "b")]
    for event, ts in zip(events, (30.0, 10.0, 20.0), strict=True):
        event["ts"] = ts
    recording = read_recording(write_kineto([*events, kernel_event(4, "earlier", ts=99.0)]))
    assert _names(recording) == ["earlier", "a", "b", "c"]


def test_launches_without_correlation_go_by_start_time(kernel_event: Kernel, write_kineto: Write) -> None:
    events = [kernel_event(number, f"k{number}") for number in (3, 1, 2)]
    del events[2]["args"]["correlation"]
    assert _names(read_recording(write_kineto(events))) == ["k1", "k2", "k3"]
    for event in events:
        event["args"].pop("correlation", None)
    assert _names(read_recording(write_kineto(events))) == ["k1", "k2", "k3"]


def test_kernel_without_a_host_call_is_read(kernel_event: Kernel, write_kineto: Write) -> None:
    found = summarise(write_kineto([kernel_event(1), kernel_event(2)]))
    assert (found.kernels, found.operators_linked) == (2, 0)


def test_launch_that_lasts_seconds_into_the_next_keeps_its_length(damaged: Damage) -> None:
    recording = damaged(dur=3_000_000.0)
    assert recording.batch.end_ns[1] - recording.batch.start_ns[1] == 3_000_000_000
    assert _names(recording) == ["first", "second", "third"]


def test_device_number_that_the_file_does_not_list_is_named(
    kernel_event: Kernel, write_kineto: Write
) -> None:
    event = kernel_event(1)
    event["args"]["device"] = 2
    recording = read_recording(write_kineto([event]))
    assert recording.devices == ("unknown",)
    assert recording.tally.warnings == ["Device numbers [2] are not among the file's devices [0]."]


def test_file_without_kernels_says_so(write_kineto: Write) -> None:
    found = summarise(write_kineto([{"ph": "X", "cat": "cpu_op", "name": "aten::add", "ts": 1, "dur": 1}]))
    assert (found.kernels, found.error) == (0, "")
    assert "holds no kernel" in found.health.warnings[0]


def test_missing_header_is_no_fault(kernel_event: Kernel, tmp_path: Path) -> None:
    path = tmp_path / "bare.json"
    path.write_text(json.dumps({"traceEvents": [kernel_event(1)]}))
    assert summarise(path).kernels == 1


def test_empty_event_at_the_end_is_no_fault(kernel_event: Kernel, write_kineto: Write) -> None:
    recording = read_recording(write_kineto([kernel_event(1), {}]))
    assert len(recording.batch) == 1
    assert recording.tally.damaged == 0


@pytest.mark.parametrize(("events", "gaps"), [(999_999, 0), (1_000_000, 1)])
def test_export_for_a_viewer_that_reached_its_limit_is_a_gap(tmp_path: Path, events: int, gaps: int) -> None:
    """XLA writes it beside the xplane: no categories, an empty event last, a million events at most."""
    named = b'{"ph":"M","pid":1,"name":"process_name","args":{"name":"/device:GPU:0"}},'
    event = b'{"ph":"X","pid":1,"tid":13,"ts":1.5,"dur":0.5,"name":"fusion","args":{"correlation_id":"7"}},'
    path = tmp_path / "trace.json"
    head = b'{"displayTimeUnit":"ns","metadata":{"highres-ticks":true},"traceEvents":['
    path.write_bytes(head + named + event * events + b"{}]}")
    health = summarise(path).health
    assert (health.seen, health.gaps, health.damaged) == (0, gaps, 0)
    assert any("give the .xplane.pb beside it" in each for each in health.warnings)
    assert any("ends at 1,000,000 events" in each for each in health.warnings) is bool(gaps)


def test_base_time_behind_the_events_counts(kernel_event: Kernel, tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    path.write_text(
        json.dumps({"traceEvents": [kernel_event(1)], "baseTimeNanoseconds": 1_700_000_000_000_000_000})
    )
    assert read_recording(path).batch.start_ns.tolist() == [1_700_000_000_000_010_000]


def test_ranks_of_an_archive_are_processes_and_a_silent_one_is_named(
    kernel_event: Kernel, write_kineto: Write, tmp_path: Path
) -> None:
    path = tmp_path / "ranks.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(write_kineto([kernel_event(1)], name="rank0.json"), "rank0.json")
        archive.add(write_kineto([], name="rank1.json.gz"), "rank1.json.gz")
        archive.add(write_kineto([kernel_event(1), kernel_event(2)], name="rank2.json"), "rank2.json")
    recording = read_recording(path)
    assert recording.batch.process.tolist() == [0, 2, 2]
    assert recording.devices == ("NVIDIA H100", "NVIDIA H100")
    assert any(warning.startswith("rank1.json.gz: no kernel") for warning in recording.tally.warnings)


def test_truncated_archive_is_one_clear_error(
    kernel_event: Kernel, write_kineto: Write, tmp_path: Path
) -> None:
    path = tmp_path / "ranks.tar"
    with tarfile.open(path, "w") as archive:
        for rank in range(3):
            events = [kernel_event(number) for number in range(1, 2000)]
            archive.add(write_kineto(events, name=f"{rank}.json"), f"{rank}.json")
    path.write_bytes(path.read_bytes()[:700_000])
    found = summarise(path)
    assert "damaged archive" in found.error or any("cut off" in warning for warning in found.health.warnings)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "git lfs pull"),
        (
            gzip.compress(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"),
            "git lfs pull",
        ),
        (b"\x1f\x8bnot gzip at all", "is empty"),
        (b"just some text\n", "in no trace format"),
        (b'{"a": 1}', "holds no list of trace events"),
        (b"SQLite format 3\x00garbage", "damaged SQLite file"),
        (b'{"rocprofiler-sdk-tool": [{"buffer', "damaged rocprofv3 file"),
        (bytes(range(256)) * 4, "in no trace format"),
    ],
)
def test_what_is_no_trace_is_one_clear_error(content: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    found = summarise(path)
    assert reason in found.error
    assert found == FileSummary(file=str(path), error=found.error)


def test_nesting_without_end_costs_one_event(kernel_event: Kernel, write_kineto: Write) -> None:
    path = write_kineto([kernel_event(1, "a"), kernel_event(2, "b"), kernel_event(3, "c")])
    deep = b"[" * 50_000 + b"]" * 50_000
    path.write_bytes(path.read_bytes().replace(b'"name": "b"', b'"name": "b", "nest": ' + deep))
    recording = read_recording(path)
    assert _names(recording) == ["a", "c"]
    assert recording.tally.damaged == 1


def test_missing_file_and_folder_are_one_clear_error(tmp_path: Path) -> None:
    assert "No such file" in summarise(tmp_path / "nothing").error
    assert "Is a directory" in summarise(tmp_path).error
    with pytest.raises(TraceError) as caught:
        read_recording(tmp_path / "nothing")
    assert caught.value.remedy == "Check the path and its permissions."


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(position=st.integers(0, 1 << 30), garbage=st.binary(min_size=0, max_size=8), cut=st.booleans())
def test_no_damage_raises(
    tmp_path: Path,
    kernel_event: Kernel,
    position: int,
    garbage: bytes,
    cut: bool,  # noqa: FBT001 - a drawn value
) -> None:
    text = json.dumps(
        {"traceEvents": [kernel_event(number, f"k{number}") for number in range(1, 30)]}
    ).encode()
    position %= len(text)
    damaged = text[:position] if cut else text[:position] + garbage + text[position + len(garbage) :]
    path = tmp_path / "fuzz.json"
    path.write_bytes(damaged)
    found = summarise(path)
    if not found.error and not cut:
        assert found.kernels >= 27 or found.health.damaged or found.health.warnings
