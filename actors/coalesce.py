"""Many small calls become few large ones: what waits while a call is under way goes along with the next."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

A = TypeVar("A")
R = TypeVar("R")
_REMEMBERED_S = 10.0


class Meter:
    """Items a second while calls were under way, the last ten seconds counting most."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._calls, self._since_s = 0, 0.0
        self._busy_s, self._items = 0.0, 0.0

    def begin(self) -> None:
        """A call begins."""
        if not self._calls:
            self._since_s = self._monotonic()
        self._calls += 1

    def end(self, items: int) -> None:
        """A call ends, having done so many items."""
        now_s = self._monotonic()
        self._busy_s += now_s - self._since_s
        self._since_s = now_s
        self._items += items
        self._calls -= 1
        while self._busy_s > _REMEMBERED_S:
            self._busy_s, self._items = self._busy_s / 2, self._items / 2

    def rate_per_s(self) -> float:
        """The pace; 0 while unknown."""
        return self._items / self._busy_s if self._busy_s else 0.0


@dataclass(eq=False, slots=True)
class _Call(Generic[A, R]):
    """One caller's items, from which sends take one piece after the other."""

    items: Sequence[A]
    results: list[R | None]
    future: asyncio.Future[list[R]]
    taken: int = 0
    missing: int = 0

    def settle(self, start: int, results: Sequence[R]) -> None:
        """Fill in a piece; the caller goes on when none is missing."""
        self.results[start : start + len(results)] = results
        self.missing -= len(results)
        if not self.missing and not self.future.done():  # a caller may have gone
            self.future.set_result(cast("list[R]", self.results))

    def fail(self, error: Exception) -> None:
        """Let the caller have an error."""
        if not self.future.done():
            self.future.set_exception(error)


class Coalescer(Generic[A, R]):
    """Calls `send` with a list and deals its results out; at most `window` calls at a time.

    An error of `send` reaches every caller whose items were in that call. Two calls begin `gap_s` apart or
    more, so that more goes together under load; what comes to an idle one goes at once.
    """

    def __init__(
        self,
        send: Callable[[list[A]], Awaitable[Sequence[R]]],
        *,
        most: int = 1000,
        window: int = 2,
        gap_s: float = 0.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._send = send
        self._meter = Meter(monotonic)
        self._monotonic = monotonic
        self._most, self._window, self._gap_s = most, window, gap_s
        self._next_s = float("-inf")
        self._waiting: deque[_Call[A, R]] = deque()
        self._count = 0
        self._running: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """Items that no call has taken yet."""
        return self._count

    def load_s(self) -> float:
        """Seconds that the items that wait will take, by the pace of late; 0 before anything was sent."""
        return self._count / self._meter.rate_per_s() if self._meter.rate_per_s() else 0.0

    async def call(self, items: Sequence[A]) -> list[R]:
        """Results of `items`, in their order."""
        if not items:
            return []
        loop, count = asyncio.get_running_loop(), len(items)
        own: _Call[A, R] = _Call(items, [None] * count, loop.create_future(), missing=count)
        self._waiting.append(own)
        self._count += count
        if len(self._running) < self._window:
            task = loop.create_task(self._work())
            self._running.add(task)
        return await own.future

    async def _work(self) -> None:
        try:
            while self._waiting:
                now_s = self._monotonic()
                if now_s < self._next_s:
                    await asyncio.sleep(self._next_s - now_s)
                    continue
                self._next_s = now_s + self._gap_s
                await self._send_some()
        finally:  # not in a callback of the task: who calls before it runs would find nobody at work
            self._running.remove(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _send_some(self) -> None:
        pieces, items = self._take()
        self._meter.begin()
        done = 0
        try:
            results = await self._send(items)
            if len(results) != len(items):
                raise RuntimeError(f"{len(items)} items got {len(results)} results")  # noqa: TRY301 - as any other
            done = len(items)
        except Exception as error:  # noqa: BLE001 - it belongs to the callers
            for call, _, _ in pieces:
                call.fail(error)
        else:
            at = 0
            for call, start, count in pieces:
                call.settle(start, results[at : at + count])
                at += count
        finally:
            self._meter.end(done)

    def _take(self) -> tuple[list[tuple[_Call[A, R], int, int]], list[A]]:
        """Pieces (call, first item, how many) of up to `most` items, and these items."""
        pieces: list[tuple[_Call[A, R], int, int]] = []
        items: list[A] = []
        while self._waiting and len(items) < self._most:
            call = self._waiting[0]
            count = min(len(call.items) - call.taken, self._most - len(items))
            pieces.append((call, call.taken, count))
            items += call.items[call.taken : call.taken + count]
            call.taken += count
            if call.taken == len(call.items):
                self._waiting.popleft()
        self._count -= len(items)
        return pieces, items
