"""Key files that only a PKCS#11 token opens, with SoftHSM2 as the token."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penrose_ray.crypto.hsm import Token
from penrose_ray.crypto.keyfile import read_keys, write_keys
from penrose_ray.crypto.unlock import Unlock
from penrose_ray.errors import ConfigError, KeyFormatError, KeyMissingError

if TYPE_CHECKING:
    from penrose_ray.crypto.keyfile import DesignKeys

MODULES = [
    path
    for path in map(Path, ("/usr/lib/softhsm/libsofthsm2.so", "/usr/lib64/softhsm/libsofthsm.so"))
    if path.exists()
]
UTILITY = shutil.which("softhsm2-util") or ""
TOKEN, PIN = "design", "1234"

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("pkcs11") is None, reason="python-pkcs11 is not installed"),
    pytest.mark.skipif(
        not MODULES or not UTILITY,
        reason="SoftHSM2 is not installed: apt-get install softhsm2",
    ),
]


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SoftHSM2 with two tokens; its library reads the environment once a process."""
    folder = tmp_path_factory.mktemp("softhsm")
    (folder / "tokens").mkdir()
    config = folder / "softhsm2.conf"
    config.write_text(f"directories.tokendir = {folder / 'tokens'}\nlog.level = ERROR\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOFTHSM2_CONF", str(config))
        for label in ("design", "other"):
            subprocess.run(
                [
                    UTILITY,
                    "--init-token",
                    "--free",
                    "--label",
                    label,
                    "--pin",
                    PIN,
                    "--so-pin",
                    "5678",
                ],
                check=True,
                capture_output=True,
            )
        yield MODULES[0]


def test_a_wrapped_key_file_opens_with_its_token_only(
    tmp_path: Path, module: Path, design_keys: DesignKeys
) -> None:
    path = tmp_path / "design.keys"
    write_keys(path, design_keys, passphrase=None, token=Token(module, TOKEN, PIN))
    assert (
        read_keys(path, token=Token(module, TOKEN, PIN)).paillier.factors() == design_keys.paillier.factors()
    )
    p, _ = design_keys.paillier.factors()
    assert p.to_bytes(192, "big") not in path.read_bytes()
    with pytest.raises(KeyFormatError, match="the token that wrapped it"):
        read_keys(path)
    with pytest.raises(KeyMissingError, match="no key"):
        read_keys(path, token=Token(module, "other", PIN))


def test_the_wrapping_key_cannot_be_read_out(module: Path) -> None:
    pkcs11 = pytest.importorskip("pkcs11")
    Token(module, TOKEN, PIN).wrap(b"x", b"context")
    with pkcs11.lib(str(module)).get_token(token_label=TOKEN).open(user_pin=PIN) as session:
        key = session.get_key(object_class=pkcs11.ObjectClass.SECRET_KEY, label="penrose-ray")
        assert key[pkcs11.Attribute.SENSITIVE]
        assert not key[pkcs11.Attribute.EXTRACTABLE]
        with pytest.raises(pkcs11.exceptions.AttributeSensitive):
            key[pkcs11.Attribute.VALUE]


def test_damage_and_other_context_are_found(module: Path) -> None:
    token = Token(module, TOKEN, PIN)
    wrapped = token.wrap(b"secret", b"context")
    assert token.unwrap(wrapped, b"context") == b"secret"
    with pytest.raises(KeyFormatError, match="does not open"):
        token.unwrap(wrapped, b"another")
    with pytest.raises(KeyFormatError, match="does not open"):
        token.unwrap(wrapped[:-1] + bytes([wrapped[-1] ^ 1]), b"context")


def test_wrong_pin_token_and_library_say_what_to_do(module: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="PIN"):
        Token(module, "design", "9999").wrap(b"x", b"")
    with pytest.raises(KeyMissingError, match="no token 'absent'"):
        Token(module, "absent", PIN).wrap(b"x", b"")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        Token(tmp_path / "none.so", "design", PIN).wrap(b"x", b"")


def test_a_token_named_by_configuration_opens_the_key_file(
    module: Path, tmp_path: Path, design_keys: DesignKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENROSE_HSM_MODULE", str(module))
    monkeypatch.setenv("PENROSE_HSM_PIN", PIN)
    path = tmp_path / "design.key"
    Unlock(hsm_token=TOKEN).write(path, design_keys)

    assert Unlock(hsm_token=TOKEN).read(path).paillier.fingerprint == design_keys.paillier.fingerprint
    with pytest.raises(KeyFormatError, match="token"):
        Unlock().read(path)
    with pytest.raises(ConfigError, match="one of the two"):
        Unlock("PASSPHRASE", TOKEN).read(path)
    monkeypatch.delenv("PENROSE_HSM_PIN")
    with pytest.raises(ConfigError, match="PENROSE_HSM_PIN"):
        Unlock(hsm_token=TOKEN).read(path)
