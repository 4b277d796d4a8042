"""The issuer over HTTP with a client's purse, and what a client does when tokens run short."""

from __future__ import annotations

import http.client
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import msgspec
import numpy as np
import pytest
from e2e import fleet
from e2e.http_party import serving
from transport.servers import certificate

from penrose_ray.actors.client import Client, Enrolled
from penrose_ray.actors.issuer import application
from penrose_ray.actors.local_classes import LocalClass
from penrose_ray.actors.moments import Moments
from penrose_ray.actors.open_histograms import Due
from penrose_ray.actors.parties import IssuedNameKey, Party
from penrose_ray.actors.purse import Purse
from penrose_ray.capture.replay import ReplaySource
from penrose_ray.clock import ManualClock
from penrose_ray.errors import ConfigError, KeyMissingError, QuotaError, SpoolError, TransportError
from penrose_ray.histogram import Axis, CounterSet
from penrose_ray.policy import OwnerPolicy
from penrose_ray.release.issuing import Issuer, IssuerKeys
from penrose_ray.release.tokens import DAY_S, Verifier
from penrose_ray.seal import Contribution
from penrose_ray.settings import LinkSettings
from penrose_ray.transport.link import Link
from penrose_ray.transport.outbox import Outbox
from penrose_ray.transport.pace import asking_window_s
from penrose_ray.transport.tls import server_context
from penrose_ray.types import BatchId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penrose_ray.task import Task

DAY = 20_000
NAME_KEY = bytes(range(32))


class Running(NamedTuple):
    url: str
    issuer: Issuer
    clock: ManualClock
    task: Task

    def purse(self, credential: bytes, url: str = "", path: Path | None = None) -> Purse:
        return Purse(self.task, Party("issuer", url or self.url, credential), self.clock, path)


@pytest.fixture
def running(tmp_path: Path, make_task: Callable[..., Task]) -> Iterator[Running]:
    keys = IssuerKeys.generate(DAY, 2)
    task = make_task(tokens_per_day=4, hostile_clients=0, issuer_keys=keys.public().encode())
    clock = ManualClock(DAY * DAY_S + 50.0)
    issuer = Issuer(tmp_path / "issuer.sqlite", keys, tokens_per_day=4, clock=clock)
    with serving(application(issuer, name_key=NAME_KEY)) as url:
        yield Running(url, issuer, clock, task)
    issuer.close()


def test_a_purse_holds_the_tokens_of_the_day(running: Running) -> None:
    purse = running.purse(running.issuer.enrol("one"))
    purse.fill()
    purse.fill()
    assert (purse.left(DAY), purse.left(DAY + 1)) == (4, 0)
    verifier = Verifier(running.task.task_id, running.task.issuer_keys)
    assert len({verifier.check(purse.take(DAY), created_s=DAY * DAY_S) for _ in range(4)}) == 4
    assert purse.left(DAY) == 0
    running.clock.advance(DAY_S)
    purse.fill()
    assert purse.left(DAY + 1) == 4


def test_purses_ask_at_moments_of_their_own_the_same_after_a_restart(
    running: Running, tmp_path: Path
) -> None:
    """Within 6 h of midnight UTC where a batch is a day: each has its tokens from its own moment on."""
    running.clock.jump(-50.0)
    window_s = asking_window_s(running.task.batch_s, 1)
    assert window_s == 6 * 3600
    moments = [Moments(bytes([number]) * 32) for number in range(6)]
    at_s = [each.offset_s("tokens", DAY, window_s) for each in moments]
    parties = [Party("issuer", running.url, running.issuer.enrol(f"client {number}")) for number in range(6)]
    for now_s in [0.0, *sorted(at_s)]:
        running.clock.jump(DAY * DAY_S + now_s + 1e-3 - running.clock.now_s())
        held = []
        for number, party in enumerate(parties):
            path = tmp_path / f"{number}.sqlite"
            purse = Purse(running.task, party, running.clock, path, moments=moments[number])
            purse.top_up()
            held.append(purse.left(DAY))
            purse.close()
        assert held == [4 if moment <= now_s else 0 for moment in at_s]


def test_a_purse_that_cannot_wait_asks_early(running: Running) -> None:
    running.clock.jump(-50.0)
    party = Party("issuer", running.url, running.issuer.enrol("one"))
    purse = Purse(running.task, party, running.clock, moments=Moments(bytes(32)))
    purse.top_up()
    assert purse.left(DAY) == 0
    purse.top_up(early=True)
    assert purse.left(DAY) == 4


def test_a_stranger_and_a_second_purse_of_the_day_get_nothing(running: Running) -> None:
    with pytest.raises(QuotaError):
        running.purse(b"x" * 32).fill()
    credential = running.issuer.enrol("one")
    running.purse(credential).fill()
    second = running.purse(credential)
    with pytest.raises(QuotaError):
        second.fill()
    second.fill()
    assert second.left(DAY) == 0


def test_tokens_outlive_a_restart_in_a_private_file(running: Running, tmp_path: Path) -> None:
    path, credential = tmp_path / "state" / "tokens.sqlite", running.issuer.enrol("one")
    first = running.purse(credential, path=path)
    first.fill()
    spent = [first.take(DAY), first.take(DAY)]
    first.close()
    assert path.stat().st_mode & 0o777 == 0o600
    again = running.purse(credential, path=path)
    again.fill()
    spent += [again.take(DAY), again.take(DAY)]
    assert (again.left(DAY), len(set(spent))) == (0, 4)
    with pytest.raises(IndexError):
        again.take(DAY)
    again.close()
    for each in spent:
        assert each not in path.read_bytes(), "a spent token leaves no trace"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", ["ask", "fill", "take"])
def test_killed_at_any_write_no_token_is_lost_or_spent_twice(
    running: Running, tmp_path: Path, step: str, when: str
) -> None:
    credential = running.issuer.enrol("one")
    (tmp_path / "task").write_bytes(running.task.encode())
    program = Path(__file__).parents[1] / "release" / "crashing_purse.py"
    command = [sys.executable, program, tmp_path, running.url, credential.hex(), step, when]
    died = subprocess.run(command, check=False, timeout=300)
    assert died.returncode == 9
    purse = running.purse(credential, path=tmp_path / "tokens.sqlite")
    purse.fill()
    taken = (tmp_path / "taken").read_bytes() if (step, when) == ("take", "after") else None
    left = purse.left(DAY)
    assert left == (4 if taken is None else 3)
    verifier = Verifier(running.task.task_id, running.task.issuer_keys)
    ids = {verifier.check(purse.take(DAY), created_s=DAY * DAY_S) for _ in range(left)}
    assert len(ids) == left
    assert taken is None or verifier.check(taken, created_s=DAY * DAY_S) not in ids
    purse.close()


def test_a_damaged_file_of_tokens_is_named(running: Running, tmp_path: Path) -> None:
    (tmp_path / "tokens.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(SpoolError, match="cannot be used"):
        running.purse(b"", path=tmp_path / "tokens.sqlite")


def test_an_issuer_that_is_away_is_asked_again_after_a_pause(running: Running) -> None:
    purse = running.purse(running.issuer.enrol("one"), "http://127.0.0.1:9")
    with pytest.raises(TransportError):
        purse.fill()
    purse.fill()
    running.clock.advance(60)
    with pytest.raises(TransportError):
        purse.fill()


def test_an_issuer_that_does_not_prove_who_it_is_gets_nothing_and_the_log_says_so(
    running: Running, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    credential = running.issuer.enrol("one")
    pem, key = certificate(tmp_path, "issuer", hosts=("127.0.0.1",))
    with serving(application(running.issuer), server_context(pem, key)) as url:
        stranger = Purse(running.task, Party("issuer", url, credential), running.clock)
        stranger.top_up()
        assert stranger.left(DAY) == 0
        assert "does not prove who it is" in caplog.text
        known = Party("issuer", url, credential, LinkSettings(authorities=pem))
        purse = Purse(running.task, known, running.clock)
        purse.top_up()
        assert purse.left(DAY) == 4


def test_an_address_that_is_none_is_named(running: Running) -> None:
    with pytest.raises(ConfigError, match="no issuer's address"):
        running.purse(b"", "issuer")


def test_the_name_key_goes_to_enrolled_clients_only(running: Running) -> None:
    enrolled = Party("issuer", running.url, running.issuer.enrol("one"))
    assert IssuedNameKey(enrolled).name_key() == NAME_KEY
    with pytest.raises(QuotaError, match="not enrolled"):
        IssuedNameKey(Party("issuer", running.url, b"x" * 32)).name_key()
    running.issuer.strike("one")
    with pytest.raises(QuotaError, match="not enrolled"):
        IssuedNameKey(enrolled).name_key()


def test_refusals_are_problems_with_a_remedy_and_a_spent_quota_is_not_asked_for_soon(
    running: Running,
) -> None:
    credential = running.issuer.enrol("one")
    running.purse(credential).fill()
    host = urlsplit(running.url).netloc
    for path, body, code, status in (
        ("/tokens", msgspec.msgpack.encode([b"x" * 256]), "quota", 429),
        ("/tokens", b"?", "invalid-message", 400),
        ("/nothing", b"", "http", 404),
        ("/name-key", b"", "http", 405),
        ("/tokens", bytes(2 << 20), "http", 413),
        ("/tokens", msgspec.msgpack.encode([b""] * 1001), "too-large", 413),
    ):
        connection = http.client.HTTPConnection(host, timeout=30)
        connection.request("POST", path, body, {"Authorization": f"Bearer {credential.hex()}"})
        answer = connection.getresponse()
        problem = msgspec.json.decode(answer.read())
        connection.close()
        assert answer.headers.get_content_type() == "application/problem+json"
        assert (answer.status, problem["title"], bool(problem["remedy"])) == (status, code, True)
        assert "Retry-After" not in answer.headers


def test_what_goes_wrong_inside_is_no_business_of_who_asks(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    credential = running.issuer.enrol("one")
    running.issuer.close()
    answer = Link("issuer", running.url).ask("GET", "/name-key", b"", {"Authorization": credential.hex()})
    assert (answer.status, answer.problem.title) == (500, "internal")
    assert answer.problem.detail == "Something that was not foreseen."
    assert "closed database" in caplog.text


def test_an_issuer_without_a_name_key_says_so(running: Running) -> None:
    credential = running.issuer.enrol("one")
    with serving(application(running.issuer)) as url, pytest.raises(KeyMissingError):
        IssuedNameKey(Party("issuer", url, credential)).name_key()


def test_many_purses_at_once_get_their_tokens(running: Running) -> None:
    purses = [running.purse(running.issuer.enrol(f"client {number}")) for number in range(12)]
    with ThreadPoolExecutor(12) as pool:
        for done in [pool.submit(each.fill) for each in purses]:
            done.result()
    assert [each.left(DAY) for each in purses] == [4] * 12


class Coins:
    """Tokens without an issuer."""

    def __init__(self, count: int) -> None:
        self.count = count

    def top_up(self, *, early: bool = False) -> None:
        pass

    def left(self, _day: int) -> int:
        return self.count

    def take(self, _day: int) -> bytes:
        self.count -= 1
        return bytes([self.count])


class Nowhere:
    def send(self, record: bytes) -> None:
        pass


def client_with(task: Task, coins: Coins, rng: np.random.Generator, trace: Path) -> Client:
    source = ReplaySource(trace)
    source.open()
    clock = ManualClock(DAY * DAY_S + 50.0)
    policy = OwnerPolicy(allow_demo=True, least_sampling_interval=1, least_contributors=1)
    return Client(
        source, task, policy, Outbox(Nowhere(), clock), clock=clock, rng=rng, enrolled=Enrolled(coins)
    )


def test_short_of_tokens_reports_go_at_random_weighted_by_samples(
    running: Running, bundled_trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """30 samples against 10: the first to go is the large one in 3 of 4 cases, by Bernoulli's variance."""
    sets = tuple(
        CounterSet(each.name, (each,), (Axis("log", 1.0, 1e9),)) for each in fleet.counters_of(bundled_trace)
    )
    task = msgspec.structs.replace(
        running.task, counter_sets=sets, rotation=(tuple(each.name for each in sets),), cover_rate=0.0
    )
    client = client_with(task, Coins(0), np.random.default_rng(5), bundled_trace)
    counts = [np.bincount([0] * n, minlength=128).astype(np.int64) for n in (30, 10)]
    due = [
        Due(LocalClass("GPU", at), BatchId(DAY), Contribution(0, each, real=True))
        for at, each in enumerate(counts)
    ]
    rounds = 4000
    first = sum(client._order(due)[0].local_class.number == 0 for _ in range(rounds)) / rounds
    assert abs(first - 0.75) < 4 * (0.75 * 0.25 / rounds) ** 0.5
    sent: list[bool] = []
    monkeypatch.setattr(client, "_send", lambda *_: sent.append(True))
    client._seal(due)
    assert client.counts.without_token == 2, "both real reports had no token"


def test_a_task_with_tokens_needs_a_purse(running: Running, bundled_trace: Path) -> None:
    source = ReplaySource(bundled_trace)
    clock = ManualClock()
    policy = OwnerPolicy(allow_demo=True, least_sampling_interval=1, least_contributors=1)
    with pytest.raises(ConfigError, match="no issuer"):
        Client(
            source, running.task, policy, Outbox(Nowhere(), clock), clock=clock, rng=np.random.default_rng(1)
        )


@pytest.fixture(scope="session")
def bundled_trace() -> Path:
    return Path(str(files("penrose_ray.capture") / "samples" / "sort.json.gz"))
