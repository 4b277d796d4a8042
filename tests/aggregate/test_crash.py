"""A shard's process is killed at each call that changes a file, or that call fails; nothing may be lost."""

from __future__ import annotations

import errno
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from penrose_ray.aggregate.arrival import Outcome
from penrose_ray.aggregate.service import ShardService
from penrose_ray.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    from penrose_ray.task import Task
    from tests.aggregate.conftest import Reports

    Attempt: TypeAlias = Callable[[Path, int, int], tuple[int, int, set[int]]]

NOW_S = 1_750_000_000.0
NUMBERS = range(9)
HERE = Path(__file__).parent
MEMORY = Path("/dev/shm")  # noqa: S108 - a fresh directory inside it is made with mode 0700


@pytest.fixture(scope="module")
def attempt(tmp_path_factory: pytest.TempPathFactory, task: Task, reports: Reports) -> Iterator[Attempt]:
    """Lets a child work on a journal; gives its exit status, calls made and acknowledged report numbers."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler for the preloaded library")
    folder = tmp_path_factory.mktemp("crash")
    library = folder / "stop_at.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(HERE / "stop_at.c"), "-ldl"],
        check=True,
        timeout=300,
    )
    (folder / "task").write_bytes(msgspec.msgpack.encode(task))
    (folder / "reports").write_bytes(msgspec.msgpack.encode([astuple(reports.one(n)) for n in NUMBERS]))
    child = subprocess.Popen(
        [sys.executable, str(HERE / "shard_child.py"), str(folder / "task"), str(folder / "reports")],
        env={**os.environ, "LD_PRELOAD": str(library)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert child.stdin
    assert child.stdout
    stdin, stdout = child.stdin, child.stdout

    def run(journal: Path, allowed: int, error: int) -> tuple[int, int, set[int]]:
        stdin.write(f"{journal} {allowed} {error}\n")
        stdin.flush()
        assert select.select([stdout], [], [], 300)[0], f"no answer to {journal} {allowed} {error}"
        status, _, told = stdout.readline().strip().partition(" ")
        calls = re.search(r"calls=(\d+)", told)
        acknowledged = {int(number) for number in told.split("calls=")[0].split()}
        return int(status), int(calls[1]) if calls else -1, acknowledged

    try:
        yield run
    finally:
        stdin.close()
        try:
            child.wait(timeout=120)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)  # its fork too
            child.wait()
            raise
        finally:
            stdout.close()


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory in memory where there is one: a killed process does not need a disk to forget."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder)


def check(journal: Path, task: Task, reports: Reports, acknowledged: set[int]) -> None:
    """All acknowledged reports are there; sent again, every report counts exactly once."""
    with ShardService(journal, task, ManualClock(NOW_S), validate_states=True) as shard:
        arrivals = [reports.one(number) for number in NUMBERS]
        known = shard.known([arrival.report_id for arrival in arrivals])
        assert {number for number in NUMBERS if arrivals[number].report_id in known} >= acknowledged
        outcomes = [answer.outcome for answer in shard.accept(arrivals)]
        assert set(outcomes) <= {Outcome.ACCEPTED, Outcome.KNOWN}
    with ShardService(journal, task, ManualClock(NOW_S), validate_states=True) as shard:
        counts = [*shard.batches(), *shard.closed_batches()]
        totals = [total for count in counts for total in shard.sums(count.batch)]
        assert reports.hits(totals) == Counter(NUMBERS)


def test_a_shard_killed_at_any_write_loses_nothing(
    attempt: Attempt,
    memory: Path,
    task: Task,
    reports: Reports,
) -> None:
    status, calls, acknowledged = attempt(memory / "whole", -1, 0)
    assert (status, acknowledged) == (0, set(NUMBERS))
    assert calls > 30
    for allowed in range(calls):
        journal = memory / str(allowed)
        status, _, acknowledged = attempt(journal, allowed, 0)
        assert status == -9, f"the child outlived call {allowed} of {calls}"
        check(journal, task, reports, acknowledged)


@pytest.mark.parametrize(
    "error", [errno.ENOSPC, pytest.param(errno.EIO, marks=pytest.mark.slow)], ids=errno.errorcode.get
)
def test_a_write_that_fails_is_a_typed_error_and_the_shard_goes_on(
    attempt: Attempt,
    memory: Path,
    task: Task,
    reports: Reports,
    error: int,
) -> None:
    _, calls, _ = attempt(memory / "whole", -1, 0)
    statuses = set()
    for allowed in range(calls):
        journal = memory / str(allowed)
        status, _, acknowledged = attempt(journal, allowed, error)
        assert acknowledged == set(NUMBERS)
        statuses.add(status)
        check(journal, task, reports, acknowledged)
    assert statuses <= {0, 50, 53}
    assert (53 if error == errno.ENOSPC else 50) in statuses
