"""The interface of every back end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penrose_ray.capture.events import Capabilities, EventBatch, SourceHealth
    from penrose_ray.histogram import Counter


@runtime_checkable
class InPrograms(Protocol):
    """A source that works inside the programs it watches, on their time."""

    @property
    def spent_ns(self) -> int:
        """CPU time that the programs have spent on being captured; it only grows."""
        ...

    def pause(self, *, paused: bool) -> None:
        """Have programs note nothing, or go on behind a gap; what was not noted is neither seen nor lost."""
        ...


@runtime_checkable
class EventSource(Protocol):
    """A stream of kernel launches, pulled in bounded batches.

    A source drops launches rather than grow without bound, counts them, and marks the gap. Counters are read
    of armed launches only; values of different sources are never added.
    """

    @property
    def counters(self) -> tuple[Counter, ...]:
        """What the columns of `EventBatch.counters` measure."""
        ...

    @property
    def names(self) -> Sequence[str]:
        """Kernel names by `name_id`; the table only grows."""
        ...

    @property
    def devices(self) -> Sequence[str]:
        """Model names by `device`; the table only grows."""
        ...

    @property
    def exhausted(self) -> bool:
        """True when nothing more will come: the recording or program ended and all was delivered."""
        ...

    def probe(self) -> Capabilities:
        """Whether this source works here, with reasons; never raises."""
        ...

    def open(self) -> None:
        """Start capturing; SourceError or TraceError when that is impossible."""
        ...

    def poll(self, max_events: int) -> EventBatch:
        """At most `max_events` launches that are ready, none when nothing is; never waits."""
        ...

    def arm(self, launches: Sequence[int], counters: Sequence[Counter]) -> None:
        """Read `counters` of coming launches, given by their `seq`; may be called far ahead."""
        ...

    def ended(self) -> Sequence[int]:
        """Processes that have ended and of which no launch will come any more; each is told once."""
        ...

    def health(self) -> SourceHealth:
        """The account of all launches so far."""
        ...

    def stop(self) -> None:
        """Stop capturing; what was captured can still be polled, also what was held back for its order.

        A recording ends where it is.
        """
        ...

    def close(self) -> None:
        """Stop capturing and drop what is pending; may be called twice, and `open` again afterwards."""
        ...
