from __future__ import annotations

import hashlib
import sqlite3
from typing import TYPE_CHECKING

import pytest

from penrose_ray.clock import ManualClock
from penrose_ray.errors import ClockError, KeyFormatError, QuotaError, TokenError
from penrose_ray.release.issuing import Issuer, IssuerKeys
from penrose_ray.release.tokens import DAY_S, Asker, Token, Verifier, decode, key_ring
from penrose_ray.types import TaskId

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TASK = TaskId(b"t" * 32)
DAY = 20_000
PER_DAY = 3


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(DAY * DAY_S + 100.0)


@pytest.fixture
def issuer(tmp_path: Path, issuer_keys: IssuerKeys, clock: ManualClock) -> Iterator[Issuer]:
    issuer = Issuer(tmp_path / "issuer.sqlite", issuer_keys, tokens_per_day=PER_DAY, clock=clock)
    yield issuer
    issuer.close()


@pytest.fixture
def ring(issuer_keys: IssuerKeys) -> bytes:
    return issuer_keys.public().encode()


def spend(issuer: Issuer, ring: bytes, credential: bytes, count: int = 1, *, day: int = DAY) -> list[Token]:
    asker = Asker(TASK, ring, day)
    requests = [asker.request() for _ in range(count)]
    answers = issuer.sign(credential, [each.blinded.request for each in requests])
    return [asker.finish(request, answer) for request, answer in zip(requests, answers, strict=True)]


def test_an_enrolled_client_gets_tokens_that_verify(issuer: Issuer, ring: bytes) -> None:
    tokens = spend(issuer, ring, issuer.enrol("one"), PER_DAY)
    verifier = Verifier(TASK, ring)
    ids = {verifier.check(each.encode(), created_s=DAY * DAY_S + 5) for each in tokens}
    assert ids == {hashlib.sha256(each.encode()).digest() for each in tokens}
    assert len(ids) == PER_DAY
    assert all(decode(each.encode()) == each and len(each.encode()) < 320 for each in tokens)


def test_a_client_gets_so_many_a_day_and_as_many_the_next(
    issuer: Issuer, ring: bytes, clock: ManualClock
) -> None:
    credential = issuer.enrol("one")
    spend(issuer, ring, credential, PER_DAY)
    with pytest.raises(QuotaError, match="3 tokens a day"):
        spend(issuer, ring, credential)
    spend(issuer, ring, issuer.enrol("two"), PER_DAY)
    clock.advance(DAY_S)
    spend(issuer, ring, credential, PER_DAY, day=DAY + 1)


def test_a_request_over_the_quota_signs_and_books_nothing(issuer: Issuer, ring: bytes) -> None:
    credential = issuer.enrol("one")
    with pytest.raises(QuotaError):
        spend(issuer, ring, credential, PER_DAY + 1)
    spend(issuer, ring, credential, PER_DAY)


def test_a_repeat_after_a_lost_answer_is_free_and_the_same(issuer: Issuer, ring: bytes) -> None:
    credential = issuer.enrol("one")
    asker = Asker(TASK, ring, DAY)
    requests = [asker.request().blinded.request for _ in range(PER_DAY)]
    assert issuer.sign(credential, requests) == issuer.sign(credential, requests)


def test_nobody_else_gets_any(issuer: Issuer, ring: bytes) -> None:
    with pytest.raises(QuotaError, match="not enrolled"):
        spend(issuer, ring, b"x" * 32)
    credential = issuer.enrol("one")
    with pytest.raises(QuotaError, match="client 'one'"):
        issuer.enrol("one")
    assert issuer.clients() == ["one"]
    issuer.strike("one")
    with pytest.raises(QuotaError, match="not enrolled"):
        spend(issuer, ring, credential)
    with pytest.raises(QuotaError, match="no client"):
        issuer.strike("one")


def test_quota_survives_a_restart_and_a_clock_that_moved_back_is_named(
    tmp_path: Path, issuer_keys: IssuerKeys, ring: bytes
) -> None:
    path = tmp_path / "issuer.sqlite"
    late = Issuer(path, issuer_keys, tokens_per_day=1, clock=ManualClock((DAY + 1) * DAY_S + 1.0))
    credential = late.enrol("one")
    spend(late, ring, credential, day=DAY + 1)
    late.close()
    again = Issuer(path, issuer_keys, tokens_per_day=1, clock=ManualClock((DAY + 1) * DAY_S + 9.0))
    with pytest.raises(QuotaError):
        spend(again, ring, credential, day=DAY + 1)
    again.close()
    early = Issuer(path, issuer_keys, tokens_per_day=1, clock=ManualClock(DAY * DAY_S + 1.0))
    with pytest.raises(ClockError, match=f"day {DAY}"):
        spend(early, ring, credential)
    early.close()


def test_a_token_is_of_one_task_one_day_and_not_malleable(issuer: Issuer, ring: bytes) -> None:
    (token,) = spend(issuer, ring, issuer.enrol("one"))
    verifier, created_s = Verifier(TASK, ring), DAY * DAY_S + 5.0
    raw = token.encode()
    verifier.check(raw, created_s=created_s)
    changed = [
        Token(token.version, token.day + 1, token.nonce, token.signature),
        Token(token.version, token.day, b"n" * 32, token.signature),
        Token(token.version, token.day, token.nonce, b"\0" + token.signature),
        Token(2, token.day, token.nonce, token.signature),
        Token(token.version, token.day, token.nonce[:31], token.signature),
    ]
    for other in changed:
        with pytest.raises(TokenError):
            verifier.check(other.encode(), created_s=other.day * DAY_S + 5)
    for other_raw in (raw + b"\0", raw[:-1], b"", b"\x94" + raw):
        with pytest.raises(TokenError):
            verifier.check(other_raw, created_s=created_s)
    for days in (-1, 1):
        with pytest.raises(TokenError, match="the report of day"):
            verifier.check(raw, created_s=created_s + days * DAY_S)
    with pytest.raises(TokenError):
        Verifier(TaskId(b"u" * 32), ring).check(raw, created_s=created_s)


def test_a_day_without_key_is_named(ring: bytes) -> None:
    with pytest.raises(TokenError, match=f"days {DAY} to {DAY + 1}, not for day {DAY + 2}"):
        Asker(TASK, ring, DAY + 2)
    with pytest.raises(KeyFormatError):
        key_ring(b"")


def test_issuer_and_service_together_cannot_link(
    tmp_path: Path, issuer: Issuer, ring: bytes, issuer_keys: IssuerKeys
) -> None:
    """What both store about two clients is consistent with either pairing of clients and reports.

    For every blinded request there is, for every token, a blinding factor that makes one from the other, so
    requests say nothing (RFC 9474, section 8.1).
    """
    clients = [issuer.enrol("one"), issuer.enrol("two")]
    asker = Asker(TASK, ring, DAY)
    requests = [asker.request() for _ in clients]
    answers = [
        issuer.sign(credential, [request.blinded.request])[0]
        for credential, request in zip(clients, requests, strict=True)
    ]
    tokens = [asker.finish(request, answer) for request, answer in zip(requests, answers, strict=True)]
    modulus = int(issuer_keys.key(DAY).public.modulus)
    for token in tokens:
        encoded = pow(int.from_bytes(token.signature, "big"), 65537, modulus)
        for request in requests:
            hidden = int.from_bytes(request.blinded.request, "big")
            blinding = int(issuer_keys_power(issuer_keys, hidden * pow(encoded, -1, modulus) % modulus))
            assert encoded * pow(blinding, 65537, modulus) % modulus == hidden
    with sqlite3.connect(tmp_path / "issuer.sqlite") as db:
        rows = db.execute("SELECT credential_hash, request_hash FROM issued").fetchall()
        stored = b"".join(each for row in rows for each in row)
    db.close()
    for token in tokens:
        for secret in (token.nonce, token.signature, token.report_id):
            assert secret not in stored


def issuer_keys_power(keys: IssuerKeys, value: int) -> int:
    """The 65537th root of a value: what only the issuer can compute."""
    return int.from_bytes(keys.key(DAY).sign(value.to_bytes(256, "big")), "big")


def test_key_files_come_back(tmp_path: Path, issuer_keys: IssuerKeys) -> None:
    issuer_keys.write(tmp_path / "issuer.key", passphrase=b"secret")
    assert IssuerKeys.read(tmp_path / "issuer.key", passphrase=b"secret").public() == issuer_keys.public()
    assert (tmp_path / "issuer.key").stat().st_mode & 0o077 == 0
    with pytest.raises(KeyFormatError):
        IssuerKeys.read(tmp_path / "issuer.key", passphrase=b"wrong")
