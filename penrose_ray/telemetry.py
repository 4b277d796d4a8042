"""The registry of metrics, and what this process has counted so far.

A stage counts with the metrics below and knows nothing of who reads them. Actors hand what is counted on to
`ray.util.metrics`, and the gateway serves it in Prometheus' text format. No label holds a report, a class or
a client: values are totals of a process. Names and units follow Prometheus' conventions (base units, `_total`
for counters). docs/metrics.md explains each.
"""

from __future__ import annotations

import bisect
import enum
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Labels: TypeAlias = tuple[str, ...]


class Kind(enum.Enum):
    """What may happen to a value."""

    COUNTER = "counter"
    """It only grows, until the process restarts."""
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    """Observations counted by size."""


class Distribution(NamedTuple):
    """Observations of a histogram so far."""

    counts: tuple[int, ...]
    """By bucket, the last one for what is above all bounds."""
    total: float


Value: TypeAlias = float | Distribution
Snapshot: TypeAlias = dict[str, dict[Labels, Value]]
"""Metric name -> values of its labels, in their order -> what was counted."""


class Sink(Protocol):
    """Gets every change as well, such as Ray's own metrics."""

    def note(self, metric: Metric, labels: Labels, value: float) -> None:
        """A counter grew by `value`, a gauge became it, a histogram observed it."""
        ...


LATENCY_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of the registry."""

    name: str
    kind: Kind
    help: str
    unit: str = ""
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, ascending."""

    def add(self, more: float = 1.0, **labels: str) -> None:
        """Let a counter grow by `more`."""
        self._require(Kind.COUNTER)
        key = self._key(labels)
        with _mutex:
            self._cell(key)[0] += more
        self._tell(key, more)

    def set(self, value: float, **labels: str) -> None:
        """Set a gauge."""
        self._require(Kind.GAUGE)
        key = self._key(labels)
        with _mutex:
            self._cell(key)[0] = value
        self._tell(key, value)

    def observe(self, value: float, **labels: str) -> None:
        """Count an observation of a histogram."""
        self._require(Kind.HISTOGRAM)
        key = self._key(labels)
        place = bisect.bisect_left(self.bounds, value)
        with _mutex:
            cell = self._cell(key)
            cell[place] += 1
            cell[-1] += value
        self._tell(key, value)

    def value(self, **labels: str) -> float:
        """What a counter or gauge of this process is now, 0 before anything was counted."""
        with _mutex:
            return _cells[self.name].get(self._key(labels), [0.0])[0]

    def _cell(self, key: Labels) -> list[float]:
        """One number, or a histogram's counts with the total behind them."""
        cells = _cells[self.name]
        cell = cells.get(key)
        if cell is None:
            cell = cells[key] = [0.0] * (len(self.bounds) + 2 if self.bounds else 1)
        return cell

    def _require(self, kind: Kind) -> None:
        if self.kind is not kind:
            raise TypeError(f"{self.name} is a {self.kind.value}, no {kind.value}")

    def _key(self, labels: dict[str, str]) -> Labels:
        if len(labels) != len(self.labels):
            raise ValueError(f"{self.name} has the labels {self.labels}, not {tuple(labels)}")
        return tuple(labels[name] for name in self.labels)

    def _tell(self, key: Labels, value: float) -> None:
        for sink in _sinks:
            sink.note(self, key, value)


_mutex = threading.Lock()
_cells: dict[str, dict[Labels, list[float]]] = {}
_sinks: list[Sink] = []
METRICS: Final[dict[str, Metric]] = {}
"""All metrics by name."""


def is_owners(name: str) -> bool:
    """Whether a metric is about a GPU owner's client: it never leaves the owner's host."""
    return name.startswith("penrose_client_")


def forward(sink: Sink) -> Callable[[], None]:
    """Let `sink` hear of every change from now on; returns what ends that."""
    _sinks.append(sink)
    return lambda: _sinks.remove(sink)


def snapshot() -> Snapshot:
    """What this process has counted so far; metrics that nothing was counted for are left out."""
    with _mutex:
        return {
            name: {key: _value(cell) for key, cell in cells.items()}
            for name, cells in _cells.items()
            if cells
        }


def _value(cell: list[float]) -> Value:
    return cell[0] if len(cell) == 1 else Distribution(tuple(map(int, cell[:-1])), cell[-1])


@contextmanager
def stage_call(stage: str) -> Iterator[None]:
    """Time a call of a stage: its duration and the CPU time of this thread."""
    started_s, busy_s = time.perf_counter(), time.thread_time()
    try:
        yield
    finally:
        STAGE_SECONDS.observe(time.perf_counter() - started_s, stage=stage)
        BUSY_SECONDS.add(time.thread_time() - busy_s, stage=stage)


def _made(
    kind: Kind,
    name: str,
    text: str,
    *,
    unit: str = "",
    labels: tuple[str, ...] = (),
    bounds: tuple[float, ...] = (),
) -> Metric:
    metric = Metric(f"penrose_{name}", kind, text, unit, labels, bounds)
    METRICS[metric.name] = metric
    _cells[metric.name] = {}
    return metric


# Every stage of the service: gateway, matcher, shard.
REPORTS = _made(
    Kind.COUNTER,
    "reports_total",
    "Reports that a stage has judged, by outcome: accepted, known (a repeat), thinned, or why refused.",
    unit="reports",
    labels=("stage", "outcome"),
)
STAGE_SECONDS = _made(
    Kind.HISTOGRAM,
    "stage_seconds",
    "How long a call of matcher or shard took, waiting for its turn included.",
    unit="seconds",
    labels=("stage",),
    bounds=LATENCY_S,
)
BUSY_SECONDS = _made(
    Kind.COUNTER, "busy_seconds_total", "CPU time that a stage has used.", unit="seconds", labels=("stage",)
)
WAITING = _made(
    Kind.GAUGE,
    "waiting_reports",
    "Reports that wait for a stage.",
    unit="reports",
    labels=("stage",),
)

# The HTTP face.
HTTP_REQUESTS = _made(
    Kind.COUNTER,
    "http_requests_total",
    "Requests answered, by resource and status.",
    unit="requests",
    labels=("resource", "status"),
)
HTTP_SECONDS = _made(
    Kind.HISTOGRAM,
    "http_seconds",
    "Time from a request's head to its answer.",
    unit="seconds",
    labels=("resource",),
    bounds=LATENCY_S,
)
HTTP_BODY_BYTES = _made(Kind.COUNTER, "http_body_bytes_total", "Bytes of bodies taken in.", unit="bytes")
ADMITTED = _made(
    Kind.GAUGE,
    "admitted_ratio",
    "Share of requests with new reports that are taken at the moment.",
    unit="ratio",
)
LOAD = _made(Kind.GAUGE, "load_seconds", "Seconds of work that wait for the shards.", unit="seconds")
CACHED_CLASSES = _made(
    Kind.COUNTER,
    "class_cache_total",
    "Reports whose class the gateway knew already (hit) or asked the matcher for (miss).",
    unit="reports",
    labels=("result",),
)

# Parts of the service and where reports lie.
UP = _made(Kind.GAUGE, "up", "1 when a part of the service answers, 0 when it does not.")
SHARDS = _made(
    Kind.GAUGE, "shards", "Shards that work, and those that were asked for.", unit="shards", labels=("state",)
)
SCALED = _made(
    Kind.COUNTER,
    "scaled_shards_total",
    "Shards that the scaler asked for (up) or drained (down).",
    unit="shards",
    labels=("direction",),
)
CLASSES = _made(Kind.GAUGE, "classes", "Snippet classes that the matcher knows.", unit="classes")
SUMS = _made(Kind.GAUGE, "sums", "Encrypted sums of batches that are not archived.", unit="sums")
BUCKETS = _made(Kind.GAUGE, "buckets", "Buckets of report ids that a shard keeps.", unit="buckets")
MOVED_BUCKETS = _made(
    Kind.COUNTER, "moved_buckets_total", "Buckets that changed their shard.", unit="buckets"
)
THINNED_SUMS = _made(
    Kind.GAUGE, "thinned_sums", "Sums of open batches of which only a share of reports is kept.", unit="sums"
)

# The journal and what is kept.
COMMIT_SECONDS = _made(
    Kind.HISTOGRAM,
    "commit_seconds",
    "How long a transaction of the journal took, fsync included.",
    unit="seconds",
    bounds=LATENCY_S,
)
COMMIT_REPORTS = _made(
    Kind.HISTOGRAM,
    "commit_reports",
    "Reports that were committed together.",
    unit="reports",
    bounds=(1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0),
)
JOURNAL_ERRORS = _made(
    Kind.COUNTER, "journal_errors_total", "Times that a journal could not be read or written.", unit="errors"
)
DISK_FREE_BYTES = _made(Kind.GAUGE, "disk_free_bytes", "Free space on the journals' disk.", unit="bytes")
DISK_MARK_BYTES = _made(
    Kind.GAUGE, "disk_mark_bytes", "With less free space, new reports are refused.", unit="bytes"
)
PURGED_BATCHES = _made(
    Kind.COUNTER,
    "purged_batches_total",
    "Batches whose rows were deleted, 48 hours after they were closed and once they were handed over.",
    unit="batches",
)
ARCHIVED_BATCHES = _made(
    Kind.COUNTER, "archived_batches_total", "Batches whose sums moved to the archive.", unit="batches"
)

# Releases.
RELEASES = _made(Kind.COUNTER, "releases_total", "Batches handed over.", unit="batches")
RELEASED_SUMS = _made(
    Kind.COUNTER,
    "released_sums_total",
    "Sums of handed-over batches, by whether they passed the gate.",
    unit="sums",
    labels=("gate",),
)
RELEASE_OVERDUE = _made(
    Kind.GAUGE,
    "release_overdue_seconds",
    "Time since the oldest batch that still waits should have been handed over; 0 when none is late.",
    unit="seconds",
)
HANDOVER_FAILING = _made(
    Kind.GAUGE,
    "handover_failing_batches",
    "Batches that the service could not hand over by itself at its last attempt.",
    unit="batches",
)

# Batch experiments on the same cluster.
EXPERIMENTS = _made(
    Kind.GAUGE, "experiments", "Batch experiments that wait or run.", unit="experiments", labels=("state",)
)
EXPERIMENT_ENDS = _made(
    Kind.COUNTER,
    "experiments_ended_total",
    "Batch experiments that finished, failed, or gave way to shards (and run again later).",
    unit="experiments",
    labels=("how",),
)
EXPERIMENT_QUEUES = _made(Kind.GAUGE, "experiment_queues", "Queues of batch experiments.", unit="queues")

# A client, on its own host.
CLIENT_LAUNCHES = _made(Kind.COUNTER, "client_launches_total", "Launches captured.", unit="launches")
CLIENT_SAMPLES = _made(
    Kind.COUNTER,
    "client_samples_total",
    "Launches whose counters were read, by whether they reached a histogram.",
    unit="samples",
    labels=("result",),
)
CLIENT_SNIPPETS = _made(Kind.COUNTER, "client_snippets_total", "Snippets cut and signed.", unit="snippets")
CLIENT_REPORTS = _made(
    Kind.COUNTER,
    "client_reports_total",
    "Reports sealed (real or cover) and what became of them.",
    unit="reports",
    labels=("step",),
)
