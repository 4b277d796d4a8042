"""A release desk that ends abruptly before or after one of its steps: HOME STEP before|after.

HOME holds the task's encoding in `task`, and in `made` the hand-over and ids that the desk is given.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from penrose_ray.clock import ManualClock
from penrose_ray.release import desk, ledger
from penrose_ray.release.handover import Made, decode
from penrose_ray.task import Task
from penrose_ray.types import BatchId, ReportId

BATCH = BatchId(7)


def main(home: Path, step: str, when: str) -> None:
    owners: dict[str, object] = {"append": ledger.Ledger, "replace": desk}
    owner = owners.get(step, desk.Desk)
    real = getattr(owner, step)

    def die(*arguments: object) -> object:
        if any(getattr(each, "kind", "") == "head" for each in arguments):
            return real(*arguments)
        if when == "after":
            real(*arguments)
        os._exit(9)

    setattr(owner, step, die)
    task = msgspec.msgpack.decode((home / "task").read_bytes()[1:], type=Task)
    raw, members = msgspec.msgpack.decode(
        (home / "made").read_bytes(), type=tuple[bytes, tuple[tuple[ReportId, ...], ...]]
    )
    made = Made(decode(raw), members)
    clock = ManualClock(task.batch_s * (BATCH + 3.0))
    desk.Desk(home, task, clock, home / "ledger.key").release(BATCH, lambda: made)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
