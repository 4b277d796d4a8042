"""How likely an observer joins an upload to a client, and what a fleet's uploads mean for the Tor network.

The aggregation service sees each report's class and moment, but no address. One guard sees an address and the
moments of its circuits, but no class, no destination and one size. Each probability is that of the observer's
best guess: in closed form, and by drawing the times. docs/tor.md argues for the assumptions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from penrose_ray.errors import ConfigError

LIMIT: Final = 1e-5
"""The published bound: 0.001 %."""
_CELL_PAYLOAD_BYTES: Final = 498
_CELL_BYTES: Final = 514
_UPLOAD_BYTES: Final = 4_600
_HOPS: Final = 6
"""Client to rendezvous point and back out to the service."""
_CIRCUITS_PER_UPLOAD: Final = 3
_CLIENT_CIRCUITS_PER_UPLOAD: Final = 2
_GUARD_CIRCUITS_PER_S: Final = 3.0
"""Faster than that from one address, a guard refuses circuits for an hour or more."""


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What the figures stand on."""

    clients: int = 100_000
    """Clients that upload to the same service."""
    report_every_s: float = 3_000.0
    """Mean time between two reports of a client."""
    spread_s: float = 300.0
    """Standard deviation of that time: workloads vary."""
    mean_gap_s: float = 300.0
    """Of the pace, which delays each report by an exponential time."""
    latency_s: float = 2.0
    """To this, guard and service know that two moments belong to one upload."""
    guards: int = 1
    """NumEntryGuards: 1 is tor's default, the paper sets 3."""
    hostile_guard_share: float = 0.01
    """Share of Tor's guard bandwidth in the observer's hands."""

    def __post_init__(self) -> None:
        positive = (self.report_every_s, self.spread_s, self.mean_gap_s, self.latency_s)
        if self.clients < 2 or min(positive) <= 0 or self.guards < 1:  # noqa: PLR2004 - nobody hides alone
            raise ConfigError(
                "Linkability needs two clients or more, and positive times.", remedy="Correct the options."
            )
        if not 0 <= self.hostile_guard_share <= 1:
            raise ConfigError("A share lies between 0 and 1.", remedy="Correct the share of hostile guards.")

    @property
    def uploads_per_s(self) -> float:
        """All clients together, when their phases are random."""
        return self.clients / self.report_every_s


@dataclass(frozen=True, slots=True)
class Finding:
    """One observer's best guess."""

    observer: str
    question: str
    probability: float
    simulated: float | None
    """The same from drawn times; None where there is nothing to draw."""
    assumes: str

    @property
    def within_limit(self) -> bool:
        """Whether it keeps the published bound."""
        return self.probability <= LIMIT


def sender_probability(assumptions: Assumptions) -> float:
    """That the service names the sender of one upload: random phases and memoryless gaps leave all alike."""
    return 1 / assumptions.clients


def same_client_probability(assumptions: Assumptions) -> float:
    """That the service picks a client's next upload among all, by its moment alone.

    The gap is normal around `report_every_s` plus the difference of two exponential delays; its density is
    highest in the middle: exp(s^2 / 2b^2) Phi(-s/b) / b, with s = spread_s and b = mean_gap_s. The nearest
    upload to the middle is the right one with that density over the rate of all uploads.
    """
    spread, delay = assumptions.spread_s, assumptions.mean_gap_s
    tail = 0.5 * math.erfc(spread / delay / math.sqrt(2))
    peak = math.exp(spread**2 / (2 * delay**2)) * tail / delay
    return min(1.0, peak / assumptions.uploads_per_s)


def matching_probability(assumptions: Assumptions) -> float:
    """That a guard and the service together pick the upload that belongs to a circuit.

    Within `latency_s` a Poisson number K of other uploads arrives, mean m; the guess is right with
    E[1 / (1 + K)] = (1 - exp(-m)) / m.
    """
    mean = assumptions.uploads_per_s * assumptions.latency_s
    return -math.expm1(-mean) / mean


def hostile_guard_probability(assumptions: Assumptions) -> float:
    """That one of a client's guards is the observer's."""
    return 1 - (1 - assumptions.hostile_guard_share) ** assumptions.guards


def uploads_until_known(assumptions: Assumptions) -> int:
    """After how many uploads of one pseudonym guard and service can name the address they come from.

    Another client happens to upload within `latency_s` of each of n moments with (latency / report_every)^n;
    below 1 / clients, one address is left.
    """
    chance = min(0.999, assumptions.latency_s / assumptions.report_every_s)
    return math.ceil(math.log(assumptions.clients) / -math.log(chance))


def simulate_same_client(assumptions: Assumptions, rounds: int, rng: np.random.Generator) -> float:
    """`same_client_probability` from drawn gaps and drawn strangers."""
    delays = rng.exponential(assumptions.mean_gap_s, (2, rounds))
    away = np.abs(rng.normal(0, assumptions.spread_s, rounds) + delays[0] - delays[1])
    nearest_stranger = rng.exponential(1 / (2 * assumptions.uploads_per_s), rounds)
    return float(np.mean(away < nearest_stranger))


def simulate_matching(assumptions: Assumptions, rounds: int, rng: np.random.Generator) -> float:
    """`matching_probability` from the drawn uploads of every other client."""
    share = min(1.0, assumptions.latency_s / assumptions.report_every_s)
    others = rng.binomial(assumptions.clients - 1, share, rounds)
    return float(np.mean(1 / (1 + others)))


def findings(assumptions: Assumptions, *, rounds: int, rng: np.random.Generator) -> list[Finding]:
    """What each observer can do."""
    hostile = hostile_guard_probability(assumptions)
    matched = simulate_matching(assumptions, rounds, rng)
    return [
        Finding(
            "aggregation service",
            "which of the known addresses sent this upload",
            sender_probability(assumptions),
            None,
            "Tor hides addresses; random phases and memoryless gaps leave all clients alike",
        ),
        Finding(
            "aggregation service",
            "which later upload comes from the same client, by its moment",
            same_client_probability(assumptions),
            simulate_same_client(assumptions, rounds, rng),
            "links two uploads, not an address; rare signatures link more than moments do",
        ),
        Finding(
            "one guard",
            "which application runs at this address",
            0.0,
            None,
            "sees no class, no destination, one size; not together with the service",
        ),
        Finding(
            "service and hostile guards",
            "which upload belongs to a circuit at a hostile guard",
            matching_probability(assumptions),
            matched,
            "they collude and clocks agree",
        ),
        Finding(
            "service and hostile guards",
            "which upload belongs to a given client's address",
            hostile * matching_probability(assumptions),
            hostile * matched,
            f"one upload; {uploads_until_known(assumptions)} of one pseudonym name who has a hostile guard, "
            "as Tor does not protect where both ends are watched",
        ),
    ]


@dataclass(frozen=True, slots=True)
class TorLoad:
    """What a fleet asks of a Tor network."""

    uploads_per_s: float
    link_mbit_per_s: float
    """At each hop."""
    relay_mbit_per_s: float
    """All relays together."""
    circuits_per_s: float
    synchronous_uploads_per_s: float
    """If all clients uploaded within the same minute: why phases are random."""
    most_clients_per_address: int
    """Behind one address, before a guard takes them for an attack."""


def tor_load(assumptions: Assumptions) -> TorLoad:
    """Load of the fleet when phases are random."""
    rate = assumptions.uploads_per_s
    cells = math.ceil(_UPLOAD_BYTES / _CELL_PAYLOAD_BYTES) + 1
    link = rate * cells * _CELL_BYTES * 8 / 1e6
    per_client = _CLIENT_CIRCUITS_PER_UPLOAD / assumptions.report_every_s
    return TorLoad(
        uploads_per_s=rate,
        link_mbit_per_s=link,
        relay_mbit_per_s=link * _HOPS,
        circuits_per_s=rate * _CIRCUITS_PER_UPLOAD,
        synchronous_uploads_per_s=assumptions.clients / 60,
        most_clients_per_address=int(_GUARD_CIRCUITS_PER_S / per_client),
    )
