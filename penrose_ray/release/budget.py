"""The privacy budget: booked on disk before anything noisy leaves, so that no crash can lose it.

Each batch is one Gaussian mechanism; the discrete Gaussian obeys the same Renyi bound as the continuous one
(Canonne, Kamath, Steinke 2020, theorem 4), so dp-accounting's Renyi accountant composes them. The sum of
Renyi costs is a valid filter even when each noise level is chosen from what came out before (Feldman, Zrnic
2021).
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Final

from penrose_ray.errors import BudgetError, ConfigError
from penrose_ray.release.noise import sensitivity

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from penrose_ray.task import Task
    from penrose_ray.types import BatchId

_TABLE: Final = """
CREATE TABLE IF NOT EXISTS spent (
    task_id BLOB NOT NULL, batch INTEGER NOT NULL, noise_multiplier REAL NOT NULL,
    PRIMARY KEY (task_id, batch)
) WITHOUT ROWID
"""


def epsilon(noise_multipliers: Iterable[float], delta: float) -> float:
    """What Gaussian mechanisms of these noise multipliers (sigma over sensitivity) spend together."""
    try:
        from dp_accounting import GaussianDpEvent  # noqa: PLC0415 - an optional extra, 1 s
        from dp_accounting.rdp import RdpAccountant  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            "This task asks for noise, and dp-accounting is not installed.",
            remedy="pip install 'penrose-ray[dp]'",
        ) from error
    accountant = RdpAccountant()
    for multiplier in noise_multipliers:
        accountant.compose(GaussianDpEvent(multiplier))
    return float(accountant.get_epsilon(delta))


class Budget:
    """What tasks have spent; one file for a release desk."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute(_TABLE)

    def spend(self, task: Task, batch: BatchId, noise_multiplier: float | None = None) -> float:
        """Book a batch, once; returns the epsilon that the task has spent up to now.

        Args:
            task: with noise.
            batch: what is about to be released.
            noise_multiplier: sigma over sensitivity, if it is not the task's own. It may depend on what was
                released before (Feldman and Zrnic 2021, theorem 4.3), never on what is not.

        Raises:
            BudgetError: it would be more than the task's epsilon; nothing is booked.
        """
        multiplier = noise_multiplier or task.noise_sigma / sensitivity(task)
        total = self.afford(task, batch, multiplier)
        sql = "INSERT OR IGNORE INTO spent VALUES (?, ?, ?)"
        self._db.execute(sql, (task.task_id, batch, multiplier))
        return total

    def afford(self, task: Task, batch: BatchId, noise_multiplier: float | None = None) -> float:
        """What the task would have spent after this batch; books nothing, and raises like `spend`."""
        multiplier = noise_multiplier or task.noise_sigma / sensitivity(task)
        had = self._multipliers(task)
        if batch in had:
            return epsilon(had.values(), task.noise_delta)
        total = epsilon([*had.values(), multiplier], task.noise_delta)
        if total > task.noise_epsilon:
            raise BudgetError(
                f"Batch {batch} would bring the task to epsilon = {total:.3f}, "
                f"its budget is {task.noise_epsilon:g} at delta = {task.noise_delta:g}.",
                remedy="Sign a new task; what is not released stays encrypted.",
            )
        return total

    def spent(self, task: Task) -> float:
        """Epsilon that a task has spent."""
        had = self._multipliers(task)
        return epsilon(had.values(), task.noise_delta) if had else 0.0

    def _multipliers(self, task: Task) -> dict[int, float]:
        sql = "SELECT batch, noise_multiplier FROM spent WHERE task_id = ?"
        return dict(self._db.execute(sql, (task.task_id,)).fetchall())

    def close(self) -> None:
        """Close the file."""
        self._db.close()
