"""Rows straight from the pages of a SQLite file, for when the tree that leads to them is damaged.

After the file format's description (sqlite.org/fileformat2.html, sections 1.6 and 2): a leaf of a table has
type 13, a cell count at byte 3 and cell pointers from byte 8 on; a cell is payload size, rowid, record. Rows
that go on on an overflow page are left out; the CRC of whatever comes out has to be checked.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_TABLE_LEAF: Final = 13
_POINTERS: Final = 8
_INT_BYTES: Final = (0, 1, 2, 3, 4, 6, 8)
_FLOAT: Final = 7
_ZERO, _ONE, _BLOB, _TEXT = 8, 9, 12, 13
_VARINT_BYTES: Final = 9


def rows_on(page: bytes) -> Iterator[list[object]]:
    """Values of each row on this page, the rowid in place of the first column; nothing for other pages."""
    if not page or page[0] != _TABLE_LEAF:
        return
    count = int.from_bytes(page[3:5], "big")
    if _POINTERS + 2 * count > len(page):
        return
    for pointer in struct.unpack_from(f">{count}H", page, _POINTERS):
        try:
            yield _row(page, pointer)
        except (IndexError, ValueError, struct.error):
            continue


def _row(page: bytes, at: int) -> list[object]:
    size, at = _varint(page, at)
    rowid, at = _varint(page, at)
    record = page[at : at + size]
    if len(record) != size:
        raise ValueError("the record leaves the page")
    header_end, at = _varint(record, 0)
    types: list[int] = []
    while at < header_end:
        type_, at = _varint(record, at)
        types.append(type_)
    values: list[object] = []
    for type_ in types:
        value, at = _value(record, at, type_)
        values.append(value)
    return [rowid, *values[1:]]


def _value(record: bytes, at: int, type_: int) -> tuple[object, int]:
    if type_ < len(_INT_BYTES):
        end = at + _INT_BYTES[type_]
        return (int.from_bytes(record[at:end], "big", signed=True) if type_ else None), end
    if type_ == _FLOAT:
        return struct.unpack_from(">d", record, at)[0], at + 8
    if type_ in (_ZERO, _ONE):
        return type_ - _ZERO, at
    end = at + (type_ - _BLOB) // 2
    if type_ < _BLOB or end > len(record):
        raise ValueError("a value leaves the record")
    raw = record[at:end]
    return (raw.decode() if type_ % 2 else raw), end


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = 0
    for step in range(_VARINT_BYTES):
        byte = raw[at + step]
        if step == _VARINT_BYTES - 1:
            return value << 8 | byte, at + _VARINT_BYTES
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            return value, at + step + 1
    raise ValueError("no varint")
