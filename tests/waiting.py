"""Waiting for what comes by itself: the bound is for what never comes, and long for a busy machine."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_MOST_S = 300.0
PROGRAM_S = 600.0
_LAST_WORDS_S = 10.0


def until(true: Callable[[], object], tend: Callable[[], object] = lambda: None) -> None:
    """Return once `true()` is; `tend` is called between two looks."""
    deadline = time.monotonic() + _MOST_S
    while not true():
        assert time.monotonic() < deadline, "it does not come"
        tend()
        time.sleep(0.02)  # polls; nothing depends on its length


@contextmanager
def program(command: Sequence[object], **options: Any) -> Iterator[subprocess.Popen[str]]:  # noqa: ANN401 - as Popen's
    """A program that the block works with, and that ends by itself after it; `options` are those of `Popen`.

    It is killed where the block fails, and where both take ten minutes: its pipes and its end are waited for
    no longer. A Python program then says where it stood.
    """
    late = threading.Event()
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    with subprocess.Popen([*map(str, command)], text=True, env=environment, **options) as process:
        ending = threading.Timer(PROGRAM_S, _end_late, [process, late])
        ending.start()
        try:
            yield process
            process.wait()
        except BaseException:
            process.kill()
            raise
        finally:
            ending.cancel()
            assert not late.is_set(), f"{process.args} had not ended after {PROGRAM_S:g} s"


def _end_late(process: subprocess.Popen[str], late: threading.Event) -> None:
    late.set()
    end_with_stacks(process)


def end_with_stacks(process: subprocess.Popen[str]) -> None:
    """End a program that has its time behind it; one with PYTHONFAULTHANDLER says first where it stood."""
    process.send_signal(signal.SIGABRT)
    try:
        process.wait(_LAST_WORDS_S)
    except subprocess.TimeoutExpired:
        process.kill()
