"""Several ranks and nodes in one analysis: one address that all of them send their launches to.

Frames are length-prefixed MessagePack of fixed types; whoever does not know the token or breaks the protocol
is cut off. Without a salt kernel names travel in clear text: use it inside one owner's cluster, on addresses
of its own.
"""

from __future__ import annotations

import contextlib
import hmac
import selectors
import socket
import struct
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from penrose_ray.capture.events import Capabilities, EventBatch
from penrose_ray.capture.queued import DEFAULT_CAPACITY, QueuedSource
from penrose_ray.capture.scrub import salted
from penrose_ray.errors import SourceError
from penrose_ray.histogram import Counter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penrose_ray.capture.source import EventSource

_LENGTH = struct.Struct("<I")
_LARGEST_FRAME = 64 << 20
_LARGEST_GREETING = 64 << 10
_READ_BYTES = 1 << 20
_PATIENCE_S = 10
_COLUMNS = tuple(each.name for each in fields(EventBatch))
_SEND_ROWS = 65_536


class Hello(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    """First frame of a rank."""

    token: bytes
    counters: tuple[Counter, ...]


class Launches(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    """Names and devices that are new, then launches: raw bytes of each column, in the order of EventBatch.

    `ended` are processes of which these were the last launches.
    """

    names: tuple[str, ...]
    devices: tuple[str, ...]
    rows: int
    columns: tuple[bytes, ...]
    ended: tuple[int, ...] = ()


class Arm(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    """From the collector: launches of the rank to measure, and indices of counters."""

    launches: tuple[int, ...]
    counters: tuple[int, ...]


_FROM_RANK = msgspec.msgpack.Decoder(Hello | Launches)
_FROM_COLLECTOR = msgspec.msgpack.Decoder(Arm)


def _framed(message: msgspec.Struct) -> bytes:
    body = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(body)) + body


class _Frames:
    """Cuts a byte stream into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def unfinished(self) -> bool:
        """Whether a frame has begun and not ended."""
        return bool(self._buffer)

    def feed(self, data: bytes, largest: int = _LARGEST_FRAME) -> list[bytes]:
        """Frames that are whole now; ValueError for one that is too large."""
        self._buffer += data
        found = []
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > largest:
                raise ValueError(f"a frame of {length} bytes")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                break
            found.append(bytes(self._buffer[_LENGTH.size : end]))
            del self._buffer[:end]
        return found


@dataclass(slots=True, eq=False)
class _Rank:
    connection: socket.socket
    number: int
    base: int
    """Number that the collector's stream had when this rank came."""
    frames: _Frames = field(default_factory=_Frames)
    welcome: bool = False
    names: list[int] = field(default_factory=list)
    devices: list[int] = field(default_factory=list)
    processes: dict[int, int] = field(default_factory=dict)


class Collector(QueuedSource):
    """EventSource over all ranks that connect; each of their processes is one of its own.

    Every rank measures its own n-th launch when n is armed, counted from where the stream was when it came:
    all are sampled alike, and measured rows show themselves by counters that are not NaN.

    Args:
        counters: what the ranks must measure.
        token: secret of 16 bytes or more that ranks must know.
        address: host and port to listen on; port 0 takes a free one, see `address`.
        capacity: launches that may wait for `poll`.
    """

    def __init__(
        self,
        counters: tuple[Counter, ...],
        token: bytes,
        *,
        address: tuple[str, int] = ("127.0.0.1", 0),
        capacity: int = DEFAULT_CAPACITY,
    ) -> None:
        super().__init__(counters, capacity=capacity, gauges=True)
        if len(token) < 16:  # noqa: PLR2004 - 128 bits
            raise SourceError("The collector's token is too short.", remedy="Use 16 random bytes or more.")
        self._token = token
        self.address = address
        self._ranks: dict[socket.socket, _Rank] = {}
        self._arrived = 0
        self._processes = 0
        self._planned: list[tuple[int, tuple[int, ...]]] = []
        self._selector = selectors.DefaultSelector()
        self._listener: socket.socket | None = None

    def probe(self) -> Capabilities:
        """Always available; ranks bring their own reasons."""
        return Capabilities(available=True, per_kernel_counters=True)

    def _start(self) -> None:
        try:
            self._listener = socket.create_server(self.address)
        except OSError as error:
            raise SourceError(
                f"The collector cannot listen on {self.address}: {error}.", remedy="Name another address."
            ) from error
        self._listener.settimeout(0)
        self.address = self._listener.getsockname()[:2]
        self._selector.register(self._listener, selectors.EVENT_READ)

    def _stop(self) -> None:
        for rank in list(self._ranks.values()):
            self._part(rank)
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None

    @property
    def ranks(self) -> int:
        """Ranks that are connected and known."""
        return sum(rank.welcome for rank in self._ranks.values())

    def arm(self, launches: Sequence[int], counters: Sequence[Counter]) -> None:
        """Tell every rank, and those that come later."""
        columns = tuple(index for index, each in enumerate(self.counters) if each in counters)
        coming = [launch for launch in launches if launch >= self._position]
        self.tally.late_arms += len(launches) - len(coming)
        self._planned = [plan for plan in self._planned if plan[0] >= self._position]
        self._planned += [(launch, columns) for launch in coming]
        for rank in self._ranks.values():
            if rank.welcome:
                self._send_plan(rank, [(launch, columns) for launch in coming])

    def _send_plan(self, rank: _Rank, plan: Sequence[tuple[int, tuple[int, ...]]]) -> None:
        by_columns: dict[tuple[int, ...], list[int]] = {}
        for launch, columns in plan:
            by_columns.setdefault(columns, []).append(launch - rank.base)
        for columns, launches in by_columns.items():
            data = _framed(Arm(tuple(each for each in launches if each >= 0), columns))
            try:
                rank.connection.settimeout(_PATIENCE_S)
                rank.connection.sendall(data)
                rank.connection.settimeout(0)
            except OSError:
                self._part(rank)
                return

    def _pull(self, wanted: int) -> None:
        if len(self.queue) < wanted or not self.ranks:
            self.receive()

    def receive(self) -> None:
        """Take over what has arrived: new ranks, and some bytes of each known one."""
        for key, _ in self._selector.select(timeout=0):
            if key.fileobj is self._listener:
                self._accept()
            else:
                self._receive(self._ranks[key.fileobj])  # type: ignore[index]  # a socket: we register no other

    def _accept(self) -> None:
        if self._listener is None:
            return
        with contextlib.suppress(BlockingIOError):
            connection, _ = self._listener.accept()
            connection.settimeout(0)
            self._ranks[connection] = _Rank(connection, self._arrived, self.tally.seen)
            self._arrived += 1
            self._selector.register(connection, selectors.EVENT_READ)

    def _receive(self, rank: _Rank) -> None:
        try:
            data = rank.connection.recv(_READ_BYTES)
            for frame in rank.frames.feed(data, _LARGEST_FRAME if rank.welcome else _LARGEST_GREETING):
                self._handle(rank, _FROM_RANK.decode(frame))
        except BlockingIOError:
            return
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            self.tally.damaged += 1
            self.tally.warn(f"A rank broke the protocol and was cut off: {error}.")
            data = b""
        if not data:
            if rank.welcome and rank.frames.unfinished:
                self.tally.damaged += 1
                self.tally.warn("A rank ended in the middle of a message: its last launches are lost.")
                self.queue.skip(0)
            self._part(rank)

    def _part(self, rank: _Rank) -> None:
        self._selector.unregister(rank.connection)
        rank.connection.close()
        del self._ranks[rank.connection]
        for number in rank.processes.values():
            self.end_process(number)

    def _handle(self, rank: _Rank, message: Hello | Launches) -> None:
        if isinstance(message, Hello):
            if not hmac.compare_digest(message.token, self._token):
                raise ValueError("it does not know the token")
            if message.counters != self.counters:
                raise ValueError("it measures other counters")
            rank.welcome = True
            self._send_plan(rank, self._planned)
            return
        if not rank.welcome:
            raise ValueError("launches before the greeting")
        rank.names += [self.name_id(name) for name in message.names]
        rank.devices += [self.device_id(model, f"{rank.number} {model}") for model in message.devices]
        if message.rows or not message.ended:
            self.queue.push(self._batch(rank, message))
        for number in message.ended:
            if number in rank.processes:
                self.end_process(rank.processes.pop(number))

    def _batch(self, rank: _Rank, message: Launches) -> EventBatch:
        template = EventBatch.empty(len(self.counters))
        if len(message.columns) != len(_COLUMNS) or not 0 < message.rows <= _SEND_ROWS:
            raise ValueError(f"{message.rows} rows of {len(message.columns)} columns")
        columns = {}
        for name, data in zip(_COLUMNS, message.columns, strict=True):
            model = getattr(template, name)
            columns[name] = np.frombuffer(data, dtype=model.dtype).reshape(message.rows, *model.shape[1:])
        batch = EventBatch.of(message.rows, len(self.counters), **columns)
        names, devices = np.array(rank.names), np.array(rank.devices)
        if batch.name_id.max() >= len(names) or batch.device.max() >= len(devices):
            raise ValueError("a launch of an unknown kernel or device")
        process = [self._process(rank, number) for number in batch.process.tolist()]
        return batch.replace(name_id=names[batch.name_id], device=devices[batch.device], process=process)

    def _process(self, rank: _Rank, number: int) -> int:
        if number not in rank.processes:
            rank.processes[number] = self._processes
            self._processes += 1
        return rank.processes[number]


class Forwarder:
    """A rank's end: takes launches from an open source and sends them to the collector.

    Args:
        source: an open source.
        address: the collector's.
        token: the collector's.
        salt: 32 bytes or more that all ranks share and the collector need not know: pseudonyms are sent for
            kernel names, equal ones for equal names.

    Raises:
        SourceError: nobody listens there.
    """

    def __init__(
        self, source: EventSource, address: tuple[str, int], token: bytes, *, salt: bytes | None = None
    ) -> None:
        self._source = source
        self._salt = salt
        self._sent_names = self._sent_devices = 0
        self._frames = _Frames()
        try:
            self._connection = socket.create_connection(address, timeout=_PATIENCE_S)
            self._connection.sendall(_framed(Hello(token, source.counters)))
        except OSError as error:
            raise SourceError(
                f"The collector at {address} cannot be reached: {error}.",
                remedy="Start it, or correct the address.",
            ) from error

    def forward(self, most: int = _SEND_ROWS) -> int:
        """Take over what is to be armed, send what is pending; returns the launches sent.

        Raises:
            SourceError: the collector has gone or has cut this rank off.
        """
        try:
            self._take_plans()
            batch = self._source.poll(min(most, _SEND_ROWS))
            ended = tuple(self._source.ended())
            if len(batch) or ended:
                self._connection.sendall(_framed(self._launches(batch, ended)))
        except OSError as error:
            raise SourceError(
                f"The collector has closed the connection: {error}.",
                remedy="Check that token and counters are the collector's.",
            ) from error
        return len(batch)

    def _take_plans(self) -> None:
        self._connection.settimeout(0)
        try:
            while data := self._connection.recv(_READ_BYTES):
                for frame in self._frames.feed(data):
                    plan = _FROM_COLLECTOR.decode(frame)
                    counters = [self._source.counters[index] for index in plan.counters]
                    self._source.arm(plan.launches, counters)
            raise ConnectionResetError("the other end is closed")
        except BlockingIOError:
            return
        finally:
            self._connection.settimeout(_PATIENCE_S)

    def _launches(self, batch: EventBatch, ended: tuple[int, ...]) -> Launches:
        names, devices = list(self._source.names), list(self._source.devices)
        fresh = names[self._sent_names :]
        if self._salt is not None:
            fresh = [salted(name, self._salt) for name in fresh]
        message = Launches(
            tuple(fresh),
            tuple(devices[self._sent_devices :]),
            len(batch),
            tuple(np.ascontiguousarray(getattr(batch, name)).tobytes() for name in _COLUMNS),
            ended,
        )
        self._sent_names, self._sent_devices = len(names), len(devices)
        return message

    def close(self) -> None:
        """Say goodbye; what was sent arrives."""
        self._connection.close()
