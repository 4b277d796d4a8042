"""Energy and cost of useful work by GPU generation.

The factors are watts per teraflop of each generation against the first, as published for fleets of V100,
A100 and L40S: 2.00, 1.28 and 1.82 W, hence 1.00, 1.56 and 1.10. Other generations are the caller's to add.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from penrose_ray.analyse.fleet import fleet_shares
from penrose_ray.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

WATTS_PER_TFLOPS = {"V100": 2.00, "A100": 1.28, "L40S": 1.82}
REFERENCE = "V100"
_J_PER_KWH = 3.6e6


@dataclass(frozen=True, slots=True)
class Site:
    """A data centre. The defaults correct nothing."""

    pue: float = 1.0
    """Power usage effectiveness: energy of the site per energy of its machines."""
    temperature_c: float = 25.0
    """Mean GPU temperature."""
    reference_c: float = 25.0
    """Temperature at which watts per teraflop hold."""
    per_degree: float = 0.0
    """Relative growth of power per degree above the reference; measure it on your own machines."""
    price_per_kwh: float = 0.0

    def factor(self) -> float:
        """What site and temperature multiply power with."""
        if self.pue < 1:
            raise ConfigError(f"A PUE of {self.pue} is below 1.", remedy="Divide site energy by IT energy.")
        return self.pue * (1.0 + self.per_degree * (self.temperature_c - self.reference_c))


def efficiency_factors(watts_per_tflops: Mapping[str, float] = WATTS_PER_TFLOPS) -> dict[str, float]:
    """Useful work per energy of each generation against the reference: 1.00, 1.56, 1.10."""
    reference = WATTS_PER_TFLOPS[REFERENCE]
    return {name: reference / watts for name, watts in watts_per_tflops.items()}


def generation_of(gpu_model: str, known: Mapping[str, float] = WATTS_PER_TFLOPS) -> str:
    """The generation whose name stands in a model's name; empty when none does."""
    matches = [name for name in known if name.lower() in gpu_model.lower()]
    return max(matches, key=len, default="")


def cost_of_work(
    frame: pd.DataFrame,
    *,
    useful: Mapping[str, float] | None = None,
    site: Site = Site(),
    watts_per_tflops: Mapping[str, float] = WATTS_PER_TFLOPS,
) -> pd.DataFrame:
    """Energy and cost per useful work of each GPU model in the fleet.

    Args:
        frame: from `open_release`.
        useful: share of peak that a model's work uses (0 to 1), such as mean tensor activity; 1 if not given.
        site: PUE, temperature, price.
        watts_per_tflops: by generation.

    Returns:
        gpu_model, generation, time_share (of the fleet's GPU time; of launches without durations),
        efficiency_factor, joules_per_tflop (energy of 10^12 useful operations), cost_per_eflop (of 10^18, in
        the currency of the price); NaN for generations without factors.
    """
    shares = fleet_shares(frame)
    column = "time_share" if shares["time_share"].notna().any() else "launch_share"
    sums = shares.groupby("gpu_model")[column].sum()
    table = pd.DataFrame({"gpu_model": sums.index.astype("str"), "time_share": sums.to_numpy()})
    table["generation"] = [generation_of(model, watts_per_tflops) for model in table["gpu_model"]]
    watts = table["generation"].map(dict(watts_per_tflops)).astype("float64")
    used = table["gpu_model"].map(dict(useful or {})).astype("float64").fillna(1.0)
    if not used.between(0, 1, inclusive="right").all():
        raise ConfigError("A useful share must lie above 0 and at most at 1.", remedy="Give it as a share.")
    table["efficiency_factor"] = WATTS_PER_TFLOPS[REFERENCE] / watts
    table["joules_per_tflop"] = watts * site.factor() / used
    table["cost_per_eflop"] = table["joules_per_tflop"] * 1e6 / _J_PER_KWH * site.price_per_kwh
    columns = ["gpu_model", "generation", "time_share", "efficiency_factor", "joules_per_tflop"]
    table = table[[*columns, "cost_per_eflop"]]
    return table.sort_values("joules_per_tflop", kind="stable", ignore_index=True)
