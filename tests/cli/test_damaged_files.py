"""Files of keys and tasks that are cut off, altered or something else: each command names the file."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, NamedTuple

import pytest
from e2e import fleet

from penrose_ray.cli.task import DRAFT
from penrose_ray.clock import ManualClock
from penrose_ray.crypto.dealer import deal
from penrose_ray.crypto.envelope import ServiceKey
from penrose_ray.crypto.key_share import write_share
from penrose_ray.crypto.keyfile import write_keys
from penrose_ray.crypto.secretfile import (
    DESIGN_KEYS,
    ISSUER_KEYS,
    KEY_SERVER,
    KEY_SHARE,
    LEDGER_KEY,
    SERVICE_KEY,
    SPOOL_KEY,
    write_secret,
)
from penrose_ray.release.issuing import IssuerKeys
from penrose_ray.release.ledger import Facts, Ledger, ledger_key
from penrose_ray.snippet.key_server import EpochKeys
from penrose_ray.task import verify
from penrose_ray.transport.spool import spool_key

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from penrose_ray.crypto.keyfile import DesignKeys

    Call = Callable[..., tuple[int, str, str]]

ZEROS = "00" * 32
SENDING = "--gateway http://127.0.0.1:9 --trace t.json.gz"


class Use(NamedTuple):
    """A command and the file of it that is damaged."""

    command: str
    file: str
    kind: int | None = None
    """Of secret, whose body is also replaced by one that its reader does not expect."""


USES = [
    Use("keys show ds.key", "ds.key", DESIGN_KEYS),
    Use("keys fingerprint ds.key", "ds.key", DESIGN_KEYS),
    Use("keys rotate ds.key new.key", "ds.key", DESIGN_KEYS),
    Use("keys deal ds.key --out shares", "ds.key", DESIGN_KEYS),
    Use("keys service service.key", "service.key", SERVICE_KEY),
    Use("task sign draft.toml --keys ds.key --out new.task", "ds.key", DESIGN_KEYS),
    Use("task sign draft.toml --keys ds.key --issuer issuer.pub --out new.task", "issuer.pub"),
    Use("task show a.task", "a.task"),
    Use(f"client run a.task --state s --policy p.toml {SENDING}", "a.task"),
    Use(f"label run x a.task --receipt r {SENDING}", "a.task"),
    Use("release list a.task .", "a.task"),
    Use("release list a.task .", "TASK.ledger"),
    Use(f"release prove a.task . {ZEROS}", "a.task"),
    Use("release serve a.task . --port 0", "a.task"),
    Use("release approve a.task . --batch 1 --gatekeeper http://127.0.0.1:9 --out p", "a.task"),
    Use(f"release open . --keys ds.key --task a.task --ledger-signer {ZEROS}", "ds.key", DESIGN_KEYS),
    Use(f"release open . --keys ds.key --task a.task --ledger-signer {ZEROS}", "a.task"),
    Use("release combine a.task h --share share.key --partials h --out o", "a.task"),
    Use("release combine a.task h --share share.key --partials h --out o", "share.key", KEY_SHARE),
    Use(f"gatekeeper share.key a.task --ledger-signer {ZEROS} --port 0", "a.task"),
    Use(f"gatekeeper share.key a.task --ledger-signer {ZEROS} --port 0", "share.key", KEY_SHARE),
    Use("issuer serve issuer.key issuer.sqlite --port 0", "issuer.key", ISSUER_KEYS),
    Use("issuer serve issuer.key issuer.sqlite --name-key names.key --port 0", "names.key"),
    Use("keyserver serve oprf.key keyserver.sqlite --port 0", "oprf.key", KEY_SERVER),
    Use("verify TASK.ledger", "TASK.ledger"),
    Use("timeline TASK.ledger", "TASK.ledger"),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, design_keys: DesignKeys) -> dict[str, bytes]:
    """Content of each file, undamaged; TASK stands for the task's id."""
    home = tmp_path_factory.mktemp("whole")
    fleet.write_trace(home / "t.json.gz", seed=3, rounds=1)
    signed = fleet.signed_task(design_keys, fleet.counters_of(home / "t.json.gz")).encode()
    (home / "a.task").write_bytes(signed)
    (home / "draft.toml").write_text(DRAFT)
    (home / "p.toml").write_text(
        "allow_demo = true\nleast_sampling_interval = 1\nleast_contributors = 1\nmax_overhead_percent = 100\n"
    )
    (home / "h").write_bytes(b"no hand-over")
    write_keys(home / "ds.key", design_keys, passphrase=None)
    share = deal(design_keys.paillier, threshold=2, parties=2)[0]
    write_share(home / "share.key", share, passphrase=None)
    issuer = IssuerKeys.generate(0, 1)
    issuer.write(home / "issuer.key")
    (home / "issuer.pub").write_bytes(issuer.public().encode())
    (home / "names.key").write_text(ZEROS)
    EpochKeys.generate(0.0, epoch_s=3600).write(home / "oprf.key")
    ServiceKey.own(home / "service.key")
    task = verify(signed)
    ledger = Ledger(home / "TASK.ledger", task.task_id, ledger_key(home / "ledger.key"), ManualClock(1e9))
    ledger.append(Facts(kind="release", batch=1))
    return {each.name: each.read_bytes() for each in home.iterdir()}


@pytest.mark.parametrize("use", USES, ids=lambda use: f"{use.command} # {use.file}")
def test_a_damaged_file_is_named(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: dict[str, bytes], use: Use
) -> None:
    monkeypatch.chdir(tmp_path)
    task_id = verify(whole["a.task"]).task_id.hex()
    named = use.file.replace("TASK", task_id)
    raw = whole[use.file]
    middle = len(raw) // 2
    damages = {
        "cut": raw[:middle],
        "empty": b"",
        "head": raw[:20],
        "altered": raw[:middle] + bytes([raw[middle] ^ 1]) + raw[middle + 1 :],
        "garbage": b"no key\n" * 40,
    }
    if use.file.endswith(".ledger"):
        del damages["empty"]  # it is one without entries
    if use.file in {"names.key", "issuer.pub"}:
        del damages["altered"]  # they are other keys
    if use.command.startswith("timeline"):
        del damages["cut"], damages["head"]  # what a crash leaves: whole lines are read
    if use.kind is not None:
        damages["another body"] = b""
    for name, content in whole.items():
        path = tmp_path / name.replace("TASK", task_id)
        path.write_bytes(content)
        path.chmod(0o600)
    for damage, content in damages.items():
        path = tmp_path / named
        path.unlink()
        if use.kind is not None and damage == "another body":
            write_secret(path, use.kind, b"\1\2\3", passphrase=None, token=None)
        else:
            path.write_bytes(content)
            path.chmod(0o600)
        code, out, err = call(*shlex.split(use.command.replace("TASK", task_id)))
        assert code not in {0, 1, 2}, (damage, out, err)
        assert re.search(rf"error: .*{re.escape(named)}", err), (damage, err)
        assert "remedy: " in err


@pytest.mark.parametrize(("kind", "read"), [(LEDGER_KEY, ledger_key), (SPOOL_KEY, spool_key)])
def test_keys_that_a_service_and_a_client_read_are_named(
    tmp_path: Path, kind: int, read: Callable[[Path], Ed25519PrivateKey | bytes]
) -> None:
    path = tmp_path / "own.key"
    write_secret(path, kind, b"short", passphrase=None, token=None)
    with pytest.raises(Exception, match=r"own\.key is damaged"):
        read(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Exception, match=r"own\.key: The key file is damaged"):
        read(path)
