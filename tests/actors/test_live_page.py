"""What the operator's live page says, and what it does not say."""

from __future__ import annotations

import http.client
import itertools
import json
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from penrose_ray.actors.live_page import History, LivePage, LiveState, Look, Point, ShardState, known_share
from penrose_ray.aggregate.arrival import SumKey
from penrose_ray.clock import ManualClock
from penrose_ray.errors import PortInUseError
from penrose_ray.types import BatchId, ClassId

if TYPE_CHECKING:
    from collections.abc import Callable

    from penrose_ray.task import Task


def key(name: str, counter_set: int = 0, batch: int = 7) -> SumKey:
    return SumKey(ClassId(name.encode() * 16), counter_set, BatchId(batch))


def shard(busy_s: float) -> ShardState:
    return ShardState("shard-0", buckets=256, reports=14, sums=4, busy_s=busy_s)


@pytest.fixture
def state(make_task: Callable[..., Task]) -> LiveState:
    """After two looks, ten seconds apart: 14 reports in 4 sums of 3 classes; the gate asks for 5."""
    clock = ManualClock(1_000.0)
    state = LiveState(make_task(min_contributors=5, name="<b>fleet</b>"), clock)
    state.note(Look({key("a"): 3}, 0, (shard(1.0),)))
    clock.advance(10.0)
    weights = {key("a"): 8, key("a", 1): 4, key("b"): 1, key("c"): 1}
    state.note(Look(weights, 2, (shard(3.5),)))
    return state


def test_figures_are_those_of_the_sums(state: LiveState) -> None:
    content = state.content()
    first, now = content["points"]  # type: ignore[misc]
    assert (first["at_s"], first["reports"], first["passing"], first["reached"]) == (1000.0, 3, 0, 0.0)
    assert (now["reports"], now["classes"], now["sums"], now["waiting"]) == (14, 3, 4, 2)
    assert (now["passing"], now["reached"]) == (1, pytest.approx(8 / 14))
    assert now["known"] == pytest.approx(1 - 2 / 14)  # two classes were seen once
    (only,) = content["shards"]  # type: ignore[misc]
    assert only["busy"] == pytest.approx(0.25)  # 2.5 s of CPU in 10 s
    assert content["largest"] == [
        {"place": 1, "reports": 12, "largest_sum": 8, "passes": True},
        {"place": 2, "reports": 1, "largest_sum": 1, "passes": False},
        {"place": 3, "reports": 1, "largest_sum": 1, "passes": False},
    ]


def test_known_share_is_good_and_turing_s() -> None:
    assert known_share([]) == 0
    assert known_share([1]) == 0
    assert known_share([3, 1]) == 0.75


def test_history_keeps_the_whole_time_in_bounded_space() -> None:
    history = History(most=8)
    for second in range(1_000):
        history.add(Point(second, 0, 0, 0, 0, 0.0, 0.0, 0))
        assert len(history.points) <= 8
        assert history.points[-1].at_s == second
    times = [each.at_s for each in history.points]
    assert times[0] == 0
    steps = {b - a for a, b in itertools.pairwise(times[:-1])}
    assert len(steps) == 1, "points that stay are evenly spaced"


def ask(url: str, path: str, host: str = "") -> tuple[int, dict[str, str], bytes]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=30)
    try:
        connection.request("GET", path, headers={"Host": host} if host else {})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def test_page_and_data_are_served_to_this_machine_only(
    state: LiveState, make_task: Callable[..., Task]
) -> None:
    task = make_task(name="<b>fleet</b>")
    with LivePage(state, task) as shown:
        assert urlsplit(shown.url).hostname == "127.0.0.1"
        status, headers, page = ask(shown.url, "/")
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        text = page.decode()
        assert "&lt;b&gt;fleet&lt;/b&gt;" in text
        assert "<b>fleet" not in text
        assert "DEMO" in text
        for foreign in ("src=", "href=", "@import", "url("):
            assert foreign not in text
        status, headers, raw = ask(shown.url, "/live.json")
        assert (status, headers["Content-Type"]) == (200, "application/json")
        assert json.loads(raw) == json.loads(json.dumps(state.content()))
        for name in ("a", "b", "c"):  # class ids, in any spelling
            assert name.encode() * 16 not in raw
            assert (name.encode() * 16).hex().encode() not in raw
        assert ask(shown.url, "/../secret")[0] == 404
        assert ask(shown.url, "/live.json", host="attacker.example:80")[0] == 403


def test_a_taken_port_is_named(state: LiveState, make_task: Callable[..., Task]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(PortInUseError, match="live page cannot listen"):
            LivePage(state, make_task(), taken.getsockname()[1])
