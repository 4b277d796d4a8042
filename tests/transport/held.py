"""An uploader that holds its first report until the test lets it go."""

from __future__ import annotations

import threading

from penrose_ray.transport.direct import DirectUploader


class HeldUploader(DirectUploader):
    """`started` is set while the first report is on its way; nothing arrives before `release` is."""

    def __init__(self) -> None:
        super().__init__(self._take)
        self.started, self.release = threading.Event(), threading.Event()
        self.taken: list[bytes] = []

    def _take(self, record: bytes) -> None:
        self.started.set()
        self.release.wait(120)
        self.taken.append(record)
