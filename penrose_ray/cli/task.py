"""`penrose task`: drafts, signed tasks, where they come from, and what an owner's policy says to them."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from penrose_ray.cli.client import DEFAULT_STATE, StateOption
from penrose_ray.cli.given import SocksOption, hexadecimal
from penrose_ray.cli.keys import HsmOption, load_keys
from penrose_ray.cli.output import Format, FormatOption, print_rows, say
from penrose_ray.cli.passphrase import VariableOption
from penrose_ray.cli.trusted import SignerOption, trusted_task
from penrose_ray.draft import task_from
from penrose_ray.errors import ConfigError, TaskError, naming
from penrose_ray.policy import load_policy
from penrose_ray.release.tokens import key_ring
from penrose_ray.task import SignedTask, Task, sign, verify
from penrose_ray.toml_file import TomlFile
from penrose_ray.types import TaskId

app = typer.Typer(no_args_is_help=True, help="Draft, sign, fetch and read tasks.")
_LARGEST_TASK_BYTES = 1 << 20

DRAFT = """\
# A task's draft: `penrose task sign THIS --keys KEYFILE --out NAME.task` makes the task that clients get.
# Every value here is part of the task's id: a change is a new task.

[task]
name = "fleet"
demo = false
sampling_interval = 10_000      # S: one launch in S is measured
snippet_launches = 10_000       # L: launches of a snippet
samples_per_histogram = 10_000  # H
min_samples = 100               # a smaller histogram is carried over once, then dropped
min_contributors = 200          # k: honest contributors in every sum that is opened
reports_per_class = 1           # r: reports of a client a class, counter set and batch
tokens_per_day = 32             # c: tokens of a client
hostile_clients = 10            # m: enrolled clients assumed hostile
cover_rate = 0.1                # q: share of cover reports
rotation_s = 3600
batch_s = 86_400

[[task.counters]]
name = "duration"
unit = "ns"
source = "cupti"
vendors = ["nvidia"]
scale = "log"
low = 100.0
high = 1e9
"""


@app.command("new")
def new(path: Annotated[Path, typer.Argument(help="The draft to write.")]) -> None:
    """Write a commented draft with the values of a fleet.

    Example: penrose task new fleet.toml
    """
    try:
        with path.open("x") as file:
            file.write(DRAFT)
    except FileExistsError as error:
        raise ConfigError(
            f"{path} exists.", remedy="Choose another name; drafts are not overwritten."
        ) from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error}.", remedy="Choose another place.") from error
    say(f"{path} written; edit it, then sign it")


@app.command("sign")
def sign_draft(
    draft: Annotated[Path, typer.Argument(help="A TOML file with the table `task`.")],
    keys: Annotated[Path, typer.Option("--keys", help="The design server's key file.")],
    out: Annotated[Path, typer.Option("--out", help="The signed task to write.")],
    issuer: Annotated[
        Path | None, typer.Option("--issuer", help="The issuer's public keys, of penrose issuer new.")
    ] = None,
    service_key: Annotated[
        str, typer.Option("--service-key", help="Seal tags to this key: penrose keys service.")
    ] = "",
    passphrase_variable: VariableOption = "",
    hsm: HsmOption = "",
) -> None:
    """Check a draft, sign it with the design server's key and print the task's id.

    Example: penrose task sign fleet.toml --keys design_server.key --out fleet.task
    """
    secrets = load_keys(keys, passphrase_variable, hsm)
    task = task_from(TomlFile(draft), secrets.paillier.public_key)
    if issuer is not None:
        with naming(issuer):
            ring = key_ring(_read(issuer))
        task = msgspec.structs.replace(task, issuer_keys=ring.encode())
    elif task.tokens_per_day:
        say("warning: without --issuer no report of this task can be paid for, so none is taken")
    if service_key:
        task = msgspec.structs.replace(
            task, service_key=hexadecimal("--service-key", service_key, source="penrose keys service")
        )
    out.write_bytes(sign(task, secrets.signing).encode())
    say(f"{out} written; a change of the draft or of the key is a new task")
    typer.echo(task.task_id.hex())


@app.command("fetch")
def fetch(
    url: Annotated[str, typer.Argument(metavar="URL", help="GATEWAY/tasks/TASKID.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The signed task to write.")],
    signer: SignerOption = "",
    state: StateOption = DEFAULT_STATE,
    *,
    socks: SocksOption = "",
) -> None:
    """Fetch a task from a gateway, the way reports go there, and write it if the pinned signer signed it.

    Example: penrose task fetch http://10.0.0.7:8443/tasks/77ab... --signer 3f0c... --out fleet.task

    The service's operator tells the task's id; the design server's tells the signer, by another channel.
    """
    from penrose_ray.transport.route import route_to  # noqa: PLC0415 - numpy

    gateway, tasks, name = url.rstrip("/").rpartition("/tasks/")
    if not tasks:
        raise ConfigError(f"{url!r} names no task.", remedy="Write GATEWAY/tasks/TASKID.")
    task_id = TaskId(hexadecimal("the task's id", name, source="penrose task show"))
    route = route_to([gateway], task_id, state, socks=socks)
    try:
        raw = route.ways[0].task()
    finally:
        route.close()
    task = trusted_task(raw, signer)
    if task.task_id != task_id:
        raise TaskError(
            f"The gateway sent the task {task.task_id.hex()}.", remedy="Tell the service's operator."
        )
    out.write_bytes(raw)
    say(f"{out} written: {task.name}, signed by {'the pinned key' if signer else 'nobody who is pinned'}")


@app.command("show")
def show(
    path: Annotated[Path, typer.Argument(help="A signed task.")],
    policy: Annotated[
        Path | None, typer.Option("--policy", help="Check it against this policy.toml.")
    ] = None,
    signer: Annotated[
        str, typer.Option("--signer", help="The design server's pinned key, hexadecimal.")
    ] = "",
    form: FormatOption = Format.TABLE,
) -> None:
    """Verify a signed task and print what it asks for.

    Example: penrose task show fleet.task --policy policy.toml

    Exit code 13 when the signature or the signer is wrong, 14 when the policy refuses the task.
    """
    allowed = load_policy(policy) if policy is not None else None
    raw = _read(path)
    pinned = hexadecimal("--signer", signer, source="penrose keys show") if signer else None
    with naming(path):
        task = verify(raw, trusted_signer=pinned)
    signed = msgspec.msgpack.decode(raw, type=SignedTask)
    fields = _fields(task, signed.signer.hex())
    if form is Format.JSON:
        print_rows([fields], tuple(fields), form, "")
    else:
        print_rows(
            [{"field": name, "value": str(value)} for name, value in fields.items()],
            ("field", "value"),
            form,
            str(path),
        )
    if allowed is not None:
        allowed.check(task)
        say(f"{policy} allows this task")


def _fields(task: Task, signer: str) -> dict[str, object]:
    """The task as plain values, its id, signer and key first."""
    plain = msgspec.to_builtins(task, builtin_types=(bytes,))
    del plain["public_key"], plain["issuer_keys"]
    plain["identity_key"] = base64.b64encode(task.identity_key).decode()
    plain["counter_sets"] = [each.name for each in task.counter_sets]
    plain["service_key"] = task.service_key.hex()
    return {"task_id": task.task_id.hex(), "signer": signer, "key": task.key().fingerprint, **plain}


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST_TASK_BYTES)
    except OSError as error:
        raise TaskError(f"{path} cannot be read: {error.strerror}.", remedy="Check the path.") from error
