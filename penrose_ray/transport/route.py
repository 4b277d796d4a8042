"""A gateway's address decides how reports get there: `.onion` over Tor, `https` by TLS, `http` plainly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penrose_ray.errors import ConfigError
from penrose_ray.transport.http import HttpUploader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penrose_ray.transport.uploader import Uploader
    from penrose_ray.types import TaskId


@dataclass(frozen=True, slots=True)
class Route:
    """A way to a gateway."""

    uploader: Uploader
    anonymous: bool
    """Uploads take seconds and need a pace: send them in the background."""
    close: Callable[[], None]


def route_to(gateway: str, task_id: TaskId, home: Path, *, socks: str = "") -> Route:
    """How to reach a gateway.

    Args:
        gateway: `http://HOST:PORT`, `https://HOST:PORT` or `http://ADDRESS.onion`.
        task_id: which task's reports.
        home: this client's directory. `tor/` in it is its tor's, `torrc` holds more lines for it; `tls/`
            holds `client.pem`, `client.key` and `pins` (a gateway's pin a line, hexadecimal).
        socks: HOST:PORT of a tor that runs; empty starts one for onion addresses.

    Raises:
        ConfigError: no such address, or files that are missing or wrong.
        TorError: there is no tor program.
    """
    parts = urlsplit(gateway)
    if parts.scheme == "https":
        from penrose_ray.transport.tls import TlsDial  # noqa: PLC0415 - certificates take 3 MB

        dial = TlsDial(_pins(home / "tls" / "pins"), home / "tls" / "client.pem", home / "tls" / "client.key")
        return Route(HttpUploader(gateway, task_id, dial=dial), anonymous=False, close=_nothing)
    if not (parts.hostname or "").endswith(".onion"):
        return Route(HttpUploader(gateway, task_id), anonymous=False, close=_nothing)
    from penrose_ray.transport.tor.client import OwnTor, onion_uploader  # noqa: PLC0415 - as above
    from penrose_ray.transport.tor.socks import SocksDial, SocksPort  # noqa: PLC0415

    host = parts.hostname or ""
    if socks:
        through = SocksDial(SocksPort(_host_and_port(socks)))
        return Route(onion_uploader(host, task_id, through), anonymous=True, close=_nothing)
    more = home / "torrc"
    tor = OwnTor(home / "tor", lines=more.read_text().splitlines() if more.exists() else ())
    return Route(onion_uploader(host, task_id, tor), anonymous=True, close=tor.stop)


def _host_and_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
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
