"""A client that is killed before or after it notes a report: HOME before|after|never.

HOME holds `kineto.task`, `trace.json.gz` and, in `state`, what a life leaves to the next; records that reach
the outbox are appended to `records`.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np
from e2e import fleet

from penrose_ray.actors.client import Client
from penrose_ray.actors.sent_reports import SentReports
from penrose_ray.capture.replay import ReplaySource
from penrose_ray.clock import ManualClock
from penrose_ray.task import verify
from penrose_ray.transport.direct import DirectUploader
from penrose_ray.transport.outbox import Outbox
from penrose_ray.transport.spool import spool_key


def main(home: Path, when: str) -> None:
    """Play the trace as one life of a client."""
    task = verify((home / "kineto.task").read_bytes())
    state = home / "state"
    sent = SentReports(task, state / "sent.sqlite", spool_key(state / "spool.key"))
    real = sent.note

    def die(*arguments: object) -> None:
        if when == "after":
            real(*arguments)  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGKILL)

    if when != "never":
        sent.note = die  # type: ignore[method-assign]
    clock = ManualClock()
    source = ReplaySource(home / "trace.json.gz")
    source.open()
    with (home / "records").open("ab", buffering=0) as file:
        outbox = Outbox(DirectUploader(file.write), clock)
        rng = np.random.default_rng()
        client = Client(source, task, fleet.POLICY, outbox, clock=clock, rng=rng, sent=sent)
        while client.step():
            pass
        client.finish()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
