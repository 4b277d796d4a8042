"""A process that serves a shard from forks of itself; run under stop_at by test_crash.py.

It reads lines `TASK_FILE REPORTS_FILE JOURNAL ALLOWED ERRNO` and, for each, forks a child that works through
a script and is killed at (or meets an error in) the call after ALLOWED ones. It prints one line a fork:
`exit status, calls, acknowledged report numbers`.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from penrose_ray.aggregate.arrival import Arrival
from penrose_ray.aggregate.service import ShardService
from penrose_ray.clock import ManualClock
from penrose_ray.errors import JournalError
from penrose_ray.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable

NOW_S = 1_750_000_000.0
SHIM = ctypes.CDLL(None)


T = TypeVar("T")


def work(task: Task, arrivals: list[Arrival], journal: Path, say: int) -> int:
    """Accept, repeat, store sums, release, accept again; tell every acknowledgement before the next call.

    A call that meets an error of the journal is made again, on the same service.

    Returns:
        The exit code of the last error met, or 0.
    """
    met = 0

    def persist(call: Callable[[], T]) -> T:
        nonlocal met
        try:
            return call()
        except JournalError as error:
            met = error.exit_code
            return call()

    def accept(numbers: range) -> None:
        for answer in persist(lambda: shard.accept([arrivals[number] for number in numbers])):
            assert answer.outcome.acknowledged, answer
        os.write(say, b"".join(f"{number} ".encode() for number in numbers))

    shard = persist(lambda: ShardService(journal, task, ManualClock(NOW_S), validate_states=True))
    accept(range(3))
    accept(range(2, 5))
    persist(shard.upkeep.checkpoint)
    accept(range(5, 7))
    persist(lambda: shard.close_batch(task.batch_of(NOW_S)))
    accept(range(5, 9))
    try:
        shard.close()
    except JournalError as error:
        met = error.exit_code
    return met


def attempt(task: Task, arrivals: list[Arrival], journal: Path, allowed: int, error: int) -> str:
    """One fork; its status, the calls it made, what it acknowledged."""
    hear, say = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.close(hear)
            SHIM.stop_at(ctypes.c_long(allowed), error)
            status = work(task, arrivals, journal, say)
        finally:
            os.write(say, f"calls={SHIM.stop_calls()}".encode())
            os._exit(status)
    os.close(say)
    with os.fdopen(hear, "rb") as pipe:
        told = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    return f"{os.waitstatus_to_exitcode(status)} {told}"


def main() -> None:
    """Serve attempts until the input ends."""
    task_file, reports_file = sys.argv[1:]
    task = msgspec.msgpack.decode(Path(task_file).read_bytes(), type=Task)
    rows = msgspec.msgpack.decode(Path(reports_file).read_bytes())
    arrivals = [Arrival(*row) for row in rows]
    work(task, arrivals, Path(f"{task_file}.warm-up"), os.open(os.devnull, os.O_WRONLY))
    for line in sys.stdin:
        journal, allowed, error = line.split()
        sys.stdout.write(f"{attempt(task, arrivals, Path(journal), int(allowed), int(error))}\n")
        sys.stdout.flush()


main()
