"""Published hours to coverage of 100,000 GPUs, and what a model can and cannot say about them."""

from __future__ import annotations

from typing import Final

HOURS: Final = {
    (2000, "uniform"): 2.3,
    (2000, "small"): 13.5,
    (2000, "large"): 9.5,
    (1000, "uniform"): 1.5,
    (1000, "small"): 10.5,
    (1000, "large"): 4.8,
    (500, "uniform"): 0.7,
    (500, "small"): 5.2,
    (500, "large"): 2.3,
}
"""(applications, mix) -> hours until 99 % of kernels were seen (Penrose, arXiv 2509.21762)."""

NOT_LINEAR: Final = (
    "no single setting gives this column: with independent sampling hours grow in proportion to the number "
    "of applications (a skewed mix makes them grow faster, never slower), but from 1,000 to 2,000 the "
    "published ones grow by {growth}"
)


def note(apps: int, mix: str) -> str:
    """Why a published cell cannot be met, empty where it can."""
    half, whole = HOURS.get((apps // 2, mix)), HOURS.get((apps, mix))
    if apps != 2000 or half is None or whole is None:  # noqa: PLR2004 - the published column
        return ""
    text = ", ".join(
        f"{HOURS[2000, each] / HOURS[1000, each]:.2f} ({each})" for each in ("uniform", "small", "large")
    )
    return NOT_LINEAR.format(growth=text)
