"""An outbox that sends in a thread of its own, for transports that take seconds."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from penrose_ray.transport.outbox import Outbox

if TYPE_CHECKING:
    from penrose_ray.clock import Clock
    from penrose_ray.transport.uploader import Uploader

_TICK_S = 0.2


class BackgroundOutbox(Outbox):
    """Like `Outbox`, but `flush` never blocks: capture goes on while a report is on its way.

    Options are those of `Outbox`.
    """

    def __init__(self, uploader: Uploader, clock: Clock, **options: Any) -> None:  # noqa: ANN401 - passed on
        super().__init__(uploader, clock, **options)
        self._ending = threading.Event()
        self._wake = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="outbox", daemon=True)
        self._thread.start()

    def put(self, record: bytes) -> None:
        """Queue a record."""
        super().put(record)
        self._wake.set()

    def flush(self) -> bool:
        """Whether the outbox is empty; raises what ended the thread if something did."""
        if self._failure:
            raise self._failure
        return not len(self)

    def end(self) -> None:
        """Begin no further upload."""
        self._ending.set()
        self._wake.set()

    def close(self) -> None:
        """Wait for the report that is on its way and end the thread; what waits stays in its queue."""
        self.end()
        self._thread.join()

    def _work(self) -> None:
        try:
            while not self._ending.is_set():
                if not self._step():
                    self._wake.wait(_TICK_S)
                    self._wake.clear()
        except Exception as error:  # noqa: BLE001 - it reaches whoever flushes
            self._failure = error
