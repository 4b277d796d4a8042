"""An owner's note of the reports that left: what `penrose verify --report` asks about. Only on request."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from penrose_ray.cli.given import quoted
from penrose_ray.cli.output import say
from penrose_ray.durable import append
from penrose_ray.errors import KeyPermissionError
from penrose_ray.transport.spool import kept

if TYPE_CHECKING:
    from pathlib import Path

    from penrose_ray.seal import Contribution
    from penrose_ray.wire import Report

_OPTION = "--receipts"


class Receipts:
    """A JSON line a report, for its owner only: whoever has it can tell this host's reports from others'."""

    def __init__(self, path: Path) -> None:
        """Go on with the file, or make it.

        Raises:
            KeyPermissionError: others may read it.
            SpoolError: it cannot be written.
        """
        self._path = path
        with kept(path, _OPTION):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            mode = os.fstat(descriptor).st_mode
            os.close(descriptor)
        if mode & 0o077:
            raise KeyPermissionError(
                f"{path} can be read by others.", remedy=f"Run: chmod 600 {quoted(path)}"
            )
        say(f"warning: {path} tells which reports are this host's; keep it private, delete it when checked")

    def note(self, _contribution: Contribution, report: Report) -> None:
        """Add a report; cover reports are among them, for the ledger counts them alike.

        Raises:
            SpoolError: it cannot be written.
        """
        fields = {
            "report": report.report_id.hex(),
            "task": report.task_id.hex(),
            "created_hour": report.created_hour,
        }
        with kept(self._path, _OPTION):
            append(self._path, json.dumps(fields).encode() + b"\n")
