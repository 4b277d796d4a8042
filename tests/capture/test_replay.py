from __future__ import annotations

import json
import tarfile
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from penrose_ray.capture.events import EventBatch
from penrose_ray.capture.replay import ReplaySource
from penrose_ray.capture.source import EventSource
from penrose_ray.errors import SourceError
from penrose_ray.histogram import Counter

SAMPLE = Path(str(resources.files("penrose_ray.capture") / "samples" / "sort.json.gz"))
LAUNCHES = 15_600


def test_sample_replays_whole_steps_of_the_sort_program() -> None:
    source = ReplaySource(SAMPLE)
    assert isinstance(source, EventSource)
    source.open()
    batch = source.poll(LAUNCHES + 1)
    assert len(batch) == LAUNCHES
    assert source.exhausted
    assert len(source.names) == 10
    steps = batch.name_id.reshape(-1, 52)
    assert (steps == steps[0]).all()
    assert not batch.gap.any()
    assert (batch.end_ns > batch.start_ns).all()


def test_sample_keeps_the_counters_it_was_measured_with() -> None:
    assert ReplaySource(SAMPLE).counters == (
        Counter("duration", "ns", "opencl", "pocl"),
        Counter("queue_delay", "ns", "opencl", "pocl"),
        Counter("work_rate", "work-items/us", "opencl", "pocl"),
    )


def test_only_armed_launches_show_the_armed_counters() -> None:
    source = ReplaySource(SAMPLE)
    source.open()
    duration, _, rate = source.counters
    source.arm([3, 150], [duration])
    source.arm([150], [rate])
    batch = EventBatch.concat([source.poll(100), source.poll(100)])
    measured = ~np.isnan(batch.counters)
    assert np.argwhere(measured).tolist() == [[3, 0], [150, 0], [150, 2]]
    assert batch.counters[3, 0] == batch.end_ns[3] - batch.start_ns[3]
    items = batch.grid[150].prod() * batch.block[150].prod()
    assert batch.counters[150, 2] == pytest.approx(items * 1000 / batch.counters[150, 0])


def test_runs_follow_one_another_in_number_and_time() -> None:
    source = ReplaySource(SAMPLE, repeat=2)
    source.open()
    first, second = source.poll(1 << 20), source.poll(1 << 20)
    assert source.exhausted
    assert second.seq.tolist() == list(range(LAUNCHES, 2 * LAUNCHES))
    assert second.name_id.tolist() == first.name_id.tolist()
    assert second.start_ns.min() == first.end_ns.max()
    assert (second.end_ns - second.start_ns).tolist() == (first.end_ns - first.start_ns).tolist()


def test_each_rank_of_a_recording_ends_with_its_last_launch_of_the_last_run(tmp_path: Path) -> None:
    events = [
        {"ph": "X", "cat": "kernel", "name": "k", "ts": n, "dur": 1, "args": {"device": 0, "correlation": n}}
        for n in range(1, 11)
    ]
    with tarfile.open(tmp_path / "ranks.tar", "w") as tar:
        for rank in range(3):
            path = tmp_path / f"rank{rank}.json"
            path.write_text(json.dumps({"traceEvents": events[rank:], "distributedInfo": {"rank": rank}}))
            tar.add(path, path.name)
    source = ReplaySource(tmp_path / "ranks.tar", repeat=2)
    source.open()
    told: dict[int, int] = {}
    for position in range(1, 2 * 27 + 1):
        (process,) = source.poll(1).process
        told |= dict.fromkeys(source.ended(), position)
        assert position in told.values() or process not in told
    assert list(told.values()) == [27 + 10, 27 + 10 + 9, 27 + 10 + 9 + 8]
    assert source.exhausted
    source.close()
    source.open()
    assert source.ended() == []


def test_arming_the_past_is_counted() -> None:
    source = ReplaySource(SAMPLE)
    source.open()
    source.poll(10)
    source.arm([4, 9, 10], source.counters)
    assert source.health().late_arms == 2
    assert not np.isnan(source.poll(1).counters).any()


def test_repeat_below_1_is_refused() -> None:
    with pytest.raises(SourceError, match="1 time or more"):
        ReplaySource(SAMPLE, repeat=0)


def test_probe_gives_the_reason_of_a_missing_file(tmp_path: Path) -> None:
    capabilities = ReplaySource(tmp_path / "nothing.json").probe()
    assert not capabilities.available
    assert "cannot be read: No such file or directory" in capabilities.reasons[0]
