"""Sealing, adding and opening histograms against the plain way: gmpy2, n = 1,024, one bin a ciphertext.

The baseline is the published setting: 32 KB a report, 80-bit security. One core; `phe` runs beside it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from typing import TYPE_CHECKING

import gmpy2
import numpy as np
import phe
from gmpy2 import mpz

from benchmarks.harness import Contender, Timing, arguments, finish, show, significant, take_turns
from penrose_ray.crypto.accumulate import Accumulator, Accumulators
from penrose_ray.crypto.blinding import Encryptor
from penrose_ray.crypto.ciphertext import join, split
from penrose_ray.crypto.kernel import native
from penrose_ray.crypto.packing import BINS, SlotProfile, Slots, pack, profile
from penrose_ray.crypto.private_key import PrivateKey
from penrose_ray.crypto.validate import Validator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penrose_ray.crypto.public_key import PublicKey

BATCH = 512
KEY_ROUNDS = 3
SAMPLES = 10_000
PAPER, STD3072, STD2048 = profile("paper1024", benchmark=True), profile("std3072"), profile("std2048")
COMPACT = profile("compact3072")


def main() -> None:
    """Run all groups; the last line is the JSON object."""
    options = arguments("Packed Paillier against the plain way.")
    tell = (lambda _: None) if options.json else show
    keygen_s, key = time_key_generation()
    keys = {3072: key, 2048: PrivateKey.generate(2048)}
    result: dict[str, object] = {"keygen_s": significant(keygen_s), "native": native.unavailable() or "on"}
    for group in (encryption, addition, decryption):
        timings, figures = group(keys, options.rounds)
        tell(timings)
        result |= figures
    finish(result)


def time_key_generation() -> tuple[float, PrivateKey]:
    """Wall time of a 3,072-bit key on all cores of this process, the median of three."""
    seconds = []
    for _ in range(KEY_ROUNDS):
        start = time.perf_counter()
        key = PrivateKey.generate(3072)
        seconds.append(time.perf_counter() - start)
    return sorted(seconds)[KEY_ROUNDS // 2], key


def weak_modulus() -> mpz:
    """A product of two 512-bit primes, good for nothing but the baseline."""
    primes: list[mpz] = []
    while len(primes) < 2:  # noqa: PLR2004 - the two factors of a modulus
        candidate = mpz(secrets.randbits(512)) | (3 << 510) | 1
        if gmpy2.is_prime(candidate):
            primes.append(candidate)
    return primes[0] * primes[1]


def report() -> Slots:
    """A full histogram."""
    counts = np.bincount(np.random.default_rng().integers(0, BINS, SAMPLES), minlength=BINS)
    return Slots(counts.astype(np.int64), 0, 1)


@contextlib.contextmanager
def gmpy2_only() -> Iterator[None]:
    """What is constructed inside does without the kernel."""
    old = os.environ.get(native.SWITCH)
    os.environ[native.SWITCH] = "0"
    try:
        yield
    finally:
        os.environ.pop(native.SWITCH)
        if old is not None:
            os.environ[native.SWITCH] = old


def plain_encrypt(n: mpz, bins: list[int]) -> bytes:
    """Textbook Paillier, a ciphertext for each bin."""
    n2 = n * n
    blinded = ((1 + m * n) * gmpy2.powmod(mpz(secrets.randbelow(int(n))), n, n2) % n2 for m in bins)
    return b"".join([c.to_bytes(256, "little") for c in blinded])


def plain_add(n: mpz, blobs: list[bytes]) -> bytes:
    """The sum of histograms of one ciphertext a bin, from and to bytes."""
    n2 = n * n
    total = [mpz(1)] * BINS
    for blob in blobs:
        total = [
            a * mpz.from_bytes(blob[i * 256 : i * 256 + 256], "little") % n2 for i, a in enumerate(total)
        ]
    return b"".join([c.to_bytes(256, "little") for c in total])


def seal(key: PublicKey, slot_profile: SlotProfile, **options: str) -> Callable[[], object]:
    """Pack and encrypt one report to bytes, with nothing in the pool."""
    encryptor = Encryptor(key, slot_profile, **options)  # type: ignore[arg-type]
    slots = report()
    return lambda: encryptor.encrypt(pack(slots, slot_profile))


def encryption(keys: dict[int, PrivateKey], rounds: int) -> tuple[dict[str, Timing], dict[str, object]]:
    """One sealed histogram, from counts to bytes."""
    weak, key = weak_modulus(), keys[3072].public_key
    bins = report().bins.tolist()
    oracle = phe.PaillierPublicKey(int(weak))
    pooled = Encryptor(key, STD3072)
    pooled.fill_pool((rounds + 1) * 20)
    slots = report()

    def several(run: Callable[[], object], count: int) -> Callable[[], object]:
        return lambda: [run() for _ in range(count)]

    with gmpy2_only():
        half, short = (seal(key, STD3072, exponent=exponent) for exponent in ("half", "short"))
    timings = take_turns(
        [
            Contender("encrypt: plain gmpy2, n = 1024", lambda: plain_encrypt(weak, bins)),
            Contender("encrypt: phe, n = 1024", lambda: [oracle.encrypt(value) for value in bins]),
            Contender("encrypt: std3072", several(seal(key, STD3072), 10), 10),
            Contender("encrypt: std3072, 512 bits", several(seal(key, STD3072, exponent="short"), 10), 10),
            Contender("encrypt: std3072, gmpy2", several(half, 5), 5),
            Contender("encrypt: std3072, 512 bits, gmpy2", several(short, 5), 5),
            Contender(
                "encrypt: compact3072, 512 bits", several(seal(key, COMPACT, exponent="short"), 10), 10
            ),
            Contender(
                "encrypt: std3072 from the pool",
                several(lambda: pooled.encrypt(pack(slots, STD3072)), 20),
                20,
            ),
        ],
        rounds=rounds,
    )
    plain, oracle_time, std, std512, std_gmpy2, std512_gmpy2, compact512, pool = (
        timing.median_s for timing in timings.values()
    )
    figures = {
        "encrypt_std3072_ratio": plain / std,
        "encrypt_std3072_r512_ratio": plain / std512,
        "encrypt_std3072_gmpy2_ratio": plain / std_gmpy2,
        "encrypt_std3072_r512_gmpy2_ratio": plain / std512_gmpy2,
        "encrypt_compact3072_r512_ratio": plain / compact512,
        "encrypt_pool_ratio": plain / pool,
        "encrypt_baseline_ms": plain * 1e3,
        "encrypt_phe_ms": oracle_time * 1e3,
        "encrypt_std3072_ms": std * 1e3,
        "encrypt_std3072_r512_ms": std512 * 1e3,
        "encrypt_pool_ms": pool * 1e3,
    }
    sizes = {"report_bytes": STD3072.blob_bytes, "report_bytes_compact3072": COMPACT.blob_bytes}
    return timings, {name: significant(value) for name, value in figures.items()} | sizes


def addition(keys: dict[int, PrivateKey], rounds: int) -> tuple[dict[str, Timing], dict[str, object]]:
    """One more histogram in a sum, over batches from bytes to bytes."""
    weak = weak_modulus()
    bins = report().bins.tolist()
    plain = [plain_encrypt(weak, bins) for _ in range(4)] * (BATCH // 32)
    oracle = phe.PaillierPublicKey(int(weak))
    listed = [oracle.encrypt(value) for value in bins]
    contenders = [
        Contender("add: plain gmpy2, n = 1024", lambda: plain_add(weak, plain), len(plain)),
        Contender("add: phe, n = 1024", lambda: [a + b for a, b in zip(listed, listed, strict=True)]),
    ]
    blobs = {p.name: sealed(keys[p.modulus_bits], p) for p in (STD3072, STD2048, COMPACT)}
    with gmpy2_only():
        contenders.append(adder("gmpy2", keys, STD3072, blobs))
    if native.unavailable() is None:
        contenders += [adder("native", keys, p, blobs) for p in (STD3072, STD2048, COMPACT)]
        contenders.append(scattered(keys, blobs))
        contenders.append(validator(keys, blobs))
    timings = take_turns(contenders, rounds=rounds)
    base = timings["add: plain gmpy2, n = 1024"].median_s
    figures: dict[str, object] = {
        "add_baseline_per_s": significant(1 / base),
        "add_phe_per_s": significant(1 / timings["add: phe, n = 1024"].median_s),
    }
    for name in ("gmpy2_std3072", "native_std3072", "native_std2048", "native_compact3072"):
        figures |= rate(f"add_{name}", timings.get(f"add: {name}"), base)
    figures |= rate("add_native_scattered_std3072", timings.get("add: scattered"), base)
    figures |= rate("validate_native_std3072", timings.get("validate: std3072"), base)
    return timings, figures


def rate(name: str, timing: Timing | None, base: float) -> dict[str, object]:
    """Ratio and operations a second, null where the machine cannot."""
    return {
        f"{name}_ratio": significant(base / timing.median_s if timing else None),
        f"{name}_per_s": significant(1 / timing.median_s if timing else None),
    }


def sealed(key: PrivateKey, slot_profile: SlotProfile) -> list[bytes]:
    """A batch of distinct sealed reports."""
    encryptor = Encryptor(key.public_key, slot_profile, exponent="short")
    first = [encryptor.encrypt(pack(report(), slot_profile)) for _ in range(8)]
    n2 = key.public_key.n_squared
    while len(first) < BATCH:  # products of reports are as good for timing, and quick to make
        pairs = zip(split(first[-1], slot_profile), split(first[-7], slot_profile), strict=True)
        first.append(join([a * b % n2 for a, b in pairs], slot_profile))
    return first


def adder(
    kind: str, keys: dict[int, PrivateKey], slot_profile: SlotProfile, blobs: dict[str, list[bytes]]
) -> Contender:
    """A batch into one sum, to bytes."""
    key = keys[slot_profile.modulus_bits].public_key
    batch = blobs[slot_profile.name]
    total = Accumulator(key, slot_profile, capacity=10**9)

    def run() -> bytes:
        total.add_many(batch)
        return total.to_bytes()

    return Contender(f"add: {kind}_{slot_profile.name}", run, BATCH)


def scattered(keys: dict[int, PrivateKey], blobs: dict[str, list[bytes]]) -> Contender:
    """A batch in which each report belongs to another class."""
    sums: Accumulators[int] = Accumulators(keys[3072].public_key, STD3072, capacity=10**9)
    pairs = list(enumerate(blobs["std3072"]))
    return Contender("add: scattered", lambda: sums.add_many(pairs), BATCH)


def validator(keys: dict[int, PrivateKey], blobs: dict[str, list[bytes]]) -> Contender:
    """Validation of a batch without faults."""
    checks = Validator(keys[3072].public_key, STD3072)
    return Contender("validate: std3072", lambda: checks.faults(blobs["std3072"]), BATCH)


def decryption(keys: dict[int, PrivateKey], rounds: int) -> tuple[dict[str, Timing], dict[str, object]]:
    """One sum of two ciphertexts: by lambda and mu, and by the Chinese remainder theorem."""
    key = keys[3072]
    p, q = (mpz(factor) for factor in key.factors())
    n, n2, lam = p * q, p * q * p * q, (p - 1) * (q - 1)
    mu = gmpy2.invert(lam, n)
    blob = Encryptor(key.public_key, STD3072, exponent="short").encrypt(pack(report(), STD3072))

    def plain() -> list[mpz]:
        return [(gmpy2.powmod(c, lam, n2) - 1) // n * mu % n for c in split(blob, STD3072)]

    timings = take_turns(
        [
            Contender("decrypt: lambda and mu, n = 3072", plain),
            Contender("decrypt: std3072", lambda: key.decrypt(blob, STD3072)),
        ],
        rounds=rounds,
    )
    slow, fast = (timing.median_s for timing in timings.values())
    figures = {
        "decrypt_crt_ratio": slow / fast,
        "decrypt_lambda_ms": slow * 1e3,
        "decrypt_std3072_ms": fast * 1e3,
    }
    return timings, {name: significant(value) for name, value in figures.items()}


if __name__ == "__main__":
    main()
