"""`penrose keyserver` and the name key of `penrose issuer`: processes of their own, and what clients get."""

from __future__ import annotations

import base64
import hashlib
import json
import signal
import stat
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest
from e2e import fleet
from transport.servers import certificate
from waiting import program

from penrose_ray.actors.parties import HttpKeyServer, Party
from penrose_ray.clock import SystemClock
from penrose_ray.errors import QuotaError, TlsError
from penrose_ray.settings import LinkSettings
from penrose_ray.snippet import signature
from penrose_ray.snippet.key_server import EpochKeys
from penrose_ray.snippet.oprf import Oprf
from penrose_ray.transport.spool import Spool, spool_key
from penrose_ray.wire import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penrose_ray.crypto.keyfile import DesignKeys

    Call = Callable[..., tuple[int, str, str]]


@contextmanager
def process(*arguments: object) -> Iterator[str]:
    """A serving command in a process of its own: its address; SIGTERM must end it well."""
    command = [sys.executable, "-m", "penrose_ray.cli.app", *arguments, "--port", "0"]
    with program(command, stderr=subprocess.PIPE) as server:
        assert server.stderr is not None
        line = server.stderr.readline()
        assert "listening on " in line, line
        yield line.split("listening on ")[1].strip()
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=120) == 0


def test_a_key_server_serves_who_is_enrolled_and_keeps_count(call: Call, tmp_path: Path) -> None:
    pytest.importorskip("voprf.ristretto", reason="the extra `oprf` is not installed")
    key, state = tmp_path / "oprf.key", tmp_path / "keyserver.sqlite"
    code, printed, err = call("keyserver", "new", key)
    assert code == 0, err
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    public = base64.b64decode(printed)
    assert public == EpochKeys.read(key).public()
    credential = bytes.fromhex(call("keyserver", "enrol", state, "host-1")[1])
    assert call("keyserver", "enrol", state, "host-1")[0] == 64
    assert json.loads(call("keyserver", "list", state, "--format", "json")[1]) == [{"name": "host-1"}]
    known = signature(np.arange(200) % 20, [f"kernel_{n}" for n in range(20)], scheme_id="g8-plain-v1")
    other = signature(np.arange(200) % 21, [f"other_{n}" for n in range(21)], scheme_id="g8-plain-v1")

    pem, pem_key = certificate(tmp_path, "party", hosts=("127.0.0.1",))
    link = LinkSettings(authorities=pem)
    serve = ("keyserver", "serve", key, state, "--certificate", pem, "--key", pem_key, "--points-per-epoch")

    def client(url: str, credential: bytes = credential) -> Oprf:
        party = Party("key server", url, credential, link)
        return Oprf(HttpKeyServer(party, SystemClock()), public, credential)

    with process(*serve, 150) as url:
        assert url.startswith("https://127.0.0.1:")
        assert Party("key server", url, b"", link).ask("GET", "/health") == b'{"status": "ok"}'
        with pytest.raises(TlsError):
            Party("key server", url, credential).ask("GET", "/epoch")
        shown = client(url).shown(known)
        assert not (shown.values == known.values).any()
        with pytest.raises(QuotaError, match="not enrolled"):
            client(url, b"x" * 32).shown(other)
    with process(*serve, 150) as url, pytest.raises(QuotaError, match="an epoch are allowed"):
        client(url).shown(other)
    with process(*serve, 300) as url:
        assert client(url).shown(known).to_bytes() == shown.to_bytes()
    assert call("keyserver", "strike", state, "host-1")[0] == 0
    assert call("keyserver", "list", state, "--format", "json")[1].strip() == "[]"


def signatures_in(state: Path) -> set[bytes]:
    """Of the reports that wait in a client's spool."""
    found = set()
    with Spool(state / "spool.sqlite", spool_key(state / "spool.key")) as spool:
        while waiting := spool.first(0.0):
            found.add(decode(waiting.record).signature)
            spool.remove(waiting.number)
    return found


def test_a_client_gets_the_name_key_from_the_issuer(
    call: Call, tmp_path: Path, design_keys: DesignKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, state = tmp_path / "names.key", tmp_path / "issuer.sqlite"
    code, printed, err = call("issuer", "name-key", names)
    assert code == 0, err
    committed = base64.b64decode(printed)
    assert committed == hashlib.sha256(bytes.fromhex(names.read_text())).digest()
    assert call("issuer", "new", tmp_path / "issuer.key", "--out", tmp_path / "pub", "--days", 1)[0] == 0
    monkeypatch.setenv("CREDENTIAL", call("issuer", "enrol", state, "host-1")[1].strip())
    trace = tmp_path / "trace.json.gz"
    fleet.write_trace(trace, seed=3, rounds=1)
    signed = fleet.signed_task(
        design_keys, fleet.counters_of(trace), identity="keyed", identity_key=committed, cover_rate=0.0
    )
    (tmp_path / "fleet.task").write_bytes(signed.encode())
    (tmp_path / "policy.toml").write_text(
        "allow_demo = true\nleast_sampling_interval = 1\nleast_contributors = 1\nmax_overhead_percent = 100\n"
    )
    code, out, err = call("task", "show", tmp_path / "fleet.task", "--format", "json")
    assert json.loads(out)[0]["identity_key"] == printed.strip()
    run = [
        "client", "run", tmp_path / "fleet.task", "--gateway", "http://127.0.0.1:9",
        "--policy", tmp_path / "policy.toml", "--source", "trace", "--trace", trace,
        "--state",
    ]  # fmt: skip
    assert call(*run, tmp_path / "none")[0] == 10, "a keyed task, and no key"

    enrolment = tmp_path / "enrolment.toml"
    known = 'credential_variable = "CREDENTIAL"\n'
    pem, pem_key = certificate(tmp_path, "party", hosts=("127.0.0.1",))
    serve = ("issuer", "serve", tmp_path / "issuer.key", state, "--name-key", names)
    with process(*serve, "--certificate", pem, "--key", pem_key) as url:
        enrolment.write_text(f'issuer_url = "{url}"\n{known}[link]\nauthorities = "{pem}"\n')
        code, _, err = call(*run, tmp_path / "issued", "--enrolment", enrolment)
        enrolment.write_text(f'issuer_url = "{url}"\n{known}')
        unknown = call(*run, tmp_path / "none", "--enrolment", enrolment)[0]
        assert unknown == 45, "its certificate is nobody's here"
    assert code == 0, err
    enrolment.write_text(f'issuer_url = "http://10.0.0.9:8470"\n{known}')
    code, _, refused = call(*run, tmp_path / "none", "--enrolment", enrolment)
    assert (code, "Plain http to the issuer at 10.0.0.9" in refused) == (10, True)
    from_issuer = signatures_in(tmp_path / "issued")
    enrolment.write_text(f'name_key_file = "{names}"\n')
    code, _, err = call(*run, tmp_path / "filed", "--enrolment", enrolment)
    assert code == 0, err
    assert signatures_in(tmp_path / "filed") == from_issuer
    assert len(from_issuer) == 2
    code, out, err = call(*run, tmp_path / "dry", "--enrolment", enrolment, "--dry-run")
    assert code == 0, err
    assert {bytes.fromhex(json.loads(line)["signature"]) for line in out.splitlines()} == from_issuer
