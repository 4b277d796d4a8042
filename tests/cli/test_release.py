"""The commands of the issuer, the release desk, the gatekeeper and of whoever checks them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from release.conftest import Parts
from transport.servers import certificate
from waiting import program

from penrose_ray.analyse.frames import open_release
from penrose_ray.clock import ManualClock
from penrose_ray.crypto.dealer import deal
from penrose_ray.crypto.key_share import write_share
from penrose_ray.crypto.keyfile import DesignKeys, write_keys
from penrose_ray.release.desk import Desk
from penrose_ray.release.handover import make
from penrose_ray.release.tokens import key_ring
from penrose_ray.task import sign, signer_of, verify
from penrose_ray.types import BatchId

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penrose_ray.task import Task

Call = "Callable[..., tuple[int, str, str]]"
BATCH = BatchId(7)


@pytest.fixture
def desk(tmp_path: Path, make_task: Callable[..., Task], design_keys: DesignKeys) -> Desk:
    task = make_task(min_contributors=5)
    (tmp_path / "a.task").write_bytes(sign(task, design_keys.signing).encode())
    parts = Parts(design_keys, task)
    clock = ManualClock(task.batch_s * (BATCH + 3.0))
    desk = Desk(tmp_path / "releases", task, clock, tmp_path / "ledger.key")
    many = [parts.one("a", 5), parts.one("rare", 2)]
    desk.release(BATCH, lambda: make(task, many, lambda _: "GPU", parts.encryptor))
    return desk


def test_a_client_checks_that_its_report_is_in_the_ledger(call: Call, tmp_path: Path, desk: Desk) -> None:
    members = msgspec.msgpack.decode(desk.members_path(BATCH).read_bytes(), type=list[list[bytes]])
    report = members[0][3].hex()
    code, proof, _ = call("release", "prove", tmp_path / "a.task", tmp_path / "releases", report)
    assert code == 0
    (tmp_path / "proof.json").write_text(proof)
    given = ("--signer", desk.signer.hex(), "--report", report, "--proof", tmp_path / "proof.json")
    code, out, err = call("verify", desk.ledger_path, *given, "--format", "json")
    assert (code, err) == (0, f"report {report[:16]} is in the ledger\n")
    rows = json.loads(out)
    assert [(row["kind"], row["reports"], row["withheld"]) for row in rows] == [
        ("head", 0, 0),
        ("release", 5, 1),
    ]
    assert call("verify", desk.ledger_path, "--proof", tmp_path / "proof.json")[0] == 10, "of which report?"
    other = members[0][0].hex()
    code, out, err = call("verify", desk.ledger_path, *given[:3], other, *given[4:])
    assert (code, out) == (65, "")
    assert "does not lead to the root" in err


def test_verify_finds_an_altered_a_foreign_and_a_cut_ledger(call: Call, tmp_path: Path, desk: Desk) -> None:
    code, out, _ = call("verify", desk.ledger_path, "--format", "json")
    head = json.loads(out)[-1]["hash"]
    assert call("verify", desk.ledger_path, "--head", head)[0] == 0
    design = signer_of((tmp_path / "a.task").read_bytes()).hex()
    for option in ("--ledger-signer", "--signer"):
        assert call("verify", desk.ledger_path, option, desk.signer.hex())[0] == 0
        code, _, err = call("verify", desk.ledger_path, option, design)
        said = f"not signed by the pinned {design}, but by {desk.signer.hex()}"
        assert (code, said in err, "the design server's" in err) == (65, True, True), err
    whole = desk.ledger_path.read_bytes()
    cut = tmp_path / "cut.ledger"
    cut.write_bytes(whole.splitlines(keepends=True)[0])
    assert call("verify", cut)[0] == 0
    code, _, err = call("verify", cut, "--head", head)
    assert code == 65
    assert "cut or rewritten" in err
    cut.write_bytes(whole[: len(whole) // 2])
    assert call("verify", cut)[0] == 65
    assert call("verify", tmp_path / "none")[0] == 10
    assert call("verify", desk.ledger_path, "--signer", "xyz")[0] == 10


def test_releases_are_listed_and_a_report_that_is_in_none_is_named(
    call: Call, tmp_path: Path, desk: Desk
) -> None:
    place = (tmp_path / "a.task", tmp_path / "releases")
    code, out, _ = call("release", "list", *place, "--format", "json")
    assert code == 0
    assert json.loads(out) == [{"batch": 7, "sums": 1, "reports": 5, "withheld_sums": 1, "epsilon": 0.0}]
    code, _, err = call("release", "prove", *place, "77" * 32)
    assert code == 65
    assert "in no release" in err
    assert desk.ledger_path.exists()


@pytest.mark.parametrize("form", ["table", "json", "csv"])
@pytest.mark.parametrize("ledger", ["none", "head"])
def test_a_list_before_the_first_release_is_empty(
    call: Call, tmp_path: Path, desk: Desk, ledger: str, form: str
) -> None:
    head = desk.ledger_path.read_bytes().splitlines(keepends=True)[0]
    if ledger == "none":
        desk.ledger_path.unlink()
    else:
        desk.ledger_path.write_bytes(head)
    place = (tmp_path / "a.task", tmp_path / "releases")
    code, out, err = call("release", "list", *place, "--format", form)
    assert (code, "nothing of this task is released yet" in err) == (0, True)
    if form == "json":
        assert json.loads(out) == []
    elif form == "csv":
        assert out == "batch,sums,reports,withheld_sums,epsilon\n"
    else:
        assert ("no ledger yet" if ledger == "none" else desk.signer.hex()) in out
    assert call("release", "prove", *place, "77" * 32)[0] == 65, "a proof of nothing is none"


@pytest.mark.parametrize("protected", [False, True])
def test_the_gatekeepers_command_answers_the_release_desk(
    call: Call,
    tmp_path: Path,
    desk: Desk,
    design_keys: DesignKeys,
    monkeypatch: pytest.MonkeyPatch,
    *,
    protected: bool,
) -> None:
    write_keys(tmp_path / "ds.key", design_keys, passphrase=None)
    deal = ["keys", "deal", tmp_path / "ds.key", "--out", tmp_path / "shares"]
    if protected:
        deal += ["--share-passphrase-variable", "SHARE"]
        monkeypatch.setenv("SHARE_1", "one")
        code, _, err = call(*deal)
        assert (code, "no variable SHARE_2" in err, (tmp_path / "shares").exists()) == (10, True, False)
        monkeypatch.setenv("SHARE_2", "two")
        monkeypatch.setenv("SHARE_3", "three")
    mine, theirs = (["--passphrase-variable", f"SHARE_{party}"] if protected else [] for party in (1, 2))
    assert call(*deal)[0] == 0
    command = [sys.executable, "-m", "penrose_ray.cli.app", "gatekeeper", tmp_path / "shares" / "share-2.key"]
    options = [tmp_path / "a.task", "--ledger-signer", desk.signer.hex(), "--port", "0"]
    pem, key = certificate(tmp_path, "keeper", hosts=("127.0.0.1",))
    store = ["--store", tmp_path / "keeper.sqlite", "--certificate", pem, "--key", key, *theirs]
    with program([*command, *options, *store], stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert said.startswith("listening on https://127.0.0.1:")
        url = said.split()[-1]
        place = (tmp_path / "a.task", tmp_path / "releases", "--batch", 7, "--gatekeeper", url)
        approve = ("release", "approve", *place, "--out", tmp_path / "partials")
        assert call(*approve)[0] == 45, "its certificate is nobody's here"
        assert not (tmp_path / "partials").exists()
        assert call(*approve, "--authorities", pem)[0] == 0
        process.terminate()
        assert process.wait(timeout=120) == 0
    task = verify((tmp_path / "a.task").read_bytes())
    shares = tmp_path / "shares"
    given = (
        tmp_path / "a.task",
        desk.releases.path(task.task_id, BATCH),
        "--partials",
        tmp_path / "partials",
    )
    out = ("--out", tmp_path / "r.parquet", "--format", "json")
    combine = ("release", "combine", *given, *out, "--share")
    if protected:
        code, _, err = call(*combine, shares / "share-1.key")
        assert (code, "share-1.key opens only with a passphrase" in err) == (32, True)
        assert "--passphrase-variable" in err
        code, _, err = call(*combine, shares / "share-1.key", *theirs)
        assert (code, "share-1.key: The key file does not open" in err) == (32, True)
    code, shown, _ = call(*combine, shares / "share-1.key", *mine)
    assert code == 0
    assert json.loads(shown) == [{"histograms": 1, "reports": 5, "discarded": 0}]
    frame = open_release(tmp_path / "r.parquet")
    assert len(frame) > 0
    code, shown, err = call(*combine, shares / "share-2.key", *theirs)
    assert (code, shown) == (36, "")
    assert "1 right partial decryptions of 2" in err


def test_the_design_server_s_command_opens_a_copy_once(
    call: Call, tmp_path: Path, desk: Desk, design_keys: DesignKeys
) -> None:
    write_keys(tmp_path / "ds.key", design_keys, passphrase=None)
    stranger = DesignKeys(design_keys.paillier, Ed25519PrivateKey.generate())
    write_keys(tmp_path / "stranger.key", stranger, passphrase=None)
    copy = shutil.copytree(tmp_path / "releases", tmp_path / "copy")
    papers = (
        "--task",
        tmp_path / "a.task",
        "--ledger-signer",
        desk.signer.hex(),
        "--out",
        tmp_path / "opened",
    )
    given = ("release", "open", copy, "--keys", tmp_path / "ds.key")
    assert call(*given)[0] == call(*given, *papers[:2])[0] == call(*given, *papers[2:])[0] == 10
    code, _, err = call(*given[:3], "--keys", tmp_path / "stranger.key", *papers)
    assert (code, "is signed by" in err) == (13, True)
    assert call(*given[:3], "--keys", tmp_path / "none.key", *papers)[0] == 30
    assert call(*given, *papers[:3], "00" * 32, *papers[4:])[0] == 71

    code, out, err = call(*given, *papers, "--format", "json")
    assert code == 0, err
    (row,) = json.loads(out)
    assert (row["histograms"], row["reports"], row["discarded"]) == (1, 5, 0)
    assert len(open_release(row["path"])) > 0
    (handover,) = copy.glob("*.handover")
    code, _, err = call("release", "open", handover, *given[3:], *papers)
    assert (code, "was opened before" in err) == (71, True)
    assert json.loads(call(*given, *papers, "--format", "json")[1]) == []


def test_an_issuer_is_set_up_and_its_keys_go_into_the_task(
    call: Call, tmp_path: Path, design_keys: DesignKeys
) -> None:
    public, state = tmp_path / "issuer.pub", tmp_path / "issuer.sqlite"
    assert call("issuer", "new", tmp_path / "issuer.key", "--out", public, "--days", 2)[0] == 0
    code, credential, _ = call("issuer", "enrol", state, "host-1")
    assert (code, len(credential.strip())) == (0, 64)
    assert call("issuer", "enrol", state, "host-1")[0] == 64
    assert json.loads(call("issuer", "list", state, "--format", "json")[1]) == [{"name": "host-1"}]
    assert call("issuer", "strike", state, "host-1")[0] == 0
    write_keys(tmp_path / "ds.key", design_keys, passphrase=None)
    call("task", "new", tmp_path / "t.toml")
    given = (tmp_path / "t.toml", "--keys", tmp_path / "ds.key", "--out", tmp_path / "t.task")
    assert call("task", "sign", *given, "--issuer", public)[0] == 0
    task = verify((tmp_path / "t.task").read_bytes())
    assert key_ring(task.issuer_keys) == key_ring(public.read_bytes())
    code, _, err = call("task", "sign", *given)
    assert code == 0
    assert "without --issuer" in err


def test_wrong_addresses_and_files_are_named(call: Call, tmp_path: Path, desk: Desk) -> None:
    place = (tmp_path / "a.task", tmp_path / "releases", "--batch", 7, "--out", tmp_path / "p")
    assert call("release", "approve", *place, "--gatekeeper", "keeper")[0] == 10
    assert call("release", "approve", *place, "--gatekeeper", "http://127.0.0.1:9")[0] == 40
    code, _, err = call("release", "approve", *place, "--gatekeeper", "http://10.0.0.9:8473")
    assert (code, "Plain http to the gatekeeper" in err, "--allow-plain-http" in err) == (10, True, True)
    for address in ("https://10.0.0.9:1", "http://127.0.0.1:9"):
        socks = ("--socks", "127.0.0.1:9050")
        code, _, err = call("release", "approve", *place, "--gatekeeper", address, *socks)
        assert (code, f"would not be used: {address}" in err) == (10, True), err
    assert call("release", "list", tmp_path / "a.task", tmp_path / "none")[0] == 10
    assert call("release", "list", tmp_path / "none.task", tmp_path)[0] == 13
    serve = ("release", "serve", tmp_path / "a.task", tmp_path / "releases", "--port", 0)
    code, _, err = call(*serve, "--certificate", tmp_path / "a.task")
    assert (code, "belong together" in err) == (10, True)
    assert call(*serve, "--certificate", tmp_path / "a.task", "--key", tmp_path / "a.task")[0] == 10
    assert call("gatekeeper", tmp_path / "s", tmp_path / "a.task", "--ledger-signer", "zz")[0] == 10
    assert call("verify", desk.ledger_path, "--report", "77")[0] == 10


def test_each_signing_key_in_the_other_s_place_is_told_which_one_is_meant(
    call: Call, tmp_path: Path, desk: Desk, design_keys: DesignKeys
) -> None:
    """A task is signed by the design server, a ledger by the service."""
    write_keys(tmp_path / "ds.key", design_keys, passphrase=None)
    write_share(
        tmp_path / "share.key", deal(design_keys.paillier, threshold=2, parties=2)[0], passphrase=None
    )
    task, design = tmp_path / "a.task", design_keys.signer.hex()
    for command in (
        ("gatekeeper", tmp_path / "share.key", task, "--port", 0),
        ("release", "open", tmp_path / "releases", "--keys", tmp_path / "ds.key", "--task", task),
    ):
        code, _, err = call(*command, "--ledger-signer", design)
        assert (code, f"{design} is the design server's key" in err) == (10, True), err
    code, _, err = call("release", "open", tmp_path / "s.toml", "--ledger-signer", desk.signer.hex())
    assert (code, "would not be used without --keys" in err) == (10, True), err
    code, _, err = call("task", "show", task, "--signer", desk.signer.hex())
    assert (code, "penrose release list print is the ledger's" in err) == (13, True), err
