"""The gate: how many reports a sum needs before anyone may decrypt it.

Of N reports with distinct tokens, an honest client draws a cover report with probability q. All but one in
some 30,000 sums keep N (1 - q) - 4 sqrt(N q (1 - q)) real reports or more (four standard deviations of the
binomial distribution). A client, which is a host with all its GPUs, sends at most r real reports into a sum,
also when it is restarted (`actors/sent_reports.py`), and m hostile clients at most c each, so with r k + m c
real reports at least k honest clients are in it.

In a task with noise and a target error a sum must also have so many reports that the noise is no more than
that share of an average bin: what would be noise alone is not released, and spends no budget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penrose_ray.errors import GateError

if TYPE_CHECKING:
    from penrose_ray.task import Task


def real_reports_needed(task: Task) -> int:
    """Real reports, r k + m c, that keep k honest clients in a sum; see `Task.real_reports_needed`."""
    return task.real_reports_needed()


def least_passing(task: Task) -> int:
    """Fewest reports that pass."""
    return task.reports_needed()


def passes(task: Task, reports: int, classes: int = 1) -> None:
    """Let a sum of `reports` reports with distinct ids pass, of so many classes that were merged.

    Raises:
        GateError: they are too few.
    """
    least = task.reports_needed(classes)
    if reports < least:
        raise GateError(
            f"This sum has {reports} reports; k = {task.min_contributors} honest contributors need {least}, "
            f"so {least - reports} are missing.",
            remedy="Wait for more reports, or let this batch go: it is withheld, not lost for later batches.",
        )
