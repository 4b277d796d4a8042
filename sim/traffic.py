"""Load and traffic of a fleet: samples, snippets, reports, bytes, cores and dollars.

The published 0.12 GB/s of 100,000 GPUs does not follow from one 32 KB histogram a 3,000 s: `published_gap`
says by which factor, and which readings would close it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pandas as pd

from penrose_ray.sim.costs import UnitCosts
from penrose_ray.sim.planner import DAY_S, Demand, reports_per_client_day

PUBLISHED_BYTES_PER_S: Final = 0.12e9
PUBLISHED_REPORT_BYTES: Final = 32_768
PUBLISHED_ADDS_PER_S: Final = 8_075.0
LAUNCH_S: Final = 30e-6


@dataclass(frozen=True, slots=True)
class Rates:
    """What a fleet produces a second."""

    samples_per_s: float
    snippets_per_s: float
    full_histograms_per_s: float
    """Histograms of H samples, if clients sent only full ones."""
    reports_per_s: float
    """Reports under the task's rules, cover included."""


def rates(demand: Demand, *, snippet_launches: int = 10_000) -> Rates:
    """Rates of a fleet with launches of 30 us."""
    launches = demand.gpus * demand.load / LAUNCH_S
    samples = launches / demand.interval
    return Rates(
        samples_per_s=samples,
        snippets_per_s=launches / snippet_launches,
        full_histograms_per_s=samples / demand.rules.samples_per_histogram,
        reports_per_s=demand.gpus * reports_per_client_day(demand) / DAY_S,
    )


def traffic_table(demand: Demand, costs: UnitCosts | None = None) -> pd.DataFrame:
    """Messages, bytes, cores and dollars a year: the published form beside this project's.

    Returns:
        form, messages_per_s, bytes_per_message, bytes_per_s, cores, machines_usd_per_year, usd_per_gpu_year.
    """
    costs = costs or UnitCosts()
    fleet = rates(demand)
    full, own = fleet.full_histograms_per_s, fleet.reports_per_s
    forms = (
        ("published: full 32 KB histograms", full, PUBLISHED_REPORT_BYTES, PUBLISHED_ADDS_PER_S),
        ("reports of 4 KiB, partial ones too", own, int(costs.record_bytes), costs.durable_per_s_core),
    )
    rows = []
    for form, messages, size, per_core in forms:
        cores = messages / per_core
        usd = max(1.0, cores / costs.node_cores) * costs.node_usd_per_year
        rows.append(
            {
                "form": form,
                "messages_per_s": messages,
                "bytes_per_message": size,
                "bytes_per_s": messages * size,
                "cores": cores,
                "machines_usd_per_year": usd,
                "usd_per_gpu_year": usd / demand.gpus,
            }
        )
    return pd.DataFrame(rows)


@dataclass(frozen=True, slots=True)
class Gap:
    """The published traffic against one full histogram a period."""

    bytes_per_s_busy: float
    """Of a fleet that is busy all the time: 32 KB every H S launches."""
    factor: float
    """Published traffic over that."""
    histograms_per_s: float
    """32 KB histograms a second that the published traffic would carry."""
    seconds_between: float
    """Seconds from one histogram to the next of one GPU."""
    bytes_per_snippet: float
    """At 10 % load, if the traffic were one message a snippet."""


def published_gap(gpus: int = 100_000) -> Gap:
    """Why 0.12 GB/s is not one 32 KB histogram of each GPU a 3,000 s.

    It would take some 110 histograms a period (as many metrics), or a message for each snippet.
    """
    period_s = 10_000 * 10_000 * LAUNCH_S
    busy = gpus * PUBLISHED_REPORT_BYTES / period_s
    histograms = PUBLISHED_BYTES_PER_S / PUBLISHED_REPORT_BYTES
    snippets = rates(Demand(gpus=gpus, apps=1)).snippets_per_s
    return Gap(
        bytes_per_s_busy=busy,
        factor=PUBLISHED_BYTES_PER_S / busy,
        histograms_per_s=histograms,
        seconds_between=gpus / histograms,
        bytes_per_snippet=PUBLISHED_BYTES_PER_S / snippets,
    )
