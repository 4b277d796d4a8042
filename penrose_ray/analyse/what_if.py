"""What a change of the hardware would bring, bounded by what joint histograms show."""

from __future__ import annotations

import pandas as pd

from penrose_ray.analyse.joint import quadrants
from penrose_ray.errors import ConfigError


def what_if(
    frame: pd.DataFrame,
    counter_set: str | None = None,
    *,
    dram: float = 2.0,
    dram_active: float | None = None,
    tensor_active: float | None = None,
) -> pd.DataFrame:
    """Speed-up of each class if DRAM were `dram` times as fast (Amdahl, AFIPS 1967).

    Samples that use DRAM alone are taken to be bound by it and shrink by the factor; idle and tensor-only
    ones stay. Where both work nobody can tell which waits for which: the low end leaves them as they are, the
    high end shrinks them too. Samples count alike: durations are not in a joint histogram.

    Args:
        frame: from `open_release`.
        counter_set: a joint set; the only one by default.
        dram: factor on the bandwidth, 1 or more.
        dram_active: threshold, as in `quadrants`.
        tensor_active: threshold, as in `quadrants`.

    Returns:
        label, gpu_model, dram_only, both (shares), speedup_low, speedup_high (with the interval of sampling
        inside: the low end takes the lower, the high end the upper ends of the shares).

    Raises:
        ConfigError: no joint set, or a factor below 1.
    """
    if dram < 1:
        raise ConfigError(
            f"A DRAM factor of {dram} would slow it down.", remedy="Give a number of 1 or more."
        )
    table = quadrants(frame, counter_set, dram_active=dram_active, tensor_active=tensor_active)
    wide = table.pivot_table(
        index=["label", "gpu_model"],
        columns="quadrant",
        values=["share", "share_low", "share_high"],
        observed=True,
        sort=False,
    )
    saved = 1.0 - 1.0 / dram
    least = wide["share_low"]["DRAM only"]
    most = (wide["share_high"]["DRAM only"] + wide["share_high"]["both"]).clip(upper=1.0)
    found = pd.DataFrame({"dram_only": wide["share"]["DRAM only"], "both": wide["share"]["both"]})
    return found.assign(
        speedup_low=1.0 / (1.0 - least * saved), speedup_high=1.0 / (1.0 - most * saved)
    ).reset_index()
