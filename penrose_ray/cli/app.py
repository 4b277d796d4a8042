"""Commands, and the one place where errors become exit codes."""

from __future__ import annotations

import os
import signal
import sys

import typer

from penrose_ray import __version__
from penrose_ray.cli import (
    capture,
    classify,
    client,
    config,
    doctor,
    gatekeeper,
    inspect,
    issuer,
    keys,
    linkability,
    plan,
    release,
    report,
    run,
    service,
    simulate,
    task,
    verify,
)
from penrose_ray.cli.output import say
from penrose_ray.errors import ConfigError, PenroseError

INTERRUPTED = 130

app = typer.Typer(
    name="penrose",
    help="How a fleet's GPUs are used, without anyone but a GPU's owner learning what that GPU runs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run.run)
app.command("up")(service.up)
app.command("status")(service.status)
app.command("compact")(service.compact)
app.command("down")(service.down)
app.command("capture")(capture.capture)
app.command("inspect")(inspect.inspect)
app.command("classify")(classify.classify)
app.command("simulate")(simulate.simulate)
app.command("plan")(plan.plan)
app.command("linkability")(linkability.linkability)
app.command("gatekeeper")(gatekeeper.gatekeeper)
app.command("report")(report.report)
app.command("verify")(verify.verify)
app.command("doctor")(doctor.doctor)
app.add_typer(issuer.app, name="issuer")
app.add_typer(release.app, name="release")
app.add_typer(client.app, name="client")
app.add_typer(config.app, name="config")
app.add_typer(keys.app, name="keys")
app.add_typer(task.app, name="task")


@app.command("version")
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def main(command: typer.Typer = app) -> None:
    """Entry point: exit code 0, 1 (a bug), 2 (usage), 130 (interrupted), or the error's own."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        code = command(standalone_mode=False) or 0
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
        place = error.filename or "a file"
        say(f"error: {place}: {error.strerror or error}\n  remedy: Check the path and its permissions.")
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
