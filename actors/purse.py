"""The tokens of a client: fetched once a day, spent one a report."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from penrose_ray.errors import QuotaError, TokenError, TransportError
from penrose_ray.release.token_store import TokenStore
from penrose_ray.release.tokens import DAY_S, Asker
from penrose_ray.transport.pace import asking_window_s

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penrose_ray.actors.moments import Moments
    from penrose_ray.actors.parties import Party
    from penrose_ray.clock import Clock
    from penrose_ray.task import Task

_LOG = logging.getLogger("penrose_ray.client")
_PAUSE_S = 60.0
"""Between two tries."""


class Purse:
    """A client's tokens of today.

    Args:
        task: whose tokens.
        issuer: who gives them, with this client's credential.
        clock: wall time.
        path: where tokens are kept over a restart; without it they end with the process.
        moments: when it asks; without them, as the day begins.

    Raises:
        SpoolError: `path` cannot be used.
    """

    def __init__(
        self,
        task: Task,
        issuer: Party,
        clock: Clock,
        path: Path | None = None,
        *,
        moments: Moments | None = None,
    ) -> None:
        self._task, self._issuer, self._clock = task, issuer, clock
        self._moments = moments
        self._store = TokenStore(path, task.task_id)
        self._refused_day: int | None = None
        self._not_before_s = 0.0

    def fill(self, *, early: bool = False) -> None:
        """Get today's tokens, once a day, before they are needed: the time of asking tells nothing.

        Before this client's moment of the day nothing is asked, unless `early`.

        Raises:
            TransportError: the issuer cannot be reached.
            QuotaError, TokenError: it refuses, or answers wrongly.
        """
        day = int(self._clock.now_s() // DAY_S)
        if not early and self._clock.now_s() < self._moment_s(day):
            return
        if day == self._refused_day or self._clock.now_s() < self._not_before_s or self._store.filled(day):
            return
        self._not_before_s = self._clock.now_s() + _PAUSE_S
        asker = Asker(self._task.task_id, self._task.issuer_keys, day)
        requests = self._store.asked(day)
        if not requests:
            requests = [asker.request() for _ in range(self._task.tokens_per_day)]
            self._store.ask(requests)
        try:
            answers = self._ask([each.blinded.request for each in requests])
        except QuotaError:
            self._refused_day = day
            raise
        made = [asker.finish(request, answer) for request, answer in zip(requests, answers, strict=True)]
        self._store.fill(day, made)

    def top_up(self, *, early: bool = False) -> None:
        """`fill`, and go without where the issuer is away or the day's tokens were spent before a restart."""
        try:
            self.fill(early=early)
        except (TransportError, QuotaError) as error:
            _LOG.warning("no tokens for now: %s", error)

    def left(self, day: int) -> int:
        """Tokens of a day."""
        return self._store.left(day)

    def take(self, day: int) -> bytes:
        """One token of a day, never to be taken again; IndexError when there is none."""
        return self._store.take(day)

    def close(self) -> None:
        """Close the file."""
        self._store.close()

    def _moment_s(self, day: int) -> float:
        if self._moments is None:
            return 0.0
        window_s = asking_window_s(self._task.batch_s, self._task.reports_per_class)
        return day * DAY_S + self._moments.offset_s("tokens", day, window_s)

    def _ask(self, requests: Sequence[bytes]) -> list[bytes]:
        body = self._issuer.ask("POST", "/tokens", msgspec.msgpack.encode(requests))
        answers = msgspec.msgpack.decode(body, type=list[bytes])
        if len(answers) != len(requests):
            raise TokenError("The issuer gave another number of tokens.", remedy="Ask its operator.")
        return answers
