"""Each kind of damage in each format that can have it; what only one format can have is in its own tests."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import numpy as np
import pytest
from capture.rigs.writers import WRITERS, Written

from penrose_ray.capture.formats import read_recording
from penrose_ray.capture.summary import summarise
from penrose_ray.errors import TraceError

if TYPE_CHECKING:
    from pathlib import Path

    from penrose_ray.capture.recording import Recording

FORMATS = list(WRITERS)
TIMED = [name for name in FORMATS if name != "ncu"]
TEXT = ["kineto", "rocprof-json", "rocprof-csv", "compute-csv", "ncu"]
SQLITE = ["nsys", "rpd", "compute-sqlite"]


def _read(path: Path, form: str, *launches: Written) -> Recording:
    WRITERS[form](path, launches)
    return read_recording(path)


def _names(recording: Recording) -> list[str]:
    return [recording.names[name] for name in recording.batch.name_id]


def _check_second_has_no_times(recording: Recording) -> None:
    """Three launches, the second one without a duration, and that is said or was never known."""
    assert _names(recording) == ["a", "b", "c"]
    assert np.isnan(recording.batch.counters[:, 0]).tolist() == [False, True, False]
    assert recording.batch.counters[[0, 2], 0].tolist() == [5000, 5000]
    assert recording.batch.end_ns[1] == 0


@pytest.mark.parametrize("form", TIMED)
@pytest.mark.parametrize(
    ("start", "end"),
    [(20_000, 19_000), (-5_000, -1_000), (20_000, 1 << 62 | 1), (1 << 62 | 1, (1 << 62) + 9)],
    ids=["end before start", "negative", "end after 2116", "all after 2116"],
)
def test_impossible_times_cost_the_duration_and_are_counted(
    tmp_path: Path, form: str, start: int, end: int
) -> None:
    if form == "xplane" and max(abs(start), abs(end)) > 1 << 53:
        pytest.skip("its picoseconds do not reach that far")
    recording = _read(tmp_path / "t", form, Written(1, "a"), Written(2, "b", start, end), Written(3, "c"))
    _check_second_has_no_times(recording)
    assert recording.tally.bad_timestamps == 1
    assert any("1 launches have impossible times" in each for each in recording.tally.warnings)


@pytest.mark.parametrize("form", TIMED)
def test_launch_of_zeros_keeps_its_place(tmp_path: Path, form: str) -> None:
    recording = _read(tmp_path / "t", form, Written(1, "a"), Written(2, "b", 0, 0), Written(3, "c"))
    _check_second_has_no_times(recording)


@pytest.mark.parametrize("form", ["kineto", "rocprof-csv", "compute-csv"])
@pytest.mark.parametrize("value", ["inf", "-inf", "nan", "N/A", "", "8.1E+14", str(1 << 70), "1e300", "soon"])
def test_times_that_are_no_numbers_cost_the_duration(tmp_path: Path, form: str, value: str) -> None:
    if form == "kineto" and value == "8.1E+14":
        pytest.skip("this is a number in JSON")
    recording = _read(tmp_path / "t", form, Written(1, "a"), Written(2, "b", value, value), Written(3, "c"))
    _check_second_has_no_times(recording)


@pytest.mark.parametrize("value", ["inf", "-inf", "nan", "N/A", "", "soon"])
def test_durations_that_are_no_numbers_are_not_measured(tmp_path: Path, value: str) -> None:
    recording = _read(tmp_path / "t", "ncu", Written(1, "a"), Written(2, "b", 0, value), Written(3, "c"))
    _check_second_has_no_times(recording)


@pytest.mark.parametrize("form", SQLITE)
@pytest.mark.parametrize("value", [None, "N/A", float("inf"), 1e300, b"\xff"])
def test_cells_of_another_type_cost_the_duration(tmp_path: Path, form: str, value: object) -> None:
    launch = Written(2, "b", "NULL" if value is None else value, "NULL" if value is None else value)
    _check_second_has_no_times(_read(tmp_path / "t", form, Written(1, "a"), launch, Written(3, "c")))


@pytest.mark.parametrize("value", [1 << 70, -(1 << 70)])
def test_numbers_beyond_64_bits_in_rocprof_json_cost_a_duration_or_are_one_error(
    tmp_path: Path, value: int
) -> None:
    path = tmp_path / "t"
    WRITERS["rocprof-json"](path, [Written(1, "a"), Written(2, "b", value, value), Written(3, "c")])
    found = summarise(path)
    assert (found.kernels, found.health.bad_timestamps) == (3, 1) or "damaged rocprofv3 file" in found.error


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "name",
    [
        'void f<"a">(char)',
        "it's one, isn't it",
        r"C:\path\new\kernel",
        "kernel\u2028größe 核",
        "k" * 5160,
        "two\nlines",
        "comma, and ; semicolon",
        "'; DROP TABLE rocpd_op; --",
        "",
    ],
    ids=["quotes", "apostrophes", "backslashes", "unicode", "long", "lines", "commas", "sql", "empty"],
)
def test_odd_names_are_read_as_they_are(tmp_path: Path, form: str, name: str) -> None:
    recording = _read(tmp_path / "t", form, Written(1, "a"), Written(2, name), Written(3, "c"))
    assert recording.batch.counters[:, 0].tolist() == [5000, 5000, 5000]
    first, odd, last = _names(recording)
    assert (first, last) == ("a", "c")
    if name or form in ("rpd", "kineto"):
        assert odd in (name, name.replace("\n", " "), "KernelExecution")
    else:
        assert odd == ""


@pytest.mark.parametrize("form", FORMATS)
def test_names_that_are_not_utf8_cost_their_odd_bytes_or_are_one_error(tmp_path: Path, form: str) -> None:
    path = tmp_path / "t"
    WRITERS[form](path, [Written(1, "a"), Written(2, "odd##name"), Written(3, "c")])
    path.write_bytes(path.read_bytes().replace(b"##", b"\xff\xfe"))
    found = summarise(path)
    if form == "rocprof-json" and found.error:
        assert "damaged rocprofv3 file" in found.error
        return
    assert found.error == ""
    assert _names(read_recording(path))[1] == "odd\ufffd\ufffdname"


@pytest.mark.parametrize("form", TEXT)
def test_unescaped_quotes_and_backslashes_never_misalign_a_launch(tmp_path: Path, form: str) -> None:
    for odd in ('od"d', r"od\d"):
        path = tmp_path / "t"
        WRITERS[form](path, [Written(1, "a"), Written(2, "od@d"), Written(3, "c")])
        path.write_text(path.read_text().replace("od@d", odd))
        found = summarise(path)
        if found.error:
            assert form == "rocprof-json"
            continue
        recording = read_recording(path)
        for name, length in zip(_names(recording), recording.batch.counters[:, 0], strict=True):
            assert name in ("a", odd, "c")
            assert length == 5000
        assert len(recording.batch) + recording.tally.damaged == 3


@pytest.mark.parametrize("form", FORMATS)
def test_file_without_a_launch_says_so(tmp_path: Path, form: str) -> None:
    WRITERS[form](tmp_path / "t", [])
    found = summarise(tmp_path / "t")
    assert (found.kernels, found.error) == (0, "")
    assert any("no kernel" in warning for warning in found.health.warnings)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.999])
def test_truncated_gzip_yields_its_good_part_or_one_error(tmp_path: Path, form: str, share: float) -> None:
    path = tmp_path / "t"
    launches = [Written(number, f"kernel {number * 7919}") for number in range(1, 2001)]
    WRITERS[form](path, launches)
    whole = gzip.compress(path.read_bytes())
    path.write_bytes(whole[: int(len(whole) * share)])
    found = summarise(path)
    if found.error:
        assert found.kernels == 0
        return
    assert found.kernels <= 2000
    assert any("cut off" in warning for warning in found.health.warnings)
    lengths = read_recording(path).batch.counters[:, 0]
    assert (np.isnan(lengths) | (lengths == 5000)).all()


@pytest.mark.parametrize("form", FORMATS)
def test_device_that_the_file_does_not_describe_is_called_unknown(tmp_path: Path, form: str) -> None:
    recording = _read(tmp_path / "t", form, Written(1, "a"), Written(2, "b"))
    assert len(recording.devices) == 1
    assert "unknown" in recording.devices[0]


@pytest.mark.parametrize("form", TIMED)
def test_launches_that_overlap_on_one_stream_keep_order_and_length(tmp_path: Path, form: str) -> None:
    """Completion is deferred on some GPUs; a kernel may last seconds, into the next ones."""
    recording = _read(
        tmp_path / "t", form, Written(1, "a"), Written(2, "b", 20_000, 3_000_020_000), Written(3, "c")
    )
    assert _names(recording) == ["a", "b", "c"]
    assert recording.batch.counters[:, 0].tolist() == [5000, 3_000_000_000, 5000]
    assert recording.tally.bad_timestamps == 0


@pytest.mark.parametrize("form", TIMED)
def test_launches_are_in_host_order_whatever_the_files(tmp_path: Path, form: str) -> None:
    launches = [Written(3, "c"), Written(1, "a", 90_000, 95_000), Written(2, "b")]
    assert _names(_read(tmp_path / "t", form, *launches)) == ["a", "b", "c"]


@pytest.mark.parametrize("form", ["rocprof-csv", "compute-csv", "ncu"])
def test_last_row_without_its_end_is_read_with_a_warning(tmp_path: Path, form: str) -> None:
    """Its last number may have lost digits, and nothing but the missing end of line shows it."""
    path = tmp_path / "t"
    WRITERS[form](path, [Written(1, "a"), Written(2, "b")])
    path.write_bytes(path.read_bytes()[:-2])
    recording = read_recording(path)
    assert len(recording.batch) == 2
    assert any("may be cut off" in warning for warning in recording.tally.warnings)


@pytest.mark.parametrize("form", SQLITE)
def test_database_that_ends_in_the_middle_of_a_page_is_one_error(tmp_path: Path, form: str) -> None:
    """SQLite itself would read zeros for the rest of the page."""
    WRITERS[form](tmp_path / "t", [Written(number) for number in range(1, 300)])
    (tmp_path / "t").write_bytes((tmp_path / "t").read_bytes()[:-100])
    with pytest.raises(TraceError, match="ends in the middle of a page"):
        read_recording(tmp_path / "t")
