"""Many small calls become few large ones: what waits while a call is under way goes along with the next."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

A = TypeVar("A")
R = TypeVar("R")


class Coalescer(Generic[A, R]):
    """Calls `send` with a list and deals its results out; at most `window` calls at a time.

    An error of `send` reaches every caller whose items were in that call.
    """

    def __init__(
        self, send: Callable[[list[A]], Awaitable[Sequence[R]]], *, most: int = 1000, window: int = 2
    ) -> None:
        self._send = send
        self._most = most
        self._window = asyncio.Semaphore(window)
        self._waiting: list[tuple[A, asyncio.Future[R]]] = []
        self._running: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """Items that no call has taken yet."""
        return len(self._waiting)

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
            try:
                results = await self._send([item for item, _ in taken])
            except Exception as error:  # noqa: BLE001 - it belongs to the callers
                self._settle(taken, error=error)
            else:
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
