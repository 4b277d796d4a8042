"""The native kernel against Python integers. Skipped where the CPU or llvmlite is missing."""

from __future__ import annotations

import ctypes
import importlib.util
import math
import mmap
import random

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz
from hypothesis import given, settings
from hypothesis import strategies as st

from penrose_ray.crypto.kernel import native
from penrose_ray.crypto.kernel.chain import Chain

WIDTH = 768
MODULI = {
    "random": random.Random(1).getrandbits(6144) | (1 << 6143) | 1,  # noqa: S311 - a seeded test
    "all ones": (1 << 6144) - 1,
    "lowest": (1 << 6143) | 1,
}

needs_kernel = pytest.mark.skipif(bool(native.unavailable()), reason=f"no kernel: {native.unavailable()}")


def addresses_of(values: list[int]) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], object]:
    memory = np.frombuffer(b"".join(value.to_bytes(WIDTH, "little") for value in values), dtype=np.uint8)
    return memory.ctypes.data + np.arange(len(values)) * WIDTH, memory


@needs_kernel
@pytest.mark.parametrize("modulus", MODULI.values(), ids=MODULI)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_running_products_are_the_products(modulus: int, data: st.DataObject) -> None:
    chains = native.chains(mpz(modulus), WIDTH)
    assert chains is not None
    edges = [0, 1, 2, modulus - 1, modulus // 2, (1 << 6140) - 1]
    draw = random.Random(data.draw(st.integers(0, 1 << 32)))  # noqa: S311 - a seeded test
    held = [Chain() for _ in range(4)]
    expected = [1] * 4
    for _ in range(data.draw(st.integers(1, 3))):
        lengths = data.draw(st.lists(st.integers(1, 9), min_size=4, max_size=4))
        shares = [[draw.choice([*edges[1:], draw.randrange(modulus)]) for _ in range(n)] for n in lengths]
        shares[0][0] = data.draw(st.sampled_from(edges))
        packed, memory = addresses_of([value for share in shares for value in share])
        chains.multiply(held, lengths, packed)
        del memory
        expected = [old * math.prod(share) % modulus for old, share in zip(expected, shares, strict=True)]
    assert [chains.product(chain) for chain in held] == expected


@needs_kernel
def test_dropped_chains_leave_their_memory_to_others() -> None:
    modulus = MODULI["random"]
    chains = native.chains(mpz(modulus), WIDTH)
    assert chains is not None
    packed, _memory = addresses_of([3, 5])
    first = Chain()
    chains.multiply([first], [2], packed)
    rows = set(first.rows)
    chains.drop(first)
    second = Chain()
    chains.multiply([second], [2], packed)
    assert set(second.rows) <= rows
    assert chains.product(second) == 15


@needs_kernel
def test_nothing_is_read_beyond_a_packed_number() -> None:
    """The number ends where readable memory ends: one byte further would kill the process."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(start + page), page, 0) == 0
    value = MODULI["random"] - 12_345
    memory[page - WIDTH : page] = value.to_bytes(WIDTH, "little")
    chains = native.chains(mpz(MODULI["random"]), WIDTH)
    assert chains is not None
    chain = Chain()
    chains.multiply([chain], [1], np.array([start + page - WIDTH]))
    assert chains.product(chain) == value


@needs_kernel
@pytest.mark.parametrize("exponent_bits", [1, 13, 448, 512, 1536])
def test_comb_is_a_power(exponent_bits: int) -> None:
    modulus, base = MODULI["random"], 0x1234567 << 6000
    comb = native.comb(mpz(base), mpz(modulus), WIDTH, exponent_bits)
    assert comb is not None
    draw = random.Random(exponent_bits)  # noqa: S311 - a seeded test
    edges = [0, 1, (1 << exponent_bits) - 1, 1 << (exponent_bits - 1)]
    for count in (1, 2, 3, 4, 5, 8, 9, 17):
        exponents = [*edges, *(draw.getrandbits(exponent_bits) for _ in range(count))][-count:]
        assert comb.powers(exponents) == [gmpy2.powmod(base, e, modulus) for e in exponents]
    assert comb.powers(edges) == [gmpy2.powmod(base, e, modulus) for e in edges]
    assert comb.powers([]) == []


@needs_kernel
@pytest.mark.parametrize("width", [256, 512, 768])
def test_every_kind_of_step_agrees_with_gmpy2(width: int) -> None:
    self_test = pytest.importorskip("penrose_ray.crypto.kernel.self_test")
    assert self_test.agrees_with_gmpy2({256: 40, 512: 80, 768: 120}[width], width)


def test_switch_closes_the_door(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENROSE_NATIVE", "0")
    assert native.unavailable() == "switched off by PENROSE_NATIVE=0"
    assert native.chains(mpz(MODULI["random"]), WIDTH) is None
    assert native.comb(mpz(3), mpz(MODULI["random"]), WIDTH, 8) is None


@pytest.fixture
def _fresh_probe() -> object:
    native._missing.cache_clear()
    yield
    native._missing.cache_clear()


@pytest.mark.usefixtures("_fresh_probe")
def test_absence_of_llvmlite_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert "llvmlite is not installed" in str(native.unavailable())
    assert native.montgomery(mpz(MODULI["random"]), WIDTH) is None


@pytest.mark.usefixtures("_fresh_probe")
def test_a_cpu_without_the_instructions_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    llvm = pytest.importorskip("llvmlite.binding")
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: {"avx512f": True, "avx512vl": True})
    assert native.unavailable() == "this CPU lacks avx512ifma"


@needs_kernel
def test_a_kernel_that_fails_its_test_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    self_test = pytest.importorskip("penrose_ray.crypto.kernel.self_test")
    monkeypatch.setattr(self_test, "agrees_with_gmpy2", lambda *_: False)
    monkeypatch.setattr(native, "_faults", [])
    native._agrees.cache_clear()
    try:
        assert native.montgomery(mpz(MODULI["random"] - 2), WIDTH) is None
        assert native.unavailable() == "its program for 120 limbs disagrees with gmpy2"
        assert native.montgomery(mpz(MODULI["lowest"]), WIDTH) is None
    finally:
        native._agrees.cache_clear()
        native._tested.cache_clear()


def test_numbers_too_small_for_a_vector_are_left_to_gmpy2() -> None:
    assert native.montgomery(mpz(101), 32) is None


@needs_kernel
def test_self_test_catches_a_wrong_product(monkeypatch: pytest.MonkeyPatch) -> None:
    self_test = pytest.importorskip("penrose_ray.crypto.kernel.self_test")
    montgomery = pytest.importorskip("penrose_ray.crypto.kernel.montgomery").Montgomery
    honest = montgomery.number
    monkeypatch.setattr(montgomery, "number", lambda self, row: honest(self, row) + 1)
    assert not self_test.agrees_with_gmpy2(16, 96)
