"""Integer work without floating point: sort random keys, then find the distinct ones with a scan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.actors.programs.program import Device, ProgramResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

KEYS, BLOCK, KEY_BITS = 16_384, 64, 14
_STEPS_PER_READING = 4


class Sorter:
    """Keys on the device, sorted and compacted in one step."""

    def __init__(self, device: Device) -> None:
        self._device = device
        zeros = np.zeros(KEYS, dtype=np.uint32)
        self._keys, self._places, self._distinct = (device.array(zeros) for _ in range(3))
        self._totals, self._result = device.array(zeros[: KEYS // BLOCK]), device.array(zeros[:2])

    def step(self, seed: int) -> None:
        """Make, sort and compact keys."""
        run, each, blocks = self._device.launch, (KEYS,), (KEYS // BLOCK,)
        run("make_keys", each, self._keys, np.uint32(seed))
        self._sort()
        run("mark_first", each, self._keys, self._places)
        run("scan_blocks", blocks, self._places, self._totals)
        run("scan_totals", (1,), self._totals)
        run("add_totals", each, self._places, self._totals)
        run("compact", each, self._keys, self._places, self._distinct)
        run("checksum", (1,), self._distinct, self._places, self._result)

    def _sort(self) -> None:
        run, blocks = self._device.launch, (KEYS // BLOCK,)
        run("bitonic_blocks", blocks, self._keys)
        length = 2 * BLOCK
        while length <= KEYS:
            distance = length // 2
            while distance >= BLOCK:
                run("bitonic_pass", (KEYS // 2,), self._keys, np.uint32(length), np.uint32(distance))
                distance //= 2
            run("bitonic_merge_blocks", blocks, self._keys, np.uint32(length))
            length *= 2

    def result(self) -> tuple[int, int]:
        """Number of distinct keys of the latest step, and their checksum."""
        count, checksum = self._device.read(self._result, np.empty(2, dtype=np.uint32))
        return int(count), int(checksum)

    def sorted_keys(self) -> NDArray[np.uint32]:
        """All keys of the latest step, ascending."""
        return self._device.read(self._keys, np.empty(KEYS, dtype=np.uint32))


def run(should_stop: Callable[[], bool], *, seed: int = 0, max_steps: int | None = None) -> ProgramResult:
    """Sort until `should_stop` or for `max_steps` steps of 52 launches.

    Raises:
        SourceError: no OpenCL device.
    """
    device = Device("sort", KEYS=KEYS, BLOCK=BLOCK, KEY_MASK=(1 << KEY_BITS) - 1)
    sorter = Sorter(device)
    seeds = np.random.default_rng(seed)
    latest = (0, 0)
    steps = 0
    while not should_stop() and (max_steps is None or steps < max_steps):
        sorter.step(int(seeds.integers(1, 1 << 32)))
        steps += 1
        if steps == 1 or steps % _STEPS_PER_READING == 0:
            latest = sorter.result()
    device.finish()
    figures = {"distinct": float(latest[0]), "checksum": float(latest[1])}
    return ProgramResult("sort", device.model, steps, device.launches, figures)
