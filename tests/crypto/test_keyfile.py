from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from penrose_ray.crypto.key_share import read_share
from penrose_ray.crypto.keyfile import DesignKeys, read_keys, write_keys
from penrose_ray.errors import ConfigError, KeyFormatError, KeyMissingError, KeyPermissionError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("passphrase", [None, b"correct horse"])
def test_keys_survive_their_file(tmp_path: Path, design_keys: DesignKeys, passphrase: bytes | None) -> None:
    path = tmp_path / "design.keys"
    write_keys(path, design_keys, passphrase=passphrase)
    found = read_keys(path, passphrase=passphrase)
    assert found.paillier.factors() == design_keys.paillier.factors()
    assert found.signing.private_bytes_raw() == design_keys.signing.private_bytes_raw()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [*tmp_path.iterdir()] == [path]


def test_a_passphrase_hides_the_factors(tmp_path: Path, design_keys: DesignKeys) -> None:
    plain, sealed = tmp_path / "plain", tmp_path / "sealed"
    write_keys(plain, design_keys, passphrase=None)
    write_keys(sealed, design_keys, passphrase=b"x")
    p, _ = design_keys.paillier.factors()
    assert p.to_bytes(192, "big") in plain.read_bytes()
    assert p.to_bytes(192, "big") not in sealed.read_bytes()


def test_a_key_file_is_private_from_its_first_byte_on(
    tmp_path: Path, design_keys: DesignKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = []
    real = os.fdopen

    def watched(descriptor: int, mode: str) -> object:
        modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return real(descriptor, mode)

    monkeypatch.setattr(os, "fdopen", watched)
    old = os.umask(0)
    try:
        write_keys(tmp_path / "keys", design_keys, passphrase=None)
    finally:
        os.umask(old)
    assert modes == [0o600]


def test_keys_are_never_overwritten(tmp_path: Path, design_keys: DesignKeys) -> None:
    path = tmp_path / "design.keys"
    path.write_bytes(b"precious")
    with pytest.raises(ConfigError, match="never overwritten"):
        write_keys(path, design_keys, passphrase=None)
    assert path.read_bytes() == b"precious"
    assert [*tmp_path.iterdir()] == [path]


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(KeyMissingError, match="penrose keys new"):
        read_keys(tmp_path / "none")
    with pytest.raises(KeyMissingError, match="right path of a key share"):
        read_share(tmp_path / "none")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o602])
def test_a_file_that_others_reach_is_refused(tmp_path: Path, design_keys: DesignKeys, mode: int) -> None:
    path = tmp_path / "design.keys"
    write_keys(path, design_keys, passphrase=None)
    path.chmod(mode)
    with pytest.raises(KeyPermissionError, match=f"chmod 600 {path}"):
        read_keys(path)


def test_wrong_or_missing_passphrase(tmp_path: Path, design_keys: DesignKeys) -> None:
    path = tmp_path / "design.keys"
    write_keys(path, design_keys, passphrase=b"right")
    with pytest.raises(KeyFormatError, match="wrong passphrase"):
        read_keys(path, passphrase=b"wrong")
    with pytest.raises(KeyFormatError, match="a passphrase"):
        read_keys(path)


@pytest.mark.parametrize("passphrase", [None, b"x"])
@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "version", "protection"])
def test_damage_is_found(
    tmp_path: Path, design_keys: DesignKeys, passphrase: bytes | None, damage: str
) -> None:
    path = tmp_path / "design.keys"
    write_keys(path, design_keys, passphrase=passphrase)
    raw = bytearray(path.read_bytes())
    if damage == "cut":
        raw = raw[:-1]
    elif damage == "flip":
        raw[100] ^= 1
    elif damage == "empty":
        raw.clear()
    else:
        raw[13 if damage == "version" else 14] = 9
    path.write_bytes(raw)
    with pytest.raises(KeyFormatError):
        read_keys(path, passphrase=passphrase)
