"""Event mode: every launch of every client, one after another. Slow, small, and the referee of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penrose_ray.sim.scenario import Scenario

_MOST_LAUNCHES = 2_000_000_000


def covered_by_events(
    scenario: Scenario, *, steps: int, step_s: float, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Covered cells after 0 to `steps` steps, shape (steps + 1, applications).

    A client runs whole cycles, drawn anew each time, back to back. A step in which it is busy for a share
    `load` of the time is one long run of launches.
    """
    launches = scenario.clients * scenario.load * steps * step_s / float(scenario.workload.launch_s.min())
    if launches > _MOST_LAUNCHES:
        raise ConfigError(
            f"The event mode would play {launches:.3g} launches.", remedy="Use a smaller fleet or session."
        )
    groups = scenario.sampling.counter_groups
    start = np.concatenate(([0], np.cumsum(scenario.cells)))
    first_step = np.full(start[-1], steps + 1, np.int64)
    for _ in range(scenario.clients):
        client = _Client(scenario, rng)
        phase = int(rng.integers(groups))
        for step in range(steps):
            app, position, at_s = client.sampled(step_s)
            turn = (step * step_s + at_s) // scenario.sampling.rotation_s
            group = (phase + turn.astype(np.int64)) % groups
            cell = start[app] + position * groups + group
            np.minimum.at(first_step, cell, step + 1)
    app_of = np.repeat(np.arange(len(scenario.workload)), scenario.cells)
    covered = np.zeros((steps + 2, len(scenario.workload)), np.int64)
    np.add.at(covered, (first_step, app_of), 1)
    return np.cumsum(covered, axis=0)[: steps + 1]


class _Client:
    """One client's endless row of launches, and the places of its samples in it."""

    def __init__(self, scenario: Scenario, rng: np.random.Generator) -> None:
        self._scenario, self._rng = scenario, rng
        runs = scenario.share / scenario.workload.run_s
        self._runs = runs / runs.sum()
        self._rest = (np.empty(0, np.int64), np.empty(0, np.int64))
        self._busy_s = 0.0
        self._gap = 0.0
        self._until_reset_s = 0.0

    def sampled(self, wall_s: float) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Application, position and wall time of each sample in the next `wall_s` seconds."""
        scenario = self._scenario
        self._busy_s += wall_s * scenario.load
        app, position = self._launches()
        ends_s = np.cumsum(scenario.workload.launch_s[app])
        count = int(np.searchsorted(ends_s, self._busy_s, side="right"))
        self._rest = (app[count:], position[count:])
        self._busy_s -= float(ends_s[count - 1]) if count else 0.0
        at_s = ends_s[:count] / scenario.load
        chosen = self._stride(at_s) if scenario.sampling.sampler == "stride" else self._jitter(count)
        return app[chosen], position[chosen], at_s[chosen]

    def _launches(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """At least as many launches as the busy time can hold."""
        workload = self._scenario.workload
        mean_s = float(self._runs @ workload.run_s)
        apps, positions = [self._rest[0]], [self._rest[1]]
        have_s = float(workload.launch_s[self._rest[0]].sum())
        while have_s <= self._busy_s:
            wanted = int((self._busy_s - have_s) / mean_s) + 2
            drawn = self._rng.choice(len(workload), wanted, p=self._runs)
            length = workload.launches[drawn]
            app = np.repeat(drawn, length)
            apps.append(app)
            positions.append(np.arange(len(app)) - np.repeat(np.cumsum(length) - length, length))
            have_s += float(workload.run_s[drawn].sum())
        return np.concatenate(apps), np.concatenate(positions)

    def _stride(self, at_s: NDArray[np.float64]) -> NDArray[np.int64]:
        """Every S-th launch from an offset that is drawn anew every O seconds."""
        interval, reset_s = int(self._scenario.sampling.interval), self._scenario.sampling.reset_s
        chosen, begin = [], 0
        end_s = float(at_s[-1]) if len(at_s) else 0.0
        while begin < len(at_s):
            if self._until_reset_s <= 0:
                self._gap, self._until_reset_s = int(self._rng.integers(interval)), reset_s
            until_s = (float(at_s[begin - 1]) if begin else 0.0) + self._until_reset_s
            end = int(np.searchsorted(at_s, until_s, side="right"))
            mine = np.arange(begin + int(self._gap), end, interval)
            chosen.append(mine)
            taken = end - begin
            self._gap = (int(self._gap) - taken) % interval
            self._until_reset_s = 0.0 if end < len(at_s) else until_s - end_s
            begin = end
        return np.concatenate(chosen) if chosen else np.empty(0, np.int64)

    def _jitter(self, count: int) -> NDArray[np.int64]:
        """Launches with gaps from U[1, 2S-1]."""
        longest = int(2 * self._scenario.sampling.interval - 1)
        first = int(self._gap) or int(self._rng.integers(1, longest + 1, 2).min())  # what is left of a gap
        gaps = [np.array([first])]
        reach = int(gaps[0][0])
        while reach <= count:
            wanted = int((count - reach) / self._scenario.sampling.interval) + 4
            more = self._rng.integers(1, longest + 1, wanted)
            gaps.append(more)
            reach += int(more.sum())
        places = np.cumsum(np.concatenate(gaps))
        inside = places[places <= count]
        self._gap = int(places[len(inside)]) - count
        return inside - 1
