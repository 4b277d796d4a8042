"""Upload over HTTP: one connection a report, nothing in the request that tells clients apart.

How the connection comes about is a `Dial`: plain TCP, TLS (`penrose_ray.transport.tls`) or a circuit through
Tor (`penrose_ray.transport.tor`).
"""

from __future__ import annotations

import http.client
import socket
from typing import TYPE_CHECKING, NamedTuple, Protocol
from urllib.parse import urlsplit

import msgspec

from penrose_ray.errors import ConfigError, RefusedReportError, TransportError
from penrose_ray.transport.uploader import BusyError, StuckError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from email.message import Message

    from penrose_ray.types import TaskId

_BUSY = {429, 503}
_SERVER_ERROR = 500
_FAILED = {500, 507}
"""Answers about this report; it may be the only one that fails."""
_OK = 200
_TIMED_OUT = 408
_TIMEOUT_S = 30.0
_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 3600.0
"""A gateway can make a client wait so long, not for ever."""
_MOST_BYTES = 1 << 20
"""So much of an answer is read."""
_PORTS = {"http": 80, "https": 443}


class Dial(Protocol):
    """Connects to a gateway."""

    @property
    def scheme(self) -> str:
        """What addresses begin with: `http` or `https`."""
        ...

    def connect(self, host: str, port: int, timeout_s: float) -> socket.socket:
        """A connected socket with that time-out.

        Raises:
            TransportError, OSError: no connection.
        """
        ...


class PlainDial:
    """TCP without protection: for one machine, and behind a tunnel."""

    scheme = "http"

    def connect(self, host: str, port: int, timeout_s: float) -> socket.socket:
        """A connected socket."""
        return socket.create_connection((host, port), timeout_s)


class _Connection(http.client.HTTPConnection):
    """An HTTP connection over what a `Dial` brings."""

    def __init__(self, dial: Dial, host: str, port: int, timeout_s: float) -> None:
        super().__init__(host, port)
        self._dial = dial
        self._timeout_s = timeout_s

    def connect(self) -> None:
        """Called by the base class at the first request."""
        self.sock = self._dial.connect(self.host, self.port, self._timeout_s)
        if self.sock.family != socket.AF_UNIX:
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class Problem(msgspec.Struct, frozen=True):
    """The body of an error (RFC 9457)."""

    title: str = ""
    detail: str = ""
    remedy: str = ""


class Address(NamedTuple):
    """Where a service is."""

    host: str
    port: int
    prefix: str
    """Of all its paths."""


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: Message
    body: bytes

    @property
    def problem(self) -> Problem:
        """What an error's body says, as far as it is a problem."""
        try:
            return msgspec.json.decode(self.body, type=Problem)
        except msgspec.MsgspecError:
            return Problem()


def exchange(
    dial: Dial,
    to: Address,
    method: str,
    path: str,
    body: bytes = b"",
    *,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = _TIMEOUT_S,
    most_bytes: int = _MOST_BYTES,
) -> Answer:
    """One request over a connection of its own; no more than `most_bytes` of the answer are read.

    Raises:
        OSError, HTTPException: no connection, or one that breaks off.
        TransportError: as `dial.connect`.
    """
    connection = _Connection(dial, to.host, to.port, timeout_s)
    try:
        connection.request(method, f"{to.prefix}{path}", body or None, dict(headers or {}))
        response = connection.getresponse()
        content = response.read(most_bytes)
        if response.length and len(content) < most_bytes:
            raise http.client.IncompleteRead(content, response.length)
        return Answer(response.status, response.headers, content)
    finally:
        connection.close()


class HttpUploader:
    """Posts reports of one task to a gateway."""

    def __init__(
        self, base_url: str, task_id: TaskId, *, dial: Dial | None = None, timeout_s: float = _TIMEOUT_S
    ) -> None:
        self._dial = dial or PlainDial()
        self._address = address_of(base_url, self._dial.scheme)
        self._path = f"/tasks/{task_id.hex()}/reports"
        self._timeout_s = timeout_s

    def send(self, record: bytes) -> None:
        """Post one report; see `Uploader.send`."""
        answer = self._post(record)
        status = answer.status
        if status == _OK:
            return
        problem = answer.problem
        if status in _BUSY:
            raise BusyError(
                f"The gateway is busy: {problem.detail or status}.",
                remedy="The report is sent again.",
                retry_after_s=_pause_s(answer.headers.get("Retry-After", "")),
            )
        if status in _FAILED:
            raise StuckError(f"The gateway answered {status}.", remedy="The report is sent again later.")
        if status >= _SERVER_ERROR or status == _TIMED_OUT:
            raise TransportError(f"The gateway answered {status}.", remedy="The report is sent again.")
        raise RefusedReportError(
            problem.detail or f"The gateway answered {status}.",
            remedy=problem.remedy or "The report is not sent again.",
        )

    def _post(self, record: bytes) -> Answer:
        kind = {"Content-Type": "application/octet-stream"}
        try:
            return exchange(
                self._dial,
                self._address,
                "POST",
                self._path,
                record,
                headers=kind,
                timeout_s=self._timeout_s,
            )
        except (OSError, http.client.HTTPException) as error:
            raise TransportError(
                f"The gateway {self._address.host}:{self._address.port} cannot be reached: {error}.",
                remedy="Check that the service is up; the report is sent again.",
            ) from error


def fetch_task(
    base_url: str, task_id: TaskId, *, dial: Dial | None = None, timeout_s: float = _TIMEOUT_S
) -> bytes:
    """The signed task as the gateway publishes it; verify it with `penrose_ray.task.verify`.

    Raises:
        ConfigError: `base_url` is no address.
        TransportError: the gateway cannot be reached or does not have the task.
    """
    return _fetch(base_url, f"/tasks/{task_id.hex()}", dial, timeout_s)


def fetch_quote(
    base_url: str, task_id: TaskId, *, dial: Dial | None = None, timeout_s: float = _TIMEOUT_S
) -> bytes:
    """The TPM quote of the gateway's machine for a task, empty if it has none; raises like `fetch_task`."""
    return _fetch(base_url, f"/tasks/{task_id.hex()}/quote", dial, timeout_s)


def _fetch(base_url: str, path: str, dial: Dial | None, timeout_s: float) -> bytes:
    dial = dial or PlainDial()
    try:
        answer = exchange(dial, address_of(base_url, dial.scheme), "GET", path, timeout_s=timeout_s)
    except (OSError, http.client.HTTPException) as error:
        raise TransportError(
            f"The gateway {base_url} cannot be reached: {error}.", remedy="Check that the service is up."
        ) from error
    if answer.status != _OK:
        reason = answer.problem.detail or answer.status
        raise TransportError(
            f"The gateway has no task {path.removeprefix('/tasks/')}: {reason}.",
            remedy="Check the task id with the service's operator.",
        )
    return answer.body


def address_of(base_url: str, scheme: str, *, party: str = "gateway") -> Address:
    """The address that a URL names.

    Raises:
        ConfigError: it names none, or one of another scheme; `party` is whose it should be.
    """
    write = f"Write {scheme}://HOST:PORT."
    try:
        parts = urlsplit(base_url)
        port = _PORTS[scheme] if parts.port is None else parts.port
    except ValueError as error:
        raise ConfigError(f"{base_url!r}: {error}.", remedy=write) from error
    if parts.scheme != scheme or not parts.hostname or not port:
        raise ConfigError(f"{base_url!r} is no {party}'s address.", remedy=write)
    return Address(parts.hostname, port, parts.path.rstrip("/"))


def _pause_s(retry_after: str) -> float:
    """Seconds of a Retry-After header; 1 s for a date or nonsense, at most `_LONGEST_PAUSE_S`."""
    try:
        seconds = float(retry_after)
    except ValueError:
        return _PAUSE_S
    return min(seconds, _LONGEST_PAUSE_S) if seconds >= 0 else _PAUSE_S
