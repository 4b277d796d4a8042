"""What the end-to-end tests share: traces of alternating programs, a task, the truth."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.actors.client import NOT_ENROLLED, Client, Enrolled
from penrose_ray.capture.replay import ReplaySource
from penrose_ray.clock import SystemClock
from penrose_ray.histogram import BINS, Axis, CounterSet
from penrose_ray.policy import OwnerPolicy
from penrose_ray.task import SignedTask, Task, sign
from penrose_ray.transport.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from penrose_ray.actors.moments import Moments
    from penrose_ray.clock import Clock
    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.histogram import Counter
    from penrose_ray.seal import Contribution
    from penrose_ray.transport.uploader import Uploader
    from penrose_ray.wire import Report

SNIPPET = 400
LONG_S = 3_600_000_000
"""No batch ends while a test runs."""
POLICY = OwnerPolicy(allow_demo=True, least_sampling_interval=1, least_contributors=1)


GEMM = tuple(f"gemm_{n}" for n in range(12))
STENCIL = tuple(f"stencil_{n}" for n in range(15))


def write_trace(
    path: Path, seed: int, rounds: int, programs: Sequence[Sequence[str]] = (GEMM, STENCIL), gpus: int = 1
) -> None:
    """A Kineto trace whose process alternates between programs, two snippets of each on a GPU at a time."""
    rng = np.random.default_rng(seed)
    events = []
    start_us = 0.0
    for step in range(rounds * 4 * gpus):
        place = step // 2 // gpus
        names = programs[place % len(programs)]
        for launch in range(SNIPPET):
            duration_us = float(np.round(rng.lognormal(2 + 2 * (place % 2), 1.0), 3))
            correlation = len(events) + 1
            events.append(
                {
                    "ph": "X",
                    "cat": "kernel",
                    "name": names[launch % len(names)],
                    "pid": 0,
                    "tid": 7,
                    "ts": start_us,
                    "dur": duration_us,
                    "args": {"device": step % gpus, "stream": 7, "correlation": correlation, "context": 1},
                }
            )
            start_us += duration_us + 1
    trace = {
        "deviceProperties": [{"id": gpu, "name": "Test GPU"} for gpu in range(gpus)],
        "traceEvents": events,
    }
    with gzip.open(path, "wt") as file:
        json.dump(trace, file)


def signed_task(keys: DesignKeys, counters: tuple[Counter, ...], **changes: object) -> SignedTask:
    sets = tuple(CounterSet(counter.name, (counter,), (Axis("log", 100.0, 1e7),)) for counter in counters)
    fields = {
        "name": "end to end",
        "demo": True,
        "public_key": keys.paillier.public_key.to_bytes(),
        "counter_sets": sets,
        "rotation": (tuple(each.name for each in sets),),
        "samples_per_histogram": 40,
        "sampling_interval": 8,
        "snippet_launches": SNIPPET,
        "min_samples": 10,
        "reports_per_class": 0,
        "min_contributors": 3,
        "tokens_per_day": 0,
        "cover_rate": 0.2,
        **changes,
    }
    return sign(Task(**fields), keys.signing)  # type: ignore[arg-type]


class Truth:
    """Plaintext sums by (representative's signature, counter set), as the clients' hook saw them."""

    def __init__(self) -> None:
        self.counts: dict[tuple[bytes, int], NDArray[np.int64]] = defaultdict(
            lambda: np.zeros(BINS, np.int64)
        )
        self.reports: dict[tuple[bytes, int], int] = defaultdict(int)
        self.real: dict[tuple[bytes, int], int] = defaultdict(int)

    def record(self, contribution: Contribution, report: Report) -> None:
        key = (report.signature, report.counter_set)
        self.counts[key] += contribution.counts
        self.reports[key] += 1
        self.real[key] += contribution.real


def replay_client(
    trace: Path,
    task: Task,
    uploader: Uploader,
    truth: Truth,
    *,
    clock: Clock,
    seed: int,
    enrolled: Enrolled = NOT_ENROLLED,
    moments: Moments | None = None,
) -> tuple[Client, Outbox]:
    source = ReplaySource(trace)
    source.open()
    outbox = Outbox(uploader, clock)
    client = Client(
        source,
        task,
        POLICY,
        outbox,
        clock=clock,
        rng=np.random.default_rng(seed),
        on_contribution=truth.record,
        enrolled=enrolled,
        moments=moments,
    )
    return client, outbox


def play(client: Client) -> None:
    """To the end of the client's recording, with its last reports."""
    while client.step(1000):
        pass
    client.finish()


def played(folder: Path, task: Task, uploader: Uploader, truth: Truth, *, seed: int) -> Iterator[Outbox]:
    """Outboxes of three clients with traces of their own, one after the other, each played to its end."""
    for number in range(3):
        trace = folder / f"client-{number}.json.gz"
        write_trace(trace, seed=seed + number, rounds=4)
        client, outbox = replay_client(trace, task, uploader, truth, clock=SystemClock(), seed=seed + number)
        play(client)
        yield outbox


def counters_of(trace: Path) -> tuple[Counter, ...]:
    source = ReplaySource(trace)
    source.open()
    try:
        return source.counters
    finally:
        source.close()
