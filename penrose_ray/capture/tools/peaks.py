"""What devices can do at best, from their makers' data sheets: dense, without sparsity."""

from __future__ import annotations

import re
from typing import NamedTuple


class Peak(NamedTuple):
    """Peak rates of a device."""

    bytes_per_s: float
    tensor_flop_per_s: float
    """16-bit operands, dense."""
    fp64_flop_per_s: float
    """Outside tensor units."""


_TB, _TFLOP = 1e12, 1e12
_PEAKS = {
    "h200": Peak(4.8 * _TB, 989 * _TFLOP, 34 * _TFLOP),
    "h100 80gb hbm3": Peak(3.35 * _TB, 989 * _TFLOP, 34 * _TFLOP),
    "h100 pcie": Peak(2.0 * _TB, 756 * _TFLOP, 26 * _TFLOP),
    "a100-sxm4-80gb": Peak(2.039 * _TB, 312 * _TFLOP, 9.7 * _TFLOP),
    "a100-sxm4-40gb": Peak(1.555 * _TB, 312 * _TFLOP, 9.7 * _TFLOP),
    "v100-sxm2": Peak(0.9 * _TB, 125 * _TFLOP, 7.8 * _TFLOP),
    "mi300x": Peak(5.3 * _TB, 1307.4 * _TFLOP, 81.7 * _TFLOP),
}
"""Part of a model's name in lower case -> its peak; exact variants only, since they differ by a third."""


def peak_of(model: str) -> Peak | None:
    """The peak of a model by its name, None when it is not known for sure."""
    for part, peak in _PEAKS.items():
        if re.search(rf"(?<!\w){re.escape(part)}(?!\w)", model, re.IGNORECASE):  # a GH200 is no H200
            return peak
    return None
