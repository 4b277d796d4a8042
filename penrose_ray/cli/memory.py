"""Peak memory of this process and all that it started."""

from __future__ import annotations

import os
import threading
from typing import Self

from penrose_ray.actors.processes import family, pss_mb


class PeakMemory:
    """Samples the family's memory every second; a context manager."""

    def __init__(self, every_s: float = 1.0) -> None:
        self._every_s = every_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory", daemon=True)
        self.peak_mb = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(self._every_s):
            self.peak_mb = max(self.peak_mb, pss_mb(family(os.getpid())))
