"""One suite for every source: the account, order, bounds, gaps, ends, repetitions, closing and opening again.

What is in front of each source, and how it is damaged, lies in `rigs/`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from capture.rigs import devices, live, recordings
from capture.rigs.base import CAPACITY, Rig

from penrose_ray.capture.events import EventBatch, KernelKind
from penrose_ray.capture.processor import EventProcessor
from penrose_ray.capture.source import EventSource
from penrose_ray.errors import TraceError
from penrose_ray.histogram import Counter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penrose_ray.capture.events import SourceHealth

RIGS: list[type[Rig]] = [
    live.Scripted,
    live.OpenCL,
    live.Ring,
    live.CudaRing,
    live.Cupti,
    live.Torch,
    live.Collected,
    devices.Dcgm,
    devices.Nvml,
    devices.Can,
    devices.Perfetto,
    recordings.Kineto,
    recordings.Nsys,
    recordings.Ncu,
    recordings.RocprofCsv,
    recordings.RocprofJson,
    recordings.Rpd,
    recordings.ComputeCsv,
    recordings.ComputeSqlite,
    recordings.Xplane,
]
RECORDINGS = [rig for rig in RIGS if not rig.live]
LIVE = [rig for rig in RIGS if rig.live]
pytestmark = pytest.mark.filterwarnings("ignore:.*rofiler.*:UserWarning")


@pytest.fixture(params=RIGS, ids=lambda rig: rig.__name__)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    made: Rig = request.param(tmp_path)
    yield made
    made.source.close()
    made.tear_down()


def _conserved(health: SourceHealth) -> bool:
    return health.seen == health.delivered + health.dropped + health.pending and health.pending >= 0


def _all(source: EventSource, size: int = 7) -> EventBatch:
    parts = [source.poll(size)]
    while len(parts[-1]):
        parts.append(source.poll(size))
    return EventBatch.concat(parts)


def test_is_an_event_source(rig: Rig) -> None:
    assert isinstance(rig.source, EventSource)
    capabilities = rig.source.probe()
    assert capabilities.available or capabilities.reasons
    assert all(isinstance(counter, Counter) for counter in rig.source.counters)


def test_polls_are_bounded_and_in_order(rig: Rig) -> None:
    rig.source.open()
    rig.launch(30)
    assert len(rig.source.poll(0)) == 0
    first = rig.source.poll(20)
    assert len(first) == 20
    second = rig.source.poll(10)
    assert np.concatenate([first.seq, second.seq]).tolist() == list(range(30))


def test_columns_index_the_tables(rig: Rig) -> None:
    rig.source.open()
    rig.launch(30)
    before = list(rig.source.names)
    batch = _all(rig.source)
    assert int(batch.name_id.max()) < len(rig.source.names)
    assert int(batch.device.max()) < len(rig.source.devices)
    assert list(rig.source.names)[: len(before)] == before
    assert batch.counters.shape == (len(batch), len(rig.source.counters))


def test_every_launch_is_delivered_dropped_or_pending(rig: Rig) -> None:
    rig.source.open()
    for count in (10, 0, 25):
        rig.launch(count)
        assert _conserved(rig.source.health())
        rig.source.poll(8)
        assert _conserved(rig.source.health())
    rig.source.close()
    health = rig.source.health()
    assert _conserved(health)
    assert health.pending == 0


@pytest.mark.parametrize("rig", LIVE, ids=lambda rig: rig.__name__, indirect=True)
def test_slow_consumer_costs_launches_not_memory(rig: Rig) -> None:
    rig.source.open()
    rig.launch(CAPACITY + 40)
    kept = _all(rig.source)
    assert len(kept) <= CAPACITY
    rig.launch(5)
    after = _all(rig.source)
    assert len(after) == 5
    assert after.gap.tolist() == [True, False, False, False, False]
    health = rig.source.health()
    assert _conserved(health)
    assert (health.dropped, health.gaps) == (CAPACITY + 40 - len(kept), 1)


@pytest.mark.parametrize("rig", LIVE, ids=lambda rig: rig.__name__, indirect=True)
def test_what_ends_in_mid_batch_leaves_the_launches_that_are_whole(rig: Rig) -> None:
    rig.source.open()
    whole = rig.cut_short(20)
    assert len(_all(rig.source)) == whole == 19
    health = rig.source.health()
    assert _conserved(health)
    assert health.delivered == whole


@pytest.mark.parametrize("rig", RECORDINGS, ids=lambda rig: rig.__name__, indirect=True)
def test_recording_that_is_cut_off_yields_its_good_part_or_one_error(rig: Rig) -> None:
    whole = rig.cut_short(20)
    if whole is None:
        assert not rig.source.probe().available
        with pytest.raises(TraceError, match="damaged"):
            rig.source.open()
        return
    rig.source.open()
    assert len(_all(rig.source)) == whole > 100
    health = rig.source.health()
    assert _conserved(health)
    assert health.damaged == 1
    assert health.warnings
    assert rig.source.exhausted


def test_what_is_reported_twice_comes_out_once(rig: Rig) -> None:
    if rig.never_twice:
        pytest.skip(rig.never_twice)
    if rig.live:
        rig.source.open()
    launches = rig.repeat(10)
    if not rig.live:
        rig.source.open()
    processor = EventProcessor(kinds=tuple(KernelKind))
    while len(batch := rig.source.poll(7)):
        processor.feed(batch)
    once = processor.take(last=True)
    assert once is not None
    assert len(once) == launches
    health = rig.source.health()
    assert _conserved(health)
    assert health.duplicates + processor.digested.duplicates >= launches
    assert not once.gap.any()


def test_a_process_ends_once_behind_its_last_launch(rig: Rig) -> None:
    rig.source.open()
    if rig.live and rig.sees_ends:
        rig.cut_short(20)
    rig.launch(0 if rig.sees_ends else 20)
    assert rig.source.ended() == []
    processes: set[int] = set()
    ended: list[int] = []
    while len(batch := rig.source.poll(7)):
        processes.update(batch.process.tolist())
        assert not set(ended) & set(batch.process.tolist())
        ended += rig.source.ended()
    ended += rig.source.ended()
    assert sorted(ended) == (sorted(processes) if rig.sees_ends else [])


def test_a_stopped_source_gives_out_all_that_it_has(rig: Rig) -> None:
    rig.source.open()
    rig.launch(20)
    taken = len(rig.source.poll(4))
    rig.source.stop()
    taken += len(_all(rig.source))
    assert rig.source.exhausted
    health = rig.source.health()
    assert (health.seen, health.delivered) == (taken + health.dropped, taken)
    assert not rig.live or (taken, health.dropped) == (20, 0)


def test_closing_twice_is_closing_once(rig: Rig) -> None:
    rig.source.open()
    rig.launch(5)
    rig.source.close()
    once = rig.source.health()
    rig.source.close()
    assert rig.source.health() == once
    assert rig.source.exhausted
    assert len(rig.source.poll(10)) == 0


def test_closing_without_opening_is_allowed(rig: Rig) -> None:
    rig.source.close()
    assert len(rig.source.poll(10)) == 0


def test_opened_again_numbers_go_on_behind_a_gap(rig: Rig) -> None:
    rig.source.open()
    rig.launch(10)
    assert len(rig.source.poll(4)) == 4
    rig.source.close()
    rig.source.open()
    rig.launch(3)
    batch = _all(rig.source)
    assert _conserved(rig.source.health())
    first = rig.source.health().seen - len(batch)
    assert batch.seq.tolist() == list(range(first, first + len(batch)))
    assert batch.gap.tolist() == [True] + [False] * (len(batch) - 1)
    assert rig.source.health().gaps == 1


def test_only_armed_launches_show_counters(rig: Rig) -> None:
    if rig.gauges:
        pytest.skip("a gauge is read whenever it is polled")
    rig.source.open()
    rig.source.arm([3, 17, 29], rig.source.counters[:1])
    rig.launch(30)
    batch = EventBatch.concat([rig.source.poll(10), rig.source.poll(20)])
    shown = np.flatnonzero(~np.isnan(batch.counters[:, 0]))
    assert shown.tolist() == [3, 17, 29]
    assert (batch.counters[shown, 0] >= 0).all()
    assert np.isnan(batch.counters[:, 1:]).all()


def test_arming_what_is_over_is_counted(rig: Rig) -> None:
    if rig.gauges:
        pytest.skip("a gauge is read whenever it is polled")
    rig.source.open()
    rig.launch(10)
    rig.source.poll(10)
    rig.source.arm([2, 3], rig.source.counters)
    assert rig.source.health().late_arms == 2
