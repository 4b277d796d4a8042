"""What a report says about privacy and method, with the release's own numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penrose_ray.analyse.intervals import CONFIDENCE
from penrose_ray.analyse.wording import percent, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penrose_ray.analyse.released import Histograms


def privacy(histograms: Histograms, run: Mapping[str, Any]) -> list[str]:
    """HTML sentences: who was protected by what."""
    rows = histograms.stored
    if rows.empty:
        return ["The release holds no histogram, so it shows nothing of anyone."]
    reports, real = int(rows["reports"].sum()), int(rows["real_reports"].sum())
    least, least_real = whole(rows["reports"].min()), whole(rows["real_reports"].min())
    sentences = [
        _threshold(histograms),
        (
            f"The smallest sum here adds {least} reports, {least_real} of them real. "
            f"In all, {whole(reports)} reports were added, {whole(real)} of them real."
        ),
        (
            f"<b>Cover rate {percent(1 - real / reports)}</b>: {whole(reports - real)} cover reports add "
            "nothing and hide who had something to report."
        ),
        (
            "Clients encrypt before they send. The aggregation service adds what it cannot read; the "
            "design server opens sums only, and knows a class by a random id."
        ),
        _noise(histograms, run),
        *_discarded(histograms),
    ]
    return [*sentences, *_coverage(run)]


def _coverage(run: Mapping[str, Any]) -> list[str]:
    """What of all reports is in the release, if the ledger was asked."""
    if run.get("coverage") is None:
        return ["How much was withheld is not in this file; the service's ledger says it (--ledger)."]
    reached = (
        f"Coverage reached: <b>{percent(float(run['coverage']))}</b> of the reports that arrived are here."
    )
    if run.get("withheld_sums") is not None:
        reached += (
            f" The gate withheld {whole(run['withheld_sums'])} sums with {whole(run['withheld_reports'])} "
            "reports: they had too few contributors."
        )
    if run.get("drop_rate"):
        reached += f" Under load up to {percent(float(run['drop_rate']))} of a class's reports were dropped."
    return [reached]


def _threshold(histograms: Histograms) -> str:
    k = int(histograms.facts["min_contributors"])
    if histograms.facts["demo"]:
        return (
            f"<b>Demo, k = {k}.</b> The task has no tokens, so k counts accepted reports, and one client may "
            "have sent several. It protects nobody; do not use it with other people's GPUs."
        )
    return (
        f"A sum is released only while at least <b>k = {k}</b> honest contributors remain in it, whatever "
        "the number of hostile clients that the task assumes."
    )


def _noise(histograms: Histograms, run: Mapping[str, Any]) -> str:
    sigma = float(histograms.facts["noise_sigma"])
    if not sigma:
        return "No noise was added: no epsilon is spent, and k alone protects a sum."
    spent = max(float(histograms.rows["epsilon"].max()), float(run.get("epsilon_spent") or 0.0))
    return (
        f"Noise of standard deviation {whole(sigma)} was added to every bin of every sum before opening: "
        f"<b>epsilon spent {spent:.3g}</b> by all releases of the task up to the last one here."
    )


def _discarded(histograms: Histograms) -> list[str]:
    if not histograms.discarded:
        return []
    count = whole(histograms.discarded)
    return [f"Discarded on opening: {count} sums that broke the sum rule or held too few real reports."]


def _thinned(histograms: Histograms) -> list[str]:
    least = float((histograms.rows["samples"] / histograms.rows["estimated_samples"]).min())
    if not least < 1:
        return []
    return [
        (
            "Under load the service dropped reports of frequent classes at random. Of a class it kept "
            f"{percent(least)} at least; launches and shares of the fleet stand for all reports."
        )
    ]


def _sub_batches(histograms: Histograms) -> list[str]:
    if not histograms.sub_batches:
        return []
    return [
        (
            "Reports of a class came in several sums. The robust mean is the median of their means, which a "
            "few clients with false reports cannot move far; where it is far from the mean, look for them."
        )
    ]


def method(histograms: Histograms) -> list[str]:
    """HTML sentences: how the numbers came about and how far they reach."""
    samples, interval = histograms.facts["samples_per_histogram"], histograms.facts["sampling_interval"]
    at_most = f", at most {whole(samples)} samples a report" if samples else ""
    share = f"one in {whole(interval)}" if interval else "a small share"
    return [
        (
            f"A client samples {share} of a GPU's kernel launches and counts what it measures in 128 "
            f"bins{at_most}."
        ),
        (
            "Launches of one application fall into one class by the likeness of their kernel sequences. The "
            "class id is random and says nothing about the application."
        ),
        (
            "Every sum was checked on opening: its bins and its unfilled part come to the number of "
            "reports times the samples of a report. What breaks this rule is not in the file."
        ),
        (
            "Means take bin centres; percentiles are interpolated in a bin. Beyond the outermost edges "
            "only the edge is known, which is marked with &ge; or &le;."
        ),
        *_thinned(histograms),
        *_sub_batches(histograms),
        (
            f"Shares carry a {CONFIDENCE:.0%} interval of sampling (Wilson), percentiles one of order "
            "statistics, widened by noise where there is some. How the GPUs that took part differ from those "
            "that did not is not in it."
        ),
        "A counter keeps its source: values of different sources are never added.",
    ]
