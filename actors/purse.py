"""The tokens of a client: fetched once a day, spent one a report."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from penrose_ray.actors.parties import Party
from penrose_ray.errors import QuotaError, TokenError, TransportError
from penrose_ray.release.tokens import DAY_S, Asker, Token

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penrose_ray.clock import Clock
    from penrose_ray.task import Task

_PAUSE_S = 60.0
"""Between two tries."""


class Purse:
    """A client's tokens of today. They are in memory only: after a restart the day's quota may be gone."""

    def __init__(self, task: Task, issuer_url: str, credential: bytes, clock: Clock) -> None:
        self._task = task
        self._issuer = Party("issuer", issuer_url, credential)
        self._clock = clock
        self._tokens: dict[int, list[Token]] = {}
        self._not_before_s = 0.0

    def fill(self) -> None:
        """Get today's tokens, once a day, before they are needed: the time of asking tells nothing.

        Raises:
            TransportError: the issuer cannot be reached.
            QuotaError, TokenError: it refuses, or answers wrongly.
        """
        day = int(self._clock.now_s() // DAY_S)
        if day in self._tokens or self._clock.now_s() < self._not_before_s:
            return
        self._not_before_s = self._clock.now_s() + _PAUSE_S
        asker = Asker(self._task.task_id, self._task.issuer_keys, day)
        requests = [asker.request() for _ in range(self._task.tokens_per_day)]
        try:
            answers = self._ask([each.blinded.request for each in requests])
        except QuotaError:
            self._tokens[day] = []
            raise
        made = [asker.finish(request, answer) for request, answer in zip(requests, answers, strict=True)]
        self._tokens = {key: value for key, value in self._tokens.items() if key >= day - 1} | {day: made}

    def top_up(self) -> None:
        """`fill`, and go without where the issuer is away or the day's tokens were spent before a restart."""
        with contextlib.suppress(TransportError, QuotaError):
            self.fill()

    def left(self, day: int) -> int:
        """Tokens of a day."""
        return len(self._tokens.get(day, ()))

    def take(self, day: int) -> bytes:
        """One token of a day; IndexError when there is none."""
        return self._tokens[day].pop().encode()

    def _ask(self, requests: Sequence[bytes]) -> list[bytes]:
        body = self._issuer.ask("POST", "/tokens", msgspec.msgpack.encode(requests))
        answers = msgspec.msgpack.decode(body, type=list[bytes])
        if len(answers) != len(requests):
            raise TokenError("The issuer gave another number of tokens.", remedy="Ask its operator.")
        return answers
