"""Safe primes p = 2 q + 1 by a sieve over a random window, on all cores.

Picking a random survivor of a window that starts anywhere is close to uniform; walking up from a random start
is not.
"""

from __future__ import annotations

import os
import queue
import secrets
import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import gmpy2
import numpy as np
from gmpy2 import mpz

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

_WINDOW: Final = 1 << 22
"""Odd candidates q in one window: some ten safe primes at 1,536 bits."""

_SIEVE_LIMIT: Final = 1 << 24
_REPORT_EVERY: Final = 200
_MOST_WORKERS: Final = 8
"""Each sieves in some 50 MB; with eight a key takes about a second."""


def two_safe_primes(bits: int, *, progress: Callable[[str], None] | None = None) -> tuple[mpz, mpz]:
    """Two distinct safe primes of exactly `bits` bits, top two bits set, so that their product has 2 * bits.

    `progress` is called now and then with one line of text, in the caller's thread.
    """
    tell = progress or (lambda _: None)
    found: queue.Queue[mpz | int | Exception] = queue.Queue()
    stop = threading.Event()
    workers = [
        threading.Thread(target=_search, args=(bits, found, stop), daemon=True)
        for _ in range(min(_MOST_WORKERS, len(os.sched_getaffinity(0))))
    ]
    for worker in workers:
        worker.start()
    try:
        return _collect(found, bits, tell)
    finally:
        stop.set()
        for worker in workers:
            worker.join()


def _collect(
    found: queue.Queue[mpz | int | Exception], bits: int, tell: Callable[[str], None]
) -> tuple[mpz, mpz]:
    primes: list[mpz] = []
    tested = 0
    while True:
        item = found.get()
        if isinstance(item, Exception):
            raise item
        if isinstance(item, int):
            tested += item
        elif all(abs(item - prime) >> (bits - 100) for prime in primes):
            primes.append(item)
        tell(f"{tested} candidates of {bits} bits tested, {len(primes)} of 2 safe primes found")
        if len(primes) == 2:  # noqa: PLR2004 - the two factors of a modulus
            return primes[0], primes[1]


def _search(bits: int, found: queue.Queue[mpz | int | Exception], stop: threading.Event) -> None:
    """Worker thread: gmpy2 lets other threads run during a power when its context says so."""
    gmpy2.get_context().allow_release_gil = True
    try:
        for tested, q in enumerate(_candidates(bits - 1)):
            if stop.is_set():
                return
            if tested % _REPORT_EVERY == _REPORT_EVERY - 1:
                found.put(_REPORT_EVERY)
            p = q * 2 + 1
            if gmpy2.powmod(2, q - 1, q) == 1 and gmpy2.powmod(2, q, p) in {1, p - 1} and is_safe_prime(p):
                found.put(p)
    except Exception as error:  # noqa: BLE001 - raised again in the thread that waits
        found.put(error)


def is_safe_prime(p: mpz) -> bool:
    """Whether p and (p - 1) / 2 are prime: Baillie-PSW and 16 Miller-Rabin rounds each."""
    return gmpy2.is_prime(p >> 1, 40) and gmpy2.is_prime(p, 40)


def _candidates(bits: int) -> Iterator[mpz]:
    """Odd q of that size, q and 2 q + 1 without small factors, in random order, window after window."""
    shuffle = secrets.SystemRandom().shuffle
    while True:
        start = mpz(secrets.randbits(bits - 2)) | (mpz(3) << (bits - 2)) | 1
        offsets = sieve(start, _WINDOW, _SIEVE_LIMIT).tolist()
        shuffle(offsets)
        for offset in offsets:
            q = start + 2 * offset
            if q.bit_length() == bits:
                yield q


def sieve(start: mpz, window: int, limit: int) -> npt.NDArray[np.int64]:
    """Offsets i < window for which q = start + 2 i and 2 q + 1 have no odd prime factor below `limit`.

    `start` is odd and larger than `limit`. q is dropped at q = 0 and at 2 q + 1 = 0 modulo each prime.
    """
    primes = _odd_primes(limit)
    residues = _residues(start, primes)
    half = (primes + 1) // 2  # the inverse of 2
    alive = np.ones(window, dtype=np.bool_)
    for target in (np.zeros_like(primes), half - 1):
        first = (target + primes - residues) * half % primes
        few = int(np.searchsorted(primes, window // 8))
        for prime, offset in zip(primes[:few].tolist(), first[:few].tolist(), strict=True):
            alive[offset::prime] = False
        at, step = first[few:], primes[few:]
        while at.size:
            inside = at < window
            at, step = at[inside], step[inside]
            alive[at] = False
            at = at + step
    return np.flatnonzero(alive)


def _residues(value: mpz, primes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """`value` modulo each prime below 2^31, 32 bits at a time."""
    raw = value.to_bytes(-(-value.bit_length() // 32) * 4, "big")
    residues = np.zeros_like(primes)
    for limb in np.frombuffer(raw, dtype=">u4").astype(np.int64):
        residues = ((residues << 32) + limb) % primes
    return residues


@lru_cache(maxsize=2)
def _odd_primes(limit: int) -> npt.NDArray[np.int64]:
    alive = np.ones(limit // 2, dtype=np.bool_)
    alive[0] = False
    for i in range(1, (int(limit**0.5) + 1) // 2):
        if alive[i]:
            alive[2 * i * (i + 1) :: 2 * i + 1] = False
    return 2 * np.flatnonzero(alive) + 1
