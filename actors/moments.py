"""A client's own moments: when it asks for the day's tokens, and when reports of a batch that is over go."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

_CONTEXT: Final = b"penrose moments\x01"
_BITS: Final = 64


class Moments:
    """Random offsets, the same after a restart and others each time, so that none tells the next one.

    Args:
        secret: random bytes that a client keeps, such as `transport.spool.spool_key`.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def offset_s(self, purpose: str, number: int, window_s: float) -> float:
        """Seconds, uniform from 0 to below `window_s`, of the batch or day of that number."""
        message = _CONTEXT + purpose.encode() + b"\x00" + number.to_bytes(8, "big", signed=True)
        drawn = hmac.digest(self._secret, message, hashlib.sha256)[: _BITS // 8]
        return int.from_bytes(drawn, "big") / (1 << _BITS) * window_s
