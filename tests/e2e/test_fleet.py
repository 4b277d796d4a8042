"""Virtual clients through the topology: plain reports in two actors, the sample sealed by a pool."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
import pytest
from e2e.service_config import settings_in
from waiting import until

from penrose_ray.actors.cluster import requested_cpus
from penrose_ray.actors.fleet import Fleet, FleetSettings
from penrose_ray.actors.remote import ask, named
from penrose_ray.actors.topology import build
from penrose_ray.sim.settings import load_simulation, scenario_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penrose_ray.actors.topology import Topology
    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.types import BatchId

REPORTS, REAL = -1, -2
SIMULATION = """\
apps = [5]

[fleet]
clients = 3000
dwell_s = 86_400

[sampling]
counter_groups = 2
rotation_s = 1800

[[workload.groups]]
name = "all"
apps_share = 1.0
run_s = 1.0

[mixes.uniform]
"""
CLIENTS = """
[[clients]]
kind = "fleet"
simulation = "{home}/simulation.toml"
count = 2
sealed_one_in = 100
reports_per_message = 500
seed = 9
"""
OVERRIDES = (
    'task.slot_profile="plain3072"',
    "task.batch_s=7200",
    "task.samples_per_histogram=1000",
    "task.reports_per_class=1",
    "service.encryptors=1",
)


@pytest.fixture(scope="module")
def topology(tmp_path_factory: pytest.TempPathFactory, design_keys: DesignKeys) -> Iterator[Topology]:
    home = tmp_path_factory.mktemp("fleet")
    (home / "simulation.toml").write_text(SIMULATION)
    settings, draft = settings_in(home, design_keys, *OVERRIDES, clients=CLIENTS)
    assert requested_cpus(settings) == 4 + 2 + 2 + 1 + 1
    with build(settings, draft) as made:
        yield made


def truth(topology: Topology, batch: BatchId) -> tuple[dict[tuple[int, int], Counter[int]], int, int]:
    """Bins, reports and real reports of each (application, counter set); all and sealed reports.

    A fleet of one piece makes them here: pieces send the same.
    """
    simulation = load_simulation(topology._settings.clients[0].simulation)
    scenario = scenario_of(simulation, 5, "uniform")
    whole = Fleet(0, 3000, FleetSettings(topology.task, scenario, sealed_one_in=100), seed=9)
    sums: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    made = list(whole.reports(batch))
    for each in made:
        for row in range(len(each)):
            total = sums[int(each.app[row]), int(each.counter_set[row])]
            total.update({bin_: int(each.counts[row, bin_]) for bin_ in np.flatnonzero(each.counts[row])})
            total.update({REPORTS: 1, REAL: int(each.real[row])})
    return sums, sum(map(len, made)), sum(int(each.sealed.sum()) for each in made)


def test_a_fleet_goes_the_way_of_real_reports(topology: Topology, tmp_path: Path) -> None:
    topology.start_clients()
    *_, last = topology.watch(600, 10)
    counts = topology.stop_clients()
    (batch,) = topology.batches()
    wanted, reports, sealed = truth(topology, batch)
    assert sum(each.reports + each.cover_reports for each in counts) == reports == last.accepted
    shards = ask([each.counts.remote() for each in topology.pool.working.values()])
    assert all(each.reports for each in shards)

    opened = topology.open([topology.release(batch)], tmp_path / "release.parquet")
    assert opened.discarded == ()
    found = []
    for row in pq.read_table(tmp_path / "release.parquet").to_pylist():
        total = Counter({bin_: count for bin_, count in enumerate(row["bins"]) if count})
        found.append(total + Counter({REPORTS: row["reports"], REAL: row["real_reports"]}))
    assert sorted(map(sorted, (each.items() for each in found))) == sorted(
        map(sorted, (each.items() for each in wanted.values()))
    )

    check = topology.check_sample(tmp_path / "sample.parquet")
    assert check is not None
    assert check.reports == sealed > 30
    until(lambda: ask(named(topology._prefix, "encryptor-0").pool_size.remote()))
    assert all(ask([each.truth.remote() for each in topology.fleets]))
