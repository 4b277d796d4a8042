"""A node of the cluster dies with its shard; the shard comes back elsewhere with everything acknowledged."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
import ray
from chaos.senders import Senders
from e2e.nodes import add, nodes
from e2e.reports import one_bin_each, opened_bins
from e2e.service_config import settings_in

from penrose_ray.actors.remote import ask
from penrose_ray.actors.topology import build
from penrose_ray.errors import PlacementError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ray.cluster_utils import Cluster

    from penrose_ray.actors.topology import Topology
    from penrose_ray.crypto.keyfile import DesignKeys

pytestmark = pytest.mark.slow
CLASSES = 2


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A head for the service's other actors, and one node with room for both shards."""
    with nodes({"num_cpus": 4}, {"num_cpus": 2, "resources": {"shard": 2}}) as made:
        yield made


def pids_of(service: Topology) -> list[int]:
    """Processes of the shards; none while one is on its way."""
    try:
        return ask([shard.pid.remote() for shard in service.pool.working.values()], 30)  # type: ignore[no-any-return]
    except (ray.exceptions.RayError, PlacementError):
        return []


def test_a_graph_that_does_not_fit_is_refused_with_the_numbers(
    cluster: Cluster, tmp_path: Path, design_keys: DesignKeys
) -> None:
    settings = settings_in(
        tmp_path, design_keys, f'service.ray_address="{cluster.address}"', "service.shards=9"
    )
    with pytest.raises(PlacementError) as caught:
        build(*settings)
    assert "CPU 13 (6 free of 6)" in caught.value.message
    assert "shard 9 (2 free of 2)" in caught.value.message


def test_all_but_the_shards_stay_where_the_service_was_started(
    cluster: Cluster, tmp_path: Path, design_keys: DesignKeys
) -> None:
    add(cluster, num_cpus=8)
    settings = settings_in(tmp_path, design_keys, f'service.ray_address="{cluster.address}"')
    with build(*settings):
        here = ray.get_runtime_context().get_node_id()
        alive = [each for each in ray._private.state.actors().values() if each["State"] == "ALIVE"]
        at_home = sorted(each["ActorClassName"] for each in alive if each["Address"]["NodeID"] == here)
        assert at_home == ["DirectoryActor", "GatewayActor", "Hosted", "Matcher"]


def test_sums_are_exact_when_the_node_of_the_shards_is_killed(
    cluster: Cluster, tmp_path: Path, design_keys: DesignKeys
) -> None:
    (doomed,) = cluster.worker_nodes
    settings = settings_in(tmp_path, design_keys, f'service.ray_address="{cluster.address}"')
    with build(*settings) as service:
        records = one_bin_each(service.task, CLASSES)
        early, late = records[:150], records[100:]
        senders = Senders(service, early)
        while senders.sent() < len(early) // 3:
            time.sleep(0.01)  # polls; nothing depends on its length
        before = pids_of(service)
        add(cluster, num_cpus=2, resources={"shard": 2})
        cluster.remove_node(doomed, allow_graceful=False)
        while not (now := pids_of(service)) or set(now) & set(before):
            time.sleep(0.1)
        senders.join()
        Senders(service, late).join()  # 50 of them for the second time

        handovers = [service.release(batch) for batch in service.batches()]
        service.open(handovers, tmp_path / "release.parquet")
        bins = opened_bins(tmp_path / "release.parquet")
        assert len(bins) == CLASSES
        assert all(counts == [1] * 128 for counts in bins.values())
