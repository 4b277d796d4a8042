"""Ray's log files say nothing of who and where, whatever an actor of ours writes, logs or fails with."""

from __future__ import annotations

import asyncio
import gc
import io
import logging
import os
import signal
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import ray

from penrose_ray.actors.processes import end_ray, family
from penrose_ray.actors.ray_start import start_local
from penrose_ray.actors.remote import actor, ask
from penrose_ray.actors.worker_logs import ScrubbedStream, scrubbed
from penrose_ray.capture.scrub import Scrubber
from penrose_ray.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Iterator

WHO = "alice"
PLACE = f"/home/{WHO}/weights.bin"
WAYS = ("print", "stderr", "log", "ray", "warning", "thread", "task")


class Talker:
    """Tells the same place in every way there is; with a file, its constructor fails once that is there."""

    def __init__(self, file: Path | None = None, error: Exception | None = None) -> None:
        if error and (file is None or file.exists()):
            raise error

    def talk(self) -> None:
        """Say it to files."""
        print(f"print {PLACE}")  # noqa: T201 - what is tested
        print(f"stderr {PLACE}", file=sys.stderr)  # noqa: T201 - what is tested
        logging.getLogger("another.package").warning("log %s", PLACE)
        logging.getLogger("ray").warning("ray %s", PLACE)
        warnings.warn(f"warning {PLACE}", stacklevel=1)
        thread = threading.Thread(target=self._fail, args=("thread",))
        thread.start()
        thread.join()

    async def forget(self) -> None:
        """Leave a failed task behind."""
        await asyncio.wait([asyncio.ensure_future(self._fail_later())])
        gc.collect()

    def fail(self) -> None:
        """Raise for the caller."""
        self._fail("call")

    async def _fail_later(self) -> None:
        self._fail("task")

    @staticmethod
    def _fail(way: str) -> None:
        raise ValueError(f"{way} {PLACE}")


def shout(way: str) -> str:
    print(f"{way} {PLACE}")  # noqa: T201 - what is tested
    return way


@pytest.fixture(scope="module")
def logs() -> Iterator[Path]:
    before = set(family(os.getpid()))
    start_local(num_cpus=8, num_gpus=0)
    try:
        yield Path(ray._private.worker._global_node.get_session_dir_path()) / "logs"
    finally:
        ray.shutdown()
        end_ray(before)


def lines(logs: Path) -> list[str]:
    files = [path for path in logs.rglob("*") if path.is_file()]
    return [line for path in files for line in path.read_text(errors="replace").splitlines()]


def wait_for(logs: Path, text: str) -> None:
    deadline = time.monotonic() + 300
    while not any(text in line for line in lines(logs)):
        assert time.monotonic() < deadline, text
        time.sleep(0.1)  # polls; nothing depends on its length


def test_what_workers_write_is_scrubbed_and_callers_get_the_whole_error(logs: Path, tmp_path: Path) -> None:
    talker = actor(Talker).remote()
    ask(talker.talk.remote())
    ask(talker.forget.remote())
    with pytest.raises(ValueError, match=PLACE):
        ask(talker.fail.remote())
    for error in (ValueError(PLACE), JournalError(f"The journal {PLACE} is damaged.", remedy="Mend it.")):
        with pytest.raises(type(error), match=PLACE):
            ask(actor(Talker).remote(None, error).ready.remote())
    assert ask(ray.remote(num_cpus=1)(scrubbed(shout)).remote("job")) == "job"

    mark = tmp_path / "mark"
    error = JournalError(f"The journal {PLACE} is damaged again.", remedy="Mend it.")
    fails_later = actor(Talker, max_restarts=1).remote(mark, error)
    ask(fails_later.ready.remote())
    pid = ask(fails_later.pid.remote())
    mark.touch()
    os.kill(pid, signal.SIGKILL)
    wait_for(logs, "The journal <path> is damaged again.")
    with pytest.raises(ray.exceptions.ActorDiedError):
        ask(fails_later.ready.remote())

    for way in (*WAYS, "job"):
        wait_for(logs, f"{way} <path>")
    assert [line for line in lines(logs) if WHO in line] == []


def test_lines_are_scrubbed_whole_and_in_order() -> None:
    out = io.StringIO()
    stream = ScrubbedStream(out, Scrubber(["gpu-box-17"]))
    stream.write("from /home/al")
    assert out.getvalue() == ""
    stream.write("ice on gpu-")
    stream.write("box-17\n10.1.2.")
    assert out.getvalue() == "from <path> on <name>\n"
    stream.write("3:9400 and on")
    stream.flush()
    assert out.getvalue() == "from <path> on <name>\n<address> and on"
