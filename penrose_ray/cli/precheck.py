"""What can be found wrong before Ray starts, which takes seconds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penrose_ray.cli.control import refuse_if_running
from penrose_ray.crypto.secretfile import own_token
from penrose_ray.draft import check_draft, require_agreement
from penrose_ray.errors import ConfigError
from penrose_ray.policy import load_policy
from penrose_ray.sim.settings import load_simulation
from penrose_ray.task import read_task

if TYPE_CHECKING:
    from penrose_ray.settings import ClientSettings, Settings
    from penrose_ray.toml_file import TomlFile


def precheck(settings: Settings, draft: TomlFile) -> None:
    """Raise the error of the first thing that would stop the service or its clients later.

    Raises:
        TaskError: the signed task is missing or damaged.
        ConfigError: an unknown key of the task, a draft that is not the signed task, a file that is missing,
            a folder that cannot be made.
        KeyPermissionError, KeyFormatError: the token of /metrics is open to others, or none.
        RunningError: a service runs in this state directory.
    """
    if settings.design_server.task_file is None:
        check_draft(draft)
    else:
        _check_signed(settings, draft, settings.design_server.task_file)
    if not settings.policy_file.is_file():
        raise ConfigError(
            f"policy_file: there is no file {settings.policy_file}, looked for from {Path.cwd()}.",
            remedy="Correct policy_file, or start where its path begins.",
        )
    load_policy(settings.policy_file)
    for client in settings.clients:
        if client.kind == "replay" and client.trace != "bundled" and not Path(client.trace).is_file():
            raise ConfigError(f"There is no trace {client.trace}.", remedy="Correct the client's trace.")
        if client.kind == "fleet":
            _check_fleet(client)
    for name, folder, mode in (
        ("service.state_dir", settings.service.state_dir, 0o700),
        ("design_server.releases_dir", settings.design_server.releases_dir, 0o700),
        ("run.out_dir", settings.run.out_dir, 0o777),
    ):
        try:
            folder.mkdir(mode=mode, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"{name} {folder}: {error.strerror}.", remedy="Choose another folder."
            ) from error
    if settings.service.metrics_token_file is not None:
        own_token(settings.service.metrics_token_file)
    refuse_if_running(settings.service.state_dir)


def _check_signed(settings: Settings, draft: TomlFile, path: Path) -> None:
    task = read_task(path)
    require_agreement(draft, task)
    if settings.service.seal_tags and not task.service_key:
        raise ConfigError(
            f"service.seal_tags is set, and the task in {path} names no key of the service.",
            remedy="Sign it with penrose task sign --service-key, of penrose keys service.",
        )


def _check_fleet(client: ClientSettings) -> None:
    if client.simulation is None:
        raise ConfigError("A client of kind fleet has no simulation.", remedy="Set the client's simulation.")
    load_simulation(client.simulation)
