"""What a client needs of any transport."""

from __future__ import annotations

from typing import Protocol

from penrose_ray.errors import TransportError


class Uploader(Protocol):
    """Sends the bytes of one report; returning means that the service has made it durable."""

    def send(self, record: bytes) -> None:
        """Deliver.

        Raises:
            TransportError: not reachable, or busy: send the same bytes again later.
            RefusedReportError: the service will never take this report.
        """
        ...


class StuckError(TransportError):
    """The service fails at this report; others may go through."""


class BusyError(TransportError):
    """The service asks to come back later."""

    code = "busy"

    def __init__(self, message: str, *, remedy: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message, remedy=remedy)
        self.retry_after_s = retry_after_s
