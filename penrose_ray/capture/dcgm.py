"""Gauges of a node's GPUs from the metrics page of dcgm-exporter (Prometheus text format)."""

from __future__ import annotations

import http.client
import re
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

from penrose_ray.capture.csv_file import number
from penrose_ray.capture.events import Capabilities
from penrose_ray.capture.gauge import GaugeSource, Reading
from penrose_ray.errors import SourceError
from penrose_ray.histogram import Counter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penrose_ray.capture.tally import Tally
    from penrose_ray.clock import Clock

_FIELDS = {
    "DCGM_FI_PROF_DRAM_ACTIVE": (Counter("dram_use", "%", "dcgm", "nvidia"), 100.0),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": (Counter("tensor_use", "%", "dcgm", "nvidia"), 100.0),
    "DCGM_FI_PROF_SM_ACTIVE": (Counter("sm_use", "%", "dcgm", "nvidia"), 100.0),
    "DCGM_FI_DEV_GPU_UTIL": (Counter("gpu_use", "%", "dcgm", "nvidia"), 1.0),
    "DCGM_FI_DEV_POWER_USAGE": (Counter("power", "W", "dcgm", "nvidia"), 1.0),
}
_LINE = re.compile(r"(\w+)\{(.*)\}\s+(\S+)(?:\s+\d+)?\s*")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_LARGEST_PAGE = 16 << 20


def parse_page(text: str, tally: Tally) -> list[Reading]:
    """One reading for each GPU or MIG instance; a field that the page lacks stays missing.

    A line without its end is no line; of a value that comes twice the first one counts.
    """
    if text and not text.endswith("\n"):
        tally.damaged += 1
        tally.warn("The metrics page was cut off: its whole lines are read.")
        text = text[: text.rfind("\n") + 1]
    found: dict[tuple[str, str], dict[Counter, float]] = {}
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is None or match.group(1) not in _FIELDS:
            continue
        labels: dict[str, str] = dict(_LABEL.findall(match.group(2)))
        identity = labels.get("UUID", labels.get("gpu", ""))
        if labels.get("GPU_I_ID"):
            identity += f"/{labels['GPU_I_ID']}"
        counter, factor = _FIELDS[match.group(1)]
        values = found.setdefault((identity, labels.get("modelName", "unknown")), {})
        value = number(match.group(3)) * factor
        tally.duplicates += counter in values
        if value == value:  # noqa: PLR0124 - NaN is not equal to itself
            values.setdefault(counter, value)
    return [Reading(identity, model, values) for (identity, model), values in found.items()]


def fetch_page(address: str) -> str:
    """The page at an http address.

    Raises:
        SourceError: nobody answers there, or not with a page.
    """
    if not address.startswith(("http://", "https://")):
        raise SourceError(
            f"{address!r} is no http address.", remedy="Use one like http://localhost:9400/metrics."
        )
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:  # noqa: S310 - http was checked
            return str(answer.read(_LARGEST_PAGE).decode("utf-8", "replace"))
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        raise SourceError(
            f"dcgm-exporter does not answer at {address}: {error}.",
            remedy="Start it, or correct the address.",
        ) from error


class DcgmSource(GaugeSource):
    """Readings from dcgm-exporter.

    Args:
        address: its metrics page.
        fetch: gets the page's text.
        clock: for the period.
        period_s: least time between two readings; the exporter itself renews them every 30 s by default.
        capacity: readings that may wait for `poll`.
    """

    def __init__(
        self,
        address: str = "http://localhost:9400/metrics",
        *,
        clock: Clock,
        fetch: Callable[[str], str] = fetch_page,
        period_s: float = 30.0,
        capacity: int = 1 << 16,
    ) -> None:
        counters = tuple(counter for counter, _ in _FIELDS.values())
        super().__init__(counters, clock=clock, period_s=period_s, capacity=capacity)
        self._address = address
        self._fetch = fetch

    def probe(self) -> Capabilities:
        """Whether the page is there, and which fields it lacks."""
        try:
            text = self._fetch(self._address)
        except SourceError as error:
            return Capabilities(available=False, per_kernel_counters=False, reasons=(str(error),))
        reasons = ["DCGM reads whole devices, no single kernels."]
        missing = [name for name in _FIELDS if f"\n{name}{{" not in f"\n{text}"]
        if missing:
            reasons.append(
                f"The page lacks {', '.join(missing)}: add them to its CSV; PROF fields also need the"
                " profiling module (not on vGPU), CAP_SYS_ADMIN, and no other owner of the counters"
                " (`dcgmi profile --pause` frees them)."
            )
        return Capabilities(available=True, per_kernel_counters=False, reasons=tuple(reasons))

    def _start(self) -> None:
        self._fetch(self._address)

    def _stop(self) -> None:
        pass

    def _readings(self) -> Sequence[Reading]:
        try:
            text = self._fetch(self._address)
        except SourceError as error:
            self.tally.warn(str(error))
            return []
        return parse_page(text, self.tally)
