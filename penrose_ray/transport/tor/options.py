"""torrc lines: what is set, what the published system set, and why (docs/tor.md says more)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Option:
    """A torrc option; None leaves tor's default alone."""

    name: str
    ours: str | None
    paper: str | None
    why: str


class Profile(StrEnum):
    """Which values a client's tor is given."""

    RECOMMENDED = "recommended"
    PAPER = "paper"


CLIENT_OPTIONS: Final = (
    Option("ClientOnly", "1", "1", "never relay for others from a GPU machine"),
    Option("SafeSocks", "1", "1", "refuse a request that carries an address already resolved"),
    Option("MaxCircuitDirtiness", "60", "600", "no circuit is used twice, so old ones only cost memory"),
    Option("LearnCircuitBuildTimeout", None, "0", "tor measures the time-out; a fixed one marks the client"),
    Option("CircuitBuildTimeout", None, "5", "only a first guess while tor learns"),
    Option("NumEntryGuards", None, "3", "one guard; three meet a hostile one three times as likely"),
    Option("VanguardsLiteEnabled", None, None, "keeps the guard from being found through onion services"),
    Option("ConnectionPadding", None, None, "hides from a network's flow records when a client is idle"),
    Option("CircuitPadding", None, None, "makes the set-up of onion circuits look like others"),
    Option("SafeLogging", None, None, "no address in tor's log"),
)

SERVICE_OPTIONS: Final = (
    Option("HiddenServicePoWDefensesEnabled", "1", None, "clients pay with work during a flood"),
    Option("HiddenServicePoWQueueRate", "250", None, "tor's default: requests a second before work is asked"),
    Option("HiddenServicePoWQueueBurst", "2500", None, "tor's default"),
    Option("HiddenServiceEnableIntroDoSDefense", "1", None, "introduction points drop a flood"),
    Option("HiddenServiceEnableIntroDoSRatePerSec", "100", None, "above a fleet's 33/s over 3 points"),
    Option("HiddenServiceEnableIntroDoSBurstPerSec", "500", None, "a fleet that comes back after an outage"),
    Option("HiddenServiceMaxStreams", "8", None, "an honest client opens one stream a circuit"),
    Option("HiddenServiceMaxStreamsCloseCircuit", "1", None, "a circuit that opens more is closed"),
)
SOCKS_FLAGS: Final = "IsolateSOCKSAuth OnionTrafficOnly ExtendedErrors"


def client_lines(socks: Path | str, profile: Profile = Profile.RECOMMENDED) -> list[str]:
    """Torrc lines of a client's tor; `socks` is a path, or host and port."""
    where = socks if isinstance(socks, str) else f"unix:{socks}"
    return [f"SocksPort {where} {SOCKS_FLAGS}", *_lines(CLIENT_OPTIONS, profile)]


def service_lines(home: Path, gateway_port: int, *, has_pow: bool, onion_port: int = 80) -> list[str]:
    """Torrc lines of one onion service; they must stay together, in this order."""
    options = [each for each in SERVICE_OPTIONS if has_pow or "PoW" not in each.name]
    return [
        f"HiddenServiceDir {home}",
        "HiddenServiceVersion 3",
        f"HiddenServicePort {onion_port} 127.0.0.1:{gateway_port}",
        *_lines(options, Profile.RECOMMENDED),
    ]


def _lines(options: Iterable[Option], profile: Profile) -> list[str]:
    values = ((each.name, each.ours if profile is Profile.RECOMMENDED else each.paper) for each in options)
    return [f"{name} {value}" for name, value in values if value is not None]
