"""When blocks of device memory are taken and given back, and which operator took them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.capture.tools.nesting import Nesting
from penrose_ray.capture.tools.trace import HostKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from penrose_ray.capture.tools.trace import MemoryTable, Trace

NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class Lifetimes:
    """Blocks of one device in the order in which they were taken."""

    device: int
    born: MemoryTable
    end_ns: NDArray[np.int64]
    """When each was given back; NEVER where it was not."""
    operator: NDArray[np.int64]
    """Row of `Trace.host`: the innermost operator around the allocation; -1 without one."""
    peak_bytes: int
    """Most that was held at once of what the recording saw taken."""
    peak_ns: int
    first_ns: int
    last_ns: int
    """Beginning and end of what was recorded of this device's memory."""

    @property
    def freed(self) -> NDArray[np.bool_]:
        """Which were given back."""
        return np.not_equal(self.end_ns, NEVER)

    @property
    def at_peak(self) -> NDArray[np.bool_]:
        """Which were alive when most was held."""
        return (self.born.time_ns <= self.peak_ns) & (self.end_ns > self.peak_ns)


def lifetimes(trace: Trace) -> Iterator[Lifetimes]:
    """The blocks of every device that has some."""
    memory, host = trace.memory, trace.host
    operators = np.flatnonzero(host.kind == HostKind.OPERATOR)
    nesting = Nesting(host.thread[operators], host.start_ns[operators], host.end_ns[operators])
    for device in np.unique(memory.device[memory.device >= 0]):
        mine = memory.take(memory.device == device)
        mine = mine.take(np.argsort(mine.time_ns, kind="stable"))
        taken = np.flatnonzero(mine.size_bytes > 0)
        if not len(taken):
            continue
        given = np.flatnonzero((mine.size_bytes < 0) & (mine.block > 0))
        end = np.full(int(mine.block.max()) + 1, NEVER)
        end[mine.block[given]] = mine.time_ns[given]
        own = (mine.size_bytes > 0) | (mine.block > 0)
        level = np.cumsum(np.where(own, mine.size_bytes, 0))
        inner = nesting.enclosing(mine.thread[taken], mine.time_ns[taken])
        yield Lifetimes(
            device=int(device),
            born=mine.take(taken),
            end_ns=end[mine.block[taken]],
            operator=np.where(inner >= 0, operators[inner], -1) if len(operators) else inner,
            peak_bytes=int(level.max()),
            peak_ns=int(mine.time_ns[int(level.argmax())]),
            first_ns=int(mine.time_ns[0]),
            last_ns=int(mine.time_ns[-1]),
        )
