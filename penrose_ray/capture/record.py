"""Writing a live OpenCL run as a Kineto trace, so that it can be replayed anywhere."""

from __future__ import annotations

import gzip
import json
import time
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penrose_ray.capture.events import EventBatch
    from penrose_ray.capture.source import EventSource

_BATCH = 4096
_IDLE_S = 0.005


def record(
    source: EventSource,
    path: Path,
    *,
    max_launches: int | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> int:
    """Write what an open source delivers until it is exhausted; a source made with `arm_all` gives times.

    Device names go into the header, kernels become `X` events of category `kernel`. Times count from just
    before the first launch, so the file does not say when the program ran.

    Args:
        source: an open source.
        path: a `.json.gz` file to write.
        max_launches: stop after so many.
        wait: called with a number of seconds while nothing is pending.

    Returns:
        Launches written.
    """
    written = 0
    base_ns: int | None = None
    with gzip.open(path, "wt", compresslevel=9, encoding="utf-8") as file:
        file.write('{\n"schemaVersion": 1,\n"traceEvents": [')
        while not source.exhausted and (max_launches is None or written < max_launches):
            left = _BATCH if max_launches is None else min(_BATCH, max_launches - written)
            batch = source.poll(left)
            if not len(batch):
                wait(_IDLE_S)
                continue
            if base_ns is None:
                base_ns = int(batch.start_ns[0]) - 1000
            _write(file, source, batch, base_ns, first=written == 0)
            written += len(batch)
        models = [{"id": number, "name": name} for number, name in enumerate(source.devices)]
        file.write(f'\n],\n"deviceProperties": {json.dumps(models)},\n"displayTimeUnit": "ns"\n}}\n')
    return written


def _write(file: TextIO, source: EventSource, batch: EventBatch, base_ns: int, *, first: bool) -> None:
    delay = next((index for index, each in enumerate(source.counters) if each.name == "queue_delay"), None)
    for row in range(len(batch)):
        args: dict[str, object] = {
            "device": int(batch.device[row]),
            "context": int(batch.context[row]),
            "stream": int(batch.stream[row]),
            "correlation": int(batch.correlation[row]) + 1,
            "grid": batch.grid[row].tolist(),
            "block": batch.block[row].tolist(),
        }
        if delay is not None and batch.counters[row, delay] >= 0:
            args["queue delay ns"] = int(batch.counters[row, delay])
        event: dict[str, object] = {"ph": "X", "cat": "kernel", "name": source.names[int(batch.name_id[row])]}
        event |= {"pid": args["device"], "tid": args["stream"]}
        if batch.end_ns[row]:
            event["ts"] = (int(batch.start_ns[row]) - base_ns) / 1000
            event["dur"] = int(batch.end_ns[row] - batch.start_ns[row]) / 1000
        event["args"] = args
        file.write(("\n" if first and row == 0 else ",\n") + json.dumps(event, separators=(",", ":")))
