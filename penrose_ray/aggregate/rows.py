"""Reports and sums as columns of the journal, each with a CRC: SQLite does not notice a changed value."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penrose_ray.aggregate.arrival import Arrival, Row, SumKey
from penrose_ray.aggregate.score import Score
from penrose_ray.types import BatchId, BucketId, ClassId, ReportId

if TYPE_CHECKING:
    from collections.abc import Sequence

ROW_COLUMNS: Final = (
    "arrival, report_id, bucket, class_id, snippet_hash, counter_set, batch, created_hour, "
    "signature, blob, crc"
)
SUM_COLUMNS: Final = (
    "class_id, counter_set, batch, weight, blob, id_checksum, score, score_hour, score_used, crc"
)


class DamagedRowError(Exception):
    """A row is not what was written; the argument says which."""


@dataclass(frozen=True, slots=True)
class SumRecord:
    """A sum at rest."""

    key: SumKey
    weight: int
    blob: bytes
    id_checksum: bytes
    score: Score


def row_values(row: Row) -> tuple[object, ...]:
    """Values of `ROW_COLUMNS` but the first."""
    arrival, key = row.arrival, row.key
    return (
        arrival.report_id,
        row.bucket,
        key.class_id,
        arrival.snippet_hash.hex(),
        key.counter_set,
        key.batch,
        arrival.created_hour,
        arrival.signature,
        arrival.blob,
        row_crc(row),
    )


def row_from(values: Sequence[object]) -> Row:
    """The report in these `ROW_COLUMNS`.

    Raises:
        DamagedRowError: a value has another type, or the CRC is wrong.
    """
    match values:
        case [
            int(),
            bytes(report_id),
            int(bucket),
            bytes(class_id),
            str(snippet_hash),
            int(counter_set),
            int(batch),
            int(created_hour),
            bytes(signature),
            bytes(blob),
            int(crc),
        ]:
            key = SumKey(ClassId(class_id), counter_set, BatchId(batch))
            try:
                digest = bytes.fromhex(snippet_hash)
            except ValueError as error:
                raise DamagedRowError(f"report {report_id.hex()}") from error
            arrival = Arrival(
                ReportId(report_id), key.class_id, digest, counter_set, created_hour, signature, blob
            )
            row = Row(arrival, BucketId(bucket), key)
            if row_crc(row) != crc:
                raise DamagedRowError(f"report {report_id.hex()}")
            return row
        case _:
            raise DamagedRowError(f"report in row {values[0]!r}")


def row_crc(row: Row) -> int:
    """CRC-32 over all that a row says."""
    arrival, key = row.arrival, row.key
    numbers = f"{row.bucket} {key.counter_set} {key.batch} {arrival.created_hour} ".encode()
    crc = zlib.crc32(numbers + arrival.report_id + key.class_id + arrival.snippet_hash)
    return zlib.crc32(arrival.blob, zlib.crc32(arrival.signature, crc))


def sum_values(record: SumRecord) -> tuple[object, ...]:
    """Values of `SUM_COLUMNS`."""
    score = record.score
    values = (record.weight, record.blob, record.id_checksum, score.value, score.hour, int(score.used))
    return (*record.key, *values, _sum_crc(record))


def sum_from(values: Sequence[object]) -> SumRecord:
    """The sum in these `SUM_COLUMNS`.

    Raises:
        DamagedRowError: a value has another type, or the CRC is wrong.
    """
    match values:
        case [
            bytes(class_id),
            int(counter_set),
            int(batch),
            int(weight),
            bytes(blob),
            bytes(checksum),
            float(score),
            int(hour),
            int(used),
            int(crc),
        ]:
            key = SumKey(ClassId(class_id), counter_set, BatchId(batch))
            record = SumRecord(key, weight, blob, checksum, Score(score, hour, used=bool(used)))
            if _sum_crc(record) != crc:
                raise DamagedRowError(
                    f"sum of class {class_id.hex()}, counter set {counter_set}, batch {batch}"
                )
            return record
        case _:
            raise DamagedRowError(f"sum with the key {values[:3]!r}")


def _sum_crc(record: SumRecord) -> int:
    key = record.key
    numbers = f"{key.counter_set} {key.batch} {record.weight} ".encode()
    return zlib.crc32(record.blob, zlib.crc32(numbers + key.class_id + record.id_checksum))
