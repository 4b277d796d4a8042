"""A service with more reports than it wants: throttled, thinned, and still right."""

from __future__ import annotations

import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
import pytest
from e2e.reports import one_bin_each, opened_bins
from e2e.service_config import settings_in
from prometheus_client.parser import text_string_to_metric_families
from waiting import until

from penrose_ray.actors.thinner import Thinner
from penrose_ray.actors.topology import build
from penrose_ray.aggregate.thinning import kept
from penrose_ray.clock import ManualClock
from penrose_ray.release.ledger import read_lines
from penrose_ray.transport.http import HttpUploader
from penrose_ray.transport.uploader import BusyError
from penrose_ray.wire import decode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penrose_ray.actors.topology import Topology
    from penrose_ray.crypto.keyfile import DesignKeys

CLASSES = 2
THREADS = 24
BUSY = ("penrose_http_requests_total", "gateway-0", "reports", "429")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, design_keys: DesignKeys) -> Iterator[Topology]:
    home = tmp_path_factory.mktemp("service")
    # any report that waits is heavy load
    with build(*settings_in(home, design_keys, "service.heavy_load_s=1e-9")) as topology:
        yield topology


def metrics(service: Topology) -> dict[tuple[str, ...], float]:
    with urllib.request.urlopen(f"{service.url}/metrics", timeout=30) as answer:  # noqa: S310 - the service's own
        page = answer.read().decode()
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def send_all(service: Topology, records: list[bytes]) -> int:
    """Send reports until each is taken, many at a time; returns how often one was asked to come back."""

    def send(record: bytes) -> int:
        uploader, asked = HttpUploader(service.url, service.task.task_id), 0

        def taken() -> bool:
            nonlocal asked
            try:
                uploader.send(record)
            except BusyError:
                asked += 1
                return False
            return True

        until(taken)
        return asked

    with ThreadPoolExecutor(THREADS) as pool:
        return sum(pool.map(send, records))


def test_throttled_and_thinned_sums_are_exact_and_unbiased(service: Topology, tmp_path: Path) -> None:
    records = one_bin_each(service.task, CLASSES, seed=1)
    frequent = {decode(record).signature for record in records}
    frequent.discard(min(frequent))
    many = [record for record in records if decode(record).signature in frequent]
    few = [record for record in records if decode(record).signature not in frequent][:20]

    clock = ManualClock(0.0)
    thinner = Thinner(service.thinner.shards, clock, most_per_s=1.5, least_per_s=0.8)
    thinner.tick()
    before = metrics(service)
    asked_again = send_all(service, [*many, *few])
    grown = metrics(service).get(BUSY, 0.0) - before.get(BUSY, 0.0)
    assert grown == asked_again > 0, "nobody was throttled"
    clock.advance(30)
    (level,) = thinner.tick().values()
    assert level == 2, "128 in 30 s are 4.3 a second; 1.5 with the small class are wanted"

    (batch,) = service.batches()
    handover = service.release(batch)
    service.open([handover], tmp_path / "release.parquet")
    rows = {row["reports"]: row for row in pq.read_table(tmp_path / "release.parquet").to_pylist()}
    wanted = sum(kept(decode(record).report_id, level) for record in many)
    assert set(rows) == {len(few), wanted}
    assert rows[len(few)]["keep_share"] == 1
    assert rows[wanted]["keep_share"] == 0.25
    assert rows[wanted]["estimated_samples"] == rows[wanted]["samples"] / 0.25
    bins = opened_bins(tmp_path / "release.parquet")
    assert sorted(sum(each) for each in bins.values()) == sorted([len(few), wanted])
    # 4 standard deviations of the estimate of 128
    assert abs(wanted / 0.25 - len(many)) < 4 * np.sqrt(len(many) * 0.75 / 0.25)
    desk = service._releaser.desk
    *_, line = read_lines(desk.ledger_path.read_bytes())
    assert line.check(desk.signer).facts.drop_rate == 0.75
