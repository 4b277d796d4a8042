from __future__ import annotations

import base64
import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penrose_ray import wire
from penrose_ray.crypto.envelope import ServiceKey
from penrose_ray.errors import EnvelopeError, WireError
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

KEY = ServiceKey(bytes(range(32)))
FROZEN = json.loads((Path(__file__).parent / "vectors" / "wire_records.json").read_text())

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
    token=st.binary(max_size=300),
)


def record_of(fields: object) -> bytes:
    """A well-formed record around any MessagePack value."""
    body = msgspec.msgpack.encode(fields)
    return (bytes([wire.CLEAR_VERSION]) + len(body).to_bytes(2, "big") + body).ljust(
        wire.RECORD_BYTES, b"\x00"
    )


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
    framed = bytes([wire.CLEAR_VERSION]) + len(body).to_bytes(2, "big") + body

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
    record = b"\x03" + wire.encode(REPORT)[1:]

    with pytest.raises(WireError, match="version 3, this task's have version 1: tags in the clear"):
        wire.decode(record)
    with pytest.raises(WireError, match="version 3, this task's have version 2: tags sealed"):
        wire.decode(record, KEY)


def test_a_task_has_reports_of_one_version_only() -> None:
    with pytest.raises(WireError, match="version 1, this task's have version 2"):
        wire.decode(wire.encode(REPORT), KEY)
    with pytest.raises(WireError, match="version 2, this task's have version 1"):
        wire.decode(wire.encode(REPORT, KEY.public))


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


@given(reports)
def test_sealed_tags_come_back_whole(report: wire.Report) -> None:
    record = wire.encode(report, KEY.public)

    assert len(record) == wire.RECORD_BYTES
    assert wire.decode(record, KEY) == report


def clear_parts(record: bytes) -> tuple[bytes, list[object]]:
    """What a front proxy sees: the header, and the fields with the length of the sealed one."""
    task, report, hour, tags, blob, token = msgspec.msgpack.decode(record[3:])
    return record[:3], [task, report, hour, len(tags), blob, token]


@given(
    model=st.text("abcXYZ019 -_", min_size=1, max_size=64),
    scheme=st.text("abc019-", max_size=64),
    signature=st.binary(max_size=800),
    counter_set=st.integers(0, 2**31),
)
def test_whatever_the_tags_say_a_proxy_sees_the_same(
    model: str, scheme: str, signature: bytes, counter_set: int
) -> None:
    changed = msgspec.structs.replace(
        REPORT, gpu_model=model, scheme=scheme, signature=signature, counter_set=counter_set
    )
    record, usual = wire.encode(changed, KEY.public), wire.encode(REPORT, KEY.public)

    assert clear_parts(record) == clear_parts(usual)
    assert len(record) == len(usual) == wire.RECORD_BYTES


def test_two_reports_of_a_class_have_no_tags_in_common() -> None:
    marked = msgspec.structs.replace(REPORT, signature=bytes(range(256)) + bytes(144))
    first, second = (msgspec.msgpack.decode(wire.encode(marked, KEY.public)[3:])[3] for _ in range(2))

    assert sum(a == b for a, b in zip(first, second, strict=True)) < len(first) / 20
    for part in (marked.gpu_model.encode(), marked.scheme.encode(), marked.signature[:16]):
        assert part not in wire.encode(marked, KEY.public)


@pytest.mark.parametrize("field", range(6))
def test_sealed_tags_open_with_their_report_only(field: int) -> None:
    """The other fields are bound in: task, report id, hour, ciphertexts, token."""
    record = wire.encode(REPORT, KEY.public)
    other = msgspec.structs.replace(
        REPORT,
        task_id=TaskId(b"u" * 32),
        report_id=ReportId(b"s" * 32),
        created_hour=486_112,
        blob=b"\xfe" * 1536,
        token=b"x",
    )
    fields, changed = (msgspec.msgpack.decode(each[3:]) for each in (record, wire.encode(other, KEY.public)))
    fields[field] = changed[field]
    body = msgspec.msgpack.encode(fields)
    moved = (record[:1] + len(body).to_bytes(2, "big") + body).ljust(wire.RECORD_BYTES, b"\0")

    with pytest.raises(WireError):
        wire.decode(moved[: wire.RECORD_BYTES], KEY)


def test_another_key_does_not_open_and_says_what_to_do() -> None:
    with pytest.raises(EnvelopeError, match="do not open") as raised:
        wire.decode(wire.encode(REPORT, ServiceKey(b"k" * 32).public), KEY)
    assert "Fetch the task" in raised.value.remedy


@given(st.integers(0, 8 * wire.RECORD_BYTES - 1))
def test_a_flipped_bit_of_a_sealed_record_is_refused(position: int) -> None:
    record = bytearray(wire.encode(REPORT, KEY.public))
    record[position // 8] ^= 1 << (position % 8)

    with pytest.raises(WireError):
        wire.decode(bytes(record), KEY)


def test_a_report_that_leaves_no_room_for_its_tags_is_not_encoded() -> None:
    with pytest.raises(WireError, match="fit"):
        wire.encode(msgspec.structs.replace(REPORT, blob=bytes(3700)), KEY.public)


@pytest.mark.parametrize("frozen", FROZEN["records"], ids=lambda each: f"version {each['version']}")
def test_stored_records_of_every_version_are_read(frozen: dict[str, str]) -> None:
    key = ServiceKey(bytes.fromhex(FROZEN["key"])) if frozen["version"] == 2 else None
    record = base64.b64decode(frozen["record"])

    assert record[0] == frozen["version"]
    assert wire.decode(record, key) == REPORT
