"""Which tasks a command works for: those that the pinned design server signed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penrose_ray.cli.given import content_of, hexadecimal
from penrose_ray.errors import ConfigError, TaskError, naming
from penrose_ray.task import Task, verify

SignerOption = Annotated[
    str,
    typer.Option(
        "--signer", help="The design server's pinned key, hexadecimal; needed unless the task is a demo."
    ),
]


def trusted_file(path: Path, signer: str) -> Task:
    """The task in a file, see `trusted_task`; every error names the file.

    Raises:
        ConfigError: it cannot be read.
    """
    raw = content_of(path, ConfigError)
    with naming(path):
        return trusted_task(raw, signer)


def trusted_task(raw: bytes, signer: str) -> Task:
    """The task in `raw`, signed by `signer` (hexadecimal); only a demo may go without one.

    Raises:
        TaskError: no signer is pinned, or another one signed; and as `verify`.
        ConfigError: `signer` is not hexadecimal.
    """
    pinned = hexadecimal("--signer", signer, source="penrose keys show") if signer else None
    task = verify(raw, trusted_signer=pinned)
    if pinned is None and not task.demo:
        raise TaskError(
            "This task is no demo, and --signer does not say who must have signed it.",
            remedy="Give --signer the key that the design server's operator tells you by another channel; "
            "penrose keys show prints it there.",
        )
    return task
