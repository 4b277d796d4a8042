"""Which tasks a command works for: those that the pinned design server signed."""

from __future__ import annotations

from typing import Annotated

import typer

from penrose_ray.cli.given import hexadecimal
from penrose_ray.errors import TaskError
from penrose_ray.task import Task, verify

SignerOption = Annotated[
    str, typer.Option("--signer", help="The pinned signer, hexadecimal; needed unless the task is a demo.")
]


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
