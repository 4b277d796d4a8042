"""Files of every format as traces, one rank after the other."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.capture.files import head_of, is_tar, members
from penrose_ray.capture.formats import read_recording
from penrose_ray.capture.tools.activities import read_activities
from penrose_ray.capture.tools.trace import DeviceTable, HostTable, MemoryTable, Trace
from penrose_ray.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from penrose_ray.capture.recording import Recording

_JSON = re.compile(rb"(?:\xef\xbb\xbf)?\s*[\[{]")
_SDK = re.compile(rb'\s*\{\s*"rocprofiler-sdk-tool"')


def read_traces(paths: Iterable[Path]) -> Iterator[Trace]:
    """Every rank of the files, each read when it is asked for.

    Raises:
        TraceError: a file cannot be read, or holds nothing that is a trace.
    """
    for path in paths:
        head = head_of(path)
        if not is_tar(head) and not (_JSON.match(head) and not _SDK.match(head)):
            yield from of_recording(read_recording(path), path.name)
            continue
        found = False
        for name, stream in members(path, head):
            trace = read_activities(stream, name or path.name)
            if trace is not None:
                found = True
                yield trace
                del trace  # or it would stay while the next rank is read
        if not found:
            raise TraceError(f"{path} holds no list of trace events.", remedy="Export it as Chrome JSON.")


def of_recording(recording: Recording, label: str) -> Iterator[Trace]:
    """A recording's processes, each a rank: device activities without a host."""
    batch = recording.batch
    processes = np.unique(batch.process)
    if not len(processes):
        yield _trace(recording, np.zeros(0, dtype=np.bool_), label)
    for process in processes:
        name = label if len(processes) == 1 else f"{label} process {process}"
        yield _trace(recording, batch.process == process, name)


def _trace(recording: Recording, mine: NDArray[np.bool_], label: str) -> Trace:
    batch = recording.batch.take(mine)
    places = np.column_stack([batch.device, batch.context, batch.stream]).astype(np.int64)
    queue = np.unique(places, axis=0, return_inverse=True)[1].ravel() if len(places) else 0
    return Trace(
        label=label,
        format=recording.format,
        names=recording.names,
        models=recording.devices,
        device=DeviceTable.of(
            len(batch),
            kind=batch.kind,
            name=batch.name_id,
            start_ns=batch.start_ns,
            end_ns=batch.end_ns,
            device=batch.device,
            queue=queue,
            correlation=batch.correlation,
            gap=batch.gap,
        ),
        host=HostTable.of(0),
        memory=MemoryTable.of(0),
        counters={each: batch.counters[:, index] for index, each in enumerate(recording.counters)},
        warnings=tuple(recording.tally.snapshot().warnings),
    )
