"""Files of every format as traces, one rank after the other."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.capture.files import head_of, is_tar, members
from penrose_ray.capture.formats import read_recording
from penrose_ray.capture.nsys import FORMAT as NSYS
from penrose_ray.capture.tools.activities import read_activities
from penrose_ray.capture.tools.nsys_host import NsysHost, read_host
from penrose_ray.capture.tools.trace import DeviceTable, HostKind, HostTable, MemoryTable, Trace
from penrose_ray.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from penrose_ray.capture.marks import Mark
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
            recording = read_recording(path)
            host = read_host(path) if recording.format == NSYS else None
            yield from of_recording(recording, path.name, host)
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


def of_recording(recording: Recording, label: str, host: NsysHost | None = None) -> Iterator[Trace]:
    """A recording's processes, each a rank: device activities, and of the host what there is."""
    batch = recording.batch
    processes = np.unique(batch.process)
    if not len(processes):
        yield _trace(recording, 0, label, host)
    for process in processes:
        name = label if len(processes) == 1 else f"{label} process {process}"
        yield _trace(recording, int(process), name, host)


def _trace(recording: Recording, process: int, label: str, host: NsysHost | None) -> Trace:
    batch = recording.batch.take(recording.batch.process == process)
    places = np.column_stack([batch.device, batch.context, batch.stream]).astype(np.int64)
    queue = np.unique(places, axis=0, return_inverse=True)[1].ravel() if len(places) else 0
    marks = recording.marks.get(process, ())
    names = (*recording.names, *(host.names if host else ()), *(mark.name for mark in marks))
    activities = _marked_host(marks, len(recording.names))
    if host is not None and process in host.tables:
        table = host.tables[process]
        activities = replace(table, name=table.name + len(recording.names))
    return Trace(
        label=label,
        format=recording.format,
        names=names,
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
        host=activities,
        memory=MemoryTable.of(0),
        counters={each: batch.counters[:, index] for index, each in enumerate(recording.counters)},
        marked=_regions_of(batch.correlation.astype(np.int64), marks) if marks else None,
        warnings=tuple(recording.tally.snapshot().warnings),
    )


def _marked_host(marks: tuple[Mark, ...], first_name: int) -> HostTable:
    """A row for each region, without times; `external` is the row of the one around it, plus 1."""
    around, open_ = [], list[int]()
    for number, mark in enumerate(marks):
        while open_ and marks[open_[-1]].end < mark.end:
            open_.pop()
        around.append(open_[-1] + 1 if open_ else 0)
        open_.append(number)
    names = first_name + np.arange(len(marks))
    return HostTable.of(len(marks), kind=HostKind.REGION, name=names, external=around)


def _regions_of(launches: NDArray[np.int64], marks: tuple[Mark, ...]) -> NDArray[np.int64]:
    """Row of the innermost region of each launch, counted from 1; -1 for none."""
    found = np.full(len(launches), -1, np.int64)
    for number, mark in enumerate(marks):  # an inner one comes later
        found[(launches > mark.first) & (launches <= mark.end)] = number
    return found
