"""Experiments in cells: the whole is the same as at once."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from penrose_ray.sim.catalogue import run
from penrose_ray.sim.cells import cells, united
from penrose_ray.sim.settings import load_simulation

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("coverage-paper", 9),
        ("sim-interval", 5),
        ("sim-mixes", 5),
        ("sim-traffic", 1),
        ("sim-sampling-error", 1),
    ],
)
def test_cells_put_together_are_the_experiment(name: str, count: int) -> None:
    settings = load_simulation(CONFIGS / f"{name}.toml")
    parts = cells(settings)
    whole, joined = run(settings), united([run(part) for part in parts])

    assert len(parts) == count
    pd.testing.assert_frame_equal(joined.table, whole.table)
    assert joined.notes == whole.notes
    if whole.curves is not None:
        assert joined.curves is not None
        pd.testing.assert_frame_equal(joined.curves, whole.curves)
    else:
        assert joined.curves is None


def test_the_gate_has_a_cell_for_each_number_of_applications_and_mix() -> None:
    settings = load_simulation(CONFIGS / "sim-gate.toml")
    parts = cells(settings)

    assert [(part.apps, list(part.mixes)) for part in parts] == [
        ((apps,), [mix]) for apps in settings.apps for mix in settings.mixes
    ]
    assert all(part.changes == settings.changes for part in parts)
