"""Reading the file of a release: checked, typed, one row a histogram.

The counts stay a matrix beside the rows; `frames` lays them out one row a bin.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import msgspec
import numpy as np
import pandas as pd

from penrose_ray.analyse.labels import read_names
from penrose_ray.errors import ConfigError, ReleaseFormatError
from penrose_ray.histogram import BINS, CounterSet

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    import pyarrow as pa
    import pyarrow.parquet as pq
    from numpy.typing import NDArray

FORMAT = "penrose-release"
FORMAT_VERSION = 2

TASK_FACTS = (
    "task_id",
    "task_name",
    "demo",
    "batch_s",
    "min_contributors",
    "samples_per_histogram",
    "sampling_interval",
    "noise_sigma",
)
"""Columns that are one value in the whole file."""
_TEXT = ("class_id", "gpu_model", "counter_set")
_WHOLE = ("batch", "batch_start_s", "reports", "real_reports", "samples")
_REAL = ("spent_epsilon", "estimated_samples")
_ROBUST = ("robust_mean", "robust_mean_2")
_MEANING = ("counters", "axes", "categories")
_COLUMNS = {
    **dict.fromkeys(("task_id", "task_name", *_TEXT), "string"),
    **dict.fromkeys(("batch_s", "min_contributors", "samples_per_histogram", *_WHOLE), "int64"),
    "sampling_interval": "int64",
    **dict.fromkeys(("noise_sigma", *_REAL), "double"),
    **dict.fromkeys((*_MEANING, "robust_means", "bins"), "list"),
    "demo": "bool",
}
_ROWS_AT_A_TIME = 16_384
_LEAST_RUN = 64
"""Mean length of runs from which on adding run by run is the faster way."""
_WRITE_AGAIN = "Write it again with penrose release open."
_GIVE_A_PATH = "Give the path of a release, such as out/release.parquet."
Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"
"""One file of a release, or several of one task."""


@dataclass(frozen=True, slots=True)
class Histograms:
    """The opened histograms of one task."""

    facts: dict[Hashable, Any]
    """`TASK_FACTS`; None where the file is empty."""
    counter_sets: dict[str, CounterSet]
    rows: pd.DataFrame
    """One row a (batch, class, counter set): batch, batch_start, batch_end, class_id, gpu_model, counter_set,
    reports, real_reports, samples, estimated_samples, epsilon (spent up to the last batch), robust_mean and
    robust_mean_2 (of each counter; over several batches weighted by samples)."""
    counts: NDArray[np.int64]
    """Shape (rows, 128)."""
    added: NDArray[np.int64]
    """Stored histograms in each row."""
    stored: pd.DataFrame
    """The rows as the file has them: `rows` before batches were added up."""
    names: dict[str, str] = field(default_factory=dict)
    """Class id to the name that `penrose label` found for it."""
    discarded: int = 0
    """Sums that were handed over and not kept when they were opened."""

    @property
    def sub_batches(self) -> bool:
        """Whether some (batch, class, counter set) came as several sums."""
        return bool(self.stored.duplicated(["batch", *_TEXT]).any())


def read_histograms(
    path: Paths, *, batches: Literal["each", "sum"] = "each", labels: str | os.PathLike[str] | None = None
) -> Histograms:
    """Read and check a release, or several of one task as one.

    Args:
        path: the Parquet file of an opened release, or several.
        batches: "sum" adds the batches of a (class, GPU model, counter set) while reading, which takes
            memory for the sums only. Bin edges are one task's, so counts add exactly.
        labels: a file of class names; `labels.json` beside the first release, if there is one, when None.

    Raises:
        ReleaseFormatError: not Parquet, not a release, of another format version, of several tasks, with bins
            that make no sense, or two files hold the same sum.
        ConfigError: the file of labels is missing, or none.
    """
    import pyarrow as pa  # noqa: PLC0415 - 120 ms that only a reader of releases pays

    places = [Path(path)] if isinstance(path, str | os.PathLike) else [Path(each) for each in path]
    if not places:
        raise ReleaseFormatError("No release is named.", remedy=_GIVE_A_PATH)
    where = ", ".join(map(str, places))
    with contextlib.ExitStack() as stack:
        files = [_opened(place, stack) for place in places]
        tables = [_read(place, file) for place, file in zip(places, files, strict=True)]
        discarded = sum(_discarded(file.schema_arrow) for file in files)
        table = pa.concat_tables(tables)
        facts = _task_facts(where, table)
        sets = _counter_sets(where, table)
        stored = _rows(table, facts["batch_s"])
        _refuse_doubles(places, tables, stored)
        rows, target = _summed(stored, [*_TEXT] if batches == "sum" else ["batch", *_TEXT])
        counts = np.zeros((len(rows), BINS), np.int64)
        ends = np.cumsum([each.num_rows for each in tables])
        for place, file, mine in zip(places, files, np.split(target, ends[:-1]), strict=True):
            with _readable(place):
                _add_counts(place, file, mine, counts)
    names = read_names(places[0], labels, facts["task_id"])
    added = np.bincount(target, minlength=len(rows))
    return Histograms(facts, sets, rows, counts, added, stored, names, discarded)


def _opened(place: Path, stack: contextlib.ExitStack) -> pq.ParquetFile:
    import pyarrow.parquet as pq  # noqa: PLC0415

    if not place.is_file():
        raise ReleaseFormatError(f"There is no file {place}.", remedy=_GIVE_A_PATH)
    with _readable(place):
        file = stack.enter_context(pq.ParquetFile(place))
        _check_schema(place, file.schema_arrow)
    return file


@contextlib.contextmanager
def _readable(place: Path) -> Iterator[None]:
    import pyarrow as pa  # noqa: PLC0415

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise ReleaseFormatError(
            f"{place} is not a Parquet file that can be read: {error}.", remedy=_WRITE_AGAIN
        ) from error


def _read(place: Path, file: pq.ParquetFile) -> pa.Table:
    with _readable(place):
        return file.read(columns=[name for name in _COLUMNS if name != "bins"]).replace_schema_metadata()


def _discarded(schema: pa.Schema) -> int:
    """Length of the list of discarded sums in the file's metadata."""
    try:
        return len(msgspec.json.decode((schema.metadata or {}).get(b"discarded", b"[]"), type=list[Any]))
    except msgspec.MsgspecError as error:
        raise ReleaseFormatError(
            f"A release's list of discarded sums is damaged: {error}.", remedy=_WRITE_AGAIN
        ) from error


def _refuse_doubles(places: list[Path], tables: list[pa.Table], stored: pd.DataFrame) -> None:
    """Raise when two files hold the same sum: it would count twice."""
    if len(places) == 1:
        return
    origin = np.repeat(np.arange(len(places)), [each.num_rows for each in tables])
    keys = stored[["batch", *_TEXT]].assign(origin=origin).drop_duplicates()
    twice = keys[keys.duplicated(["batch", *_TEXT], keep=False)]
    if twice.empty:
        return
    first = twice.iloc[0]
    holders = twice[(twice[["batch", *_TEXT]] == first[["batch", *_TEXT]]).all(axis=1)]["origin"]
    raise ReleaseFormatError(
        f"{places[holders.iloc[0]]} and {places[holders.iloc[1]]} both hold batch {first['batch']} of class "
        f"{str(first['class_id'])[:8]}, {first['counter_set']}.",
        remedy="Give each batch once.",
    )


def _summed(stored: pd.DataFrame, key: list[str]) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Rows added up by `key`, sub-batches always, and which of them each stored row belongs to."""
    if not stored.duplicated(key).any():
        return stored, np.arange(len(stored))
    weights = stored[list(_ROBUST)].notna().mul(stored["samples"], axis=0)
    weighted = stored[list(_ROBUST)].fillna(0.0) * weights
    work = stored.assign(**weighted, **weights.add_prefix("weight_of_"))
    grouped = work.groupby(key, observed=True, sort=False)
    sums = ("reports", "real_reports", "samples", "estimated_samples", *work.columns[-2:], *_ROBUST)
    how = {"batch": "min", "batch_start": "min", "batch_end": "max", "epsilon": "max"}
    kept = {name: each for name, each in how.items() if name not in key}
    rows = grouped.agg({**kept, **dict.fromkeys(sums, "sum")}).reset_index()
    for name in _ROBUST:
        weight = rows[f"weight_of_{name}"]
        rows[name] = rows[name].div(weight.where(weight > 0))
    return rows[list(stored.columns)], grouped.ngroup().to_numpy().astype(np.int64)


def _check_schema(place: Path, schema: pa.Schema) -> None:
    metadata = schema.metadata or {}
    if metadata.get(b"format") != FORMAT.encode():
        raise ReleaseFormatError(
            f"{place} is a Parquet file, but not a release.",
            remedy="Give the file that penrose release open or penrose run wrote.",
        )
    version = metadata.get(b"format_version", b"").decode(errors="replace")
    if version != str(FORMAT_VERSION):
        raise ReleaseFormatError(
            f"{place} has release format version {version or 'none'}, this program reads {FORMAT_VERSION}.",
            remedy="Use the version of penrose-ray that wrote it, or open the release again.",
        )
    for name, kind in _COLUMNS.items():
        found = str(schema.field(name).type) if name in schema.names else "none"
        if found.partition("<")[0] != kind:
            raise ReleaseFormatError(
                f"{place}: column {name} is {found}, expected {kind}.", remedy=_WRITE_AGAIN
            )


def _add_counts(
    place: Path, file: pq.ParquetFile, target: NDArray[np.int64], counts: NDArray[np.int64]
) -> None:
    """All bins, row i added to row target[i], piece by piece: the file's own lists would take twice."""
    start = 0
    for batch in file.iter_batches(_ROWS_AT_A_TIME, columns=["bins"]):
        lists = cast("pa.ListArray[Any]", batch.column(0))
        flat = lists.flatten()
        if lists.null_count or flat.null_count or (lists.value_lengths().to_numpy() != BINS).any():
            raise ReleaseFormatError(f"{place}: a histogram has not {BINS} bins.", remedy=_WRITE_AGAIN)
        piece = flat.to_numpy().reshape(-1, BINS)
        _add(counts, target[start : start + len(piece)], piece)
        start += len(piece)


def _add(counts: NDArray[np.int64], to: NDArray[np.int64], piece: NDArray[np.int64]) -> None:
    """Add row i of `piece` to row to[i]; files keep classes in one order, so most rows come in long runs."""
    breaks = np.flatnonzero(np.diff(to) != 1) + 1
    if len(breaks) > len(to) // _LEAST_RUN:
        order = np.argsort(to, kind="stable")
        first = np.flatnonzero(np.diff(to[order], prepend=-1))
        counts[to[order[first]]] += np.add.reduceat(piece[order], first, axis=0)
        return
    for begin, end in itertools.pairwise([0, *breaks.tolist(), len(to)]):
        counts[to[begin] : to[begin] + end - begin] += piece[begin:end]


def _task_facts(place: str, table: pa.Table) -> dict[Hashable, Any]:
    if not table.num_rows:
        return dict.fromkeys(TASK_FACTS)
    facts: dict[Hashable, Any] = {}
    for name in TASK_FACTS:
        values = table.column(name).unique().to_pylist()
        if len(values) > 1:
            raise ReleaseFormatError(
                f"{place} mixes tasks: {name} is {', '.join(str(each) for each in values[:3])}.",
                remedy="Keep each task in a file of its own; histograms of different tasks are never added.",
            )
        facts[name] = values[0]
    return facts


def _counter_sets(place: str, table: pa.Table) -> dict[str, CounterSet]:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    found: dict[str, CounterSet] = {}
    for name in map(str, table.column("counter_set").unique().to_pylist()):
        meaning = table.filter(pc.equal(table.column("counter_set"), pa.scalar(name))).select(list(_MEANING))
        first = meaning.take(np.zeros(meaning.num_rows, np.int64))
        try:
            counter_set = msgspec.convert({"name": name, **meaning.slice(0, 1).to_pylist()[0]}, CounterSet)
            counter_set.check()
        except (msgspec.ValidationError, ConfigError) as error:
            raise ReleaseFormatError(
                f"{place}: the edges of counter set {name!r} make no sense ({error}).", remedy=_WRITE_AGAIN
            ) from error
        if not first.equals(meaning):
            raise ReleaseFormatError(
                f"{place}: counter set {name!r} has different edges in different rows.", remedy=_WRITE_AGAIN
            )
        found[name] = counter_set
    return found


def _rows(table: pa.Table, batch_s: int | None) -> pd.DataFrame:
    rows = pd.DataFrame({name: table.column(name).to_numpy() for name in _WHOLE})
    for name in _TEXT:
        encoded = table.column(name).combine_chunks().dictionary_encode()
        rows[name] = pd.Categorical.from_codes(
            encoded.indices.to_numpy().astype(np.int64),
            categories=pd.Index(encoded.dictionary.to_pylist(), dtype="str"),
        )
    start_s = rows.pop("batch_start_s").to_numpy(np.int64)
    rows["batch_start"] = _utc(start_s)
    rows["batch_end"] = _utc(start_s + (batch_s or 0))
    rows["epsilon"], rows["estimated_samples"] = (table.column(name).to_numpy() for name in _REAL)
    robust = _padded(table.column("robust_means").combine_chunks(), len(_ROBUST))
    for name, values in zip(_ROBUST, robust, strict=True):
        rows[name] = values
    columns = ["batch", "batch_start", "batch_end", *_TEXT, "reports", "real_reports", "samples"]
    return rows[[*columns, "estimated_samples", "epsilon", *_ROBUST]]


def _padded(lists: pa.ListArray[Any], width: int) -> NDArray[np.float64]:
    """Lists as rows of a matrix, transposed, with NaN where they are short."""
    lengths = lists.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    matrix = np.full((len(lengths), width), np.nan)
    place = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    inside = place < width
    matrix[np.repeat(np.arange(len(lengths)), lengths)[inside], place[inside]] = lists.flatten().to_numpy(
        zero_copy_only=False
    )[inside]
    return matrix.T


def _utc(seconds: NDArray[np.int64]) -> pd.DatetimeIndex:
    return pd.DatetimeIndex(seconds.astype("datetime64[s]"), tz="UTC")
