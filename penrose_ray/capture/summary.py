"""What is in a trace file, for `inspect`."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from penrose_ray.capture.events import SourceHealth
from penrose_ray.capture.formats import read_recording
from penrose_ray.errors import TraceError


class FileSummary(msgspec.Struct, frozen=True):
    """Counts of one file. With an `error` everything else is empty."""

    file: str
    format: str = ""
    kernels: int = 0
    distinct_names: int = 0
    devices: int = 0
    streams: int = 0
    """Distinct (process, device, stream) triples."""
    operators_linked: int = 0
    """Kernels that can be linked to an operator of the framework."""
    health: SourceHealth = SourceHealth()
    error: str = ""
    """What is wrong with the file and what to do about it."""


def summarise(path: str | Path) -> FileSummary:
    """Read a file and count; a file that cannot be read yields its error instead."""
    try:
        recording = read_recording(Path(path), link_operators=True)
    except TraceError as error:
        return FileSummary(file=str(path), error=str(error))
    batch = recording.batch
    places = np.column_stack([batch.process, batch.device, batch.stream.astype(np.int64)])
    return FileSummary(
        file=str(path),
        format=recording.format,
        kernels=len(batch),
        distinct_names=len(np.unique(batch.name_id)),
        devices=len(np.unique(batch.device)),
        streams=len(np.unique(places, axis=0)) if len(places) else 0,
        operators_linked=recording.operators_linked,
        health=recording.tally.snapshot(),
    )
