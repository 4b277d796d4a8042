"""Commands, and the one place where errors become exit codes.

Only the command that is called is imported: all of them together take a second and 40 MB, which a client that
stays on a GPU's host must not.
"""

from __future__ import annotations

import errno
import importlib
import os
import re
import signal
import socket
import sys
from pathlib import Path

import typer

from penrose_ray import __version__
from penrose_ray.cli.logs import scrub_logs
from penrose_ray.cli.output import say
from penrose_ray.errors import ConfigError, PenroseError

INTERRUPTED = 130
_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{16}")
"""What `penrose_ray.durable` calls a file until it is whole."""

COMMANDS = {
    "run": "run.run",
    "up": "service.up",
    "status": "service.status",
    "compact": "service.compact",
    "down": "service.down",
    "capture": "capture.capture",
    "inspect": "inspect.inspect",
    "classify": "classify.classify",
    "simulate": "simulate.simulate",
    "plan": "plan.plan",
    "linkability": "linkability.linkability",
    "gatekeeper": "gatekeeper.gatekeeper",
    "report": "report.report",
    "verify": "verify.verify",
    "timeline": "timeline.timeline",
    "doctor": "doctor.doctor",
    "issuer": "issuer.app",
    "keyserver": "keyserver.app",
    "release": "release.app",
    "classes": "classes.app",
    "client": "client.app",
    "config": "config.app",
    "keys": "keys.app",
    "label": "label.app",
    "task": "task.app",
    "version": "app.version",
}
"""Name -> module of this package and its function, or its `app` with commands of its own."""


def application(*names: str) -> typer.Typer:
    """The command line with the commands of these names."""
    made = typer.Typer(
        name="penrose",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback()(penrose)
    for name in names:
        module, _, attribute = COMMANDS[name].partition(".")
        found = getattr(importlib.import_module(f"penrose_ray.cli.{module}"), attribute)
        if isinstance(found, typer.Typer):
            made.add_typer(found, name=name)
        else:
            made.command(name)(found)
    return made


def penrose() -> None:
    """How a fleet's GPUs are used, without anyone but a GPU's owner learning what that GPU runs."""


def version() -> None:
    """Print the version.

    Example: penrose version
    """
    typer.echo(__version__)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _called() -> typer.Typer:
    """The command line with the command that the arguments name, with all where they name none."""
    return application(*([name for name in sys.argv[1:2] if name in COMMANDS] or COMMANDS))


def _place_of(error: OSError) -> str:
    """The file that was asked for; a temporary name that stands for it is known by its form."""
    if error.filename is None:
        return ""
    name = error.filename
    path = Path(os.fsdecode(name) if isinstance(name, str | bytes) else str(name))
    meant = _TEMPORARY.fullmatch(path.name)
    return f"{path.with_name(meant[1]) if meant else path}: "


def _remedy_of(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "Check the host's name."
    return {
        errno.ENOSPC: "Free the disk, or write to another one.",
        errno.EDQUOT: "Free the disk, or write to another one.",
        errno.EROFS: "Write to another disk: this one is mounted read-only.",
        errno.EISDIR: "This is a directory; give a file.",
        errno.ENOTDIR: "Check the path: a part of it is a file.",
        errno.EMFILE: "Raise the limit of open files: ulimit -n 4096.",
    }.get(error.errno or 0, "Check the path and its permissions.")


def main(command: typer.Typer | None = None) -> None:
    """Entry point: exit code 0, 1 (a bug), 2 (usage), 130 (interrupted), or the error's own.

    Args:
        command: another command line than `penrose`, for scripts.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    scrub_logs()
    try:
        code = (command or _called())(standalone_mode=False) or 0
        if code == INTERRUPTED:
            say("interrupted")
        sys.exit(code)
    except PenroseError as error:
        say(f"error: {error.message}\n  remedy: {error.remedy}\n  more: {error.docs}")
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        say("interrupted")
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        say(f"error: {_place_of(error)}{error.strerror or error}\n  remedy: {_remedy_of(error)}")
        sys.exit(ConfigError.exit_code)
    except typer.Exit as error:
        sys.exit(error.exit_code)
    except Exception as error:
        if hasattr(error, "show") and hasattr(error, "exit_code"):  # click's usage errors
            error.show()
            sys.exit(error.exit_code)
        raise


if __name__ == "__main__":
    main()
