"""The report on the wire: versioned, strictly decoded, of one size.

A report is a record of 4,096 bytes whatever it holds: version byte, two bytes of length (big-endian), a
MessagePack array, zeros. A request body is one record or several in a row.

Version 1, of tasks without a service key, is the array of `Report`. Version 2, of tasks with one, has what
tells a report's class (GPU model, scheme, signature, counter set) sealed to that key by HPKE and padded, so
that the array fills the record: whoever forwards it sees the task, the report id, the hour, the ciphertexts
and the token. A hash of these is bound in, so sealed tags cannot be moved to another report.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, TypeVar

import msgspec

from penrose_ray.crypto.envelope import OVERHEAD_BYTES, seal
from penrose_ray.errors import WireError
from penrose_ray.types import ReportId, TaskId

if TYPE_CHECKING:
    from penrose_ray.crypto.envelope import ServiceKey

CLEAR_VERSION = 1
SEALED_VERSION = 2
RECORD_BYTES = 4096
_HEADER_BYTES = 3
_ROOM_BYTES = RECORD_BYTES - _HEADER_BYTES
_LENGTH_BYTES = 2
_LONG_BINARY_BYTES = 1
"""A MessagePack binary of 256 bytes and more has a header one byte longer than an empty one's."""
_INFO = b"penrose tags\x02"
_ID_BYTES = 32
_MOST_NAME_BYTES = 64
_SEND_AGAIN = "Send reports made by penrose_ray.wire of the same version."


class Report(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A sealed histogram and what the aggregation service may know about it."""

    task_id: TaskId
    """Which signed task it answers, 32 bytes."""
    report_id: ReportId
    """32 bytes: a report that comes again counts once."""
    created_hour: int
    """Hours since the Unix epoch: reports carry no finer time."""
    gpu_model: str
    """Such as `NVIDIA A100-SXM4-80GB`."""
    scheme: str
    """Snippet scheme of the signature; signatures of different schemes are never compared."""
    signature: bytes
    """MinHash values of the class' representative, little-endian 32-bit words."""
    counter_set: int
    """Position in the task's counter_sets."""
    blob: bytes
    """The ciphertexts, fixed width, little-endian."""
    token: bytes = b""
    """The spent token, whose SHA-256 is the report id; empty in a task without tokens."""


class Tags(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What tells which class a report belongs to."""

    gpu_model: str
    scheme: str
    signature: bytes
    counter_set: int


class _Sealed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A report of version 2."""

    task_id: TaskId
    report_id: ReportId
    created_hour: int
    tags: bytes
    blob: bytes
    token: bytes

    def info(self) -> bytes:
        """What is bound in: a hash of everything but the tags."""
        rest = msgspec.msgpack.encode(msgspec.structs.replace(self, tags=b""))
        return _INFO + hashlib.sha256(rest).digest()


T = TypeVar("T", Report, _Sealed, Tags)


def encode(report: Report, service_key: bytes = b"") -> bytes:
    """The 4,096 bytes of a report.

    Args:
        report: what is sent.
        service_key: the task's; with one the tags are sealed to it.

    Raises:
        WireError: the report does not fit, or a field has a size that no service takes.
        EnvelopeError: `service_key` is none.
    """
    _check_sizes(report)
    if service_key:
        return _framed(SEALED_VERSION, msgspec.msgpack.encode(_sealed(report, service_key)))
    return _framed(CLEAR_VERSION, msgspec.msgpack.encode(report))


def _framed(version: int, body: bytes) -> bytes:
    _check_fits(len(body))
    return bytes([version]) + len(body).to_bytes(2, "big") + body.ljust(_ROOM_BYTES, b"\x00")


def _check_fits(size: int) -> None:
    if size > _ROOM_BYTES:
        raise WireError(
            f"The report takes {size} bytes, {_ROOM_BYTES} fit.",
            remedy="Use a smaller slot profile or shorter signature.",
        )


def _sealed(report: Report, service_key: bytes) -> _Sealed:
    """The tags, padded to all the room that the rest leaves, which depends on nothing that is secret."""
    tags = Tags(report.gpu_model, report.scheme, report.signature, report.counter_set)
    empty = _Sealed(report.task_id, report.report_id, report.created_hour, b"", report.blob, report.token)
    rest = len(msgspec.msgpack.encode(empty)) + _LONG_BINARY_BYTES + OVERHEAD_BYTES
    body = msgspec.msgpack.encode(tags)
    _check_fits(rest + _LENGTH_BYTES + len(body))
    plain = (len(body).to_bytes(_LENGTH_BYTES, "big") + body).ljust(_ROOM_BYTES - rest, b"\x00")
    return msgspec.structs.replace(empty, tags=seal(plain, service_key, empty.info()))


def split(body: bytes, *, most: int) -> list[bytes]:
    """Cut a request body into records.

    Raises:
        WireError: the body is empty, not a whole number of records, or holds more than `most`.
    """
    if not body:
        raise WireError("The body is empty.", remedy=_SEND_AGAIN)
    count, rest = divmod(len(body), RECORD_BYTES)
    if rest:
        raise WireError(
            f"The body has {len(body)} bytes, not a multiple of {RECORD_BYTES}: it was cut or is no report.",
            remedy=_SEND_AGAIN,
        )
    if count > most:
        raise WireError(
            f"The body holds {count} reports, {most} are allowed.", remedy="Send fewer a request."
        )
    return [body[start : start + RECORD_BYTES] for start in range(0, len(body), RECORD_BYTES)]


def decode(record: bytes, service_key: ServiceKey | None = None) -> Report:
    """The report in a record.

    Args:
        record: the bytes.
        service_key: the private key of a service whose task has sealed tags; only version 2 is read then.

    Raises:
        WireError: not exactly one record of the task's version, or a field of the wrong type or size.
        EnvelopeError: the tags are sealed to another key, or do not belong to the rest.
    """
    expected = SEALED_VERSION if service_key else CLEAR_VERSION
    body = _body(record, expected)
    report = _opened(_read(body, _Sealed), service_key) if service_key else _read(body, Report)
    _check_sizes(report)
    return report


def _body(record: bytes, expected: int) -> bytes:
    if len(record) != RECORD_BYTES:
        raise WireError(f"A record has {RECORD_BYTES} bytes, not {len(record)}.", remedy=_SEND_AGAIN)
    if record[0] != expected:
        how = "sealed to the service" if expected == SEALED_VERSION else "in the clear"
        raise WireError(
            f"The record has version {record[0]}, this task's have version {expected}: tags {how}.",
            remedy=_SEND_AGAIN,
        )
    end = _HEADER_BYTES + int.from_bytes(record[1:_HEADER_BYTES], "big")
    if end > RECORD_BYTES or any(record[end:]):
        raise WireError("The record's length and padding disagree.", remedy=_SEND_AGAIN)
    return record[_HEADER_BYTES:end]


def _read(body: bytes, kind: type[T]) -> T:
    try:
        found = msgspec.msgpack.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise WireError(f"The record is not a report: {error}.", remedy=_SEND_AGAIN) from error
    if msgspec.msgpack.encode(found) != body:
        raise WireError("The record is not a report in canonical encoding.", remedy=_SEND_AGAIN)
    return found


def _opened(found: _Sealed, key: ServiceKey) -> Report:
    plain = key.open(found.tags, found.info())
    end = _LENGTH_BYTES + int.from_bytes(plain[:_LENGTH_BYTES], "big")
    if end > len(plain) or any(plain[end:]):
        raise WireError("The sealed tags' length and padding disagree.", remedy=_SEND_AGAIN)
    tags = _read(plain[_LENGTH_BYTES:end], Tags)
    return Report(
        task_id=found.task_id,
        report_id=found.report_id,
        created_hour=found.created_hour,
        gpu_model=tags.gpu_model,
        scheme=tags.scheme,
        signature=tags.signature,
        counter_set=tags.counter_set,
        blob=found.blob,
        token=found.token,
    )


def _check_sizes(report: Report) -> None:
    if len(report.task_id) != _ID_BYTES or len(report.report_id) != _ID_BYTES:
        raise WireError(f"Task and report ids have {_ID_BYTES} bytes.", remedy=_SEND_AGAIN)
    if not 0 < len(report.gpu_model.encode()) <= _MOST_NAME_BYTES or not report.gpu_model.isprintable():
        raise WireError(f"The GPU model has 1 to {_MOST_NAME_BYTES} printable bytes.", remedy=_SEND_AGAIN)
    if len(report.scheme.encode()) > _MOST_NAME_BYTES:
        raise WireError(f"The scheme has at most {_MOST_NAME_BYTES} bytes.", remedy=_SEND_AGAIN)
    if report.created_hour < 0 or report.counter_set < 0:
        raise WireError("Hour and counter set are not negative.", remedy=_SEND_AGAIN)
