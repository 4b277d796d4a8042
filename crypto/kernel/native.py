"""Whether the native kernel can be used here, and a door to it that is closed elsewhere."""

from __future__ import annotations

import importlib.util
import os
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gmpy2 import mpz

    from penrose_ray.crypto.kernel.chains import Chains
    from penrose_ray.crypto.kernel.comb import Comb
    from penrose_ray.crypto.kernel.montgomery import Montgomery
    from penrose_ray.crypto.kernel.twin import TwinPower

SWITCH: Final = "PENROSE_NATIVE"
_FEATURES: Final = ("avx512f", "avx512vl", "avx512ifma")
_LEAST_WIDTH: Final = 64
"""Packed numbers are read 64 bytes at a time."""

_faults: list[str] = []
"""Self-tests that failed in this process: one is enough to do without the kernel."""


def unavailable() -> str | None:
    """Why the kernel is not used on this machine; None when it is."""
    if os.environ.get(SWITCH) == "0":
        return f"switched off by {SWITCH}=0"
    return _faults[0] if _faults else _missing()


def montgomery(modulus: mpz, width: int) -> Montgomery | None:
    """Products modulo an odd number, of packed numbers of `width` bytes; None where gmpy2 has to do."""
    return None if width < _LEAST_WIDTH or unavailable() else _tested(modulus, width)


def chains(modulus: mpz, width: int) -> Chains | None:
    """Running products modulo an odd number, of packed numbers of `width` bytes; None like `montgomery`."""
    field = montgomery(modulus, width)
    if field is None:
        return None
    from penrose_ray.crypto.kernel.chains import Chains  # noqa: PLC0415 - needs llvmlite

    return Chains(field)


def comb(base: mpz, modulus: mpz, width: int, exponent_bits: int) -> Comb | None:
    """Powers of one base modulo an odd number; None like `montgomery`."""
    field = montgomery(modulus, width)
    if field is None:
        return None
    from penrose_ray.crypto.kernel.comb import Comb  # noqa: PLC0415 - needs llvmlite

    return Comb(field, base, exponent_bits)


def twin_power(p: mpz, q: mpz) -> TwinPower | None:
    """Powers for decryption; None like `montgomery`."""
    if 2 * p.bit_length() < 8 * _LEAST_WIDTH or unavailable():
        return None
    from penrose_ray.crypto.kernel.twin import TwinPower  # noqa: PLC0415 - needs llvmlite

    made = TwinPower(p, q)
    return made if _agrees(made.limbs, made.width) else None


@lru_cache(maxsize=16)
def _tested(modulus: mpz, width: int) -> Montgomery | None:
    from penrose_ray.crypto.kernel.montgomery import Montgomery  # noqa: PLC0415 - needs llvmlite

    field = Montgomery(modulus, width)
    return field if _agrees(field.limbs, width) else None


@lru_cache(maxsize=1)
def _missing() -> str | None:
    if importlib.util.find_spec("llvmlite") is None:
        return "llvmlite is not installed: pip install 'penrose-ray[native]'"
    try:
        import llvmlite.binding as llvm  # noqa: PLC0415 - optional
    except OSError as error:
        return f"llvmlite cannot be loaded: {error}"
    features = llvm.get_host_cpu_features()
    lacking = [name for name in _FEATURES if not features.get(name)]
    return f"this CPU lacks {', '.join(lacking)}" if lacking else None


@lru_cache(maxsize=8)
def _agrees(limbs: int, width: int) -> bool:
    from penrose_ray.crypto.kernel.self_test import agrees_with_gmpy2  # noqa: PLC0415 - needs llvmlite

    agrees = agrees_with_gmpy2(limbs, width)
    if not agrees:
        _faults.append(f"its program for {limbs} limbs disagrees with gmpy2")
    return agrees
