"""A gateway's address decides how reports get there: `.onion` over Tor, `https` by TLS, `http` plainly."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from penrose_ray.errors import ConfigError
from penrose_ray.transport.http import HttpUploader, PlainDial, fetch_quote, fetch_task

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from penrose_ray.transport.http import Dial
    from penrose_ray.transport.uploader import Uploader
    from penrose_ray.types import TaskId

TLS: Final = "tls"
TLS_FILES: Final = ("client.pem", "client.key", "pins")
OWN_TOR: Final = "tor"
TORRC: Final = "torrc"
"""Names in a client's directory."""
_LARGEST_PORT: Final = 65_535


class Way(NamedTuple):
    """To one address."""

    uploader: Uploader
    quote: Callable[[], bytes]
    """Fetches the TPM quote of the machine there."""
    task: Callable[[], bytes]
    """Fetches the signed task, not verified."""


@dataclass(frozen=True, slots=True)
class Route:
    """Ways to the addresses of one service, all of one kind."""

    ways: tuple[Way, ...]
    anonymous: bool
    """Uploads take seconds and need a pace: send them in the background."""
    close: Callable[[], None]


def route_to(gateways: Sequence[str], task_id: TaskId, home: Path, *, socks: str = "") -> Route:
    """How to reach a service.

    Args:
        gateways: its addresses: `http://HOST:PORT`, `https://HOST:PORT` or `http://ADDRESS.onion`.
        task_id: which task's reports.
        home: this client's directory. `tor/` in it is its tor's, `torrc` holds more lines for it; `tls/`
            holds `client.pem`, `client.key` and `pins` (a gateway's pin a line, hexadecimal).
        socks: HOST:PORT of a tor that runs; empty starts one for onion addresses.

    Raises:
        ConfigError: no address, addresses of several kinds, files that are missing or wrong, or a
            `socks` that is none or would not be used.
        TorError: there is no tor program.
    """
    kind = kind_of(gateways, socks)
    if kind == "onion":
        return _over_tor(gateways, task_id, home, socks)
    dial = _tls(home / TLS) if kind == "https" else PlainDial()
    ways = tuple(_way(HttpUploader(each, task_id, dial=dial), each, task_id, dial) for each in gateways)
    return Route(ways, anonymous=False, close=_nothing)


def kind_of(gateways: Sequence[str], socks: str = "") -> str:
    """`onion`, or the addresses' scheme.

    Raises:
        ConfigError: as `route_to`.
    """
    kinds = {_kind(each) for each in gateways}
    if len(kinds) != 1:
        raise ConfigError(
            f"{', '.join(gateways) or 'Nothing'}: one kind of address is needed.",
            remedy="Name onion addresses only, or https ones only.",
        )
    check_socks(socks, gateways[0])
    return kinds.pop()


def check_socks(socks: str, address: str) -> None:
    """Refuse a `socks` that would not be used for this address, or is no SOCKS port.

    Raises:
        ConfigError: it is not empty, and one of these.
    """
    if socks and _kind(address) != "onion":
        raise ConfigError(
            f"--socks {socks} would not be used: {address} is no onion address, and would see this host's "
            "own.",
            remedy="Give the service's http://ADDRESS.onion, or leave --socks out.",
        )
    if socks:
        host_and_port(socks)


def _way(uploader: Uploader, url: str, task_id: TaskId, dial: Dial) -> Way:
    return Way(
        uploader,
        partial(fetch_quote, url, task_id, dial=dial),
        partial(fetch_task, url, task_id, dial=dial),
    )


def _kind(gateway: str) -> str:
    parts = urlsplit(gateway)
    return "onion" if (parts.hostname or "").endswith(".onion") and parts.scheme != "https" else parts.scheme


def _tls(folder: Path) -> Dial:
    from penrose_ray.transport.tls import TlsDial  # noqa: PLC0415 - certificates take 3 MB

    certificate, key, pins = (folder / name for name in TLS_FILES)
    return TlsDial(_pins(pins), certificate, key)


def _over_tor(gateways: Sequence[str], task_id: TaskId, home: Path, socks: str) -> Route:
    """One tor for all addresses."""
    from penrose_ray.transport.tor.client import OwnTor, onion_uploader  # noqa: PLC0415 - as above
    from penrose_ray.transport.tor.socks import SocksDial, SocksPort  # noqa: PLC0415

    hosts = [urlsplit(each).hostname or "" for each in gateways]
    dial: SocksDial | OwnTor
    if socks:
        dial, close = SocksDial(SocksPort(host_and_port(socks))), _nothing
    else:
        more = home / TORRC
        dial = OwnTor(home / OWN_TOR, lines=more.read_text().splitlines() if more.exists() else ())
        close = dial.stop
    ways = tuple(_way(onion_uploader(host, task_id, dial), f"http://{host}", task_id, dial) for host in hosts)
    return Route(ways, anonymous=True, close=close)


def host_and_port(text: str) -> tuple[str, int]:
    """Where a tor listens; ConfigError unless it is HOST:PORT."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) <= _LARGEST_PORT:
        raise ConfigError(f"{text!r} is no SOCKS port.", remedy="Write HOST:PORT, such as 127.0.0.1:9050.")
    return host, int(port)


def _pins(path: Path) -> list[bytes]:
    try:
        return [bytes.fromhex(line) for line in path.read_text().split()]
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} holds no pins: {error}.", remedy="Write the pin of the gateway's key into it."
        ) from error


def _nothing() -> None:
    """There is nothing to close."""
