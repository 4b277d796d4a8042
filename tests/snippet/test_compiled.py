"""Compiled signatures against those of numpy: every bit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import needs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.recognition import data
from benchmarks.recognition.measures import Hasher, lossy
from penrose_ray.compiled import cache_directory
from penrose_ray.snippet import compiled, minhash
from penrose_ray.snippet.cutter import SnippetCutter
from penrose_ray.snippet.grams import by_stream
from penrose_ray.snippet.minhash import of_hashes
from penrose_ray.snippet.names import NameHashes
from penrose_ray.snippet.scheme import SCHEMES, Scheme, View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

FOLDER = os.environ.get("PENROSE_TRACES", "")
NAMES = NameHashes().of([f"kernel_{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"])
VIEWS = (View(0.3, 2.0), View(floor=3), View())
SMALL = Scheme("small", gram=2, views=VIEWS, least_grams=3, mended=True, seed=b"s", shape=3)
ALL = (*SCHEMES.values(), SMALL)


def both(
    hashes: NDArray[np.uint64], streams: NDArray[np.int64] | None, of: Scheme, salt: int = 0
) -> tuple[list[int], list[int]]:
    """Values of compiled code and of numpy."""
    launches = by_stream(hashes, streams)
    made = compiled.values(launches, of, salt)
    assert made is not None
    return made.tolist(), minhash._values(launches, of, salt, np).tolist()


@st.composite
def loops(draw: st.DrawFn) -> NDArray[np.int64]:
    """A loop of which launches are lost and others renamed."""
    body = draw(st.lists(st.integers(0, 7), min_size=1, max_size=30))
    ids = np.tile(body, draw(st.integers(1, 25)))
    for place in draw(st.lists(st.integers(0, len(ids) - 1), max_size=6)):
        ids[place] = 9
    lost = draw(st.lists(st.integers(0, len(ids) - 1), max_size=8, unique=True))
    return ids if len(lost) == len(ids) else np.delete(ids, lost)


@needs.COMPILER
@settings(max_examples=200, deadline=None)
@given(loops(), st.lists(st.integers(0, 2), max_size=12), st.integers(0, 2**64 - 1))
def test_loops_with_lost_and_renamed_launches_in_several_streams(
    ids: NDArray[np.int64], pattern: list[int], salt: int
) -> None:
    streams = np.resize(pattern, len(ids)) if pattern else None
    for of in ALL:
        own, expected = both(NAMES[ids], streams, of, salt)
        assert own == expected


@needs.COMPILER
@settings(deadline=None)
@given(
    st.lists(st.sampled_from([0, 1, 2**20, 2**40, 2**63, 2**63 + 2**30, 2**64 - 1]), min_size=1, max_size=60)
)
def test_hashes_that_share_their_leading_bits(values: list[int]) -> None:
    for of in ALL:
        own, expected = both(np.array(values, np.uint64), None, of)
        assert own == expected


@needs.COMPILER
@pytest.mark.parametrize("streams", [1, 3, 40])
@pytest.mark.parametrize("length", [1, 7, 8, 9, 300, 10_000, 70_000])
def test_random_launches(length: int, streams: int) -> None:
    rng = np.random.default_rng(length + streams)
    for kernels in (2, 26):
        ids = rng.integers(0, kernels, length)
        for of in ALL:
            own, expected = both(NAMES[ids], rng.integers(0, streams, length), of)
            assert own == expected


@needs.COMPILER
@pytest.mark.parametrize("lost", [0.0, 0.001, 0.05])
@pytest.mark.parametrize("streams", [1, 4])
def test_programs_that_lost_records(
    program: Callable[..., NDArray[np.int64]], lost: float, streams: int
) -> None:
    rng = np.random.default_rng(7)
    for seed in range(10):
        ids = program(seed, 10_000) % len(NAMES)
        kept = ids[rng.random(len(ids)) >= lost]
        for of in ALL:
            own, expected = both(NAMES[kept], np.sort(rng.integers(0, streams, len(kept))), of)
            assert own == expected


@needs.COMPILER
@pytest.mark.skipif(not FOLDER, reason="PENROSE_TRACES is not set")
@pytest.mark.parametrize("launches", [10_000, 1_000])
def test_recorded_streams(launches: int) -> None:
    rng, hasher = np.random.default_rng(3), Hasher()
    windows = data.windows(data.corpus(Path(FOLDER)), launches)[::6]
    windows += [lossy(window, 0.01, rng) for window in windows]
    windows += data.random_windows(data.gpu_streams(Path(FOLDER)), launches, rng)
    assert len(windows) > 200
    for window in windows:
        for of in SCHEMES.values():
            own, expected = both(hasher.table(window, of)[window.ids], window.streams, of)
            assert own == expected


@needs.COMPILER
def test_the_library_is_in_a_folder_of_this_user_alone() -> None:
    assert compiled.values(by_stream(NAMES, None), SMALL, 0) is not None
    assert cache_directory().stat().st_mode & 0o077 == 0


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENROSE_NATIVE", "0")
    assert compiled.values(by_stream(NAMES, None), SMALL, 0) is None


@pytest.fixture
def forgotten() -> Iterator[None]:
    """Nothing is known about the compiled code before and after the test."""
    compiled._function.cache_clear()
    minhash._compiled_agrees.cache_clear()
    yield
    compiled._function.cache_clear()
    minhash._compiled_agrees.cache_clear()


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("missing", ["compiler", "cache", "home"])
def test_numpy_does_the_work_where_nothing_can_be_compiled(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file" if missing == "cache" else tmp_path))
    if missing == "compiler":
        monkeypatch.setattr(shutil, "which", lambda _: None)
    if missing == "home":
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setattr(Path, "home", _no_home)

    launches = by_stream(NAMES, None)
    assert compiled.values(launches, SMALL, 0) is None
    assert of_hashes(NAMES, None, SMALL).values.tolist() == minhash._values(launches, SMALL, 0, np).tolist()


def _no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


@needs.COMPILER
@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize(("switch", "libraries"), [("1", 1), ("0", 0)])
def test_a_cutter_compiles_before_launches_come(
    switch: str, libraries: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PENROSE_NATIVE", switch)
    SnippetCutter(1000, SMALL)
    assert len(list(tmp_path.rglob("signature-*.so"))) == libraries


@needs.COMPILER
@pytest.mark.usefixtures("forgotten")
def test_compiled_code_that_errs_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    right = compiled.values
    monkeypatch.setattr(compiled, "values", lambda *given: right(*given) ^ np.uint32(2))

    expected = minhash._values(by_stream(NAMES, None), SMALL, 0, np)
    assert of_hashes(NAMES, None, SMALL).values.tolist() == expected.tolist()


def test_importing_snippets_compiles_nothing_and_loads_nothing_heavy(tmp_path: Path) -> None:
    program = "import sys, penrose_ray.snippet; print(*sys.modules)"
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    loaded = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    ).stdout
    assert {"llvmlite", "gmpy2", "ray", "pandas"}.isdisjoint(loaded.split())
    assert list(tmp_path.iterdir()) == []
