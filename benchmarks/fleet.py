"""Virtual clients through Ray: what two fleets send to two shards on this machine, journals on.

100,000 clients, one of 2,000 applications each, no encryption. A round is a batch: who ran what, histograms,
cover reports, messages of 1,000 reports, judgement, one synced transaction a message, sums - until the last
acknowledgement. The first batch, in which the matcher learns 2,000 classes, warms up.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

from benchmarks.harness import arguments, finish, service, significant
from penrose_ray.actors.remote import ask
from penrose_ray.types import BatchId

if TYPE_CHECKING:
    from penrose_ray.actors.topology import Topology

CLIENTS = 100_000
FLEETS = SHARDS = 2
_SIMULATION = f"""\
apps = [2000]

[fleet]
clients = {CLIENTS}
dwell_s = 864_000

[[workload.groups]]
name = "all"
apps_share = 1.0
run_s = 1.0

[mixes.uniform]
"""
_CLIENTS = """
[[clients]]
kind = "fleet"
simulation = "{home}/simulation.toml"
count = %d
sealed_one_in = 0
"""


def fleet_rounds(rounds: int) -> dict[str, object]:
    """Seconds and reports of a batch: medians over the rounds."""
    task = 'slot_profile = "plain3072"\nbatch_s = 7_200'
    with service(shards=SHARDS, task=task, more=_CLIENTS % FLEETS, simulation=_SIMULATION) as topology:
        last = topology.task.batch_of(time.time()) - 1
        batches = [BatchId(last - back) for back in range(rounds, -1, -1)]
        cold, *warm = [_round(topology, batch) for batch in batches]
    seconds, reports = (statistics.median(each) for each in zip(*warm, strict=True))
    return {
        "fleet_100k_s": significant(seconds),
        "fleet_100k_first_batch_s": significant(cold[0]),
        "fleet_100k_reports": int(reports),
        "actors_reports_per_s": significant(reports / seconds),
    }


def _round(topology: Topology, batch: BatchId) -> tuple[float, int]:
    """Wall seconds until everything is acknowledged, and how many reports that are."""
    fleets = topology.fleets
    before = sum(ask([each.acknowledged.remote() for each in fleets]))
    start_s = time.perf_counter()
    ask([each.start.remote(batch) for each in fleets])
    ask([each.wait.remote() for each in fleets])
    taken_s = time.perf_counter() - start_s
    ask([each.counts.remote() for each in fleets])  # raises what went wrong
    return taken_s, sum(ask([each.acknowledged.remote() for each in fleets])) - before


def main() -> None:
    """The last line is the JSON object."""
    options = arguments("Virtual clients through matcher and shards.")
    finish(fleet_rounds(min(options.rounds, 5)))


if __name__ == "__main__":
    main()
