"""An experiment cut into cells that different processes can run, and put together again.

Every cell draws from the experiment's own seed, so the whole is the same however it was cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from penrose_ray.sim.catalogue import Found

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penrose_ray.sim.settings import SimulationSettings


def cells(settings: SimulationSettings) -> list[SimulationSettings]:
    """The settings of each cell, in the order of the experiment's rows.

    Coverage and gate have a cell for each number of applications and mix, a sweep one for each value; other
    experiments are a single cell.
    """
    sweep = settings.sweep
    if sweep is not None:
        single = [sweep.model_copy(update={"values": (value,)}) for value in sweep.values]  # noqa: PD011 - a field
        return [settings.model_copy(update={"sweep": each}) for each in single]
    if settings.experiment not in ("coverage", "gate"):
        return [settings]
    return [
        settings.model_copy(update={"apps": (apps,), "mixes": {name: mix}})
        for apps in settings.apps
        for name, mix in settings.mixes.items()
    ]


def united(parts: Sequence[Found]) -> Found:
    """One result from those of all cells, in their order."""
    curves = [part.curves for part in parts if part.curves is not None]
    notes = dict.fromkeys(note for part in parts for note in part.notes)
    return Found(
        pd.concat([part.table for part in parts], ignore_index=True),
        pd.concat(curves, ignore_index=True) if curves else None,
        tuple(notes),
    )
