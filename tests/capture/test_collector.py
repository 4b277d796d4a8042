from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import numpy as np
import pytest
from waiting import until

from penrose_ray.capture.collector import Collector, Forwarder
from penrose_ray.capture.events import EventBatch
from penrose_ray.capture.replay import ReplaySource
from penrose_ray.capture.scrub import salted
from penrose_ray.errors import SourceError
from penrose_ray.histogram import Counter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TOKEN = bytes(range(16))


@pytest.fixture
def rank_file(tmp_path: Path) -> Callable[[int, int], Path]:
    """A trace of `count` kernels whose names tell the rank."""

    def write(rank: int, count: int) -> Path:
        path = tmp_path / f"{rank}.json"
        events = [
            {
                "ph": "X",
                "cat": "kernel",
                "name": f"rank {rank} kernel {n % 2}",
                "ts": n,
                "dur": 1 + rank,
                "args": {"device": 0, "correlation": n},
            }
            for n in range(1, count + 1)
        ]
        path.write_text(
            json.dumps({"traceEvents": events, "deviceProperties": [{"id": 0, "name": "NVIDIA H100"}]})
        )
        return path

    return write


def _open(path: Path) -> ReplaySource:
    source = ReplaySource(path)
    source.open()
    return source


def _gather(collector: Collector, count: int) -> EventBatch:
    """Poll until `count` launches are there; the socket's own buffers hold all of them already."""
    parts: list[EventBatch] = []
    for _ in range(100_000):
        batch = collector.poll(1 << 20)
        if len(batch):
            parts.append(batch)
        if sum(map(len, parts)) >= count:
            break
    return EventBatch.concat(parts)


def _forward_on(forwarder: Forwarder) -> None:
    for _ in range(100_000):
        forwarder.forward()


def test_ranks_come_together_as_processes_with_their_own_devices(
    rank_file: Callable[[int, int], Path],
) -> None:
    sources = [_open(rank_file(rank, 30 + rank)) for rank in range(3)]
    with Collector(sources[0].counters, TOKEN) as collector:
        forwarders = [Forwarder(source, collector.address, TOKEN) for source in sources]
        assert [forwarder.forward() for forwarder in forwarders] == [30, 31, 32]
        batch = _gather(collector, 93)
        assert collector.ranks == 3
        assert sorted(np.bincount(batch.process).tolist()) == [30, 31, 32]
        assert list(collector.devices) == ["NVIDIA H100"] * 3
        for process in range(3):
            names = {collector.names[name] for name in batch.name_id[batch.process == process]}
            assert len({name[:6] for name in names}) == 1
        health = collector.health()
        assert health.seen == health.delivered == 93
        for forwarder in forwarders:
            forwarder.close()


def test_armed_launches_are_measured_by_every_rank(rank_file: Callable[[int, int], Path]) -> None:
    sources = [_open(rank_file(rank, 20)) for rank in range(2)]
    with Collector(sources[0].counters, TOKEN) as collector:
        collector.arm([2, 11], collector.counters)
        forwarders = [Forwarder(source, collector.address, TOKEN) for source in sources]
        until(lambda: collector.ranks == 2, lambda: collector.poll(1))
        for forwarder in forwarders:
            forwarder.forward()
        batch = _gather(collector, 40)
        for process in range(2):
            mine = batch.take(batch.process == process)
            assert np.flatnonzero(~np.isnan(mine.counters[:, 0])).tolist() == [2, 11]
        for forwarder in forwarders:
            forwarder.close()


def test_salted_names_stay_equal_among_ranks_and_are_no_names(
    rank_file: Callable[[int, int], Path],
) -> None:
    salt = bytes(range(32))
    sources = [_open(rank_file(0, 20)) for _ in range(2)]
    with Collector(sources[0].counters, TOKEN) as collector:
        forwarders = [Forwarder(source, collector.address, TOKEN, salt=salt) for source in sources]
        for forwarder in forwarders:
            forwarder.forward()
        batch = _gather(collector, 40)
        assert collector.names == [salted(f"rank 0 kernel {number}", salt) for number in (1, 0)]
        for process in range(2):
            assert np.bincount(batch.name_id[batch.process == process]).tolist() == [10, 10]
        for forwarder in forwarders:
            forwarder.close()


@pytest.mark.parametrize(
    ("token", "counters"), [(b"wrong" * 4, None), (TOKEN, (Counter("power", "W", "nvml", "nvidia"),))]
)
def test_stranger_is_cut_off(
    rank_file: Callable[[int, int], Path], token: bytes, counters: tuple[Counter, ...] | None
) -> None:
    source = _open(rank_file(0, 5))
    with Collector(counters or source.counters, TOKEN) as collector:
        forwarder = Forwarder(source, collector.address, token)
        for _ in range(100_000):
            collector.poll(10)
            if collector.health().damaged:
                break
        assert collector.ranks == 0
        with pytest.raises(SourceError, match="has closed the connection"):
            _forward_on(forwarder)
        assert collector.health().seen == 0
        forwarder.close()


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", b"\x05\x00\x00\x00hello", b"\x01\x00\x00\x00\xc0"]
)
def test_bytes_of_another_protocol_are_counted_and_harm_nobody(data: bytes) -> None:
    with Collector((), TOKEN) as collector, socket.create_connection(collector.address) as stranger:
        stranger.sendall(data)
        for _ in range(100_000):
            assert len(collector.poll(10)) == 0
            if collector.health().damaged:
                break
        assert collector.health().damaged == 1
        assert "broke the protocol" in collector.health().warnings[0]


def test_nobody_listening_is_a_clear_error(rank_file: Callable[[int, int], Path]) -> None:
    with pytest.raises(SourceError, match="cannot be reached"):
        Forwarder(_open(rank_file(0, 1)), ("127.0.0.1", 1), TOKEN)


def test_short_token_is_refused() -> None:
    with pytest.raises(SourceError, match="too short"):
        Collector((), b"secret")


def test_processes_of_a_rank_end_while_the_rank_lives(rank_file: Callable[[int, int], Path]) -> None:
    source = _open(rank_file(0, 30))
    with Collector(source.counters, TOKEN) as collector:
        forwarder = Forwarder(source, collector.address, TOKEN)
        forwarder.forward(20)
        _gather(collector, 20)
        assert collector.ended() == []
        forwarder.forward(20)
        (process,) = set(_gather(collector, 10).process.tolist())
        assert collector.ended() == [process]
        assert collector.ranks == 1
        forwarder.close()
