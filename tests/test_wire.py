from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penrose_ray import wire
from penrose_ray.errors import WireError
from penrose_ray.types import ReportId, TaskId

REPORT = wire.Report(
    task_id=TaskId(b"t" * 32),
    report_id=ReportId(b"r" * 32),
    created_hour=486_111,
    gpu_model="NVIDIA A100-SXM4-80GB",
    scheme="g8-recurring-v1",
    signature=bytes(400),
    counter_set=1,
    blob=b"\xff" * 1536,
)

reports = st.builds(
    wire.Report,
    task_id=st.binary(min_size=32, max_size=32),
    report_id=st.binary(min_size=32, max_size=32),
    created_hour=st.integers(0, 2**40),
    gpu_model=st.text("abcXYZ019 -_", min_size=1, max_size=64),
    scheme=st.text("abc019-", max_size=64),
    signature=st.binary(max_size=400),
    counter_set=st.integers(0, 127),
    blob=st.binary(max_size=1536),
)


def record_of(fields: object) -> bytes:
    """A well-formed record around any MessagePack value."""
    body = msgspec.msgpack.encode(fields)
    return (bytes([wire.VERSION]) + len(body).to_bytes(2, "big") + body).ljust(wire.RECORD_BYTES, b"\x00")


def fields_of(report: wire.Report) -> list[object]:
    return list(msgspec.structs.astuple(report))


@given(reports)
def test_a_report_comes_back_from_a_record_of_one_size(report: wire.Report) -> None:
    record = wire.encode(report)

    assert len(record) == wire.RECORD_BYTES
    assert wire.decode(record) == report


@given(st.binary(max_size=2 * wire.RECORD_BYTES))
def test_any_bytes_give_a_report_or_a_wire_error(raw: bytes) -> None:
    with pytest.raises(WireError):
        wire.decode(raw)


@given(st.binary(max_size=600))
def test_any_body_inside_a_good_frame_gives_a_wire_error(body: bytes) -> None:
    framed = bytes([wire.VERSION]) + len(body).to_bytes(2, "big") + body

    with pytest.raises(WireError):
        wire.decode(framed.ljust(wire.RECORD_BYTES, b"\x00"))


@given(st.integers(0, 8 * wire.RECORD_BYTES - 1))
def test_a_flipped_bit_raises_nothing_but_a_wire_error(position: int) -> None:
    record = bytearray(wire.encode(REPORT))
    record[position // 8] ^= 1 << (position % 8)

    try:
        read = wire.decode(bytes(record))
    except WireError:
        return
    assert read != REPORT


@pytest.mark.parametrize("length", [0, 1, 3, 100, wire.RECORD_BYTES - 1, wire.RECORD_BYTES + 1])
def test_a_record_of_another_size_is_refused(length: int) -> None:
    raw = (wire.encode(REPORT) + b"\x00")[:length]

    with pytest.raises(WireError, match=f"4096 bytes, not {length}"):
        wire.decode(raw)


def test_a_record_of_another_version_is_refused_with_both() -> None:
    record = b"\x02" + wire.encode(REPORT)[1:]

    with pytest.raises(WireError, match="version 2, this service reads version 1"):
        wire.decode(record)


def test_hidden_bytes_in_the_padding_are_refused() -> None:
    record = wire.encode(REPORT)[:-1] + b"\x01"

    with pytest.raises(WireError, match="padding"):
        wire.decode(record)


def test_a_length_past_the_record_is_refused() -> None:
    record = wire.encode(REPORT)

    with pytest.raises(WireError, match="padding"):
        wire.decode(record[:1] + b"\xff\xff" + record[3:])


@pytest.mark.parametrize(
    ("position", "value", "reason"),
    [
        (0, b"t" * 31, "ids have 32 bytes"),
        (1, b"r" * 33, "ids have 32 bytes"),
        (2, -1, "not negative"),
        (2, 1.5, "int"),
        (3, "", "GPU model"),
        (3, "A" * 65, "GPU model"),
        (3, "A100\n", "GPU model"),
        (4, "s" * 65, "scheme"),
        (5, "text", "bytes"),
        (6, -1, "not negative"),
        (7, None, "bytes"),
    ],
)
def test_a_field_of_a_wrong_type_or_size_is_named(position: int, value: object, reason: str) -> None:
    fields = fields_of(REPORT)
    fields[position] = value

    with pytest.raises(WireError, match=reason):
        wire.decode(record_of(fields))


def test_a_field_too_few_or_too_many_is_refused() -> None:
    fields = fields_of(REPORT)

    with pytest.raises(WireError, match="not a report"):
        wire.decode(record_of(fields[:-1]))
    with pytest.raises(WireError, match="not a report"):
        wire.decode(record_of([*fields, "kernel names"]))


def test_what_no_service_would_take_is_not_encoded() -> None:
    with pytest.raises(WireError, match="GPU model"):
        wire.encode(msgspec.structs.replace(REPORT, gpu_model=""))
    with pytest.raises(WireError, match=r"takes \d+ bytes, 4093 fit"):
        wire.encode(msgspec.structs.replace(REPORT, blob=bytes(4096)))


def test_a_body_is_cut_into_its_records() -> None:
    records = [wire.encode(msgspec.structs.replace(REPORT, counter_set=number)) for number in range(3)]

    assert wire.split(b"".join(records), most=3) == records


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "empty"),
        (bytes(wire.RECORD_BYTES - 1), "not a multiple"),
        (bytes(wire.RECORD_BYTES + 1), "not a multiple"),
        (bytes(3 * wire.RECORD_BYTES), "holds 3 reports, 2 are allowed"),
    ],
)
def test_a_body_that_cannot_be_cut_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        wire.split(body, most=2)
