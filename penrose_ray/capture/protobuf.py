"""Reading protobuf's wire format, as far as trace files need it, without generated classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_VARINT_BYTES = 10


class WireFormatError(ValueError):
    """Bytes that are no protobuf message."""


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 7 * _MOST_VARINT_BYTES:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:  # noqa: PLR2004 - the continuation bit
            return value, position
    raise WireFormatError(f"a number does not end at byte {position}")


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field, in order; fixed-width values are given as their bytes.

    Raises:
        WireFormatError: the bytes end inside a field, or have a wire type that does not exist.
    """
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        kind = key & 7
        if kind == _VARINT:
            value, position = _varint(data, position)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            length, position = _varint(data, position)
        elif kind in (_FIXED32, _FIXED64):
            length = 4 if kind == _FIXED32 else 8
        else:
            raise WireFormatError(f"wire type {kind} at byte {position}")
        if position + length > len(data):
            raise WireFormatError(f"a field ends at byte {position + length} of {len(data)}")
        yield key >> 3, data[position : position + length]
        position += length


def message(data: bytes) -> dict[int, int | bytes]:
    """Fields by number, the last value of a repeated one."""
    return dict(fields(data))


def number(value: int | bytes | None) -> int:
    """A varint's value, 0 where the field is missing or of another type."""
    return value if isinstance(value, int) else 0


def signed(value: int | bytes | None) -> int:
    """A varint's value as int64 (int32 is written so too)."""
    whole = number(value)
    return whole - (1 << 64) if whole >> 63 else whole


def text(value: int | bytes | None) -> str:
    """A string's value, empty where the field is missing or of another type."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def children(data: bytes, wanted: int) -> Iterator[bytes]:
    """The messages in a repeated field."""
    for field, value in fields(data):
        if field == wanted and isinstance(value, bytes):
            yield value
