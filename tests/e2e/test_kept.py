"""What a running service keeps and for how long: rows, sums, the archive, and the disk's mark."""

from __future__ import annotations

import json
import sqlite3
import urllib.request
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.error import HTTPError

import msgspec
import pytest
from e2e.reports import one_bin_each
from e2e.service_config import settings_in

from penrose_ray.actors.matcher import Matcher
from penrose_ray.actors.remote import ask
from penrose_ray.actors.topology import build
from penrose_ray.aggregate.arrival import Arrival
from penrose_ray.aggregate.service import ShardService
from penrose_ray.clock import ManualClock, SystemClock
from penrose_ray.draft import task_from
from penrose_ray.release.desk import Desk
from penrose_ray.release.handover import make
from penrose_ray.task import sign
from penrose_ray.transport.http import HttpUploader
from penrose_ray.wire import decode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penrose_ray.actors.topology import Topology
    from penrose_ray.crypto.keyfile import DesignKeys

DAY_S = 86_400.0
OLD, FRESH = 6, 1


class World:
    """A service that finds a journal with a batch that was released ten days ago and a report of today."""

    def __init__(self, home: Path, keys: DesignKeys) -> None:
        settings, draft = settings_in(
            home,
            keys,
            f'service.archive="{home}/cold"',
            "service.shards=1",
            f"service.disk_mark_bytes={2**62}",
        )
        task = task_from(draft, keys.paillier.public_key)
        self.records = one_bin_each(task, 1)[: OLD + FRESH + 1]
        folder = home / "state" / task.task_id.hex()[:16]
        folder.mkdir(parents=True)
        self.journal, self.cold = folder / "shard-0.sqlite", home / "cold"
        matcher = Matcher(folder / "classes.sqlite", sign(task, keys.signing).encode())
        now_s = SystemClock().now_s()
        clock = ManualClock(now_s - 10 * DAY_S)
        with ShardService(self.journal, task, clock) as shard:
            arrivals = [self._arrival(matcher, each, clock.now_s()) for each in self.records[:OLD]]
            assert {each.outcome.acknowledged for each in shard.accept(arrivals)} == {True}
            ((self.batch, _, _),) = [(each.batch, each.reports, each.sums) for each in shard.batches()]
            shard.close_batch(self.batch)
            self.sums = shard.sums(self.batch)
            models = {each.class_id: each.gpu_model for each in matcher.classes()}
            desk = Desk(settings.design_server.releases_dir, task, clock, settings.service.ledger_key_file)
            desk.release(
                self.batch, lambda: make(task, self.sums, models.__getitem__, task.cipher().encryptor())
            )
            clock.advance(10 * DAY_S)
            shard.accept([self._arrival(matcher, self.records[OLD], now_s)])
        matcher._journal.close()
        self.settings = settings, draft

    @staticmethod
    def _arrival(matcher: Matcher, record: bytes, created_s: float) -> Arrival:
        report = msgspec.structs.replace(decode(record), created_hour=int(created_s // 3600))
        (found,) = matcher.match([(report.gpu_model, report.scheme, report.signature)])
        return Arrival.of(report, found.class_id, found.snippet_hash)

    def rows(self) -> int:
        with closing(sqlite3.connect(self.journal)) as database:
            (count,) = database.execute("SELECT COUNT(*) FROM partial_histograms").fetchone()
        return int(count)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, design_keys: DesignKeys) -> World:
    return World(tmp_path_factory.mktemp("kept"), design_keys)


@pytest.fixture(scope="module")
def service(world: World) -> Iterator[Topology]:
    with build(*world.settings) as topology:
        yield topology


def test_rows_go_sums_move_to_the_archive_and_the_disk_s_mark_stops_new_reports(
    service: Topology, world: World
) -> None:
    assert world.rows() == OLD + FRESH
    service.tend()
    assert world.rows() == FRESH, "the released batch's rows are older than 48 h"

    assert service.pool.compact() == 1
    (file,) = world.cold.rglob("*.parquet")
    assert file.parent.name == str(world.batch)
    (shard,) = service.pool.working.values()
    found = ask(shard.sums.remote(world.batch))
    assert [(each.key, each.weight, each.blob) for each in found] == [
        (each.key, each.weight, each.blob) for each in world.sums
    ]
    assert Counter(each.weight for each in found) == {OLD: 1}
    assert service.pool.compact() == 0, "it is there"

    HttpUploader(service.url, service.task.task_id).send(world.records[OLD])  # known: acknowledged
    request = urllib.request.Request(  # noqa: S310 - the service's own
        f"{service.url}/tasks/{service.task.task_id.hex()}/reports", data=world.records[OLD + FRESH]
    )
    with pytest.raises(HTTPError) as caught:
        urllib.request.urlopen(request, timeout=30)  # noqa: S310 - the service's own
    with caught.value as answer:
        problem = json.loads(answer.read())
        assert (answer.code, answer.headers["Retry-After"]) == (429, "1")
    assert "the disk has" in problem["detail"]
