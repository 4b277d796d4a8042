"""Passphrases of key files: never an argument, always an environment variable."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from penrose_ray.errors import ConfigError

VariableOption = Annotated[
    str, typer.Option("--passphrase-variable", help="Environment variable that holds the passphrase.")
]


def passphrase_in(variable: str) -> bytes | None:
    """The passphrase that a variable holds; None when none is named. ConfigError when it is not set."""
    if not variable:
        return None
    if variable not in os.environ:
        raise ConfigError(f"The environment has no variable {variable}.", remedy="Set it to the passphrase.")
    return os.environ[variable].encode()
