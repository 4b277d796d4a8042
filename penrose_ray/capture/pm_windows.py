"""Counters of one kernel from a device's sampling windows: only those inside it that no other one touches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Sampling windows of a device in order of time, with one value per metric; shapes (n,), (n,), (n, m)."""

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    values: NDArray[np.float64]

    @classmethod
    def empty(cls, metrics: int) -> Windows:
        """No window."""
        none = np.empty(0, dtype=np.int64)
        return cls(none, none, np.empty((0, metrics)))

    def joined(self, later: Windows, *, most: int) -> Windows:
        """These and later ones, the last `most` of them."""
        return Windows(
            np.concatenate([self.start_ns, later.start_ns])[-most:],
            np.concatenate([self.end_ns, later.end_ns])[-most:],
            np.concatenate([self.values, later.values])[-most:],
        )


def values_of_kernels(
    windows: Windows,
    start_ns: NDArray[np.int64],
    end_ns: NDArray[np.int64],
    *,
    beside: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
) -> NDArray[np.float64]:
    """Time-weighted mean of the windows inside each kernel of one device, shape (kernels, metrics).

    A window that another kernel of the device touches measures both and counts for neither. NaN where no
    window is left, as for every kernel shorter than a window.

    Args:
        windows: of the device.
        start_ns: of the kernels that are asked for, 0 where unknown; and
        end_ns: their ends.
        beside: starts and ends of further kernels of the device, which may touch windows too.
    """
    result = np.full((len(start_ns), windows.values.shape[1]), np.nan)
    first = np.searchsorted(windows.start_ns, start_ns, side="left")
    last = np.searchsorted(windows.end_ns, end_ns, side="right")
    more = beside or (start_ns[:0], end_ns[:0])
    users = _kernels_touching(windows, np.concatenate([start_ns, more[0]]), np.concatenate([end_ns, more[1]]))
    for kernel in np.flatnonzero((last > first) & (end_ns != 0)):
        inside = np.arange(first[kernel], last[kernel])
        inside = inside[users[inside] == 1]
        length = (windows.end_ns - windows.start_ns)[inside].astype(np.float64)
        if length.sum() > 0:
            result[kernel] = (windows.values[inside] * length[:, None]).sum(axis=0) / length.sum()
    return result


def _kernels_touching(
    windows: Windows, start_ns: NDArray[np.int64], end_ns: NDArray[np.int64]
) -> NDArray[np.int64]:
    """How many kernels overlap each window."""
    known = end_ns != 0
    begun = np.searchsorted(np.sort(start_ns[known]), windows.end_ns, side="left")
    over = np.searchsorted(np.sort(end_ns[known]), windows.start_ns, side="right")
    return begun - over
