"""The modes of simulation behind one function; they agree where their assumptions do.

| mode | what is drawn | cost |
|---|---|---|
| closed_form | nothing: expectations | a formula |
| poisson | one binomial an application and step | independent of the number of clients |
| session | every client: application, offset, rotation, histograms | linear in clients and windows |
| event | every launch | small fleets only |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, assert_never

import numpy as np

from penrose_ray.errors import ConfigError
from penrose_ray.sim.coverage import Curve, measured
from penrose_ray.sim.event import covered_by_events
from penrose_ray.sim.expectation import expected_curve
from penrose_ray.sim.fill import Fill
from penrose_ray.sim.poisson import covered_by_poisson
from penrose_ray.sim.session import JitterCoverage, StrideCoverage, blocks

if TYPE_CHECKING:
    from collections.abc import Callable

    from penrose_ray.sim.coverage import Definition
    from penrose_ray.sim.fill import Reporting, Sent
    from penrose_ray.sim.scenario import Scenario

Mode = Literal["closed_form", "poisson", "session", "event"]
_STEPS = 144


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a simulation found."""

    curve: Curve
    batches: tuple[Sent, ...] = ()
    """What clients sent, batch after batch; session mode with a `reporting` only."""


def simulate(
    scenario: Scenario,
    mode: Mode,
    *,
    hours: float,
    definition: Definition = "positions",
    seed: int = 0,
    steps: int = _STEPS,
) -> Curve:
    """Coverage over `hours` in one of the modes.

    Args:
        scenario: the fleet.
        mode: see the module's table.
        hours: length of the simulation; the session mode rounds it up to whole windows.
        definition: what counts as covered.
        seed: of everything drawn.
        steps: points of the curve; the session mode has one a window.
    """
    if not 0 < hours < float("inf"):
        raise ConfigError(f"hours = {hours} is no length of time.", remedy="Give hours above 0.")
    if steps < 1:
        raise ConfigError(f"steps = {steps} is below 1.", remedy="Give 1 or more.")
    grid = np.linspace(0, hours, steps + 1)
    step_s = hours * 3600 / steps
    match mode:
        case "closed_form":
            return expected_curve(scenario, grid, definition)
        case "session":
            return simulate_clients(scenario, hours=hours, definition=definition, seed=seed).curve
        case "poisson":
            rng = np.random.default_rng(seed)
            covered = covered_by_poisson(scenario, steps=steps, step_s=step_s, rng=rng)
        case "event":
            rng = np.random.default_rng(seed)
            covered = covered_by_events(scenario, steps=steps, step_s=step_s, rng=rng)
        case _:
            assert_never(mode)
    return Curve(grid, measured(definition, covered, scenario), covered[-1] / scenario.cells)


def simulate_clients(
    scenario: Scenario,
    *,
    hours: float,
    definition: Definition = "positions",
    seed: int = 0,
    reporting: Reporting | None = None,
    batch_s: float = 86_400.0,
    windows_per_point: int = 1,
    progress: Callable[[int, int], object] | None = None,
) -> Outcome:
    """Session mode: every client in every window of O seconds.

    Args:
        scenario: the fleet.
        hours: rounded up to whole windows.
        definition: what counts as covered.
        seed: of everything drawn.
        reporting: rules of histograms; None leaves them out.
        batch_s: seconds after which what is due is sent.
        windows_per_point: windows from one point of the curve to the next; more of them are faster.
        progress: called with (windows done, windows).
    """
    window_s = scenario.sampling.reset_s
    windows = int(np.ceil(hours * 3600 / window_s - 1e-9))
    if windows_per_point < 1:
        raise ConfigError(f"windows_per_point = {windows_per_point} is below 1.", remedy="Give 1 or more.")
    if batch_s < window_s:
        raise ConfigError(f"batch_s = {batch_s} is shorter than a window.", remedy=f"Give {window_s:g} s.")
    stride = scenario.sampling.sampler == "stride"
    coverage = StrideCoverage(scenario) if stride else JitterCoverage(scenario, seed)
    fill = Fill(scenario, reporting, seed) if reporting else None
    fleet = list(blocks(scenario, seed))
    points, covered = [0], [np.zeros(len(scenario.workload), np.int64)]
    batches: list[Sent] = []
    for window in range(windows):
        if fill:
            fill.start_window()
        for block in fleet:
            visits = block.visits(window)
            coverage.take(visits)
            if fill:
                fill.take(visits, block.first)
        last = window + 1 == windows
        if last or (window + 1) % windows_per_point == 0:
            points.append(window + 1)
            covered.append(coverage.end_window(window))
        ends_batch = int((window + 1) * window_s // batch_s) > int(window * window_s // batch_s)
        if fill and (ends_batch or last):
            batches.append(fill.end_batch())
        if progress:
            progress(window + 1, windows)
    grid = np.array(points) * window_s / 3600
    curve = Curve(grid, measured(definition, np.array(covered), scenario), covered[-1] / scenario.cells)
    return Outcome(curve, tuple(batches))
