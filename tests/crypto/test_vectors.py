"""Frozen known answers: formats must not change by accident."""

from __future__ import annotations

import base64
import json
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from penrose_ray.crypto.accumulate import Accumulator
from penrose_ray.crypto.blinding import Encryptor
from penrose_ray.crypto.key_share import read_share
from penrose_ray.crypto.keyfile import read_keys
from penrose_ray.crypto.packing import Slots, check_sum, pack, profile, unpack
from penrose_ray.crypto.threshold import ThresholdKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.crypto.packing import SlotProfile
    from penrose_ray.crypto.private_key import PrivateKey

VECTORS = Path(__file__).parents[1] / "vectors"
FROZEN = json.loads((VECTORS / "paillier.json").read_text())
FILES = json.loads((VECTORS / "secret_files.json").read_text())

each_case = pytest.mark.parametrize(
    "case", FROZEN["cases"], ids=[f"{case['profile']}-{case['exponent']}" for case in FROZEN["cases"]]
)


def slots_of(report: dict[str, Any]) -> Slots:
    return Slots(np.array(report["bins"], dtype=np.int64), report["unfilled"], report["real_reports"])


def test_frozen_answers_are_what_the_definition_gives() -> None:
    assert runpy.run_path(str(Path(__file__).parent / "make_vectors.py"))["make"]() == FROZEN


@pytest.mark.parametrize("switch", ["0", "1"])
@each_case
def test_sealing_with_known_randomness_gives_known_blobs(
    key_for: Callable[[SlotProfile], PrivateKey],
    monkeypatch: pytest.MonkeyPatch,
    case: dict[str, Any],
    switch: str,
) -> None:
    monkeypatch.setenv("PENROSE_NATIVE", switch)
    slot_profile = profile(case["profile"])
    draws = [] if case["exponent"] == "textbook" else [case["root"]]
    draws += [draw for report in case["reports"] for draw in report["draws"]]
    numbers = iter([int(draw, 16) for draw in draws])
    key = key_for(slot_profile).public_key
    encryptor = Encryptor(key, slot_profile, exponent=case["exponent"], randbits=lambda _: next(numbers))
    for report in case["reports"]:
        plaintexts = pack(slots_of(report), slot_profile)
        assert [hex(m) for m in plaintexts] == report["plaintexts"]
        assert encryptor.encrypt(plaintexts).hex() == report["blob"]
    assert next(numbers, None) is None


@each_case
def test_known_blobs_add_up_and_open(
    key_for: Callable[[SlotProfile], PrivateKey], case: dict[str, Any]
) -> None:
    slot_profile = profile(case["profile"])
    key = key_for(slot_profile)
    total = Accumulator(key.public_key, slot_profile, capacity=2)
    total.add_many(bytes.fromhex(report["blob"]) for report in case["reports"])
    assert total.to_bytes().hex() == case["sum"]
    opened = unpack(key.decrypt(bytes.fromhex(case["sum"]), slot_profile), slot_profile)
    check_sum(opened, weight=2, samples_per_histogram=10_000)
    one, two = (report["bins"] for report in case["reports"])
    assert opened.bins.tolist() == [a + b for a, b in zip(one, two, strict=True)]


@pytest.mark.parametrize("name", ["keys_plain", "keys_passphrase"])
def test_key_files_of_version_1_open(tmp_path: Path, design_keys: DesignKeys, name: str) -> None:
    path = tmp_path / name
    path.touch(mode=0o600)
    path.write_bytes(base64.b64decode(FILES[name]))
    found = read_keys(path, passphrase=FILES["passphrase"].encode())
    assert found.paillier.factors() == design_keys.paillier.factors()
    assert found.signer == design_keys.signer


def test_share_file_and_threshold_key_of_version_1_open(tmp_path: Path, key: PrivateKey) -> None:
    path = tmp_path / "share"
    path.touch(mode=0o600)
    path.write_bytes(base64.b64decode(FILES["share_passphrase"]))
    share = read_share(path, passphrase=FILES["passphrase"].encode())
    assert share.key == ThresholdKey.from_bytes(base64.b64decode(FILES["threshold_key"]))
    assert (share.index, share.key.threshold, share.key.parties) == (1, 1, 2)
    std = profile("std3072")
    blob = bytes.fromhex(FROZEN["cases"][0]["sum"])
    assert share.key.combine(blob, std, [share.decrypt(blob, std)]) == key.decrypt(blob, std)
