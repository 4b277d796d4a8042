"""A software TPM for a test."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_START_S = 60.0


@contextlib.contextmanager
def software_tpm(folder: Path) -> Iterator[str]:
    """Run swtpm with its state in `folder`; yields its TCTI, skips the test where there is none."""
    pytest.importorskip("tpm2_pytss", reason="the extra tpm is not installed")
    swtpm = shutil.which("swtpm")
    if swtpm is None:
        pytest.skip("swtpm is not installed: apt-get install swtpm")
    process, port = _started(swtpm, folder)
    try:
        yield f"swtpm:host=127.0.0.1,port={port}"
    finally:
        process.terminate()
        process.wait(_START_S)


def _started(swtpm: str, folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Another process may take a port between choosing and binding it: swtpm ends, and others are tried."""
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        port = _free_pair()
        process = subprocess.Popen(
            [
                *(swtpm, "socket", "--tpm2", "--tpmstate", f"dir={folder}", "--flags", "startup-clear"),
                *("--server", f"type=tcp,port={port}", "--ctrl", f"type=tcp,port={port + 1}"),
            ]
        )
        while time.monotonic() < deadline and process.poll() is None:
            with socket.socket() as probe:
                if _answers(probe, port + 1) and process.poll() is None:
                    return process, port
    pytest.fail("swtpm did not start")


def _answers(probe: socket.socket, port: int) -> bool:
    """Whether somebody listens; the kernel may give the probe itself that port, and join it to itself."""
    place = ("127.0.0.1", port)
    return probe.connect_ex(place) == 0 and probe.getsockname() != place


def _free_pair() -> int:
    """A port whose successor is free, too: the TSS expects the control channel there."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            try:
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port
