"""Checks of the aggregation service's machine: size, ports, keys, passphrases, Ray, journals."""

from __future__ import annotations

import json
import re
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penrose_ray.aggregate.schema import SCHEMA_VERSION
from penrose_ray.cli.checks.machine import failure, fine, version_tuple, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penrose_ray.cli.checks.machine import Finding, Machine
    from penrose_ray.settings import DesignServerSettings, Settings

NEED_BYTES: Final = 2 * 2**30
"""Of Ray, the actors and the design server at the start."""
FLEET_CORES: Final = 16
FLEET_BYTES: Final = 64 * 10**9
FLEET_MBIT_S: Final = 25_000
"""What serves 100,000 GPUs."""
_LEAST_RAY: Final = (2, 50)
_CHECKED_BYTES: Final = 256 * 2**20
"""Larger journals are only opened, not read through."""


def size(machine: Machine) -> Finding:
    """Cores, memory and network against those of a machine for 100,000 GPUs."""
    found = re.search(r"^MemTotal:\s+(\d+) kB", machine.read("proc/meminfo"), re.MULTILINE)
    memory = int(found[1]) * 1024 if found else 0
    speeds = [path.read_text() if path.is_file() else "" for path in _links(machine)]
    speed = max((int(text) for text in speeds if text.strip().isdecimal()), default=0)
    link = f"{speed / 1000:g} Gbit/s" if speed else "network of unknown speed"
    text = f"{machine.cores} cores, {memory / 1e9:.0f} GB, {link}"
    if machine.cores >= FLEET_CORES and memory >= FLEET_BYTES and (not speed or speed >= FLEET_MBIT_S):
        return fine("size", text)
    return warning(
        "size",
        f"{text}; 100,000 GPUs ask for 16 cores, 64 GB, 25 Gbit/s",
        "penrose plan --gpus GPUS --apps APPS says what your fleet needs.",
    )


def _links(machine: Machine) -> Iterator[Path]:
    for path in machine.glob("sys/class/net/*/speed"):
        if path.parent.name != "lo":
            try:
                path.read_text()
            except OSError:  # a link that is down tells no speed
                continue
            yield path


def ports(machine: Machine, settings: Settings, *, running: bool) -> Iterator[Finding]:
    """The service can listen where it is told to."""
    tls = settings.transport.tls
    wanted = [("port", settings.service.host, settings.service.port)]
    if tls:
        wanted.append(("tls-port", tls.host, tls.port))
    for name, host, port in wanted:
        if port == 0:
            yield fine(name, "the kernel chooses one")
        elif running:
            yield fine(name, f"{host}:{port} belongs to the service that runs here")
        elif problem := machine.listening_problem(host, port):
            yield failure(name, f"{host}:{port}: {problem}", "ss -ltnp shows who has it; or take another.")
        else:
            yield fine(name, f"{host}:{port} is free")


def secrets(machine: Machine, settings: Settings) -> Iterator[Finding]:
    """Key files are there and private, and what opens them is at hand."""
    server, tls = settings.design_server, settings.transport.tls
    yield _key(server)
    if server.task_file:
        yield (
            fine("task", f"{server.task_file} is there")
            if server.task_file.exists()
            else failure("task", f"there is no {server.task_file}", "Get it from the design server.")
        )
    for name, own in (
        ("ledger-key", settings.service.ledger_key_file),
        ("service-key", settings.service.key_file),
        ("metrics-token", settings.service.metrics_token_file),
    ):
        if own and own.exists():
            yield private(name, own)
    if tls:
        yield private("tls-key", tls.key)
    variables = [("passphrase", server.passphrase_variable)]
    variables += [("credential", each.credential_variable) for each in settings.clients]
    variables += [("hsm", name) for name in ("PENROSE_HSM_MODULE", "PENROSE_HSM_PIN") if server.hsm_token]
    for name, variable in variables:
        if variable:
            yield (
                fine(name, f"{variable} is set")
                if machine.environment.get(variable)
                else failure(name, f"{variable} is not set", f"export {variable} before starting.")
            )


def _key(server: DesignServerSettings) -> Finding:
    key = server.key_file or server.share_file
    if key is None:
        return fine("key", "none here: the design server opens releases on a machine of its own")
    if key.exists():
        return private("key", key)
    if server.create_key:
        return warning("key", f"{key} is missing and will be made", "Make it: penrose keys new.")
    way = f"new {key}" if server.key_file else "deal"
    return failure("key", f"there is no {key}", f"Make one: penrose keys {way}")


def private(name: str, path: Path) -> Finding:
    """A file or folder that only its owner may open."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        return failure(name, f"{path}: {error.strerror}", "Correct the path, or restore the file.")
    if mode & 0o077:
        wanted = 0o700 if path.is_dir() else 0o600
        return failure(name, f"{path} has mode {mode:04o}: others can open it", f"chmod {wanted:o} {path}")
    return fine(name, f"{path} has mode {mode:04o}")


def ray(machine: Machine) -> Finding:
    """Ray is new enough."""
    version = machine.package_version("ray")
    if not version:
        return failure("ray", "Ray is not installed", "pip install penrose-ray")
    if version_tuple(version) < _LEAST_RAY:
        return failure("ray", f"Ray {version}; 2.50 is needed", "pip install --upgrade 'ray>=2.50,<3'")
    return fine("ray", f"Ray {version}")


def ray_token(machine: Machine, *, cluster: bool) -> Finding:
    """A cluster that others can reach asks for a token: whoever reaches Ray without one runs code there."""
    names = machine.environment
    mode = names.get("RAY_AUTH_MODE", "").lower()
    files = [names.get("RAY_AUTH_TOKEN_PATH", ""), str(machine.home / ".ray" / "auth_token")]
    here = next((Path(each) for each in files if each and Path(each).is_file()), None)
    if mode == "token" and not names.get("RAY_AUTH_TOKEN") and here is None:
        return failure(
            "ray-token", "RAY_AUTH_MODE is token, and there is none", "ray get-auth-token --generate"
        )
    if mode == "token" or (here and mode != "disabled"):
        if here and here.stat().st_mode & 0o077:
            return failure("ray-token", f"{here} can be read by others", f"chmod 600 {here}")
        return fine("ray-token", "Ray asks for a token")
    if not cluster:
        return fine("ray-token", "Ray runs on this machine only, on 127.0.0.1")
    return warning(
        "ray-token",
        "whoever reaches the cluster can run code on it",
        "ray get-auth-token --generate, and RAY_AUTH_MODE=token on every node.",
    )


def journals(folder: Path, *, running: bool) -> Finding:
    """The service's journals can be read. A running service checks its own."""
    files = sorted(folder.rglob("*.sqlite")) if folder.is_dir() else []
    if running or not files:
        return fine("journals", "in use" if running else f"none yet in {folder}")
    for path in folder.rglob("directory.json"):
        try:
            json.loads(path.read_bytes())
        except ValueError as error:
            return failure("journals", f"{path}: {error}", "Restore it from a backup.")
    for path in files:
        problem = _damage(path)
        if problem:
            return failure(
                "journals", f"{path}: {problem}", f"python -m penrose_ray.aggregate.salvage {path}"
            )
    return fine("journals", f"{len(files)} whole, in {folder}")


def _damage(path: Path) -> str:
    """Why a journal cannot be read; empty when it can."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version > SCHEMA_VERSION:
                return f"of version {version}, newer than this program's {SCHEMA_VERSION}"
            if path.stat().st_size > _CHECKED_BYTES:
                return ""
            (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        return str(error)
    return "" if found == "ok" else str(found).splitlines()[-1]
