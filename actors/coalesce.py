"""Many small calls become few large ones: what waits while a call is under way goes along with the next."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Generic, TypeVar

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


class Coalescer(Generic[A, R]):
    """Calls `send` with a list and deals its results out; at most `window` calls at a time.

    An error of `send` reaches every caller whose items were in that call.
    """

    def __init__(
        self,
        send: Callable[[list[A]], Awaitable[Sequence[R]]],
        *,
        most: int = 1000,
        window: int = 2,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._send = send
        self._meter = Meter(monotonic)
        self._most = most
        self._window = asyncio.Semaphore(window)
        self._waiting: list[tuple[A, asyncio.Future[R]]] = []
        self._running: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """Items that no call has taken yet."""
        return len(self._waiting)

    def load_s(self) -> float:
        """Seconds that the items that wait will take, by the pace of late; 0 before anything was sent."""
        return len(self._waiting) / self._meter.rate_per_s() if self._meter.rate_per_s() else 0.0

    async def call(self, items: Sequence[A]) -> list[R]:
        """Results of `items`, in their order."""
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[R]] = [loop.create_future() for _ in items]
        self._waiting.extend(zip(items, futures, strict=True))
        task = loop.create_task(self._drain())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return list(await asyncio.gather(*futures))

    async def _drain(self) -> None:
        async with self._window:
            taken, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
            if not taken:
                return
            self._meter.begin()
            try:
                results = await self._send([item for item, _ in taken])
            except Exception as error:  # noqa: BLE001 - it belongs to the callers
                self._meter.end(0)
                self._settle(taken, error=error)
            else:
                self._meter.end(len(taken))
                self._settle(taken, results=results)
        if self._waiting:
            await self._drain()

    @staticmethod
    def _settle(
        taken: list[tuple[A, asyncio.Future[R]]],
        *,
        results: Sequence[R] = (),
        error: Exception | None = None,
    ) -> None:
        if error is None and len(results) != len(taken):
            error = RuntimeError(f"{len(taken)} items got {len(results)} results")
        for place, (_, future) in enumerate(taken):
            if future.done():  # its caller has gone
                continue
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(results[place])
