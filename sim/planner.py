"""Planning a collection: hours to coverage, machines, money, and which part breaks first.

Everything is linear in the number of reports, so each part has a size of fleet at which what cannot be
multiplied (one process, one network, one key holder) is used up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from penrose_ray.crypto.packing import DEFAULT_PROFILE
from penrose_ray.errors import ConfigError
from penrose_ray.release.gate import least_passing
from penrose_ray.sim.costs import UnitCosts, require_positive
from penrose_ray.sim.expectation import expected_hours
from penrose_ray.sim.gate import rules_of
from penrose_ray.sim.population import Mix, time_shares
from penrose_ray.sim.scenario import Sampling, Scenario
from penrose_ray.sim.settings import ReportingSettings
from penrose_ray.sim.workloads import Group, grouped
from penrose_ray.transport.pace import Pace, asking_window_s, closing_window_s

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penrose_ray.sim.workloads import Workload

DAY_S: Final = 86_400.0
GROUPS: Final = (Group(0.5, 0.5984), Group(0.5, 1.3308))
"""Applications of configs/coverage-paper.toml."""
MIXES: Final = {"uniform": (0.5, 0.5), "small": (0.9308, 0.0692), "large": (0.0692, 0.9308)}
_CHANGES: Final = (
    ("hostile_clients", 0),
    ("min_contributors", 50),
    ("tokens_per_day", 64),
    ("tokens_per_day", 128),
    ("tokens_per_day", 8),
)
_BUCKETS = 256
_KEPT_DAYS = 2
_UNLIMITED = math.inf
_CIRCUITS_PER_UPLOAD = 3
"""Introduction and both sides of the rendezvous."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What is asked for."""

    gpus: int
    apps: int
    load: float = 0.1
    interval: float = 10_000
    counter_groups: int = 1
    gpu_models: int = 1
    """Classes are kept apart by GPU model."""
    gpus_per_host: int = 8
    dwell_s: float = 600.0
    """Seconds that a client stays with an application."""
    target: float = 0.99
    rules: ReportingSettings = ReportingSettings()  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        """Refuse impossible numbers, by the field's name."""
        for name in ("gpus", "apps", "counter_groups", "gpu_models", "gpus_per_host", "dwell_s"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} = {getattr(self, name)} is not above 0.", remedy="Give more.")


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the service at this size."""

    part: str
    need: float
    unit: str
    units: float
    """Machines, cores or processes that the need takes."""
    of: str
    breaks_at_gpus: float
    """Fleet at which the part's limit is reached; infinite when more units always help."""
    limit: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A collection of this size."""

    hours: dict[str, float]
    """Mix -> hours to the target."""
    reports_per_s: float
    """Over a day."""
    peak_reports_per_s: float
    """While most clients send what a batch has brought; see `peak_rate`."""
    peak_clients_per_s: float
    """Clients that ask the token issuer after midnight UTC; 0 in a task without tokens."""
    reports_per_pair: float
    """Reports that a (class, GPU model, counter group) gets a batch."""
    reports_needed: int
    """Reports that the gate wants of it."""
    gate_opens_at_gpus: float
    passes_with: tuple[str, ...]
    """Where sums are withheld: single changes of the task that would let them pass."""
    parts: tuple[Part, ...]
    nodes: int
    usd_per_year: float

    @property
    def breaks_first(self) -> Part:
        """The part with the smallest limit."""
        return min(self.parts, key=lambda part: part.breaks_at_gpus)


def plan(demand: Demand, costs: UnitCosts | None = None) -> Plan:
    """Hours, machines and limits of a collection.

    Raises:
        ConfigError: a number that is not positive, by its name.
    """
    costs = costs or UnitCosts()
    require_positive(costs)
    per_client = reports_per_client_day(demand)
    rate = demand.gpus * per_client / DAY_S
    pairs = demand.apps * demand.gpu_models * demand.counter_groups
    per_pair, needed = at_the_gate(demand)
    parts = (
        *_service(demand, costs, rate),
        *_tor(demand, costs, rate),
        *_design_server(demand, costs, pairs),
    )
    cores = sum(part.units for part in parts if part.of == "AS cores")
    disk = next(part.units for part in parts if part.part == "journals")
    nodes = max(1, math.ceil(max(cores / costs.node_cores, disk)))
    return Plan(
        hours=hours_by_mix(demand),
        reports_per_s=rate,
        peak_reports_per_s=peak_rate(demand, rate),
        peak_clients_per_s=_asking_rate(demand),
        reports_per_pair=per_pair,
        reports_needed=needed,
        gate_opens_at_gpus=demand.gpus * needed / per_pair,
        passes_with=() if per_pair >= needed else tuple(passing_changes(demand)),
        parts=parts,
        nodes=nodes,
        usd_per_year=nodes * costs.node_usd_per_year,
    )


def peak_rate(demand: Demand, rate: float) -> float:
    """Most reports a second of a fleet whose mean is `rate`.

    With r > 0 a client begins to send at a moment of its own, uniform in a window after a batch's end, and
    then sends n reports with a mean pause g: of a rectangle convolved with one of n g the height is
    n / max(window, n g) a client. With r = 0 reports go as histograms fill, at no common time.
    """
    rules = demand.rules
    if not rules.reports_per_class:
        return rate
    reports = rate * rules.batch_s / demand.gpus
    sending_s = reports * Pace().mean_gap_s
    return rate * rules.batch_s / max(closing_window_s(rules.batch_s), sending_s)


def _asking_rate(demand: Demand) -> float:
    rules = demand.rules
    if not rules.tokens_per_day:
        return 0.0
    return demand.gpus / demand.gpus_per_host / asking_window_s(rules.batch_s, rules.reports_per_class)


def at_the_gate(demand: Demand) -> tuple[float, int]:
    """Reports that a (class, GPU model, counter group) gets a batch, and how many the gate asks for."""
    pairs = demand.apps * demand.gpu_models * demand.counter_groups
    days = demand.rules.batch_s / DAY_S
    return demand.gpus * reports_per_client_day(demand) / pairs * days, least_passing(rules_of(demand.rules))


def passing_changes(demand: Demand) -> Iterator[str]:
    """Single changes with which sums of a fleet that spreads evenly would pass."""
    tried: list[tuple[str, Demand]] = []
    if demand.counter_groups > 1:
        tried.append(("counter_groups = 1", replace(demand, counter_groups=1)))
    for name, value in _CHANGES:
        rules = demand.rules.model_copy(update={name: value})
        tried.append((f"{name} = {value:,}", replace(demand, rules=rules)))
    for text, changed in tried:
        got, needed = at_the_gate(changed)
        if got >= needed:
            yield f"{text} ({got:,.0f} reports, {needed:,} needed)"


def hours_by_mix(demand: Demand) -> dict[str, float]:
    """Expected hours to the target for the published mixes."""
    workload = grouped(demand.apps, GROUPS)
    return {name: expected_hours(_scenario(demand, workload, name), demand.target) for name in MIXES}


def _scenario(demand: Demand, workload: Workload, mix: str) -> Scenario:
    groups = int(workload.group.max()) + 1
    shares = MIXES[mix] if groups == len(GROUPS) else ()
    return Scenario(
        workload,
        time_shares(Mix(shares), workload),
        clients=demand.gpus,
        load=demand.load,
        sampling=Sampling(demand.interval, counter_groups=demand.counter_groups),
    )


def reports_per_client_day(demand: Demand) -> float:
    """Reports of a client a day, cover included: its (class, counter group) pairs, as far as tokens go."""
    rules = demand.rules
    pairs = demand.apps * demand.counter_groups
    visits = DAY_S / demand.dwell_s
    distinct = -pairs * math.expm1(visits * math.log1p(-1 / pairs)) if pairs > 1 else 1.0
    real = min(distinct * (rules.reports_per_class or 1), visits)
    if rules.tokens_per_day:
        real = min(real, rules.tokens_per_day * (1 - rules.cover_rate))
    return real / (1 - rules.cover_rate)


def _limit(demand: Demand, used: float) -> float:
    """Fleet at which a part that is used to this share is full."""
    return demand.gpus / used if used else _UNLIMITED


def _service(demand: Demand, costs: UnitCosts, rate: float) -> list[Part]:
    gateways = rate / costs.requests_per_s_core
    shards = rate / costs.durable_per_s_core
    kept = rate * DAY_S * _KEPT_DAYS * costs.row_bytes
    traffic = rate * costs.record_bytes * costs.wire_overhead
    classes = demand.apps * demand.gpu_models * costs.bytes_per_class
    memory = classes / costs.node_memory_bytes
    full = _limit(demand, shards / _BUCKETS)
    fits = _UNLIMITED if memory < 1 else float(demand.gpus)
    rows = (
        ("gateways", rate, "requests/s", gateways, "AS cores", _limit(demand, gateways), "one gateway"),
        ("shards", rate, "reports/s", shards, "AS cores", full, "256 buckets"),
        ("journals", kept, "bytes", kept / costs.node_disk_bytes, "disks", _UNLIMITED, "more nodes"),
        ("network", traffic, "bytes/s", traffic / costs.node_bytes_per_s, "links", _UNLIMITED, "more nodes"),
        ("matcher", classes, "bytes", memory, "memories", fits, "one process; grows with classes"),
    )
    return [Part(*row) for row in rows]


def _tor(demand: Demand, costs: UnitCosts, rate: float) -> list[Part]:
    hosts = demand.gpus / demand.gpus_per_host
    guests = hosts / (costs.tor_users * costs.tor_share)
    processes = rate / costs.uploads_per_s_tor
    circuits = rate * _CIRCUITS_PER_UPLOAD
    users = f"{costs.tor_share:.0%} of its users"
    return [
        Part(
            "onion service", circuits, "circuits/s", processes, "tor processes", _UNLIMITED, "more processes"
        ),
        Part("Tor network", hosts, "clients", guests, "its guests", _limit(demand, guests), users),
    ]


def _design_server(demand: Demand, costs: UnitCosts, pairs: int) -> list[Part]:
    minutes = pairs * DAY_S / demand.rules.batch_s * costs.decrypt_crt_ms / 1000 / 60
    fullest = demand.gpus * demand.rules.reports_per_class / (1 - demand.rules.cover_rate)
    slots = fullest / DEFAULT_PROFILE.capacity(demand.rules.samples_per_histogram)
    share = minutes / (DAY_S / 60)
    grows = "grows with classes"
    return [
        Part("design server", minutes, "minutes/day", share, "DS cores", _UNLIMITED, grows),
        Part("sums", fullest, "reports in one", slots, "a slot", _limit(demand, slots), "47-bit slots"),
    ]
