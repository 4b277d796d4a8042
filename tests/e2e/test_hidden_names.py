"""Tasks that hide kernel names: from launches to classes and an opened release, and who holds the key."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from typing import TYPE_CHECKING

import numpy as np
import pytest
from e2e import fleet
from e2e.http_party import serving
from e2e.local_service import LocalService, assert_equal, local_service

from penrose_ray.actors import issuer as issuer_face
from penrose_ray.actors import keyserver as keyserver_face
from penrose_ray.actors.identities import enrolled
from penrose_ray.clock import ManualClock, SystemClock
from penrose_ray.errors import ConfigError, KeyMissingError, WrongKeyError
from penrose_ray.release.issuing import Issuer, IssuerKeys
from penrose_ray.release.points import Points
from penrose_ray.settings import EnrolmentSettings
from penrose_ray.snippet import signature
from penrose_ray.snippet.identity import write_name_key
from penrose_ray.snippet.key_server import EpochKeys, LocalKeyServer
from penrose_ray.task import verify

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penrose_ray.actors.client import Client
    from penrose_ray.clock import Clock
    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.snippet.minhash import Signature
    from penrose_ray.task import Task

CLIENTS = 3
NAME_KEY = secrets.token_bytes(32)


class Straight:
    """Into the intake, without a network."""

    def __init__(self, service: LocalService) -> None:
        self._intake = service.intake

    def send(self, record: bytes) -> None:
        (answer,) = asyncio.run(self._intake.take(record))
        assert answer.outcome.acknowledged, answer  # type: ignore[union-attr]


class NoService:
    """Reports that nobody waits for."""

    def send(self, record: bytes) -> None:
        pass


class Parties:
    """An issuer and a key server, each over HTTP, and the clients that they know."""

    def __init__(self, urls: tuple[str, str], issuer: Issuer, points: Points) -> None:
        self._urls, self._issuer, self._points = urls, issuer, points

    def enrol(self, name: str, monkeypatch: pytest.MonkeyPatch) -> EnrolmentSettings:
        monkeypatch.setenv(f"{name}_ISSUER", self._issuer.enrol(name).hex())
        monkeypatch.setenv(f"{name}_KEY_SERVER", self._points.enrol(name).hex())
        return EnrolmentSettings(
            issuer_url=self._urls[0],
            credential_variable=f"{name}_ISSUER",
            key_server_url=self._urls[1],
            key_server_credential_variable=f"{name}_KEY_SERVER",
        )


@pytest.fixture
def epoch_keys() -> EpochKeys:
    return EpochKeys.generate(SystemClock().now_s())


@pytest.fixture
def points_per_epoch() -> int:
    return 20_000


@pytest.fixture
def parties(tmp_path: Path, epoch_keys: EpochKeys, points_per_epoch: int) -> Iterator[Parties]:
    pytest.importorskip("voprf.ristretto", reason="the extra `oprf` is not installed")
    home = tmp_path / "parties"
    home.mkdir()
    issuer = Issuer(home / "issuer.sqlite", IssuerKeys(0, []), tokens_per_day=0, clock=SystemClock())
    points = Points(home / "points.sqlite", per_epoch=points_per_epoch)
    server = LocalKeyServer(epoch_keys, points, SystemClock(), keep=lambda _: None)
    with (
        serving(issuer_face.application(issuer, name_key=NAME_KEY)) as issuer_url,
        serving(keyserver_face.application(server, points)) as key_server_url,
    ):
        yield Parties((issuer_url, key_server_url), issuer, points)
    issuer.close()
    points.close()


def hidden_task(keys: DesignKeys, trace: Path, mode: str, epoch_keys: EpochKeys) -> bytes:
    known = {"keyed": hashlib.sha256(NAME_KEY).digest(), "oprf": epoch_keys.public()}[mode]
    counters = fleet.counters_of(trace)
    signed = fleet.signed_task(keys, counters, identity=mode, identity_key=known, batch_s=fleet.LONG_S)
    return signed.encode()


@pytest.fixture(params=["keyed", "oprf"])
def service(
    tmp_path: Path, design_keys: DesignKeys, epoch_keys: EpochKeys, request: pytest.FixtureRequest
) -> Iterator[LocalService]:
    fleet.write_trace(tmp_path / "trace", seed=1, rounds=2)
    home = tmp_path / "service"
    home.mkdir()
    with local_service(
        home, hidden_task(design_keys, tmp_path / "trace", request.param, epoch_keys)
    ) as running:
        yield running


def run(client: Client) -> None:
    fleet.play(client)


def plain_signatures(task: Task) -> list[Signature]:
    """What whoever knows the two programs, and no key, can compute."""
    found = []
    for names in ([f"gemm_{n}" for n in range(12)], [f"stencil_{n}" for n in range(15)]):
        ids = np.arange(fleet.SNIPPET) % len(names)
        found.append(signature(ids, names, scheme_id=task.signature_scheme))
    return found


def test_clients_meet_in_classes_that_nobody_without_a_key_can_look_up(
    tmp_path: Path,
    service: LocalService,
    parties: Parties,
    design_keys: DesignKeys,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = service.intake.task
    truth = fleet.Truth()
    for number in range(CLIENTS):
        trace = tmp_path / f"client-{number}"
        fleet.write_trace(trace, seed=number, rounds=2)
        own = enrolled(task, parties.enrol(f"CLIENT{number}", monkeypatch), SystemClock())
        client, _ = fleet.replay_client(
            trace, task, Straight(service), truth, clock=SystemClock(), seed=number, enrolled=own
        )
        run(client)
        assert client.counts.classes == 2
        assert client.counts.without_identity == 0

    handover = assert_equal(service, design_keys, truth)

    stored = [each.read_bytes() for each in (tmp_path / "service").iterdir() if each.is_file()]
    assert len(stored) >= 3, "the task, the classes and a shard's journal"
    assert len(service.backend.classes.classes()) == 2
    for known in plain_signatures(task):
        for shown, _ in truth.counts:
            assert known.jaccard(type(known).from_bytes(task.signature_scheme, shown)) < 0.1
    for place in (*stored, handover.encode()):
        for part in (NAME_KEY, NAME_KEY[:8], NAME_KEY[24:], NAME_KEY.hex().encode()):
            assert part not in place


@pytest.mark.parametrize("points_per_epoch", [500])
def test_a_client_without_points_drops_its_snippets_and_counts_them(
    tmp_path: Path,
    design_keys: DesignKeys,
    epoch_keys: EpochKeys,
    parties: Parties,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """500 points are enough for the first program and not for the second."""
    trace = tmp_path / "trace"
    fleet.write_trace(trace, seed=1, rounds=2)
    task = verify(hidden_task(design_keys, trace, "oprf", epoch_keys))
    own = enrolled(task, parties.enrol("POOR", monkeypatch), SystemClock())
    client, _ = fleet.replay_client(
        trace, task, NoService(), fleet.Truth(), clock=SystemClock(), seed=1, enrolled=own
    )
    run(client)

    assert client.counts.snippets == 4
    assert client.counts.classes == 1
    assert client.counts.without_identity == 4
    assert client.counts.dropped_samples > 0
    assert client.counts.reports > 0


def test_a_key_server_that_is_away_is_left_alone_for_a_while(
    tmp_path: Path, design_keys: DesignKeys, epoch_keys: EpochKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = tmp_path / "trace"
    fleet.write_trace(trace, seed=1, rounds=1)
    task = verify(hidden_task(design_keys, trace, "oprf", epoch_keys))
    monkeypatch.setenv("ALONE", "00" * 32)
    settings = EnrolmentSettings(key_server_url="http://127.0.0.1:9", key_server_credential_variable="ALONE")
    client, _ = fleet.replay_client(
        trace, task, NoService(), fleet.Truth(), clock=SystemClock(), seed=1,
        enrolled=enrolled(task, settings, SystemClock()),
    )  # fmt: skip
    run(client)

    assert client.counts.without_identity == 4
    assert client.counts.reports == 0


def test_a_name_key_comes_from_a_file_too_and_must_be_the_tasks(
    tmp_path: Path, design_keys: DesignKeys, epoch_keys: EpochKeys
) -> None:
    trace = tmp_path / "trace"
    fleet.write_trace(trace, seed=1, rounds=1)
    fields = verify(hidden_task(design_keys, trace, "keyed", epoch_keys))
    clock: Clock = ManualClock()
    key = write_name_key(tmp_path / "names.key")
    task = fleet.signed_task(
        design_keys, fleet.counters_of(trace), identity="keyed", identity_key=hashlib.sha256(key).digest()
    )
    settings = EnrolmentSettings(name_key_file=tmp_path / "names.key")

    assert enrolled(verify(task.encode()), settings, clock).identity.name_key == key
    with pytest.raises(WrongKeyError):
        enrolled(fields, settings, clock)
    with pytest.raises(ConfigError, match="cannot be written"):
        write_name_key(tmp_path / "names.key")
    with pytest.raises(KeyMissingError):
        enrolled(fields, EnrolmentSettings(name_key_file=tmp_path / "none"), clock)


@pytest.mark.parametrize("mode", ["keyed", "oprf"])
def test_a_client_without_its_parties_is_told_what_to_set(
    tmp_path: Path, design_keys: DesignKeys, epoch_keys: EpochKeys, mode: str
) -> None:
    trace = tmp_path / "trace"
    fleet.write_trace(trace, seed=1, rounds=1)
    task = verify(hidden_task(design_keys, trace, mode, epoch_keys))
    with pytest.raises(ConfigError, match="Set "):
        enrolled(task, EnrolmentSettings(), ManualClock())
    with pytest.raises(ConfigError, match=f"mode is '{mode}'"):
        fleet.replay_client(trace, task, NoService(), fleet.Truth(), clock=SystemClock(), seed=1)
