"""Small fleets that several tests share."""

from __future__ import annotations

import numpy as np
import pytest

from penrose_ray.sim.population import Mix, time_shares
from penrose_ray.sim.scenario import Sampling, Scenario
from penrose_ray.sim.workloads import Workload


class Fleets:
    """Makes scenarios; keyword arguments replace a scenario's fields."""

    LAUNCH_S = 30e-6

    def alike(self, apps: int, launches: int, **changes: object) -> Scenario:
        """Applications of one size with equal time."""
        workload = Workload(
            np.full(apps, launches, np.int64), np.full(apps, self.LAUNCH_S), np.zeros(apps, np.int64)
        )
        return Scenario(workload, np.full(apps, 1 / apps), **changes)  # type: ignore[arg-type]

    def referee(self, sampler: str, interval: int, **changes: object) -> Scenario:
        """200 GPUs, 12 applications with 80 to 400 launches, Zipf 1."""
        launches = np.linspace(80, 400, 12).astype(np.int64)
        workload = Workload(launches, np.full(12, 1e-3), np.zeros(12, np.int64))
        sampling = Sampling(interval=interval, sampler=sampler, reset_s=60.0, **changes)  # type: ignore[arg-type]
        share = time_shares(Mix(zipf=1.0), workload)
        return Scenario(workload, share, clients=200, load=0.3, sampling=sampling)


@pytest.fixture(scope="session")
def fleets() -> Fleets:
    return Fleets()
