"""`penrose up` hands over by itself: killed in the middle and restarted, each report is in one release."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from e2e import up
from e2e.reports import one_bin_each, opened_bins
from e2e.service_config import settings_in
from waiting import until

from penrose_ray.actors.processes import family
from penrose_ray.cli.control import request
from penrose_ray.clock import SystemClock
from penrose_ray.draft import task_from
from penrose_ray.release.audit import FILE, read_audit
from penrose_ray.release.published import Published
from penrose_ray.transport.http import HttpUploader
from penrose_ray.types import BatchId
from penrose_ray.wire import decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penrose_ray.crypto.keyfile import DesignKeys

pytestmark = pytest.mark.slow
HOUR_S = 3600
UNDISTURBED_S = 1800
"""A test takes less: where the hour ends sooner, the next one counts as this one."""
CLASSES = 2
TASK = ("task.batch_s=3600", "task.min_contributors=1", "task.cover_rate=0")
SERVICE = (*TASK, "service.handover_every_s=1", "service.scale_every_s=0.2")


class World:
    """A task whose batches are hours, and its service, which is started again and again."""

    def __init__(self, home: Path, keys: DesignKeys) -> None:
        _, draft = settings_in(home, keys, *TASK)
        self.home = home
        self.task = task_from(draft, keys.paillier.public_key)
        self.published = Published(home / "releases", self.task)
        self.hour = int((SystemClock().now_s() + UNDISTURBED_S) // HOUR_S)
        self.start()

    def start(self) -> None:
        self.service = up.Service(self.home / "service.toml", *SERVICE)
        self._uploader = HttpUploader(self.service.url, self.task.task_id)

    def kill(self) -> None:
        """Kill `penrose up` and all that it started."""
        processes = family(self.service.process.pid)
        self.service.process.kill()
        for pid in processes[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.service.wait()

    def send(self, record: bytes, hours_ago: int) -> None:
        report = msgspec.structs.replace(decode(record), created_hour=self.hour - hours_ago)
        self._uploader.send(encode(report))

    def batch(self, hours_ago: int) -> BatchId:
        return BatchId(self.hour - hours_ago)

    def prepared(self, batch: BatchId) -> Path:
        """The hand-over before it is in the ledger."""
        return self.home / "releases" / f".{self.task.task_id.hex()}-{batch}.prepared"

    def status(self) -> dict[str, Any]:
        """What `penrose status` says of hand-overs."""
        found: dict[str, Any] = self.ask("status")["handovers"]
        return found

    def ask(self, command: str) -> Any:  # noqa: ANN401 - the command's JSON
        return request(self.home / "state", command)

    def released(self) -> list[int]:
        return [each.batch for each in self.published.facts() if each.kind == "release"]


@pytest.fixture
def world(tmp_path: Path, design_keys: DesignKeys) -> Iterator[World]:
    world = World(tmp_path, design_keys)
    yield world
    if world.service.process.poll() is None:
        world.service.process.send_signal(signal.SIGTERM)
        world.service.wait()


def test_every_report_is_handed_over_once_whatever_stops_the_service(world: World) -> None:
    records = one_bin_each(world.task, CLASSES)[:40]
    first, second, third = (world.batch(hours_ago) for hours_ago in (5, 4, 3))

    world.published.members_path(first).mkdir()  # half of a hand-over: closed, prepared, not in the ledger
    world.send(records[0], 5)
    until(lambda: str(first) in world.status()["failing"])
    assert world.prepared(first).exists()
    with (world.home / "releases" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # and another one that has begun
        for number, record in enumerate(records[1:]):
            world.send(record, (5, 4, 3, 0)[number % 4])
        until(lambda: world.status()["running"])
        world.kill()
    assert world.released() == []

    world.published.members_path(first).rmdir()
    world.prepared(third).mkdir()
    world.start()
    until(lambda: str(third) in world.status()["failing"])
    assert world.released() == [first, second], "the third met an obstacle"
    assert world.status()["last"]["batch"] == second
    world.service.process.send_signal(signal.SIGTERM)
    assert world.service.wait() == 0
    assert any(f"batch {third} was not handed over" in line for line in world.service.lines)

    world.prepared(third).rmdir()
    world.start()
    until(lambda: world.released() == [first, second, third])
    now_s = SystemClock().now_s()
    assert abs(world.status()["next_s"] - now_s) < 60
    assert [each["batch"] for each in world.ask("release")] == [world.hour], "this hour's, by hand"
    assert len(world.ask("open")) == 4

    assert sorted(world.released()) == [first, second, third, world.hour], "each once"
    total: Counter[tuple[str, int]] = Counter()
    for path in (world.home / "releases").glob("*.parquet"):
        for name, bins in opened_bins(path).items():
            total.update({(name, place): count for place, count in enumerate(bins) if count})
    assert total.total() == len(total) == len(records), "each report once: it alone sets its bin"
    log = read_audit((world.home / "state" / FILE).read_bytes(), FILE)
    told = [(each.event, each.detail.split(":")[0]) for each in log if "hand" in each.event]
    assert told[:4] == [
        ("hand-over failed", f"batch {first}"),
        ("handed over", f"batch {first}"),
        ("handed over", f"batch {second}"),
        ("hand-over failed", f"batch {third}"),
    ]
    assert told[-1] == ("handed over", f"batch {third}")
