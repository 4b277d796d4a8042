"""What Ray's workers write: their stdout and stderr go to Ray's log files without who and where.

Python's log records, warnings and tracebacks of threads and of tasks come that way, too. Ray itself writes
the error of a constructor into five files more; `blank` is what it may have of it.
"""

from __future__ import annotations

import functools
import io
import sys
import threading
from typing import TYPE_CHECKING, TypeVar

from penrose_ray.capture.scrub import Scrubber
from penrose_ray.errors import PenroseError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

T = TypeVar("T")
R = TypeVar("R")


class ScrubbedStream(io.TextIOBase):
    """Passes whole lines on, scrubbed; what stands behind the last line's end waits for a `flush`."""

    def __init__(self, stream: TextIO, scrubber: Scrubber) -> None:
        self._stream, self._scrubber = stream, scrubber
        self._mutex = threading.RLock()
        self._begun = ""

    def write(self, text: str) -> int:
        """Take text; returns its length."""
        with self._mutex:
            lines, end, self._begun = (self._begun + text).rpartition("\n")
            if end:
                self._stream.write(self._scrubber(lines) + end)
        return len(text)

    def flush(self) -> None:
        """Pass on what there is."""
        with self._mutex:
            if self._begun:
                self._stream.write(self._scrubber(self._begun))
                self._begun = ""
            self._stream.flush()

    def writable(self) -> bool:
        """It is."""
        return True

    def fileno(self) -> int:
        """The file behind it, for code that writes by itself: not scrubbed."""
        return self._stream.fileno()


def scrub_worker() -> None:
    """Let this process, a worker of Ray, write scrubbed lines only; a second call changes nothing."""
    if isinstance(sys.stderr, ScrubbedStream):
        return
    scrubber = Scrubber.of_this_machine()
    sys.stdout, sys.stderr = ScrubbedStream(sys.stdout, scrubber), ScrubbedStream(sys.stderr, scrubber)


def scrubbed(function: Callable[[T], R]) -> Callable[[T], R]:
    """The function for a task of Ray, in a worker that writes scrubbed lines."""

    @functools.wraps(function)
    def run(item: T) -> R:
        scrub_worker()
        return function(item)

    return run


def blank(error: Exception) -> Exception:
    """An error that says the same without who and where, and whose causes are not told."""
    scrub = Scrubber.of_this_machine()
    if isinstance(error, PenroseError):
        return type(error)(scrub(error.message), remedy=scrub(error.remedy))
    return RuntimeError(f"{type(error).__name__}: {scrub(str(error))}")
