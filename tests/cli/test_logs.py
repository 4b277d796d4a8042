"""What libraries log while a command runs leaves out who and where."""

from __future__ import annotations

import getpass
import logging
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from penrose_ray.cli.logs import ScrubbingHandler, scrub_logs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LINE = "%s at fe80::1ff:fe23:4567:890a wrote /home/ann/model.pt from 10.1.2.3:9400"
CLEAN = "<name> at <address> wrote <path> from <address>"


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    root = logging.getLogger()
    before = root.handlers[:]
    yield
    root.handlers[:] = before


def test_log_lines_of_libraries_are_scrubbed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "gpu-box-17")
    monkeypatch.setattr(getpass, "getuser", lambda: "ann-marie")
    scrub_logs()
    scrub_logs()
    logging.getLogger("some.package").warning(LINE, "ann-marie")
    logging.getLogger("some.package").info(LINE, "ann-marie")
    assert capsys.readouterr().err == f"WARNING some.package: {CLEAN}\n"


def test_every_command_scrubs(call: Callable[..., tuple[int, str, str]]) -> None:
    call("version")
    handlers = [type(each) for each in logging.getLogger().handlers]
    assert handlers.count(ScrubbingHandler) == 1


def test_pythons_own_warnings_are_scrubbed_too() -> None:
    program = (
        "import warnings; from penrose_ray.cli.logs import scrub_logs; scrub_logs();"
        "warnings.warn('old file /home/ann/model.pt')"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert "UserWarning: old file <path>" in done.stderr
    assert "ann" not in done.stderr
