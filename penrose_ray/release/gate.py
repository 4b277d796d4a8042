"""The gate: how many reports a sum needs before anyone may decrypt it.

Of N reports with distinct tokens, an honest client draws a cover report with probability q. All but one in
some 30,000 sums keep N (1 - q) - 4 sqrt(N q (1 - q)) real reports or more (four standard deviations of the
binomial distribution). A client sends at most r reports into a sum and m hostile clients at most c each, so
with r k + m c real reports at least k honest clients are in it.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from penrose_ray.errors import GateError

if TYPE_CHECKING:
    from penrose_ray.task import Task

_DEVIATIONS = 4
_DAY_S = 86_400


def real_reports_needed(task: Task) -> int:
    """Real reports, r k + m c, that keep k honest clients in a sum.

    A task without tokens (a demo) needs k reports and claims no more. r = 0 leaves only the tokens as a
    bound, so it counts as r = c. c is a day's tokens: a longer batch sees several days' worth.
    """
    if task.tokens_per_day == 0:
        return task.min_contributors
    tokens = task.tokens_per_day * max(1, math.ceil(task.batch_s / _DAY_S))
    return (task.reports_per_class or tokens) * task.min_contributors + task.hostile_clients * tokens


def least_passing(task: Task) -> int:
    """Fewest reports that pass."""
    need = real_reports_needed(task)
    if task.tokens_per_day == 0:
        return need
    real = 1 - task.cover_rate
    spread = _DEVIATIONS * math.sqrt(task.cover_rate * real)
    root = (spread + math.sqrt(spread * spread + 4 * real * need)) / (2 * real)
    reports = max(0, math.floor(root * root) - 2)
    while not _enough(task, reports, need):
        reports += 1
    return reports


def passes(task: Task, reports: int) -> None:
    """Let a sum of `reports` reports with distinct ids pass.

    Raises:
        GateError: they are too few.
    """
    least = least_passing(task)
    if reports < least:
        raise GateError(
            f"This sum has {reports} reports; k = {task.min_contributors} honest contributors need {least}, "
            f"so {least - reports} are missing.",
            remedy="Wait for more reports, or let this batch go: it is withheld, not lost for later batches.",
        )


def _enough(task: Task, reports: int, need: int) -> bool:
    """N (1 - q) - 4 sqrt(N q (1 - q)) >= need, exactly: both sides squared."""
    cover = Fraction(task.cover_rate)
    margin = reports * (1 - cover) - need
    return margin >= 0 and margin * margin >= _DEVIATIONS**2 * reports * cover * (1 - cover)
