"""Coverage simulation: 24 hours of 100,000 clients with 2,000 applications, on one core.

`session` is every client: application, offset, stride, aliasing, union of arcs. `session_full` has four
counter groups in rotation and the histograms' fill on top. `poisson` is one binomial an application and step.
Memory is the peak of a process of its own. `actors_reports_per_s` is through Ray (benchmarks/fleet.py).

Others on the same two cores, measured once and not run again here: Flower 1.42 takes 260 to 280 s a round of
100,000 clients with its older engine (extrapolated from 20,000) and hours with the newer one; an event
simulator with a generator for each of 100,000 processes plays 183,000 to 195,000 events a second.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks.fleet import fleet_rounds
from benchmarks.harness import Contender, arguments, finish, frozen_keys, show, significant, take_turns
from penrose_ray.actors.fleet import Fleet, FleetSettings
from penrose_ray.histogram import Axis, Counter, CounterSet
from penrose_ray.sim.engine import simulate, simulate_clients
from penrose_ray.sim.fill import Reporting
from penrose_ray.sim.population import Mix, time_shares
from penrose_ray.sim.scenario import Sampling, Scenario
from penrose_ray.sim.workloads import Group, grouped
from penrose_ray.task import Task
from penrose_ray.types import BatchId

APPS = 2000
HOURS = 24.0
CLIENTS = 100_000
SIZES = (100_000, 300_000, 1_000_000)
FLEET_CLIENTS = 5_000
FLOWER_ROUND_S = 260.0
GENERATOR_EVENTS_PER_S = 190_000.0


def main() -> None:
    """Run all groups; the last line is the JSON object."""
    if sys.argv[1:2] == ["--peak"]:
        simulate_clients(scenario(), hours=HOURS)
        status = Path("/proc/self/status").read_text()
        print(re.findall(r"VmHWM:\s+(\d+)", status)[0])
        return
    options = arguments("Coverage simulation.")
    rounds = max(1, int(options.rounds))
    result = modes(rounds, quiet=options.json) | sizes(min(rounds, 2)) | fleet(rounds)
    finish(result | fleet_rounds(min(rounds, 5)))


def scenario(clients: int = CLIENTS, *, groups: int = 1) -> Scenario:
    """The published fleet with a stride that is prime to the periods, so that arcs and offsets matter."""
    workload = grouped(APPS, [Group(0.5, 0.5984, spread=0.1), Group(0.5, 1.3308, spread=0.1)])
    sampling = Sampling(interval=10_007, sampler="stride", reset_s=600.0, counter_groups=groups)
    return Scenario(workload, time_shares(Mix((0.5, 0.5)), workload), clients=clients, sampling=sampling)


def modes(rounds: int, *, quiet: bool) -> dict[str, object]:
    """The modes in turn, and the peak memory of one."""
    one, four = scenario(), scenario(groups=4)
    jitter = replace(four, sampling=replace(four.sampling, sampler="jitter"))
    turns = [
        Contender("session", lambda: simulate_clients(one, hours=HOURS)),
        Contender("session full", lambda: everything(four)),
        Contender("session jitter full", lambda: everything(jitter)),
        Contender("poisson", lambda: simulate(one, "poisson", hours=HOURS, steps=144)),
        Contender("poisson rotating", lambda: simulate(four, "poisson", hours=HOURS, steps=144)),
    ]
    timings = take_turns(turns, rounds=rounds)
    if not quiet:
        show(timings, unit="s")
    windows = CLIENTS * HOURS * 6
    session_s = timings["session"].median_s
    return {
        "session_s": significant(session_s),
        "session_full_s": significant(timings["session full"].median_s),
        "session_jitter_full_s": significant(timings["session jitter full"].median_s),
        "poisson_s": significant(timings["poisson"].median_s),
        "poisson_rotating_s": significant(timings["poisson rotating"].median_s),
        "memory_mb": significant(peak_mb()),
        "client_windows_per_s": significant(windows / session_s),
        "vs_flower_round_ratio": significant(FLOWER_ROUND_S / session_s),
        "vs_event_simulator_ratio": significant(windows / session_s / GENERATOR_EVENTS_PER_S),
    }


def everything(of: Scenario) -> None:
    """Rotation and histograms too; a point of the curve an hour, as many as anyone looks at."""
    simulate_clients(of, hours=HOURS, reporting=Reporting(), windows_per_point=6)


def peak_mb() -> float:
    """Peak memory of a process that simulates the clients once."""
    command = [sys.executable, "-m", "benchmarks.simulate", "--peak"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout) / 1024


def sizes(rounds: int) -> dict[str, object]:
    """The session mode for larger fleets: linear in the number of clients."""
    turns = [_session(clients) for clients in SIZES]
    timings = take_turns(turns, rounds=rounds)
    return {"seconds_at": {name: significant(timing.median_s) for name, timing in timings.items()}}


def _session(clients: int) -> Contender:
    fleet_of_this_size = scenario(clients)
    return Contender(str(clients), lambda: simulate_clients(fleet_of_this_size, hours=HOURS))


def fleet(rounds: int) -> dict[str, object]:
    """Reports a second that one core makes of virtual clients, ready for the wire but not encrypted."""
    settings = FleetSettings(_task(), scenario(FLEET_CLIENTS))
    made = Fleet(0, FLEET_CLIENTS, settings, seed=1)
    count = sum(len(batch) for batch in made.reports(BatchId(0)))

    def day() -> None:
        for batch in Fleet(0, FLEET_CLIENTS, settings, seed=1).reports(BatchId(0)):
            batch.plain_reports()

    timings = take_turns([Contender("fleet", day, count)], rounds=min(rounds, 3))
    return {"fleet_reports_per_s": significant(1 / timings["fleet"].median_s), "fleet_reports": count}


def _task() -> Task:
    """Plain reports need no key that could open anything: the TEST key's public half does."""
    counter = Counter("duration", "ns", "benchmark", "none")
    return Task(
        name="benchmark",
        demo=True,
        public_key=frozen_keys().paillier.public_key.to_bytes(),
        counter_sets=(CounterSet("duration", (counter,), (Axis("log", 100.0, 1e9),)),),
        rotation=(("duration",),),
    )


if __name__ == "__main__":
    main()
