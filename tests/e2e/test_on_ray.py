"""The whole way on Ray and over HTTP, with a shard killed in the middle and uploads repeated."""

from __future__ import annotations

import os
import signal
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
import pytest
import ray
from e2e import fleet
from e2e.service_config import settings_in
from prometheus_client.parser import text_string_to_metric_families
from waiting import until

from penrose_ray.actors.cluster import requested_cpus
from penrose_ray.actors.remote import ask
from penrose_ray.actors.topology import build
from penrose_ray.errors import TransportError
from penrose_ray.settings import load_settings
from penrose_ray.snippet.minhash import Signature
from penrose_ray.transport.http import HttpUploader, fetch_task

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penrose_ray.actors.topology import Topology
    from penrose_ray.crypto.keyfile import DesignKeys


SEED = 2
ACTORS = ("gateway-0", "matcher", "directory", "shard-0", "shard-1", "service")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, design_keys: DesignKeys) -> Iterator[Topology]:
    home = tmp_path_factory.mktemp("service")
    token_file = home / "keys" / "metrics.token"
    overrides = (f'service.metrics_token_file="{token_file}"', f"task.batch_s={fleet.LONG_S}")
    with build(*settings_in(home, design_keys, *overrides)) as topology:
        topology.token_file = token_file  # type: ignore[attr-defined]
        yield topology


class RepeatingUploader:
    """A real HTTP upload; every fourth record goes out twice, and a shard dies on the way."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._inner = HttpUploader(topology.url, topology.task.task_id)
        self.sent = 0
        self.failed = 0

    def send(self, record: bytes) -> None:
        if self.sent == 25:
            self.sent += 1
            victim = self._topology.pool.working["shard-0"]
            os.kill(ask(victim.pid.remote()), signal.SIGKILL)
        try:
            self._inner.send(record)
        except TransportError:
            self.failed += 1
            raise
        self.sent += 1
        if self.sent % 4 == 0:
            self._inner.send(record)


def test_decrypted_sums_equal_plain_sums_over_http_with_a_shard_killed(
    service: Topology, tmp_path: Path
) -> None:
    truth = fleet.Truth()
    uploader = RepeatingUploader(service)
    first_pid = ask(service.pool.working["shard-0"].pid.remote())
    for outbox in fleet.played(tmp_path, service.task, uploader, truth, seed=SEED):
        until(outbox.flush)
        assert outbox.counts.refused == 0
        assert outbox.counts.dropped == 0
    assert ask(service.pool.working["shard-0"].pid.remote()) != first_pid

    handovers = [service.release(batch) for batch in service.batches()]
    opened = service.open(handovers, tmp_path / "release.parquet")
    assert opened.discarded == ()
    assert [service.release(each.batch).encode() for each in handovers] == [
        each.encode() for each in handovers
    ]
    _assert_equal(service, truth, tmp_path / "release.parquet")
    _assert_one_page_tells_what_every_part_has_counted(service)


def _assert_equal(service: Topology, truth: fleet.Truth, path: Path) -> None:
    wanted: dict[tuple[str, str], np.ndarray] = {}
    reports: dict[tuple[str, str], int] = {}
    model = ask(service.matcher.classes.remote())[0].gpu_model
    for (signature, counter_set), counts in truth.counts.items():
        known = Signature.from_bytes(service.task.signature_scheme, signature)
        (found,) = ask(service.matcher.match.remote([(model, known.scheme, signature)]))
        key = (found.class_id.hex(), service.task.counter_sets[counter_set].name)
        wanted[key] = wanted.get(key, 0) + counts
        reports[key] = reports.get(key, 0) + truth.reports[signature, counter_set]
    rows = pq.read_table(path).to_pylist()
    got: dict[tuple[str, str], np.ndarray] = {}
    for row in rows:
        key = (row["class_id"], row["counter_set"])
        got[key] = got.get(key, 0) + np.array(row["bins"])
        reports[key] -= row["reports"]
    assert got.keys() == wanted.keys()
    assert len({class_id for class_id, _ in got}) == 2
    for key, counts in wanted.items():
        np.testing.assert_array_equal(got[key], counts)
    assert set(reports.values()) == {0}


def test_ray_has_exactly_the_cpus_that_the_graph_asks_for(service: Topology) -> None:
    settings, _ = load_settings(Path(__file__).parents[2] / "configs" / "laptop.toml")
    assert requested_cpus(settings) == 4 + 2 + 3
    assert ray.cluster_resources()["CPU"] == 6
    assert ray.cluster_resources()["shard"] == 2
    assert service.task.demo


def page(service: Topology) -> dict[tuple[str, str], float]:
    """Metrics by name and actor."""
    status, text = get(service, "/metrics", service.token_file.read_text().strip())  # type: ignore[attr-defined]
    assert status == 200
    return {
        (sample.name, sample.labels["actor"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def get(service: Topology, path: str, token: str = "") -> tuple[int, str]:
    request = urllib.request.Request(f"{service.url}{path}")  # noqa: S310 - the service's own
    request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - as above
        return answer.status, answer.read().decode()


def _assert_one_page_tells_what_every_part_has_counted(service: Topology) -> None:
    service.tend()
    with pytest.raises(urllib.error.HTTPError, match="401"):
        get(service, "/metrics")
    found: dict[tuple[str, str], float] = {}

    def all_answered() -> bool:
        found.update(page(service))
        return all(found["penrose_up", actor] for actor in ACTORS)

    until(all_answered)  # each has two seconds
    assert found["penrose_classes", "matcher"] == 2
    assert found["penrose_buckets", "shard-0"] + found["penrose_buckets", "shard-1"] == 256
    assert found["penrose_disk_free_bytes", "shard-1"] > found["penrose_disk_mark_bytes", "shard-1"] > 0
    assert found["penrose_commit_reports_count", "shard-1"] > 0
    assert found["penrose_busy_seconds_total", "shard-1"] > 0
    assert found["penrose_releases_total", "service"] >= 1
    assert not [name for name, _ in found if name.startswith("penrose_client")]


def test_the_service_is_ready(service: Topology) -> None:
    def answer() -> tuple[int, str]:
        try:
            return get(service, "/ready")
        except urllib.error.HTTPError as error:  # each part has two seconds to answer
            with error:
                return error.code, ""

    until(lambda: answer() == (200, '{"ready": true, "gateways": ["gateway-0"]}'))


def test_the_task_can_be_fetched(service: Topology) -> None:
    assert fetch_task(service.url, service.task.task_id) == service.signed_task
