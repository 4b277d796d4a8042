"""A physics solver: heat spreads over an insulated plate of two materials."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.actors.programs.program import Device, ProgramResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

CELLS = 160
CONDUCTANCE = 0.2
"""Heat exchanged per step and degree between neighbours; below 0.25 the scheme is stable."""
_STEPS_PER_READING = 10


class Plate:
    """Temperatures on the device, and one time step."""

    def __init__(self, device: Device, heat: NDArray[np.float32], conductance: NDArray[np.float32]) -> None:
        """Shapes (CELLS, CELLS)."""
        self._device = device
        self._heat, self._conductance = device.array(heat), device.array(conductance)
        zeros = np.zeros((CELLS, CELLS), dtype=np.float32)
        self._right, self._down, self._leaving = (device.array(zeros) for _ in range(3))
        self._rows, self._sums = device.array(zeros[0]), device.array(zeros[0, :2])

    def step(self) -> None:
        """One time step and its two reductions."""
        run, whole, edge = self._device.launch, (CELLS, CELLS), (CELLS,)
        run("flux_right", whole, self._heat, self._conductance, self._right)
        run("insulate_right_edge", edge, self._right)
        run("flux_down", whole, self._heat, self._conductance, self._down)
        run("insulate_lower_edge", edge, self._down)
        run("divergence", whole, self._right, self._down, self._leaving)
        run("advance", (CELLS * CELLS,), self._heat, self._leaving)
        run("row_residual", edge, self._leaving, self._rows)
        run("residual", (1,), self._rows, self._sums)
        run("row_energy", edge, self._heat, self._rows)
        run("energy", (1,), self._rows, self._sums)

    def residual_and_energy(self) -> tuple[float, float]:
        """Largest change of the latest step, and the sum of all temperatures."""
        residual, energy = self._device.read(self._sums, np.empty(2, dtype=np.float32))
        return float(residual), float(energy)

    def heat(self) -> NDArray[np.float32]:
        """Temperatures, shape (CELLS, CELLS)."""
        return self._device.read(self._heat, np.empty((CELLS, CELLS), dtype=np.float32))


def hot_spots(rng: np.random.Generator) -> NDArray[np.float32]:
    """A cold plate with hot squares."""
    heat = np.zeros((CELLS, CELLS), dtype=np.float32)
    for row, column in rng.integers(0, CELLS - 16, size=(12, 2)):
        heat[row : row + 16, column : column + 16] += 100
    return heat


def two_materials(rng: np.random.Generator) -> NDArray[np.float32]:
    """Conductance of a plate that insulates on one side of a random line."""
    line = rng.integers(CELLS // 4, CELLS * 3 // 4)
    conductance = np.full((CELLS, CELLS), CONDUCTANCE, dtype=np.float32)
    conductance[:, line:] /= 20
    return conductance


def run(should_stop: Callable[[], bool], *, seed: int = 0, max_steps: int | None = None) -> ProgramResult:
    """Let heat spread until `should_stop` or for `max_steps` steps of 10 launches.

    Raises:
        SourceError: no OpenCL device.
    """
    device = Device("stencil", CELLS=CELLS)
    rng = np.random.default_rng(seed)
    plate = Plate(device, hot_spots(rng), two_materials(rng))
    readings: list[tuple[float, float]] = []
    steps = 0
    while not should_stop() and (max_steps is None or steps < max_steps):
        plate.step()
        steps += 1
        if steps == 1 or steps % _STEPS_PER_READING == 0:
            readings.append(plate.residual_and_energy())
    device.finish()
    figures = {}
    if readings:
        figures = {
            "first_residual": readings[0][0],
            "last_residual": readings[-1][0],
            "first_energy": readings[0][1],
            "last_energy": readings[-1][1],
        }
    return ProgramResult("stencil", device.model, steps, device.launches, figures)
