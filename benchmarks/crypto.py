"""Sealing, adding and opening histograms against the plain way: gmpy2, n = 1,024, one bin a ciphertext.

The baseline is the published setting: 32 KB a report, 80-bit security. One core; `phe` runs beside it.
"""

from __future__ import annotations

import secrets
import statistics
import time
from typing import TYPE_CHECKING

import gmpy2
import numpy as np
import phe
from gmpy2 import mpz

from benchmarks.harness import Contender, arguments, finish, show, significant, take_turns, without_native
from penrose_ray.crypto.accumulate import Accumulator, Accumulators, Validator
from penrose_ray.crypto.blinding import Encryptor
from penrose_ray.crypto.ciphertext import join, split
from penrose_ray.crypto.kernel import native
from penrose_ray.crypto.packing import BINS, Slots, pack, profile
from penrose_ray.crypto.private_key import PrivateKey

if TYPE_CHECKING:
    from benchmarks.harness import Timing
    from penrose_ray.crypto.blinding import Exponent
    from penrose_ray.crypto.packing import SlotProfile

    Keys = dict[int, PrivateKey]
    Timings = dict[str, Timing]
    Figures = dict[str, object]

BATCH = 1024
KEY_ROUNDS = 3
PER_RUN = 10
SAMPLES = 10_000
BASELINE = "plain gmpy2, n = 1024"
STD3072, STD2048, COMPACT = profile("std3072"), profile("std2048"), profile("compact3072")
PAPER = profile("paper1024", benchmark=True)


def main() -> None:
    """Run all groups; the last line is the JSON object."""
    options = arguments("Packed Paillier against the plain way.")
    keygen_s, key = time_key_generation()
    keys = {3072: key, 2048: PrivateKey.generate(2048)}
    result: Figures = {"keygen_s": significant(keygen_s), "native": native.unavailable() or "on"}
    for group in (encryption, addition, decryption):
        timings, figures = group(keys, options.rounds)
        result |= figures
        if not options.json:
            show(timings)
    finish(result)


def time_key_generation() -> tuple[float, PrivateKey]:
    """Wall time of a 3,072-bit key on all cores of this process, the median of three."""
    keys, seconds = [], []
    for _ in range(KEY_ROUNDS):
        start = time.perf_counter()
        keys.append(PrivateKey.generate(3072))
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), keys[0]


def encryption(keys: Keys, rounds: int) -> tuple[Timings, Figures]:
    """One sealed histogram, from counts to bytes."""
    n, key = weak_modulus(), keys[3072]
    bins = report().bins.tolist()
    oracle = phe.PaillierPublicKey(int(n))
    contenders = [
        Contender(BASELINE, lambda: plain_encrypt(n, bins)),
        Contender("phe, n = 1024", lambda: [oracle.encrypt(value) for value in bins]),
        sealing("std3072", key, STD3072, "half"),
        sealing("std3072_r512", key, STD3072, "short"),
        sealing("compact3072_r512", key, COMPACT, "short"),
        sealing("pool", key, STD3072, "half", pooled=(rounds + 1) * PER_RUN),
    ]
    with without_native():
        contenders.append(sealing("std3072_gmpy2", key, STD3072, "half"))
        contenders.append(sealing("std3072_r512_gmpy2", key, STD3072, "short"))
    timings = take_turns(contenders, rounds=rounds)
    base = timings[BASELINE].median_s
    figures: Figures = {
        "report_bytes": STD3072.blob_bytes,
        "report_bytes_compact3072": COMPACT.blob_bytes,
        "report_bytes_baseline": PAPER.blob_bytes,
        "encrypt_baseline_ms": significant(base * 1e3),
        "encrypt_phe_ms": significant(timings["phe, n = 1024"].median_s * 1e3),
    }
    for contender in contenders[2:]:
        median = timings[contender.name].median_s
        name = contender.name.replace(" ", "_")
        figures |= {f"{name}_ratio": significant(base / median), f"{name}_ms": significant(median * 1e3)}
    return timings, figures


def addition(keys: Keys, rounds: int) -> tuple[Timings, Figures]:
    """One more histogram in a sum, over batches from bytes to bytes."""
    n = weak_modulus()
    bins = report().bins.tolist()
    plain = [plain_encrypt(n, bins) for _ in range(4)] * (BATCH // 64)
    oracle = phe.PaillierPublicKey(int(n))
    listed = [oracle.encrypt(value) for value in bins]
    blobs = {each.name: batch(keys[each.modulus_bits], each) for each in (STD3072, STD2048, COMPACT)}
    contenders = [
        Contender(BASELINE, lambda: plain_add(n, plain), len(plain)),
        Contender("phe, n = 1024", lambda: [a + b for a, b in zip(listed, listed, strict=True)]),
    ]
    with without_native():
        contenders.append(adding("gmpy2", keys, STD3072, blobs))
    if native.unavailable() is None:
        contenders += [adding("native", keys, each, blobs) for each in (STD3072, STD2048, COMPACT)]
        contenders += [scattered(keys, blobs), validation(keys, blobs)]
    timings = take_turns(contenders, rounds=rounds)
    base = timings[BASELINE].median_s
    figures: Figures = {
        "add_baseline_per_s": significant(1 / base),
        "add_phe_per_s": significant(1 / timings["phe, n = 1024"].median_s),
    }
    for name in (
        "add gmpy2 std3072",
        "add native std3072",
        "add native std2048",
        "add native compact3072",
        "add native scattered std3072",
        "validate native std3072",
    ):
        timing, key = timings.get(name), name.replace(" ", "_")
        figures[f"{key}_ratio"] = significant(base / timing.median_s if timing else None)
        figures[f"{key}_per_s"] = significant(1 / timing.median_s if timing else None)
    return timings, figures


def decryption(keys: Keys, rounds: int) -> tuple[Timings, Figures]:
    """One sum of two ciphertexts: by lambda and mu, and by the Chinese remainder theorem."""
    key = keys[3072]
    p, q = (mpz(factor) for factor in key.factors())
    n, n2, lam = p * q, p * q * p * q, (p - 1) * (q - 1)
    mu = gmpy2.invert(lam, n)
    blob = Encryptor(key.public_key, STD3072, exponent="short").encrypt(pack(report(), STD3072))

    def plain() -> list[mpz]:
        return [(gmpy2.powmod(c, lam, n2) - 1) // n * mu % n for c in split(blob, STD3072)]

    with without_native():
        slower = PrivateKey(int(p), int(q))
        slower.decrypt(blob, STD3072)
    contenders = [
        Contender("decrypt by lambda and mu, n = 3072", plain),
        Contender("decrypt crt", lambda: key.decrypt(blob, STD3072)),
        Contender("decrypt crt_many", lambda: key.decrypt_many([blob] * 4, STD3072), 4),
        Contender("decrypt crt_gmpy2", lambda: slower.decrypt(blob, STD3072)),
    ]
    timings = take_turns(contenders, rounds=rounds)
    base = timings[contenders[0].name].median_s
    figures: Figures = {"decrypt_lambda_ms": significant(base * 1e3)}
    for contender in contenders[1:]:
        median, name = timings[contender.name].median_s, contender.name.replace(" ", "_")
        figures |= {f"{name}_ratio": significant(base / median), f"{name}_ms": significant(median * 1e3)}
    return timings, figures


def sealing(
    name: str, key: PrivateKey, slot_profile: SlotProfile, exponent: Exponent, *, pooled: int = 0
) -> Contender:
    """Pack and encrypt reports to bytes; tables are built here."""
    encryptor = Encryptor(key.public_key, slot_profile, exponent=exponent)
    slots = report()
    encryptor.encrypt(pack(slots, slot_profile))
    encryptor.fill_pool(pooled)

    def run() -> None:
        for _ in range(PER_RUN):
            encryptor.encrypt(pack(slots, slot_profile))

    return Contender(f"encrypt {name}", run, PER_RUN)


def adding(kind: str, keys: Keys, slot_profile: SlotProfile, blobs: dict[str, list[bytes]]) -> Contender:
    """A batch into one sum, to bytes."""
    key, reports = keys[slot_profile.modulus_bits].public_key, blobs[slot_profile.name]
    total = Accumulator(key, slot_profile, capacity=10**9)

    def run() -> bytes:
        total.add_many(reports)
        return total.to_bytes()

    return Contender(f"add {kind} {slot_profile.name}", run, BATCH)


def scattered(keys: Keys, blobs: dict[str, list[bytes]]) -> Contender:
    """A batch in which each report belongs to another class."""
    sums: Accumulators[int] = Accumulators(keys[3072].public_key, STD3072, capacity=10**9)
    pairs = list(enumerate(blobs["std3072"]))
    return Contender("add native scattered std3072", lambda: sums.add_many(pairs), BATCH)


def validation(keys: Keys, blobs: dict[str, list[bytes]]) -> Contender:
    """Validation of a batch without faults."""
    checks = Validator(keys[3072].public_key, STD3072)
    return Contender("validate native std3072", lambda: checks.faults(blobs["std3072"]), BATCH)


def report() -> Slots:
    """A full histogram."""
    counts = np.bincount(np.random.default_rng().integers(0, BINS, SAMPLES), minlength=BINS)
    return Slots(counts.astype(np.int64), 0, 1)


def batch(key: PrivateKey, slot_profile: SlotProfile) -> list[bytes]:
    """Distinct sealed reports; most are products of others, which are as good for timing."""
    encryptor = Encryptor(key.public_key, slot_profile, exponent="short")
    blobs = [encryptor.encrypt(pack(report(), slot_profile)) for _ in range(8)]
    n2 = key.public_key.n_squared
    while len(blobs) < BATCH:
        pairs = zip(split(blobs[-1], slot_profile), split(blobs[-7], slot_profile), strict=True)
        blobs.append(join([a * b % n2 for a, b in pairs], slot_profile))
    return blobs


def weak_modulus() -> mpz:
    """A product of two 512-bit primes, good for nothing but the baseline."""
    primes: list[mpz] = []
    while len(primes) < 2:  # noqa: PLR2004 - the two factors of a modulus
        candidate = mpz(secrets.randbits(512)) | (3 << 510) | 1
        if gmpy2.is_prime(candidate):
            primes.append(candidate)
    return primes[0] * primes[1]


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


if __name__ == "__main__":
    main()
