from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penrose_ray import opening
from penrose_ray.analyse import released
from penrose_ray.analyse.frames import class_table, open_release
from penrose_ray.errors import ReleaseFormatError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penrose_ray.histogram import CounterSet


@pytest.fixture
def good(
    make_task: Callable[..., Any],
    opened: Callable[..., Any],
    write_release: Callable[..., Path],
    duration: CounterSet,
) -> pa.Table:
    sums = [opened(duration, np.arange(128), name=name) for name in (1, 2)]
    return pq.read_table(write_release(make_task(duration), sums))


def rewritten(table: pa.Table, path: Path) -> Path:
    pq.write_table(table, path)
    return path


def replaced(table: pa.Table, name: str, values: list[Any]) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(name), pa.array(values, table.schema.field(name).type))


def test_format_is_the_writers() -> None:
    assert (released.FORMAT, released.FORMAT_VERSION) == (opening.FORMAT, opening.FORMAT_VERSION)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ReleaseFormatError, match="There is no file"):
        open_release(tmp_path / "none.parquet")


@pytest.mark.parametrize("content", [b"", b"PAR1", b"a text file", b"PAR1" + bytes(200) + b"PAR1"])
def test_not_parquet(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "release.parquet"
    path.write_bytes(content)
    with pytest.raises(ReleaseFormatError, match="not a Parquet file that can be read"):
        open_release(path)


def test_truncated(tmp_path: Path, good: pa.Table) -> None:
    path = rewritten(good, tmp_path / "release.parquet")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ReleaseFormatError, match="not a Parquet file that can be read"):
        open_release(path)


def test_parquet_but_not_a_release(tmp_path: Path) -> None:
    path = rewritten(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(ReleaseFormatError, match="not a release"):
        open_release(path)


def test_other_format_version(tmp_path: Path, good: pa.Table) -> None:
    newer = good.replace_schema_metadata({"format": "penrose-release", "format_version": "9"})
    with pytest.raises(ReleaseFormatError, match="version 9, this program reads 2"):
        open_release(rewritten(newer, tmp_path / "release.parquet"))


def test_missing_column(tmp_path: Path, good: pa.Table) -> None:
    with pytest.raises(ReleaseFormatError, match="column samples is none, expected int64"):
        open_release(rewritten(good.drop_columns(["samples"]), tmp_path / "release.parquet"))


def test_mixed_tasks(tmp_path: Path, good: pa.Table) -> None:
    mixed = replaced(good, "task_id", ["aa", "bb"])
    with pytest.raises(ReleaseFormatError, match="mixes tasks: task_id is aa, bb"):
        open_release(rewritten(mixed, tmp_path / "release.parquet"))


@pytest.mark.parametrize("low", [float("nan"), float("-inf"), 1e12])
def test_edges_that_make_no_sense(tmp_path: Path, good: pa.Table, low: float) -> None:
    axes = good.column("axes").to_pylist()
    broken = replaced(good, "axes", [[{**axes[0][0], "low": low}]] * 2)
    with pytest.raises(ReleaseFormatError, match="edges of counter set 'duration' make no sense"):
        open_release(rewritten(broken, tmp_path / "release.parquet"))


def test_edges_that_differ_between_rows(tmp_path: Path, good: pa.Table) -> None:
    axes = good.column("axes").to_pylist()
    broken = replaced(good, "axes", [axes[0], [{**axes[0][0], "low": 50.0}]])
    with pytest.raises(ReleaseFormatError, match="different edges in different rows"):
        open_release(rewritten(broken, tmp_path / "release.parquet"))


@pytest.mark.parametrize("bins", [[1] * 127, None, [None] * 128])
def test_histogram_without_128_bins(tmp_path: Path, good: pa.Table, bins: list[int] | None) -> None:
    broken = replaced(good, "bins", [[1] * 128, bins])
    with pytest.raises(ReleaseFormatError, match="has not 128 bins"):
        open_release(rewritten(broken, tmp_path / "release.parquet"))


def test_empty_release_gives_empty_typed_frames(
    make_task: Callable[..., Any], write_release: Callable[..., Path], good: pa.Table, tmp_path: Path
) -> None:
    empty = write_release(make_task(), [])
    frame = open_release(empty)
    full = open_release(rewritten(good, tmp_path / "release.parquet"))
    assert len(frame) == 0
    assert list(frame.columns) == list(full.columns)
    for name in frame.columns:
        assert frame[name].dtype.kind == full[name].dtype.kind, name
    assert frame.attrs["demo"] is None
    assert open_release(empty, batches="sum").empty
    assert class_table(empty).empty
    assert class_table(empty)["samples"].dtype == np.int64


def test_batches_add_up_in_any_order_of_rows(tmp_path: Path, good: pa.Table) -> None:
    random = np.random.default_rng(3)
    many = pa.concat_tables([good] * 300)
    bins = random.integers(0, 1_000, (len(many), 128))
    many = replaced(many, "bins", bins.tolist())
    classes = np.array(many.column("class_id").to_pylist())
    expected = [
        bins[classes == name].sum(axis=0).tolist() for name in (b"\x01".hex() * 16, b"\x02".hex() * 16)
    ]
    for order in (np.argsort(classes, kind="stable"), random.permutation(len(many))):
        path = rewritten(many.take(order), tmp_path / "release.parquet")
        found = released.read_histograms(path, batches="sum")
        by_class = dict(zip(found.rows["class_id"], found.counts.tolist(), strict=True))
        assert [by_class[name] for name in sorted(by_class)] == expected
        assert found.added.tolist() == [300, 300]
