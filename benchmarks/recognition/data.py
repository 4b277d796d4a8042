"""Recorded launch streams, found through PENROSE_TRACES: streams/, corpus/ and traces/."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MOST_WINDOWS = 6
"""Windows of a run, evenly spread."""
SAME_CODE = (
    frozenset({"bert", "electra", "roberta"}),
    frozenset({"deit", "vit"}),
    frozenset({"hubert", "wav2vec2"}),
    frozenset({"llama", "mistral"}),
)
"""Families whose implementations run the same kernels under two names; no set of kernels tells them apart."""
_SAME_PROGRAM = {
    "param_dlrm_rank0_v100": "dlrm",
    "param_dlrm_rank1_v100": "dlrm",
    "param_dlrm_rank2_v100": "dlrm",
}
_COLUMNS = {"device": 2, "stream": 3, "name_id": 4}


@dataclass(frozen=True, eq=False)
class Recorded:
    """Launches of one run on one device."""

    name: str
    app: str
    family: str
    names: tuple[str, ...]
    ids: NDArray[np.int64]
    streams: NDArray[np.int64] | None = None
    rerun: bool = False
    """Recorded a second time, with other data and another seed."""


@dataclass(frozen=True)
class Window:
    """Launches that make one snippet."""

    run: Recorded
    ids: NDArray[np.int64]
    streams: NDArray[np.int64] | None


def root() -> Path | None:
    """The folder that PENROSE_TRACES names."""
    named = os.environ.get("PENROSE_TRACES")
    return Path(named) if named else None


def corpus(folder: Path) -> list[Recorded]:
    """Operator streams of real models on a CPU, from their first whole step on."""
    with (folder / "corpus" / "corpus.csv").open(newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if _npz(folder, row["name"]).exists()]
    return [_operator_stream(folder, row) for row in rows]


def _npz(folder: Path, name: str) -> Path:
    return folder / "corpus" / f"{name}.npz"


def _operator_stream(folder: Path, row: dict[str, str]) -> Recorded:
    with np.load(_npz(folder, row["name"])) as archive:
        names = tuple(str(name) for name in archive["names"])
        ids = archive["ids"].astype(np.int64)[int(row["first_step"]) :]
    return Recorded(row["name"], row["app"], row["family"], names, ids, rerun=row["name"] != row["app"])


def gpu_streams(folder: Path) -> list[Recorded]:
    """Kernel streams of real GPU traces, one entry a device."""
    found = []
    for path in sorted((folder / "streams").glob("*.names.json.gz")):
        name = path.name.removesuffix(".names.json.gz")
        names = tuple(json.loads(gzip.decompress(path.read_bytes()))["names"])
        table = np.genfromtxt(
            io.BytesIO(gzip.decompress((path.parent / f"{name}.csv.gz").read_bytes())),
            delimiter=",",
            skip_header=1,
            usecols=tuple(_COLUMNS.values()),
            filling_values=-1,
        )
        device, stream, ids = np.nan_to_num(table, nan=-1).astype(np.int64).T
        app = _SAME_PROGRAM.get(name, name)
        found += [
            Recorded(name, app, app, names, ids[device == each], stream[device == each])
            for each in np.unique(device)
        ]
    return found


def siblings(folder: Path) -> list[Recorded]:
    """Generation by three models of one library on two GPUs, each run a snippet: kin that must stay apart."""
    found = []
    for path in sorted((folder / "traces").glob("Wave__*.csv.gz")):
        with gzip.open(path, "rt", newline="") as lines:
            rows = [row["Kernel Name"] for row in csv.DictReader(lines) if row["ID"]]
        names = tuple(dict.fromkeys(rows))
        position = {name: index for index, name in enumerate(names)}
        _, gpu, config = path.name.removesuffix(".csv.gz").split("__")
        family = config.partition("_")[0]
        ids = np.array([position[name] for name in rows], np.int64)
        found.append(Recorded(f"{gpu}-{config}", f"{gpu}-{config}", family, names, ids))
    return found


def windows(runs: Sequence[Recorded], launches: int, most: int = MOST_WINDOWS) -> list[Window]:
    """Windows without overlap; of runs that have more than `most`, so many, evenly spread."""
    found = []
    for run in runs:
        count = len(run.ids) // launches
        spread = np.linspace(0, count - 1, most).round().astype(int) if count > most else range(count)
        found += [_cut(run, int(place) * launches, launches) for place in spread]
    return found


def random_windows(
    runs: Sequence[Recorded], launches: int, rng: np.random.Generator, most: int = 10
) -> list[Window]:
    """Windows at random places; traces are too short for windows without overlap."""
    return [
        _cut(run, int(start), launches)
        for run in runs
        if len(run.ids) >= launches
        for start in rng.integers(0, len(run.ids) - launches + 1, most)
    ]


def _cut(run: Recorded, start: int, launches: int) -> Window:
    part = slice(start, start + launches)
    return Window(run, run.ids[part], None if run.streams is None else run.streams[part])


def lossy(window: Window, share: float, rng: np.random.Generator) -> Window:
    """The window with each record lost with probability `share`."""
    kept = rng.random(len(window.ids)) >= share
    return Window(window.run, window.ids[kept], None if window.streams is None else window.streams[kept])


def is_tuning_half(family: str) -> bool:
    """Whether schemes may be tuned on a family; figures are reported on the others."""
    return bool(zlib.crc32(family.encode()) & 1)


def same_code(first: str, second: str) -> bool:
    """Whether two families are twins."""
    return any({first, second} <= twins for twins in SAME_CODE)
