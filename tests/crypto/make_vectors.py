"""Known answers from the definitions, in plain Python integers and without the library under test.

Run it to write tests/vectors/paillier.json again; the file is frozen, so a difference is a change of format.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

VECTORS = Path(__file__).parents[1] / "vectors"
SHORT_BITS = {2048: 448, 3072: 512}
LAYOUTS = {  # name: (modulus bits, [(bins of this plaintext, check slots of it)], slot bits)
    "std3072": (3072, [(range(64), ["unfilled"]), (range(64, 128), ["real_reports"])], 47),
    "std2048": (2048, [(range(64), ["unfilled"]), (range(64, 128), ["real_reports"])], 31),
    "compact3072": (3072, [(range(128), ["unfilled", "real_reports"])], 23),
}
CASES = [
    ("std3072", "half"),
    ("std3072", "short"),
    ("std3072", "textbook"),
    ("std2048", "half"),
    ("compact3072", "half"),
]


def stream(label: str, bits: int) -> int:
    """A number of that many bits, as the SHA-256 counter stream of a label gives it."""
    blocks = (hashlib.sha256(f"{label} {i}".encode()).digest() for i in range(-(-bits // 256)))
    return int.from_bytes(b"".join(blocks), "big") >> (-bits % 256)


def report(label: str) -> dict[str, object]:
    """Bins of a report of 10,000 samples, partly filled."""
    weights = [1 + stream(f"{label} bin {i}", 8) for i in range(128)]
    bins = [9_000 * weight // sum(weights) for weight in weights]
    return {"bins": bins, "unfilled": 10_000 - sum(bins), "real_reports": 1}


def plaintexts(values: dict[str, object], layout: str) -> list[int]:
    """Slots from the lowest bits on."""
    _, parts, width = LAYOUTS[layout]
    rows = [
        [*(values["bins"][i] for i in places), *(values[name] for name in checks)] for places, checks in parts
    ]
    return [sum(value << (width * i) for i, value in enumerate(row)) for row in rows]


def encrypt(m: int, n: int, mode: str, root: int, r: int) -> int:
    """(1 + n)^m times an encryption of zero: r^n, or ((-root^2)^n)^r."""
    zero = pow(r, n, n * n) if mode == "textbook" else pow(pow(-root * root % n, n, n * n), r, n * n)
    return (1 + m * n) * zero % (n * n)


def case(layout: str, mode: str, n: int) -> dict[str, object]:
    """Two reports, their blobs, and the blob of their sum."""
    bits, parts, _ = LAYOUTS[layout]
    size = {"half": bits // 2, "short": SHORT_BITS[bits], "textbook": bits}[mode]
    root = stream(f"{layout} {mode} root", bits) % n
    reports = [report(f"{layout} {mode} {i}") for i in range(2)]
    made, totals = [], [1] * len(parts)
    for i, each in enumerate(reports):
        draws = [stream(f"{layout} {mode} {i} {j}", size) % n for j in range(len(parts))]
        packed = plaintexts(each, layout)
        cs = [encrypt(m, n, mode, root, r) for m, r in zip(packed, draws, strict=True)]
        totals = [a * c % (n * n) for a, c in zip(totals, cs, strict=True)]
        made.append(
            {
                **each,
                "plaintexts": [hex(m) for m in packed],
                "draws": [hex(r) for r in draws],
                "blob": blob(cs, bits),
            }
        )
    return {
        "profile": layout,
        "exponent": mode,
        "root": hex(root),
        "reports": made,
        "sum": blob(totals, bits),
    }


def blob(ciphertexts: list[int], bits: int) -> str:
    """Fixed-width little-endian ciphertexts, one after another."""
    return b"".join(c.to_bytes(bits // 4, "little") for c in ciphertexts).hex()


def make() -> dict[str, object]:
    """All cases, for the frozen test keys."""
    keys = json.loads((VECTORS / "test_keys.json").read_text())
    moduli = {
        bits: int(keys[f"std{bits}"]["p"], 16) * int(keys[f"std{bits}"]["q"], 16) for bits in (2048, 3072)
    }
    return {
        "keys": "test_keys.json",
        "cases": [case(layout, mode, moduli[LAYOUTS[layout][0]]) for layout, mode in CASES],
    }


if __name__ == "__main__":
    (VECTORS / "paillier.json").write_text(json.dumps(make(), indent=1) + "\n")
