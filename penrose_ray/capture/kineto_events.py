"""Kineto's events as typed records, and the numbers in them.

Times are read from the text as decimal numbers: absolute microseconds with fractions do not fit a double.
"""

from __future__ import annotations

import decimal
from types import GenericAlias
from typing import Any

import msgspec

from penrose_ray.capture.recording import LARGEST_NS

ABSENT = msgspec.Raw(b"")
UNKNOWN_TIME = (0, -1)
_U32 = 0xFFFFFFFF


class Args(msgspec.Struct, gc=False):
    """Arguments of an event, as far as the launch stream needs them."""

    device: int | None = None
    context: int | None = None
    stream: int | None = None
    correlation: int | None = None
    grid: msgspec.Raw = ABSENT
    block: msgspec.Raw = ABSENT
    graph_node: int | None = msgspec.field(default=None, name="graph node id")
    external_id: int | None = msgspec.field(default=None, name="External id")
    external_id_2021: int | None = msgspec.field(default=None, name="external id")
    queue_delay: int | None = msgspec.field(default=None, name="queue delay ns")


class Event(msgspec.Struct, gc=False):
    """An event; names and numbers stay text until they are known to be needed."""

    ph: str = ""
    cat: str = ""
    name: msgspec.Raw = ABSENT
    ts: msgspec.Raw = ABSENT
    dur: msgspec.Raw = ABSENT
    args: Args | None = None


class PlacedEvent(Event, gc=False):
    """An event with the host thread that made it, needed only to link operators."""

    pid: msgspec.Raw = ABSENT
    tid: msgspec.Raw = ABSENT


class KinetoCodec:
    """Kineto's types on the fast way, any types on the slow one."""

    def __init__(self, kind: type[Event]) -> None:
        self._kind = kind
        self._block: msgspec.json.Decoder[list[Event]] = msgspec.json.Decoder(GenericAlias(list, (kind,)))

    def block(self, text: bytes) -> list[Event]:
        """All events of a JSON list."""
        return self._block.decode(text)

    def one(self, text: bytes) -> Event:
        """One event, its numbers taken from strings and floats too."""
        given = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        values: dict[str, Any] = {key: given.get(key, ABSENT) for key in self._kind.__struct_fields__}
        values |= {"ph": _string(given.get("ph")), "cat": _string(given.get("cat"))}
        return self._kind(**{**values, "args": _args(given.get("args"))})


def _string(raw: msgspec.Raw | None) -> str:
    value = msgspec.json.decode(raw) if raw else ""
    return value if isinstance(value, str) else ""


def _args(raw: msgspec.Raw | None) -> Args | None:
    given = msgspec.json.decode(raw) if raw else None
    if not isinstance(given, dict):
        return None
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(Args):
        value = given.get(field.encode_name)
        if field.type is msgspec.Raw:
            values[field.name] = msgspec.Raw(msgspec.json.encode(value))
        else:
            values[field.name] = integer(value)
    return Args(**values)


def integer(value: object) -> int | None:
    """A whole number, also from a float or text; None when it is none."""
    try:
        return int(value) if isinstance(value, int | float | str) else None
    except (ValueError, OverflowError):
        return None


def nanoseconds(raw: bytes) -> int | None:
    """JSON number (or a string of one) of microseconds in nanoseconds, exactly; None when it is none."""
    whole, point, fraction = raw.partition(b".")
    try:
        if not point:
            return int(whole) * 1000
        if len(fraction) <= 3 and whole[:1] != b"-":  # noqa: PLR2004 - three digits of nanoseconds
            return int(whole) * 1000 + int(fraction.ljust(3, b"0"))
    except ValueError:
        pass
    try:
        value = decimal.Decimal(raw.decode("ascii", "replace").strip('"')) * 1000
        return int(value.to_integral_value()) if abs(value) <= LARGEST_NS else None
    except (decimal.DecimalException, ValueError):
        return None


def times(event: Event) -> tuple[int, int]:
    """Start and end in nanoseconds; 0 and -1, which no launch can have, when they are unknown."""
    start, duration = nanoseconds(bytes(event.ts)), nanoseconds(bytes(event.dur))
    if start is None or duration is None or abs(start) + abs(duration) > LARGEST_NS:
        return UNKNOWN_TIME
    return (start, start + duration) if start or duration else UNKNOWN_TIME


def sizes(raw: bytes) -> tuple[int, int, int]:
    """Three numbers of a JSON list, cut to 32 bits; missing ones count 1, a missing list 0."""
    try:
        given = msgspec.json.decode(raw) if raw else None
    except msgspec.DecodeError:
        given = None
    if not isinstance(given, list) or not given:
        return 0, 0, 0
    x, y, z = [*(integer(each) or 0 for each in given), 1, 1, 1][:3]
    return x & _U32, y & _U32, z & _U32
