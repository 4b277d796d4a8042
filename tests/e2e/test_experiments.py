"""Batch experiments on the cluster of a real service: they use what is left and give way to a shard."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from e2e.nodes import nodes
from e2e.service_config import settings_in
from waiting import until

from penrose_ray.actors.topology import build

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ray.cluster_utils import Cluster

    from penrose_ray.crypto.keyfile import DesignKeys

pytestmark = pytest.mark.slow
SERVICE, SHARDS, LEFT = 4, 2, 2


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A node with room for the service and two more actors, be they experiments or shards."""
    write_module(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    with nodes({"num_cpus": SERVICE + SHARDS + LEFT, "resources": {"shard": SHARDS + LEFT}}) as made:
        yield made


def write_module(folder: Path) -> None:
    """Experiments that say so in a file, and go on until the file `end` is there."""
    (folder / "penrose_batch.py").write_text(
        "import pathlib, time\n"
        "def work(folder, name):\n"
        "    folder = pathlib.Path(folder)\n"
        "    with (folder / name).open('a') as file:\n"
        "        file.write('started ')\n"
        "    while not (folder / 'end').exists():\n"
        "        yield 0.25\n"
        "        time.sleep(0.05)\n"
        "def broken():\n"
        "    raise ValueError('no such column')\n"
    )


def test_experiments_give_way_to_a_shard_and_run_again_when_it_is_gone(
    cluster: Cluster, tmp_path: Path, design_keys: DesignKeys
) -> None:
    settings = settings_in(
        tmp_path,
        design_keys,
        f'service.ray_address="{cluster.address}"',
        "service.most_shards=4",
        "service.experiment_queues={batch=2}",
    )
    experiments = [
        {"name": name, "queue": "batch", "place": place, "arguments": arguments}
        for name, place, arguments in (
            ("broken", "penrose_batch:broken", {}),
            ("one", "penrose_batch:work", {"folder": str(tmp_path), "name": "one"}),
            ("two", "penrose_batch:work", {"folder": str(tmp_path), "name": "two"}),
        )
    ]
    model = type(settings[0])
    complete = model.model_validate({**settings[0].model_dump(), "experiments": experiments})
    with build(complete, settings[1]) as service:
        until(lambda: (tmp_path / "one").exists() and (tmp_path / "two").exists(), service.tend)
        (ended,) = service.experiments.ended
        assert (ended.name, ended.error) == ("broken", "no such column")
        until(lambda: all(row["progress"] for row in service.experiments.state()), service.tend)

        service.pool.grow(1)
        until(lambda: "shard-2" in service.pool.working, service.tend)
        rows = {row["name"]: row["running_s"] is not None for row in service.experiments.state()}
        assert sorted(rows.values()) == [False, True], "one gave way"

        service.pool.shrink()
        gone = next(name for name, runs in rows.items() if not runs)
        until(lambda: (tmp_path / gone).read_text() == "started started ", service.tend)
        (tmp_path / "end").touch()
        until(lambda: not service.experiments.state(), service.tend)
        assert {each.name for each in service.experiments.ended} == {"broken", "one", "two"}
