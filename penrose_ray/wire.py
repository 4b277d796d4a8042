"""The report on the wire: versioned, strictly decoded, padded to one size.

A report is a record of 4,096 bytes whatever it holds: version byte, two bytes of length (big-endian), the
MessagePack array of `Report`, zeros. A request body is one record or several in a row.
"""

from __future__ import annotations

import msgspec

from penrose_ray.errors import WireError
from penrose_ray.types import ReportId, TaskId

VERSION = 1
RECORD_BYTES = 4096
_HEADER_BYTES = 3
_ID_BYTES = 32
_MOST_NAME_BYTES = 64
_SEND_AGAIN = "Send reports made by penrose_ray.wire of the same version."


class Report(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A sealed histogram and what the aggregation service may know about it."""

    task_id: TaskId
    report_id: ReportId
    created_hour: int
    """Hours since the Unix epoch: reports carry no finer time."""
    gpu_model: str
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


def encode(report: Report) -> bytes:
    """The 4,096 bytes of a report.

    Raises:
        WireError: the report does not fit, or a field has a size that no service takes.
    """
    _check_sizes(report)
    body = msgspec.msgpack.encode(report)
    room = RECORD_BYTES - _HEADER_BYTES
    if len(body) > room:
        raise WireError(
            f"The report takes {len(body)} bytes, {room} fit.",
            remedy="Use a smaller slot profile or shorter signature.",
        )
    return bytes([VERSION]) + len(body).to_bytes(2, "big") + body.ljust(room, b"\x00")


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


def decode(record: bytes) -> Report:
    """The report in a record.

    Raises:
        WireError: not exactly one record of this version, or a field of the wrong type or size.
    """
    if len(record) != RECORD_BYTES:
        raise WireError(f"A record has {RECORD_BYTES} bytes, not {len(record)}.", remedy=_SEND_AGAIN)
    if record[0] != VERSION:
        raise WireError(
            f"The record has version {record[0]}, this service reads version {VERSION}.", remedy=_SEND_AGAIN
        )
    end = _HEADER_BYTES + int.from_bytes(record[1:_HEADER_BYTES], "big")
    if end > RECORD_BYTES or any(record[end:]):
        raise WireError("The record's length and padding disagree.", remedy=_SEND_AGAIN)
    try:
        report = msgspec.msgpack.decode(record[_HEADER_BYTES:end], type=Report)
    except msgspec.MsgspecError as error:
        raise WireError(f"The record is not a report: {error}.", remedy=_SEND_AGAIN) from error
    if msgspec.msgpack.encode(report) != record[_HEADER_BYTES:end]:
        raise WireError("The record is not a report in canonical encoding.", remedy=_SEND_AGAIN)
    _check_sizes(report)
    return report


def _check_sizes(report: Report) -> None:
    if len(report.task_id) != _ID_BYTES or len(report.report_id) != _ID_BYTES:
        raise WireError(f"Task and report ids have {_ID_BYTES} bytes.", remedy=_SEND_AGAIN)
    if not 0 < len(report.gpu_model.encode()) <= _MOST_NAME_BYTES or not report.gpu_model.isprintable():
        raise WireError(f"The GPU model has 1 to {_MOST_NAME_BYTES} printable bytes.", remedy=_SEND_AGAIN)
    if len(report.scheme.encode()) > _MOST_NAME_BYTES:
        raise WireError(f"The scheme has at most {_MOST_NAME_BYTES} bytes.", remedy=_SEND_AGAIN)
    if report.created_hour < 0 or report.counter_set < 0:
        raise WireError("Hour and counter set are not negative.", remedy=_SEND_AGAIN)
