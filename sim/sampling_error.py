"""How wrong a sampled histogram is, by drawing; `penrose_ray.accuracy` has the theory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from penrose_ray.accuracy import RELATIVE
from penrose_ray.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def error_curve(
    masses: NDArray[np.float64], samples: Sequence[int], *, trials: int = 20, seed: int = 0
) -> pd.DataFrame:
    """Share of bins that are off by less than 1 %, as samples grow.

    Args:
        masses: of the bins, shape (bins,), summing to 1.
        samples: numbers of samples to draw.
        trials: histograms drawn for each.
        seed: of the draws.

    Returns:
        samples, relative (share of bins off by less than 1 % of themselves), weighted (the same by mass),
        absolute (share off by less than 1 % of all samples).
    """
    if abs(float(masses.sum()) - 1) > 1e-9 or (masses < 0).any():  # noqa: PLR2004 - rounding
        raise ConfigError("masses: they do not sum to 1.", remedy="Divide them by their sum.")
    rng = np.random.default_rng(seed)
    some = masses > 0
    rows = []
    for count in samples:
        drawn = rng.multinomial(count, masses, trials) / count
        off = np.abs(drawn - masses)
        within = off[:, some] <= RELATIVE * masses[some]
        rows.append(
            {
                "samples": count,
                "relative": float(within.mean()),
                "weighted": float((within * masses[some]).sum(axis=1).mean()),
                "absolute": float((off <= RELATIVE).mean()),
            }
        )
    return pd.DataFrame(rows)
