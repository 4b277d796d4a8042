"""What opens a key file: a passphrase or a hardware token, with their secrets in the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penrose_ray.crypto.hsm import Token
from penrose_ray.crypto.key_share import read_share, write_share
from penrose_ray.crypto.keyfile import DesignKeys, read_keys, write_keys
from penrose_ray.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from penrose_ray.crypto.key_share import KeyShare

MODULE_VARIABLE: Final = "PENROSE_HSM_MODULE"
"""Path of the token vendor's PKCS#11 library."""
PIN_VARIABLE: Final = "PENROSE_HSM_PIN"


@dataclass(frozen=True, slots=True)
class Unlock:
    """At most one of the two; with neither, the file's mode is all its protection."""

    passphrase_variable: str = ""
    hsm_token: str = ""
    """Label of the token."""

    def read(self, path: Path) -> DesignKeys:
        """Read a key file; raises like `read_keys`, and ConfigError for a variable that is not set."""
        return read_keys(path, passphrase=self._passphrase(), token=self._token())

    def write(self, path: Path, keys: DesignKeys) -> None:
        """Write a new key file; raises like `write_keys`, and ConfigError for a variable that is not set."""
        write_keys(path, keys, passphrase=self._passphrase(), token=self._token())

    def read_share(self, path: Path) -> KeyShare:
        """Read a share file; raises like `read`."""
        return read_share(path, passphrase=self._passphrase(), token=self._token())

    def write_share(self, path: Path, share: KeyShare) -> None:
        """Write a new share file; raises like `write`."""
        write_share(path, share, passphrase=self._passphrase(), token=self._token())

    def check(self) -> None:
        """Raise ConfigError where a variable is not set, before a key is made."""
        self._passphrase()
        self._token()

    def _passphrase(self) -> bytes | None:
        if self.passphrase_variable and self.hsm_token:
            raise ConfigError("A key file opens by passphrase or by token.", remedy="Name one of the two.")
        return _variable(self.passphrase_variable).encode() if self.passphrase_variable else None

    def _token(self) -> Token | None:
        if not self.hsm_token:
            return None
        return Token(_variable(MODULE_VARIABLE), self.hsm_token, _variable(PIN_VARIABLE))


def _variable(name: str) -> str:
    if not os.environ.get(name):
        raise ConfigError(f"The environment has no variable {name}.", remedy=f"Set {name}.")
    return os.environ[name]
