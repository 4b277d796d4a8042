"""What a stranger does wrong: a sentence and its exit code, never a traceback, and nothing left behind."""

from __future__ import annotations

import errno
import re
import socket
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penrose_ray.aggregate import salvage
from penrose_ray.cli import app
from penrose_ray.cli.checks import service
from penrose_ray.cli.checks.machine import Status
from penrose_ray.cli.output import Format, print_rows
from penrose_ray.crypto.keyfile import write_keys
from penrose_ray.release.enrolment import Enrolment
from penrose_ray.release.points import Points
from penrose_ray.settings import ServiceSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from penrose_ray.crypto.keyfile import DesignKeys

    Call = Callable[..., tuple[int, str, str]]

STORES = ("issuer", "keyserver")
HASH = "0123456789abcdef" * 4


@pytest.mark.parametrize("party", STORES)
@pytest.mark.parametrize("command", [("list",), ("enrol", "one"), ("strike", "one")])
def test_what_is_no_store_is_refused_and_left_as_it_is(
    call: Call, tmp_path: Path, party: str, command: tuple[str, ...]
) -> None:
    garbage = tmp_path / "garbage"
    garbage.write_text("this is no store " * 500)
    for path in (garbage, tmp_path):
        code, _, err = call(party, command[0], path, *command[1:])
        assert code == 50, err
        assert str(path) in err
    assert garbage.read_text().startswith("this is no store")


@pytest.mark.parametrize("party", STORES)
def test_looking_makes_no_store(call: Call, tmp_path: Path, party: str) -> None:
    for command in (("list",), ("strike", "one")):
        missing = tmp_path / "typo" / "issuer.sqlite"
        code, _, err = call(party, command[0], missing, *command[1:])
        assert code == 10, err
        assert not missing.parent.exists()


def test_a_store_is_of_one_party(call: Call, tmp_path: Path) -> None:
    Points(tmp_path / "keyserver.sqlite", per_epoch=1).close()
    assert call("issuer", "list", tmp_path / "keyserver.sqlite")[0] == 10
    assert call("keyserver", "list", tmp_path / "keyserver.sqlite")[0] == 0


def test_a_store_that_cannot_be_written_leaves_no_empty_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penrose_ray.release.enrolment._TABLE", "CREATE TABLE broken (")
    path = tmp_path / "issuer.sqlite"
    with pytest.raises(Exception, match="cannot be used as the store"):
        Enrolment(path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ("issuer", "serve", "k", "s", "--port", "99999"),
        ("keyserver", "serve", "k", "s", "--port", "-1"),
        ("gatekeeper", "k", "t", "--ledger-signer", "00", "--port", "99999"),
        ("release", "serve", "t", "d", "--port", "99999"),
        ("keys", "new", "k", "--bits", "100"),
        ("keys", "new", "k", "--bits", "0"),
        ("keys", "new", "k", "--bits", "-5"),
        ("linkability", "--clients", str(10**26)),
    ],
)
def test_a_number_out_of_its_range_is_a_usage_error(call: Call, words: tuple[str, ...]) -> None:
    code, _, err = call(*words)
    assert code == 2, err
    assert "Invalid value for" in err


@pytest.mark.parametrize("option", ["--latency-s", "--spread-s", "--mean-gap-s", "--report-every-s"])
@pytest.mark.parametrize("value", ["nan", "inf"])
def test_linkability_takes_finite_numbers(call: Call, option: str, value: str) -> None:
    assert call("linkability", option, value)[0] == 10


def test_salvage_of_nothing_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (tmp_path / "missing", tmp_path):
        assert salvage.main([str(path)]) == 50
        assert str(path) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "Free the disk"),
        (OSError(errno.ENOSPC, "No space left", "/a/.key.0123456789abcdef"), "/a/key: No space left"),
        (OSError(errno.EISDIR, "Is a directory", "t"), "This is a directory"),
        (OSError(errno.EROFS, "Read-only file system", "t"), "read-only"),
        (socket.gaierror(-2, "Name or service not known"), "Check the host's name"),
        (PermissionError(errno.EACCES, "Permission denied", "t"), "t: Permission denied"),
    ],
)
def test_what_the_system_refuses_is_named_with_a_remedy_that_fits(
    error: OSError, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(**_: object) -> None:
        raise error

    monkeypatch.setattr(app, "_called", lambda: command)
    with pytest.raises(SystemExit) as ended:
        app.main()
    err = capsys.readouterr().err
    assert ended.value.code == 10
    assert said in err
    assert "a file:" not in err
    assert "0123456789abcdef" not in err


def test_keys_look_at_their_options_before_a_prime_is_sought(call: Call, tmp_path: Path) -> None:
    for more in (("--passphrase-variable", "UNSET_VARIABLE"), ("--hsm", "token")):
        code, _, err = call("keys", "new", tmp_path / "keys" / "new.key", *more)
        assert code == 10
        assert "candidates" not in err
        assert not (tmp_path / "keys").exists()


def test_a_remedy_can_be_pasted_into_a_shell(call: Call, tmp_path: Path, design_keys: DesignKeys) -> None:
    path = tmp_path / "my keys" / "design server.key"
    code, _, err = call("keys", "show", path)
    assert code == 30
    assert f"'{path}'" in err
    path.parent.mkdir()
    write_keys(path, design_keys, passphrase=None)
    path.chmod(0o644)
    code, _, err = call("keys", "show", path)
    assert code == 31
    assert f"chmod 600 '{path}'" in err


@pytest.mark.parametrize("columns", [1, 4])
def test_hashes_are_printed_whole_on_one_line(capsys: pytest.CaptureFixture[str], columns: int) -> None:
    names = [f"hash_{number}" for number in range(columns)]
    row = dict.fromkeys(names, HASH) | {"note": "words " * 60}
    print_rows([row], (*names, "note"), Format.TABLE, f"signed by {HASH}, " + "and so on " * 20 + HASH)
    lines = capsys.readouterr().out.splitlines()
    assert max(len(re.findall(HASH, line)) for line in lines) >= columns
    assert sum(len(re.findall(HASH, line)) for line in lines) == columns + 2


def test_a_key_is_shown_whole_in_a_pipe(call: Call, tmp_path: Path, design_keys: DesignKeys) -> None:
    write_keys(tmp_path / "design.key", design_keys, passphrase=None)
    code, out, _ = call("keys", "show", tmp_path / "design.key")
    assert code == 0
    assert design_keys.signing.public_key().public_bytes_raw().hex() in out
    assert design_keys.paillier.public_key.fingerprint in out


def test_an_option_that_would_not_be_used_is_refused(call: Call, tmp_path: Path) -> None:
    sample = Path(app.__file__).parents[1] / "capture" / "samples" / "sort.json.gz"
    for words in (
        ("inspect", sample, "--html", tmp_path / "page.html"),
        ("inspect", sample, "--region", "nope"),
        ("plan", "--gpus", 10, "--apps", 1, "--costs", tmp_path / "nowhere"),
    ):
        code, out, err = call(*words)
        assert (code, out) == (10, ""), err


def test_capture_of_cuda_programs_needs_a_driver(call: Call) -> None:
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("this machine has a driver")
    code, out, err = call("capture", "--source", "cuda", "--", "true")
    assert (code, out) == (21, ""), err


@pytest.mark.parametrize("words", [(), ("--signer", "00"), ("--signer", "")])
def test_a_ledger_that_is_not_there_is_no_evidence(
    call: Call, tmp_path: Path, words: tuple[str, ...]
) -> None:
    code, _, err = call("verify", tmp_path / "t.ledger", *words)
    assert code == 10
    assert "evidence" not in err


def test_a_missing_policy_is_said_before_anything_is_printed(call: Call, tmp_path: Path) -> None:
    code, out, _ = call("task", "show", tmp_path / "t.task", "--policy", tmp_path / "none.toml")
    assert (code, out) == (10, "")


def test_fewer_shards_at_most_than_at_least_are_refused() -> None:
    with pytest.raises(ValueError, match="most_shards 1 is less than shards 2"):
        ServiceSettings(state_dir=Path("s"), shards=2, most_shards=1)


def test_doctor_sees_journals_that_up_would_refuse(tmp_path: Path) -> None:
    path = tmp_path / "shard-0.sqlite"
    for version, status in ((99, Status.FAIL), (1, Status.OK)):
        with sqlite3.connect(path) as db:
            db.execute(f"PRAGMA user_version = {version}")
        db.close()
        assert service.journals(tmp_path, running=False).status is status
    (tmp_path / "directory.json").write_text("garbage")
    assert service.journals(tmp_path, running=False).status is Status.FAIL
