"""Writing protobuf messages field by field, for files that tests make themselves."""

from __future__ import annotations

import struct


def field(number: int, value: bytes | float) -> bytes:
    """One field: bytes as a length-delimited one, an int as a varint, a float as a double."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value & (1 << 64) - 1)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    """A number in groups of 7 bits, the least significant first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
