"""Issuing: enrolled clients get c tokens a day. What is stored says who asked, never for which token.

The store keeps a hash of each blinded message, which is independent of the token that comes of it (RFC 9474,
section 8.1): not even the issuer and the aggregation service together can link a report to a client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from penrose_ray.crypto.secretfile import ISSUER_KEYS, body_of, read_secret, write_secret
from penrose_ray.errors import ClockError, QuotaError
from penrose_ray.release.blind_rsa import LEAST_BITS, SigningKey
from penrose_ray.release.enrolment import Enrolment, digest
from penrose_ray.release.tokens import DAY_S, KeyRing

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from pathlib import Path

    from penrose_ray.clock import Clock

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS issued (
    credential_hash BLOB NOT NULL, day INTEGER NOT NULL, request_hash BLOB NOT NULL,
    PRIMARY KEY (credential_hash, day, request_hash)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS latest (only INTEGER PRIMARY KEY CHECK (only = 1), day INTEGER NOT NULL);
"""


class IssuerKeys:
    """The signing keys of consecutive days."""

    def __init__(self, first_day: int, keys: Sequence[SigningKey]) -> None:
        self.first_day = first_day
        self._keys = tuple(keys)

    @classmethod
    def generate(cls, first_day: int, days: int, *, bits: int = LEAST_BITS) -> IssuerKeys:
        """New keys."""
        return cls(first_day, [SigningKey.generate(bits) for _ in range(days)])

    def public(self) -> KeyRing:
        """What goes into the task."""
        moduli = (int(key.public.modulus) for key in self._keys)
        return KeyRing(self.first_day, tuple(n.to_bytes((n.bit_length() + 7) // 8, "big") for n in moduli))

    def key(self, day: int) -> SigningKey:
        """The key of a day; raises like `KeyRing.key`."""
        self.public().key(day)
        return self._keys[day - self.first_day]

    def write(self, path: Path, *, passphrase: bytes | None = None) -> None:
        """Write a new key file; see `secretfile.write_secret`."""
        factors = [
            [f.to_bytes((f.bit_length() + 7) // 8, "big") for f in key.factors()] for key in self._keys
        ]
        body = msgspec.msgpack.encode([self.first_day, factors])
        write_secret(path, ISSUER_KEYS, body, passphrase=passphrase, token=None)

    @classmethod
    def read(cls, path: Path, *, passphrase: bytes | None = None) -> IssuerKeys:
        """Read a key file; raises like `secretfile.read_secret`."""
        body = read_secret(path, ISSUER_KEYS, passphrase=passphrase, token=None)
        with body_of(path):
            first, factors = msgspec.msgpack.decode(body, type=tuple[int, list[tuple[bytes, bytes]]])
            return cls(
                first, [SigningKey(int.from_bytes(p, "big"), int.from_bytes(q, "big")) for p, q in factors]
            )


class Issuer(Enrolment):
    """Signs blinded messages of enrolled clients, c a day and client.

    A request that is repeated after a lost answer is signed again and costs nothing: RSA without randomness
    gives the same answer. What counts is on disk before the answer leaves.
    """

    def __init__(self, path: Path, keys: IssuerKeys, *, tokens_per_day: int, clock: Clock) -> None:
        super().__init__(path, _TABLES)
        self._keys = keys
        self._tokens_per_day = tokens_per_day
        self._clock = clock

    def sign(self, credential: bytes, requests: Sequence[bytes]) -> list[bytes]:
        """Signatures of today's blinded messages, in their order.

        Raises:
            QuotaError: not enrolled, or the day's tokens are used up; nothing is signed.
            ClockError: the clock is behind a day for which tokens were issued.
            TokenError: a request is no blinded message, or there is no key for today.
        """
        day = int(self._clock.now_s() // DAY_S)
        key = self._keys.key(day)
        answers = [key.sign(request) for request in requests]
        with self._booking(credential) as cursor:
            self._book(cursor, digest(credential), day, requests)
        return answers

    def _book(self, cursor: sqlite3.Cursor, client: bytes, day: int, requests: Sequence[bytes]) -> None:
        latest = cursor.execute("SELECT day FROM latest").fetchone()
        if latest and latest[0] > day:
            raise ClockError(
                f"The clock says day {day}, tokens of day {latest[0]} were issued before.",
                remedy="Set the issuer's clock.",
            )
        cursor.execute("INSERT OR REPLACE INTO latest VALUES (1, ?)", (day,))
        rows = [(client, day, digest(request)) for request in requests]
        cursor.executemany("INSERT OR IGNORE INTO issued VALUES (?, ?, ?)", rows)
        count = "SELECT COUNT(*) FROM issued WHERE credential_hash = ? AND day = ?"
        had = cursor.execute(count, (client, day)).fetchone()[0]
        if had > self._tokens_per_day:
            raise QuotaError(
                f"A client gets {self._tokens_per_day} tokens a day.", remedy="Ask again tomorrow."
            )
