"""`penrose doctor`: is this machine fit, and if not, what is to be done?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penrose_ray.cli.checks import gpu, host, service
from penrose_ray.cli.checks.machine import Machine, Status
from penrose_ray.cli.client import DEFAULT_STATE
from penrose_ray.cli.config import task_with_defaults
from penrose_ray.cli.control import is_running
from penrose_ray.cli.output import Format, FormatOption, SetOption, print_rows, say
from penrose_ray.draft import check_draft
from penrose_ray.errors import UnfitError
from penrose_ray.policy import load_policy
from penrose_ray.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penrose_ray.cli.checks.coverage import Fleet
    from penrose_ray.cli.checks.machine import Finding
    from penrose_ray.settings import Settings

_COLUMNS = ("name", "status", "detail", "remedy")


def doctor(
    config: Annotated[
        Path | None, typer.Argument(help="The service's configuration; without one, a GPU's host is checked.")
    ] = None,
    overrides: SetOption = None,
    state: Annotated[Path, typer.Option("--state", help="The client's state, as in penrose client.")] = (
        DEFAULT_STATE
    ),
    gpus: Annotated[int, typer.Option("--gpus", min=0, help="GPUs of the fleet: checks coverage.")] = 0,
    apps: Annotated[int, typer.Option("--apps", min=1, help="Applications that they run.")] = 1_000,
    launches_per_s: Annotated[
        float, typer.Option("--launches-per-s", min=1e-3, help="Launches of a busy GPU.")
    ] = 2_000.0,
    load: Annotated[float, typer.Option("--load", min=1e-6, max=1, help="Share of time it is busy.")] = 0.1,
    form: FormatOption = Format.TABLE,
) -> None:
    """Check this machine for a client, or with CONFIG for the service: ok, warn or fail, each with a remedy.

    Example: penrose doctor configs/fleet.toml --gpus 100000 --apps 1000

    Ends with 16 when a check fails. --format json prints a list of {name, status, detail, remedy}.
    """
    machine = Machine()
    if config is None:
        found = list(client_findings(machine, state))
    else:
        from penrose_ray.cli.checks.coverage import Fleet  # noqa: PLC0415 - the simulator imports numpy

        settings, draft = load_settings(config, tuple(overrides or ()))
        check_draft(draft)
        fleet = Fleet(gpus, apps, launches_per_s, load) if gpus else None
        found = list(service_findings(machine, settings, fleet))
    print_rows([asdict(each) for each in found], _COLUMNS, form, "this machine")
    failed = [each.name for each in found if each.status is Status.FAIL]
    if failed:
        raise UnfitError(
            f"{len(failed)} of {len(found)} checks failed: {', '.join(failed)}.",
            remedy="Do what the last column says.",
        )
    say(f"{len(found)} checks, {sum(each.status is Status.WARN for each in found)} warnings")


def client_findings(machine: Machine, state: Path) -> Iterator[Finding]:
    """What a GPU's host needs for `penrose client`."""
    need = host.CLIENT_BYTES_A_GPU * gpu.gpus(machine)
    yield host.kernel(machine)
    yield gpu.driver(machine)
    yield gpu.counter_permission(machine)
    yield gpu.sources(machine)
    yield gpu.compiler(machine)
    yield host.memory(machine, need)
    yield host.memory_limit(machine, need)
    yield host.cpu_limit(machine, 1)
    yield host.perf_rate(machine)
    yield host.clock(machine)
    yield host.disk(machine, state, host.CLIENT_DISK_BYTES)
    yield host.tor(machine, needed=False)
    if state.exists():
        yield service.private("state", state)


def service_findings(machine: Machine, settings: Settings, fleet: Fleet | None) -> Iterator[Finding]:
    """What a machine needs for `penrose up`, and a task for coverage."""
    home = settings.service.state_dir
    running = is_running(home)
    yield host.kernel(machine)
    yield service.size(machine)
    yield host.memory(machine, service.NEED_BYTES)
    yield host.memory_limit(machine, service.NEED_BYTES)
    yield host.cpu_limit(machine, settings.service.shards + settings.service.gateways)
    yield host.clock(machine)
    yield host.disk(machine, home, settings.service.disk_mark_bytes)
    yield from service.ports(machine, settings, running=running)
    yield from service.secrets(machine, settings)
    yield service.ray(machine)
    yield service.ray_token(machine, cluster=bool(settings.service.ray_address))
    yield gpu.native_kernel(machine)
    yield service.journals(home, running=running)
    if settings.transport.tor:
        yield host.tor(machine, needed=True)
    if fleet:
        from penrose_ray.cli.checks.coverage import Sampling, coverage  # noqa: PLC0415 - as above

        least = load_policy(settings.policy_file).least_sampling_interval
        yield coverage(Sampling.of(task_with_defaults(settings)), fleet, least_interval=least)
