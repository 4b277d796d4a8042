"""Which launches come from an operator of the framework, and so can be named by it.

Two ways, as profilers differ: the launch carries the operator's external id, or the runtime call with the
launch's correlation id lies inside an operator on the same thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penrose_ray.capture.kineto_events import PlacedEvent, times

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from penrose_ray.capture.kineto_events import Event

_OPERATOR = frozenset({"cpu_op", "Operator", "operator"})
_RUNTIME = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime", "Runtime", "runtime"})
_I63 = (1 << 63) - 1
_EMPTY = np.empty((0, 3), dtype=np.int64)


class OperatorIndex:
    """Operators and runtime calls of one process."""

    def __init__(self) -> None:
        self._threads: dict[tuple[bytes, bytes], int] = {}
        self._external: set[int] = set()
        self._operators: list[NDArray[np.int64]] = []
        self._calls: list[NDArray[np.int64]] = []

    def add(self, events: Iterable[Event]) -> None:
        """Take the operators and runtime calls out of a block of events."""
        operators, calls = [], []
        for event in events:
            if not isinstance(event, PlacedEvent):
                continue
            if event.cat in _OPERATOR:
                start, end = times(event)
                if end >= start:
                    operators.append((self._thread(event), start, end))
                if event.args is not None:
                    self._external.add((event.args.external_id or event.args.external_id_2021 or 0) & _I63)
            elif event.cat in _RUNTIME and event.args is not None and event.args.correlation:
                start, end = times(event)
                if end >= start:
                    calls.append((self._thread(event), start, event.args.correlation & _I63))
        if operators:
            self._operators.append(np.array(operators, dtype=np.int64))
        if calls:
            self._calls.append(np.array(calls, dtype=np.int64))

    def _thread(self, event: PlacedEvent) -> int:
        return self._threads.setdefault((bytes(event.pid), bytes(event.tid)), len(self._threads))

    def linked(self, correlation: NDArray[np.int64], external: NDArray[np.int64]) -> int:
        """How many launches can be linked either way."""
        self._external.discard(0)
        ids = np.fromiter(self._external, dtype=np.int64, count=len(self._external))
        # writers before 2023 repeat the correlation id as external id: that names no operator
        by_id = np.isin(external, ids) & (external != correlation)
        by_call = np.isin(correlation, self._calls_inside_operators()) & (correlation != 0)
        return int((by_id | by_call).sum())

    def _calls_inside_operators(self) -> NDArray[np.int64]:
        calls = np.concatenate(self._calls or [_EMPTY])
        operators = np.concatenate(self._operators or [_EMPTY])
        inside: list[NDArray[Any]] = []
        for thread in range(len(self._threads)):
            mine = operators[operators[:, 0] == thread]
            theirs = calls[calls[:, 0] == thread]
            if not len(mine) or not len(theirs):
                continue
            mine = mine[np.argsort(mine[:, 1], kind="stable")]
            latest_end = np.maximum.accumulate(mine[:, 2])
            before = np.searchsorted(mine[:, 1], theirs[:, 1], side="right") - 1
            enclosed = (before >= 0) & (latest_end[np.maximum(before, 0)] >= theirs[:, 1])
            inside.append(theirs[enclosed, 2])
        return np.concatenate(inside) if inside else np.empty(0, dtype=np.int64)
