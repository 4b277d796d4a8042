"""Threads that bring reports to a gateway whatever happens to it."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from penrose_ray.clock import SystemClock
from penrose_ray.transport.http import HttpUploader
from penrose_ray.transport.outbox import Outbox

if TYPE_CHECKING:
    from penrose_ray.actors.topology import Topology

SENDERS = 3


class Senders:
    """Threads that share the records; `join` lets them end when all of their own are acknowledged."""

    def __init__(self, topology: Topology, records: list[bytes], *, url: str = "") -> None:
        self.outboxes = [
            Outbox(HttpUploader(url or topology.url, topology.task.task_id), SystemClock())
            for _ in range(SENDERS)
        ]
        self._ending = threading.Event()
        self.add(records)
        self._threads = [
            threading.Thread(target=self._send, args=(outbox,), daemon=True)  # a test that fails can end
            for outbox in self.outboxes
        ]
        for thread in self._threads:
            thread.start()

    def add(self, records: list[bytes]) -> None:
        """Share out more records."""
        for number, outbox in enumerate(self.outboxes):
            for record in records[number::SENDERS]:
                outbox.put(record)

    def _send(self, outbox: Outbox) -> None:
        while not (outbox.flush() and self._ending.is_set()):
            time.sleep(0.01)  # polls; nothing depends on its length

    def sent(self) -> int:
        return sum(outbox.counts.sent for outbox in self.outboxes)

    def join(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()
