"""A tor of our own: started, waited for, stopped by its process id."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Self

from penrose_ray.errors import ConfigError, TorError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

BOOTSTRAP_TIMEOUT_S: Final = 120.0
INSTALL: Final = (
    "Install it (Debian, Ubuntu: apt-get install tor; Fedora: dnf install tor), or use the SOCKS port of a "
    "tor that runs elsewhere."
)
_LONGEST_SOCKET_PATH: Final = 107
_STOP_S: Final = 8.0
_POLL_S: Final = 0.05
_LOG_LINES: Final = 3


def tor_binary(name: str = "tor") -> str:
    """Path of the tor program.

    Raises:
        TorError: there is none, or the Python package that speaks to it is missing.
    """
    found = shutil.which(name)
    if found is None:
        raise TorError(f"There is no program {name!r} on this machine.", remedy=INSTALL)
    if importlib.util.find_spec("stem") is None:
        raise TorError("The Python package stem is missing.", remedy="Run: pip install 'penrose-ray[tor]'")
    return found


def has_pow(binary: str) -> bool:
    """Whether this tor can ask clients for proof of work."""
    listed = subprocess.run([binary, "--list-modules"], capture_output=True, text=True, check=False)  # noqa: S603
    return re.search(r"^pow: yes$", listed.stdout, re.MULTILINE) is not None


class TorProcess:
    """One tor with a data directory, which keeps its guards and so must outlive it.

    Args:
        home: made with mode 0700; its path must be short enough for Unix sockets.
        lines: torrc lines besides those for data, log and control.
        binary: the program.
    """

    def __init__(self, home: Path, lines: Sequence[str], *, binary: str = "tor") -> None:
        self._binary = tor_binary(binary)
        self.home = home
        self._lines = list(lines)
        self._process: subprocess.Popen[bytes] | None = None
        self.controller: Any = None
        """stem's controller while tor runs."""
        if len(str(self._control)) > _LONGEST_SOCKET_PATH:
            raise ConfigError(
                f"The path {self._control} is too long for a Unix socket.",
                remedy="Give tor a directory with a shorter path.",
            )

    @property
    def pid(self) -> int | None:
        """Process id, None when it does not run."""
        alive = self._process is not None and self._process.poll() is None
        return self._process.pid if self._process and alive else None

    def start(self, timeout_s: float = BOOTSTRAP_TIMEOUT_S) -> None:
        """Start and wait until circuits can be built.

        Raises:
            TorError: it ended, or was not ready in time; then it is stopped.
        """
        self.stop()
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._control.unlink(missing_ok=True)
        torrc = self.home / "torrc"
        torrc.write_text("\n".join([*self._own_lines(), *self._lines, ""]))
        deadline = time.monotonic() + timeout_s
        command = [self._binary, "--defaults-torrc", "NONE", "-f", str(torrc)]
        with (self.home / "output").open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603 - the tor that tor_binary found
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        try:
            self._connect(deadline)
            self._await_bootstrap(deadline)
        except BaseException:
            self.stop()
            raise

    def signal(self, name: str) -> None:
        """Send one of the control protocol's signals, such as NEWNYM; nothing where tor does not run."""
        from stem import ControllerError  # noqa: PLC0415 - an optional package

        if self.controller is not None:
            with contextlib.suppress(ControllerError):
                self.controller.signal(name)

    def stop(self) -> None:
        """End tor and forget it; its data stay."""
        controller, self.controller = self.controller, None
        if controller is not None:
            controller.close()
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def _control(self) -> Path:
        return self.home / "control"

    def _own_lines(self) -> list[str]:
        return [
            f"DataDirectory {self.home / 'data'}",
            f"ControlSocket {self._control}",
            "CookieAuthentication 1",
            f"CookieAuthFile {self.home / 'cookie'}",
            f"Log notice file {self.home / 'log'}",
            f"__OwningControllerProcess {os.getpid()}",
            "RunAsDaemon 0",
        ]

    def _connect(self, deadline: float) -> None:
        from stem import ControllerError  # noqa: PLC0415 - an optional package
        from stem.control import Controller  # noqa: PLC0415

        waiting = threading.Event()
        while True:
            self._check_alive()
            if self._control.exists():
                break
            if time.monotonic() > deadline:
                raise TorError("tor opened no control socket in time.", remedy=self._remedy())
            waiting.wait(_POLL_S)
        logging.getLogger("stem").setLevel(logging.WARNING)  # it writes addresses into its debug log
        try:
            self.controller = Controller.from_socket_file(str(self._control))
            self.controller.authenticate()
        except ControllerError as error:
            raise TorError(f"tor's control socket: {error}.", remedy=self._remedy()) from error

    def _await_bootstrap(self, deadline: float) -> None:
        from stem import ControllerError  # noqa: PLC0415 - an optional package

        waiting = threading.Event()
        phase = ""
        while time.monotonic() < deadline:
            self._check_alive()
            try:
                phase = self.controller.get_info("status/bootstrap-phase", "")
            except ControllerError as error:
                raise TorError(f"tor's control socket: {error}.", remedy=self._remedy()) from error
            if "PROGRESS=100" in phase:
                return
            waiting.wait(_POLL_S)
        percent = re.search(r"PROGRESS=(\d+)", phase)
        summary = re.search(r'SUMMARY="([^"]*)"', phase)
        raise TorError(
            f"tor did not reach its network in time: it stands at {percent[1] if percent else 0} %"
            f" ({summary[1] if summary else 'not started'}).",
            remedy=self._remedy(),
        )

    def _check_alive(self) -> None:
        if self.pid is None:
            last = (self.home / "output").read_text(errors="replace").strip().splitlines()[-_LOG_LINES:]
            raise TorError(f"tor ended at its start: {' | '.join(last)}", remedy=self._remedy())

    def _remedy(self) -> str:
        return f"Look into {self.home / 'log'}; check the clock, and that outgoing TCP is allowed."
