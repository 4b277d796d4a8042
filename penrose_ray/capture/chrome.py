"""Events of a Chrome trace (JSON), block by block, with constant memory and through damage.

The fast way decodes everything up to the last event that starts in a block at once. A block that does not
decode is walked event by event: an event that cannot be repaired is counted and left out, and reading goes on
at the next one.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, TypeVar

import msgspec

from penrose_ray.capture.chrome_repair import repaired

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK_BYTES = 1 << 20
_LARGEST_EVENT_BYTES = 8 << 20
_LARGEST_HEADER_BYTES = 64 << 20
_LARGEST_TRAILER_BYTES = 4 << 20
_BETWEEN = b" \t\r\n,"
_CUTS_TRIED = 8
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_FIRST_EVENT = re.compile(rb'\s*(\{\s*"[^"]{1,40}"\s*:)')
_NEXT_EVENT = re.compile(rb',\s*(?=\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args|id|bp|s)"\s*:)')
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[{}\[\]"]', re.DOTALL)

_UNREADABLE = (ValueError, msgspec.MsgspecError, RecursionError)

Event = TypeVar("Event")
"""What a codec makes of an event."""


class Codec(Protocol[Event]):
    """How one writer's events are decoded."""

    def block(self, text: bytes) -> list[Event]:
        """All events of a JSON list; msgspec.MsgspecError when one does not fit."""
        ...

    def one(self, text: bytes) -> Event:
        """One event of a JSON object whatever its fields' types; ValueError when it is none."""
        ...


@dataclass(slots=True)
class ChromeReport:
    """What was found around the events, and what went wrong."""

    header: dict[str, Any] = field(default_factory=dict)
    """Members of the outer object, before and behind the events."""
    found: bool = False
    """Whether there is a list of events at all."""
    complete: bool = False
    """Whether the list's end was seen."""
    damaged: int = 0
    """Events left out."""
    repaired: int = 0
    viewer_events: int = 0
    """Events with a duration in an export for a trace viewer, which names no kernels; 0 in other files."""
    broken_stream: str = ""
    """The decompressor's complaint, when the file ends early."""


def read_events(
    stream: BinaryIO, codec: Codec[Event], report: ChromeReport
) -> Iterator[tuple[list[Event], int]]:
    """Decoded events in file order, each block with the number of events lost within it."""
    buffer = _enter_list(stream, report)
    if not report.found:
        return
    first = _FIRST_EVENT.match(buffer)
    mark = first.group(1) if first else b""
    while chunk := _read(stream, report):
        buffer += chunk
        events, rest = _decode_block(buffer, mark, codec)
        if events is None:
            before = report.damaged
            events, rest = _walk(buffer, codec, report, last=False)
            yield events, report.damaged - before
        else:
            yield events, 0
        buffer = rest
        if report.complete:
            break
    if not report.complete:
        whole, buffer = _decode_block(buffer, mark, codec)
        yield whole or [], 0
        before = report.damaged
        events, buffer = _walk(buffer, codec, report, last=True)
        yield events, report.damaged - before
    _leave_list(buffer, stream, report)


def _read(stream: BinaryIO, report: ChromeReport) -> bytes:
    try:
        return stream.read(BLOCK_BYTES)
    except (EOFError, OSError, zlib.error) as error:
        report.broken_stream = report.broken_stream or str(error)
        return b""


def _enter_list(stream: BinaryIO, report: ChromeReport) -> bytes:
    """Read up to the first event; what comes before goes into the header."""
    buffer = b""
    while len(buffer) < _LARGEST_HEADER_BYTES:
        chunk = _read(stream, report)
        buffer += chunk
        text = buffer.lstrip(b"\xef\xbb\xbf \t\r\n")
        if text.startswith(b"["):
            report.found = True
            return text[1:]
        if match := _EVENTS_KEY.search(buffer):
            report.found = True
            report.header.update(_members(buffer[: match.start()].strip().rstrip(b",") + b"}"))
            return buffer[match.end() :]
        if not chunk:
            break
    return b""


def _leave_list(buffer: bytes, stream: BinaryIO, report: ChromeReport) -> None:
    """Read the members behind the list."""
    while len(buffer) < _LARGEST_TRAILER_BYTES and (chunk := _read(stream, report)):
        buffer += chunk
    report.header.update(_members(b"{" + buffer.strip().lstrip(b",")))


def _members(text: bytes) -> dict[str, Any]:
    for candidate in (text, repaired(text)):
        try:
            value = msgspec.json.decode(candidate)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        return value if isinstance(value, dict) else {}
    base = re.search(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,20})', text)
    return {"baseTimeNanoseconds": int(base.group(1))} if base else {}


def _decode_block(buffer: bytes, mark: bytes, codec: Codec[Event]) -> tuple[list[Event] | None, bytes]:
    """All before the last event that starts in the buffer, and the rest; None when it does not decode."""
    end = len(buffer)
    for _ in range(_CUTS_TRIED if mark else 0):
        end = buffer.rfind(mark, 0, end)
        if end <= 0:
            break
        before = buffer[max(0, end - 256) : end].rstrip(b" \t\r\n")
        if before.endswith(b","):
            body = buffer[:end].rstrip(_BETWEEN)
            try:
                return codec.block(b"[" + body.lstrip(_BETWEEN) + b"]"), buffer[end:]
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                break
    return None, buffer


def _walk(
    buffer: bytes, codec: Codec[Event], report: ChromeReport, *, last: bool
) -> tuple[list[Event], bytes]:
    """Events one by one up to the list's end or the first one that is not whole yet."""
    events: list[Event] = []
    position = 0
    while position < len(buffer):
        if buffer[position] in _BETWEEN:
            position += 1
            continue
        if buffer[position : position + 1] == b"]":
            report.complete = True
            position += 1
            break
        end, found = _one(buffer, position, codec, report, last=last)
        if end is None:
            break
        events += found
        position = end
    return events, buffer[position:]


def _one(
    buffer: bytes, position: int, codec: Codec[Event], report: ChromeReport, *, last: bool
) -> tuple[int | None, list[Event]]:
    """End of the event at `position` and, unless it is lost, its value; no end when more bytes are needed."""
    end = _object_end(buffer, position)
    if end is not None:
        try:
            return end, [codec.one(buffer[position:end])]
        except _UNREADABLE:
            pass
    start_of_next = _NEXT_EVENT.search(buffer, position + 1)
    stop = start_of_next.start() if start_of_next else end
    if stop is not None:
        try:
            event = codec.one(repaired(buffer[position:stop].rstrip(_BETWEEN)))
        except _UNREADABLE:
            pass
        else:
            report.repaired += 1
            return stop, [event]
    if end is None and not last and len(buffer) - position < _LARGEST_EVENT_BYTES:
        return None, []
    report.damaged += 1
    return (len(buffer) if stop is None else stop), []


def _object_end(buffer: bytes, position: int) -> int | None:
    """Position behind the object that starts here; None when it is not closed."""
    depth = 0
    for token in _TOKEN.finditer(buffer, position):
        text = token.group()
        if text in (b"{", b"["):
            depth += 1
        elif text in (b"}", b"]"):
            depth -= 1
            if depth <= 0:
                return token.end()
        elif text == b'"':  # a string that the buffer does not close
            return None
        elif depth == 0:
            return token.end()
    return None
