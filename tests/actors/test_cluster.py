"""Joining a cluster: room that others hold does not count, GPUs are asked for, clients find the gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import ray
from e2e.nodes import nodes
from e2e.service_config import settings_in

from penrose_ray.actors import cluster
from penrose_ray.actors.topology import build
from penrose_ray.errors import ConfigError, PlacementError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ray.cluster_utils import Cluster

    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.settings import Settings
    from penrose_ray.toml_file import TomlFile

    Made = tuple[Settings, TomlFile]

pytestmark = pytest.mark.slow
OPENCL = (
    'task.counters=[{name="duration", unit="ns", source="opencl", vendors=["pocl", "nvidia", "amd"], '
    'scale="log", low=100.0, high=1e9}]'
)
GPU_CLIENT = """
[[clients]]
kind = "gpu"
program = "sort"
count = {count}
"""


@pytest.fixture
def settings(tmp_path: Path, design_keys: DesignKeys) -> Callable[..., Made]:
    """A small service's settings for a cluster."""

    def made(joined: Cluster, *overrides: str, clients: str = "") -> Made:
        address = f'service.ray_address="{joined.address}"'
        home = tmp_path / f"service-{len(list(tmp_path.iterdir()))}"
        home.mkdir()
        return settings_in(home, design_keys, address, *overrides, clients=clients)

    return made


def hold(joined: Cluster, cpus: int, **resources: float) -> None:
    """Take CPUs as another program of the cluster does."""

    class Holder:
        def ready(self) -> bool:
            return True

    ray.init(address=joined.address, namespace="another", log_to_driver=False)
    holder = ray.remote(Holder).options(
        name="holder", lifetime="detached", num_cpus=cpus, resources=resources
    )
    ray.get(holder.remote().ready.remote())
    ray.shutdown()


def let_go(joined: Cluster) -> None:
    ray.init(address=joined.address, namespace="another", log_to_driver=False)
    ray.kill(ray.get_actor("holder"))
    ray.shutdown()


def refused(made: Made, kind: type[Exception] = PlacementError) -> str:
    with pytest.raises(kind) as caught:
        cluster.start(made[0])
    assert not ray.is_initialized()
    return str(caught.value)


def test_cpus_that_others_hold_are_not_counted(settings: Callable[..., Made]) -> None:
    with nodes({"num_cpus": 12, "resources": {"shard": 2}}) as joined:
        hold(joined, 9)
        assert "needs CPU 6 (3 free of 12)." in refused(settings(joined))
        assert "needs CPU 13 (3 free of 12), shard 9 (2 free of 2)." in refused(
            settings(joined, "service.shards=9")
        )
        let_go(joined)
        cluster.start(settings(joined)[0])  # what was let go is waited for
        assert ray.is_initialized()


def test_room_on_the_wrong_nodes_is_no_room(settings: Callable[..., Made]) -> None:
    with nodes({"num_cpus": 6}, {"num_cpus": 2, "resources": {"shard": 2, "there": 1}}) as joined:
        hold(joined, 2, there=1)
        text = refused(settings(joined))
        assert (
            "needs CPU 6 (6 free of 8), shard 2 (2 free of 2), and they are not free on the same nodes"
            in text
        )


def test_several_gateways_need_room_where_the_service_is_started(settings: Callable[..., Made]) -> None:
    with nodes({"num_cpus": 5}, {"num_cpus": 9, "resources": {"shard": 2}}) as joined:
        text = refused(settings(joined, "service.gateways=3"))
        assert "needs CPU 8 (14 free of 14), shard 2 (2 free of 2), and they are not free on the same" in text
        with build(*settings(joined, "service.gateways=2")) as service:
            here = ray.get_runtime_context().get_node_id()
            found = [
                each["Address"]["NodeID"]
                for each in ray._private.state.actors().values()
                if each["ActorClassName"] == "GatewayActor"
            ]
            assert found == [here, here]
            assert all(each["listens"] for each in service.gateways.state())


def test_a_gpu_client_and_an_experiment_take_gpus_of_the_cluster(
    settings: Callable[..., Made], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyopencl", reason="the client runs an OpenCL program")
    (tmp_path / "penrose_gpu.py").write_text(
        "import pathlib, ray\n"
        "def look(file):\n"
        "    pathlib.Path(file).write_text(str(len(ray.get_gpu_ids())))\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    with nodes(
        {"num_cpus": 7, "num_gpus": 0, "resources": {"shard": 2}}, {"num_cpus": 2, "num_gpus": 2}
    ) as joined:
        assert "needs GPU 3 (2 free of 2)." in refused(settings(joined, clients=GPU_CLIENT.format(count=3)))
        found, draft = settings(
            joined, "service.experiment_queues={batch=1}", OPENCL, clients=GPU_CLIENT.format(count=1)
        )
        look = {"name": "look", "queue": "batch", "place": "penrose_gpu:look", "gpus": 1}
        look["arguments"] = {"file": str(tmp_path / "seen")}
        both = type(found).model_validate({**found.model_dump(), "experiments": [look]})
        greedy = type(found).model_validate({**found.model_dump(), "experiments": [{**look, "gpus": 2}]})
        assert "Experiment look needs GPU 2 (there are 1 besides" in refused((greedy, draft))
        with build(both, draft) as service:
            while not service.experiments.ended:
                service.tend()
            assert [(each.name, each.error) for each in service.experiments.ended] == [("look", "")]
            assert (tmp_path / "seen").read_text() == "1"
            (client,) = [
                each
                for each in ray._private.state.actors().values()
                if (each["ActorClassName"], each["State"]) == ("LiveClient", "ALIVE")
            ]
            (node,) = [each["NodeID"] for each in ray.nodes() if each["Resources"].get("GPU")]
            assert client["Address"]["NodeID"] == node


def test_clients_on_other_machines_are_not_sent_to_a_loopback_address(settings: Callable[..., Made]) -> None:
    replay = '\n[[clients]]\nkind = "replay"\ntrace = "bundled"\n'
    with nodes(
        {"num_cpus": 7, "resources": {"shard": 2}}, {"num_cpus": 1, "node_ip_address": "127.0.0.2"}
    ) as joined:
        for host in "127.0.0.1", "localhost", "::1":
            text = refused(settings(joined, f'service.host="{host}"', clients=replay), ConfigError)
            assert f"service.host is {host}: clients on 127.0.0.2 could not reach" in text
        everywhere = settings(joined, 'service.host="0.0.0.0"', clients=replay)[0]
        cluster.start(everywhere)
        assert cluster.client_host(everywhere) == ray.util.get_node_ip_address()
        ray.shutdown()
        cluster.start(settings(joined)[0])  # nobody sends from elsewhere


def test_a_local_ray_has_no_gpus_to_give(tmp_path: Path, design_keys: DesignKeys) -> None:
    made, draft = settings_in(tmp_path, design_keys, clients=GPU_CLIENT.format(count=1))
    assert cluster.bundles(made).count({"CPU": 1.0}) == 5, "a gpu client asks for no GPU here"
    look = {"name": "look", "queue": "batch", "place": "a:b", "gpus": 1}
    greedy = type(made).model_validate({**made.model_dump(), "experiments": [look]})
    assert "set its gpus to 0" in refused((greedy, draft))
    assert cluster.client_host(made) == "127.0.0.1"
