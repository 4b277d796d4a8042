"""The control socket of a running service: a command and its arguments ask in one line, JSON answers in one.

Only its owner can connect.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import socketserver
import threading
from typing import TYPE_CHECKING, Any, Self

from penrose_ray.errors import ConfigError, PenroseError, TransportError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

SOCKET = "control.sock"
LONG_S = 3600.0
"""For commands that do as much work as there is."""
_TIMEOUT_S = 60.0
_PING_S = 5.0


class ControlServer:
    """Answers requests in threads of its own; a context manager."""

    def __init__(self, folder: Path, commands: Mapping[str, Callable[..., object]]) -> None:
        """Listen in `folder`; a command's arguments are texts without blanks.

        Raises:
            RunningError: a service is running there already.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / SOCKET
        refuse_if_running(folder)
        self._path.unlink(missing_ok=True)
        mask = os.umask(0o177)
        try:
            self._server = _Server(str(self._path), commands)
        except OSError as error:
            raise ConfigError(
                f"The control socket {self._path} cannot be made: {error}.",
                remedy="Choose a shorter or writable service.state_dir.",
            ) from error
        finally:
            os.umask(mask)
        self._thread = threading.Thread(target=self._server.serve_forever, name="control", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._path.unlink(missing_ok=True)


def is_running(folder: Path) -> bool:
    """Whether a service has the control socket of this state directory, however slow it is."""
    try:
        request(folder, "ping", timeout_s=_PING_S)
    except SlowError:
        return True
    except TransportError:
        return False
    return True


def refuse_if_running(folder: Path) -> None:
    """Raise RunningError when a service runs in this state directory."""
    if not is_running(folder):
        return
    raise RunningError(
        f"A service runs already: it has {folder / SOCKET}.", remedy="Stop it with penrose down first."
    )


class RunningError(PenroseError):
    """A service runs in this state directory already."""

    code = "running"
    exit_code = 15


class SlowError(TransportError):
    """A service runs and did not answer in time."""


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, path: str, commands: Mapping[str, Callable[..., object]]) -> None:
        self.commands = {"ping": lambda: "pong", **commands}
        super().__init__(path, _Handler)


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        name, *arguments = self.rfile.readline(1000).decode(errors="replace").split() or [""]
        command = self.server.commands.get(name)
        answer: dict[str, object]
        if command is None:
            answer = {"error": f"There is no command {name!r}."}
        else:
            try:
                answer = {"result": command(*arguments)}
            except ConfigError as error:
                answer = {"error": error.message, "wrong": error.remedy}
            except Exception as error:  # noqa: BLE001 - the caller must hear of it, the service goes on
                answer = {"error": str(error) or type(error).__name__}
        with contextlib.suppress(BrokenPipeError):
            self.wfile.write(json.dumps(answer, default=str).encode() + b"\n")


def request(folder: Path, command: str, *arguments: str, timeout_s: float = _TIMEOUT_S) -> Any:  # noqa: ANN401 - the command's JSON
    """The result of a command of the service whose state directory is `folder`.

    Raises:
        SlowError: it has not answered in time.
        ConfigError: it refused what it was asked for.
        TransportError: no service answers there, or it could not do it.
    """
    path = folder / SOCKET
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout_s)
            connection.connect(str(path))
            connection.sendall(" ".join((command, *arguments)).encode() + b"\n")
            raw = connection.makefile("rb").readline()
    except (TimeoutError, BlockingIOError) as error:  # the latter where more wait than may
        raise SlowError(
            f"The service at {path} has not answered {command} within {timeout_s:g} s.",
            remedy="It may be at it still: look at its output, then ask again.",
        ) from error
    except OSError as error:
        raise TransportError(
            f"No service answers at {path}: {error}.", remedy="Start it with penrose up CONFIG."
        ) from error
    answer = json.loads(raw or b'{"error": "the service ended"}')
    if "wrong" in answer:
        raise ConfigError(answer["error"], remedy=answer["wrong"])
    if "error" in answer:
        raise TransportError(f"The service could not: {answer['error']}", remedy="Look at its log.")
    return answer["result"]
