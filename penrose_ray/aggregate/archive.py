"""Cold sums as Parquet files, on a local disk or an S3-compatible service."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from penrose_ray.aggregate.arrival import SumKey
from penrose_ray.aggregate.rows import SumRecord
from penrose_ray.aggregate.score import Score
from penrose_ray.durable import sync_directory
from penrose_ray.errors import JournalError
from penrose_ray.types import BatchId, ClassId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penrose_ray.types import TaskId

_COLUMNS: Final = (
    ("class_id", pa.binary(16)),
    ("counter_set", pa.int32()),
    ("batch", pa.int64()),
    ("weight", pa.int64()),
    ("blob", pa.binary()),
    ("id_checksum", pa.binary(32)),
    ("score", pa.float64()),
    ("score_hour", pa.int64()),
    ("score_used", pa.bool_()),
)
_SCHEMA: Final = pa.schema(_COLUMNS, metadata={"penrose-ray": "sums v1"})


class Archive:
    """A place for cold sums; `uri` is what pyarrow.fs understands: a path, `file://` or `s3://`."""

    def __init__(self, uri: str) -> None:
        try:
            self._files, self._root = pafs.FileSystem.from_uri(uri)
        except (OSError, pa.ArrowException) as error:
            raise JournalError(
                f"The archive {uri} cannot be reached: {error}.", remedy="Check the archive's address."
            ) from error

    def write(self, task_id: TaskId, shard: str, batch: BatchId, records: Sequence[SumRecord]) -> str:
        """Store the sums of a batch; an older file of the same name is replaced whole.

        Returns:
            The file's name in this archive.

        Raises:
            JournalError: it cannot be written.
        """
        folder = f"{task_id.hex()}/{batch}"
        file = f"{folder}/{shard}.parquet"
        columns = zip(*(_values(record) for record in records), strict=True)
        table = pa.table(
            [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)],
            schema=_SCHEMA,
        )
        try:
            self._files.create_dir(self._at(folder), recursive=True)
            with self._files.open_output_stream(self._at(f"{file}.part")) as stream:
                pq.write_table(table, stream, compression="none")
            self._files.move(self._at(f"{file}.part"), self._at(file))
            self._sync(file)
        except OSError as error:
            raise self._unusable(file, error) from error
        return file

    def _sync(self, file: str) -> None:
        """An object store answers when the object is durable; a local file and its path need to be told."""
        if isinstance(self._files, pafs.LocalFileSystem):
            path = Path(self._at(file))
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
            for folder in path.parents[: len(Path(file).parts)]:
                sync_directory(folder)

    def read(self, file: str) -> list[SumRecord]:
        """The sums in a file.

        Raises:
            JournalError: it is missing, damaged, or no archive of this version.
        """
        try:
            with self._files.open_input_file(self._at(file)) as stream:
                table = pq.read_table(stream)
        except (OSError, pa.ArrowException) as error:
            raise self._unusable(file, error) from error
        if not table.schema.equals(_SCHEMA, check_metadata=True):
            raise self._unusable(file, ValueError("its columns are others"))
        return [_record(row) for row in table.to_pylist()]

    def delete(self, file: str) -> None:
        """Delete a file; one that is gone already is fine.

        Raises:
            JournalError: it cannot be deleted.
        """
        try:
            self._files.delete_file(self._at(file))
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._unusable(file, error) from error

    def _at(self, file: str) -> str:
        return f"{self._root}/{file}"

    def _unusable(self, file: str, error: Exception) -> JournalError:
        return JournalError(
            f"The archive file {self._at(file)} cannot be used: {error}.",
            remedy="Check the archive's disk or service; restore the file from a backup.",
        )


def _values(record: SumRecord) -> tuple[object, ...]:
    score = record.score
    values = (record.weight, record.blob, record.id_checksum, score.value, score.hour, score.used)
    return (*record.key, *values)


def _record(row: dict[str, object]) -> SumRecord:
    match row:
        case {
            "class_id": bytes(class_id),
            "counter_set": int(counter_set),
            "batch": int(batch),
            "weight": int(weight),
            "blob": bytes(blob),
            "id_checksum": bytes(id_checksum),
            "score": float(score),
            "score_hour": int(hour),
            "score_used": bool(used),
        }:
            key = SumKey(ClassId(class_id), counter_set, BatchId(batch))
            return SumRecord(key, weight, blob, id_checksum, Score(score, hour, used=used))
        case _:
            raise ValueError("a row without values")
