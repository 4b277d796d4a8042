"""A connection through tor's SOCKS port: a fresh circuit each, the name resolved by tor alone.

SOCKS5 (RFC 1928) with user name and password (RFC 1929): tor never shares a circuit between two user names
(IsolateSOCKSAuth). Written out here, because a library that resolves a name itself would tell the resolver
where this machine uploads to, and none names tor's own reasons (Tor proposal 304).
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penrose_ray.errors import TorError
from penrose_ray.transport.tor.address import check_onion

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_VERSION: Final = b"\x05"
_BY_PASSWORD: Final = b"\x02"
_CONNECT_TO_NAME: Final = b"\x05\x01\x00\x03"
_ADDRESS_BYTES: Final = {1: 4, 4: 16}
_BY_NAME: Final = 3
_AGAIN: Final = "The report is sent again, over another circuit."
_CHECK_KEY: Final = "Ask the service's operator for this client's key, and add it to the tor that is used."
_REASONS: Final = {
    1: ("tor gave up", _AGAIN),
    2: ("tor refuses such a connection", "Check the flags of the SocksPort."),
    4: ("the service is not reachable", _AGAIN),
    5: ("the service's machine refused the connection", "Check that the gateway is up."),
    6: ("the circuit ended", _AGAIN),
    0xF0: ("the service's descriptor is not published", "Check the address, and that the service is up."),
    0xF1: ("the service's descriptor is not valid", _AGAIN),
    0xF2: ("no introduction point answered", _AGAIN),
    0xF3: ("no rendezvous came about", _AGAIN),
    0xF4: ("the service wants client authorisation", _CHECK_KEY),
    0xF5: ("this client's authorisation key is wrong", _CHECK_KEY),
    0xF6: ("the address is not valid", "Copy the address again."),
    0xF7: ("the introduction took too long", _AGAIN),
}
_PERHAPS_STALE: Final = {0xF1, 0xF2, 0xF7}


class NoWayError(TorError):
    """tor found no way to the service; what it has learnt of the service may be out of date."""


@dataclass(frozen=True, slots=True)
class SocksPort:
    """Where tor listens: a Unix socket, or host and port."""

    address: Path | tuple[str, int]

    def open(self, timeout_s: float) -> socket.socket:
        """A connection to tor itself."""
        if isinstance(self.address, tuple):
            return socket.create_connection(self.address, timeout_s)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(timeout_s)
            connection.connect(str(self.address))
        except BaseException:
            connection.close()
            raise
        return connection


def _random_name() -> str:
    return secrets.token_hex(16)


class SocksDial:
    """A `Dial` with a circuit of its own for each connection; onion addresses only."""

    scheme = "http"

    def __init__(self, port: SocksPort, *, new_name: Callable[[], str] = _random_name) -> None:
        self._port = port
        self._new_name = new_name

    def connect(self, host: str, port: int, timeout_s: float) -> socket.socket:
        """A stream to the service.

        Raises:
            ConfigError: `host` is no onion address.
            NoWayError: not within `timeout_s`, or no introduction point answered.
            TorError: tor cannot be reached, or has no circuit to the service; a new try takes a new one.
        """
        name = check_onion(host).encode()
        deadline = time.monotonic() + timeout_s
        try:
            connection = self._port.open(timeout_s)
        except OSError as error:
            raise TorError(
                f"tor's SOCKS port cannot be reached: {error}.",
                remedy="Start tor, or correct the port; the report is sent again.",
            ) from error
        with contextlib.ExitStack() as undo:
            undo.callback(connection.close)
            try:
                _authenticate(connection, self._new_name().encode(), deadline)
                _request(connection, name, port, deadline)
            except TimeoutError as error:
                raise NoWayError(f"tor did not connect within {timeout_s:g} s.", remedy=_AGAIN) from error
            except OSError as error:
                raise TorError(f"tor ended the connection: {error}.", remedy=_AGAIN) from error
            connection.settimeout(timeout_s)
            undo.pop_all()
        return connection


def _authenticate(connection: socket.socket, name: bytes, deadline: float) -> None:
    connection.sendall(_VERSION + b"\x01" + _BY_PASSWORD)
    if _read(connection, 2, deadline) != _VERSION + _BY_PASSWORD:
        raise TorError(
            "The SOCKS port does not take user names, which keep circuits apart.",
            remedy="Use tor's own SocksPort, without a proxy in between.",
        )
    connection.sendall(b"\x01" + bytes([len(name)]) + name + b"\x011")
    if _read(connection, 2, deadline)[1]:
        raise TorError("tor refused the user name.", remedy="Use tor's own SocksPort.")


def _request(connection: socket.socket, host: bytes, port: int, deadline: float) -> None:
    connection.sendall(_CONNECT_TO_NAME + bytes([len(host)]) + host + port.to_bytes(2, "big"))
    version, code, _, address = _read(connection, 4, deadline)
    if code or version != _VERSION[0]:
        reason, remedy = _REASONS.get(code, (f"code {code:#04x}", _AGAIN))
        kind = NoWayError if code in _PERHAPS_STALE else TorError
        raise kind(f"No circuit to the service: {reason}.", remedy=remedy)
    length = _read(connection, 1, deadline)[0] if address == _BY_NAME else _ADDRESS_BYTES.get(address, 4)
    _read(connection, length + 2, deadline)


def _read(connection: socket.socket, count: int, deadline: float) -> bytes:
    """Exactly `count` bytes; TimeoutError after the deadline."""
    got = b""
    while len(got) < count:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        connection.settimeout(left_s)
        more = connection.recv(count - len(got))
        if not more:
            raise ConnectionResetError("tor closed the connection")
        got += more
    return got
