"""A service with a TPM, sealed tags and a split key, as three parties run it: each step of it by command."""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pyarrow.parquet as pq
import pytest
from e2e import fleet, up
from ports import held_ports
from release.software_tpm import software_tpm
from transport.servers import certificate

from penrose_ray.crypto.dealer import deal
from penrose_ray.crypto.envelope import ServiceKey
from penrose_ray.crypto.key_share import write_share
from penrose_ray.release import attestation
from penrose_ray.release.attestation import PCRS, decode
from penrose_ray.release.ledger import ledger_key
from penrose_ray.task import sign, verify
from penrose_ray.transport.http import fetch_quote

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penrose_ray.crypto.keyfile import DesignKeys

pytestmark = pytest.mark.slow

CONFIG = """\
policy_file = "{home}/policy.toml"

[service]
shards = 1
state_dir = "{home}/state"
tpm = "{tcti}"

[design_server]
share_file = "{home}/share-1.key"
task_file = "{home}/split.task"
gatekeepers = ["{gatekeeper}"]
releases_dir = "{home}/releases"

[design_server.link]
authorities = "{home}/keeper.pem"
"""
POLICY = """\
allow_demo = true
least_sampling_interval = 1
least_contributors = 1
max_overhead_percent = 100
attestation_key = "{key}"
attestation_state = "{state}"
"""


def penrose(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penrose_ray.cli.app", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


class Parties(NamedTuple):
    home: Path
    tcti: str
    port: int
    """Where the gatekeeper listens while it is at work."""

    @contextlib.contextmanager
    def gatekeeper(self) -> Iterator[None]:
        """The third party at work."""
        signer = ledger_key(self.home / "state" / "keys" / "ledger.key").public_key().public_bytes_raw()
        options = [
            "--ledger-signer",
            signer.hex(),
            "--store",
            self.home / "keeper.sqlite",
            "--port",
            self.port,
        ]
        options += ["--certificate", self.home / "keeper.pem", "--key", self.home / "keeper.key"]
        command = ["gatekeeper", self.home / "share-2.key", self.home / "split.task", *options]
        with subprocess.Popen(
            [sys.executable, "-m", "penrose_ray.cli.app", *map(str, command)],
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                assert process.stderr is not None
                assert f"https://127.0.0.1:{self.port}" in process.stderr.readline()
                yield
            finally:
                process.terminate()

    def client(self, url: str) -> subprocess.CompletedProcess[str]:
        home = self.home
        return penrose(
            "client", "run", home / "split.task", "--gateway", url, "--policy", home / "policy.toml",
            "--source", "trace", "--trace", home / "trace.json.gz", "--state", home / "client",
            "--gap-s", "0",
        )  # fmt: skip


@pytest.fixture
def parties(tmp_path: Path, design_keys: DesignKeys) -> Iterator[Parties]:
    for share in deal(design_keys.paillier, threshold=2, parties=3)[:2]:
        write_share(tmp_path / f"share-{share.index}.key", share, passphrase=None)
    fleet.write_trace(tmp_path / "trace.json.gz", seed=3, rounds=2)
    key = ServiceKey.own(tmp_path / "state" / "keys" / "service.key")
    counters = fleet.counters_of(tmp_path / "trace.json.gz")
    task = verify(fleet.signed_task(design_keys, counters, batch_s=fleet.LONG_S).encode())
    signed = sign(msgspec.structs.replace(task, service_key=key.public), design_keys.signing)
    (tmp_path / "split.task").write_bytes(signed.encode())
    certificate(tmp_path, "keeper", hosts=("127.0.0.1",))
    (tmp_path / "tpm").mkdir()
    with software_tpm(tmp_path / "tpm") as tcti, held_ports(1) as (port,):
        yield Parties(tmp_path, tcti, port)


def test_no_upload_without_the_quote_and_no_opening_without_the_gatekeeper(parties: Parties) -> None:
    home = parties.home
    task = verify((home / "split.task").read_bytes())
    fresh = hashlib.sha256(bytes(32) * len(PCRS)).digest()
    key = attestation.quote(task.task_id, tcti=parties.tcti).key
    gatekeeper = f"https://127.0.0.1:{parties.port}"
    config = home / "service.toml"
    config.write_text(CONFIG.format(home=home, tcti=parties.tcti, gatekeeper=gatekeeper))
    (home / "policy.toml").write_text(POLICY.format(key=key.hex(), state="00" * 32))
    service = up.Service(config)
    try:
        assert decode(fetch_quote(service.url, task.task_id)).key == key
        refused = parties.client(service.url)
        assert refused.returncode == 69, refused.stderr
        assert "state is" in refused.stderr
        assert json.loads(penrose("release", "close", config, "--format", "json").stdout) == []

        (home / "policy.toml").write_text(POLICY.format(key=key.hex(), state=fresh.hex()))
        sent = parties.client(service.url)
        assert sent.returncode == 0, sent.stderr
        (closed,) = json.loads(penrose("release", "close", config, "--format", "json").stdout)
        assert closed["reports"] > 0

        alone = penrose("release", "open", config)
        assert alone.returncode == 40
        assert "is not there" in alone.stderr
        assert list((home / "releases").glob("*.parquet")) == []

        with parties.gatekeeper():
            together = penrose("release", "open", config, "--format", "json")
        (opened,) = json.loads(together.stdout)
        assert opened["reports"] == closed["reports"]
        assert sum(row["reports"] for row in pq.read_table(opened["path"]).to_pylist()) == closed["reports"]
        listed = penrose("release", "list", home / "split.task", home / "releases")
        assert listed.returncode == 0, listed.stderr
    finally:
        assert penrose("down", config).returncode == 0
        service.wait()
