"""The gatekeeper: each sum once, only when everything agrees; without it nobody opens anything."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from e2e.http_party import serving
from e2e.service_config import settings_in
from release.conftest import Parts

from penrose_ray.actors.approvals import ask_gatekeeper, gatekeeper_at
from penrose_ray.actors.design_server import SharedDecryptor, SharedDesignServer
from penrose_ray.actors.gatekeeper import Gatekeeper, application
from penrose_ray.actors.topology import build
from penrose_ray.clock import ManualClock
from penrose_ray.crypto.dealer import deal
from penrose_ray.crypto.key_share import write_share
from penrose_ray.crypto.public_key import PublicKey
from penrose_ray.crypto.threshold import Partial
from penrose_ray.errors import ConfigError, GatekeeperError, KeyFormatError, ShareError, WrongKeyError
from penrose_ray.opening import open_sums
from penrose_ray.release import memory
from penrose_ray.release.approval import PartialsRequest
from penrose_ray.release.desk import Desk
from penrose_ray.release.handover import decode, make
from penrose_ray.release.ledger import Ledger, ledger_key, read_lines
from penrose_ray.release.rules import policy_hash
from penrose_ray.settings import DesignServerSettings, LinkSettings
from penrose_ray.task import sign
from penrose_ray.types import BatchId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penrose_ray.crypto.key_share import KeyShare
    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.task import Task

BATCH = BatchId(7)


@pytest.fixture(scope="module")
def shares(design_keys: DesignKeys) -> tuple[KeyShare, ...]:
    return deal(design_keys.paillier, threshold=2, parties=3)


class Setting(NamedTuple):
    home: Path
    task: Task
    desk: Desk
    keeper: Gatekeeper
    parts: Parts
    shares: tuple[KeyShare, ...]

    @property
    def request(self) -> PartialsRequest:
        return msgspec.msgpack.decode(self.desk.request(BATCH), type=PartialsRequest)

    def changed(self, **fields: object) -> bytes:
        return msgspec.structs.replace(self.request, **fields).encode()

    def decryptor(self, share: KeyShare, *partials: bytes) -> SharedDecryptor:
        return SharedDecryptor(share, decode(self.request.handover), partials)


@pytest.fixture
def setting(
    tmp_path: Path, make_task: Callable[..., Task], design_keys: DesignKeys, shares: tuple[KeyShare, ...]
) -> Iterator[Setting]:
    task = make_task(min_contributors=5)
    parts = Parts(design_keys, task)
    clock = ManualClock(task.batch_s * (BATCH + 3.0))
    desk = Desk(tmp_path / "desk", task, clock, tmp_path / "ledger.key")
    many = [parts.one("a", 5), parts.one("b", 4, 2), parts.one("rare", 3)]
    desk.release(BATCH, lambda: make(task, many, lambda _: "GPU", parts.encryptor))
    write_share(tmp_path / "share-2", shares[1], passphrase=None)
    keeper = Gatekeeper(tmp_path / "share-2", task, desk.signer, tmp_path / "keeper.sqlite")
    yield Setting(tmp_path, task, desk, keeper, parts, shares)
    keeper.close()


def test_design_server_and_gatekeeper_open_a_release_together(setting: Setting) -> None:
    handover = decode(setting.request.handover)
    answer = setting.keeper.answer(setting.desk.request(BATCH))
    opening = open_sums(setting.task, BATCH, handover.entries, setting.decryptor(setting.shares[0], answer))
    assert not opening.discarded
    found = {each.reports: (int(each.counts[3]) // 100, int(each.counts[90]) // 100) for each in opening.sums}
    assert found == {5: (5, 0), 6: (4, 2)}


def test_without_the_gatekeeper_the_design_server_opens_nothing(setting: Setting) -> None:
    handover = decode(setting.request.handover)
    for share in setting.shares[0], setting.shares[1]:
        with pytest.raises(ShareError, match="1 right partial decryptions of 2"):
            open_sums(setting.task, BATCH, handover.entries, setting.decryptor(share))
    with pytest.raises(ShareError, match="no gatekeeper's answer"):
        setting.decryptor(setting.shares[0], b"nonsense")


def test_a_wrong_share_is_named(setting: Setting) -> None:
    handover = decode(setting.request.handover)
    answer = msgspec.msgpack.decode(setting.keeper.answer(setting.desk.request(BATCH)), type=list[Partial])
    doubled = msgspec.structs.replace(answer[0], values=answer[0].values[::-1])
    wrong = msgspec.msgpack.encode([doubled, *answer[1:]])
    with pytest.raises(ShareError, match="party 2: its proof does not hold"):
        open_sums(setting.task, BATCH, handover.entries, setting.decryptor(setting.shares[0], wrong))
    swapped = msgspec.msgpack.encode(answer[::-1])
    with pytest.raises(ShareError, match="party 2"):
        open_sums(setting.task, BATCH, handover.entries, setting.decryptor(setting.shares[0], swapped))
    with pytest.raises(ShareError, match="1 of 2 sums"):
        setting.decryptor(setting.shares[0], msgspec.msgpack.encode(answer[:1]))


def test_a_repeat_gets_the_stored_bytes_even_after_a_restart(setting: Setting) -> None:
    first = setting.keeper.answer(setting.desk.request(BATCH))
    assert setting.keeper.answer(setting.desk.request(BATCH)) == first
    store = setting.home / "keeper.sqlite"
    again = Gatekeeper(setting.home / "share-2", setting.task, setting.desk.signer, store)
    assert again.answer(setting.desk.request(BATCH)) == first
    again.close()


def test_what_does_not_agree_is_refused_and_the_refusal_kept(setting: Setting) -> None:
    members = setting.request.members
    handover = decode(setting.request.handover)
    light = msgspec.structs.replace(handover.entries[0], weight=4)
    small = msgspec.structs.replace(handover, entries=(light, *handover.entries[1:]))
    other = msgspec.structs.replace(handover, entries=handover.entries[:1])
    moved = ((members[0][0][::-1], *members[0][1:]), *members[1:])
    requests = {
        "k = 5 honest contributors need 5": setting.changed(handover=small.encode()),
        "lacks its ids": setting.changed(members=members[:1]),
        "names [45] ids": setting.changed(members=(members[0][1:], *members[1:])),
        "stands twice": setting.changed(members=((members[0][1], *members[0][1:]), *members[1:])),
        "checksum": setting.changed(members=moved),
        "not the one in the ledger": setting.changed(handover=other.encode(), members=members[:1]),
        "has 0 releases": setting.changed(ledger=setting.request.ledger[:1]),
        "does not follow": setting.changed(ledger=setting.request.ledger[1:]),
        "not a hand-over": setting.changed(handover=b"\2x"),
        "The hand-over is refused": b"nonsense",
    }
    for reason, raw in requests.items():
        with pytest.raises(GatekeeperError, match=reason):
            setting.keeper.answer(raw)
    assert len(setting.keeper.refusals()) == len(requests)
    setting.keeper.answer(setting.desk.request(BATCH))


def test_only_the_last_refusals_are_kept_and_nobody_else_reads_them(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_MOST_REFUSALS", 3)
    for raw in (b"1", b"2", setting.changed(members=()), b"4", b"5"):
        with pytest.raises(GatekeeperError):
            setting.keeper.answer(raw)
    assert ["lacks its ids" in each for each in setting.keeper.refusals()] == [True, False, False]
    assert (setting.home / "keeper.sqlite").stat().st_mode & 0o777 == 0o600


def rewritten(setting: Setting, start: int, **facts: object) -> tuple[object, ...]:
    """A ledger of the right key whose release entry says something else."""
    path = setting.home / f"rewritten-{start}"
    key = ledger_key(setting.home / "ledger.key")
    clock = ManualClock(setting.task.batch_s * (BATCH + 3.0) + start)
    ledger = Ledger(path, setting.task.task_id, key, clock)
    truth = setting.request.ledger[-1].check().facts
    line = ledger.append(msgspec.structs.replace(truth, **facts))
    lines = tuple(read_lines(path.read_bytes()))
    assert lines[-1] == line
    return lines


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"reports": 12}, "counts other reports"),
        ({"policy_hash": b"p" * 32}, "rules are not the task's"),
        ({"noise_sigma": 9.0}, "noise is not the task's"),
        ({"ids_root": bytes(32)}, "root is of other ids"),
        ({"kind": "refused"}, "has 0 releases"),
    ],
)
def test_an_entry_that_says_something_else_is_refused(
    setting: Setting, facts: dict[str, object], reason: str
) -> None:
    with pytest.raises(GatekeeperError, match=reason):
        setting.keeper.answer(setting.changed(ledger=rewritten(setting, 1, **facts)))


def test_a_foreign_signature_a_fork_and_a_shorter_ledger_are_refused(setting: Setting) -> None:
    foreign = Ledger(
        setting.home / "foreign", setting.task.task_id, Ed25519PrivateKey.generate(), ManualClock(1e9)
    )
    foreign.append(setting.request.ledger[-1].check().facts)
    lines = tuple(read_lines(foreign.path.read_bytes()))
    with pytest.raises(GatekeeperError, match="not signed by the pinned"):
        setting.keeper.answer(setting.changed(ledger=lines))
    setting.keeper.answer(setting.desk.request(BATCH))
    with pytest.raises(GatekeeperError, match="forked at entry 0"):
        setting.keeper.answer(setting.changed(ledger=rewritten(setting, 2)))


def test_a_second_handover_of_a_batch_and_reused_reports_are_refused(setting: Setting) -> None:
    """The service signs for another version of a batch, and for a batch made of the last one's reports."""
    setting.keeper.answer(setting.desk.request(BATCH))
    key = ledger_key(setting.home / "ledger.key")
    clock = ManualClock(setting.task.batch_s * (BATCH + 4.0))
    ledger = Ledger(setting.desk.ledger_path, setting.task.task_id, key, clock)
    handover = decode(setting.request.handover)
    later = msgspec.structs.replace(handover, batch=BatchId(BATCH + 1))
    truth = setting.request.ledger[-1].check().facts
    assert truth.policy_hash == policy_hash(setting.task)
    ledger.append(
        msgspec.structs.replace(truth, batch=BATCH + 1, handover_hash=hashlib.sha256(later.encode()).digest())
    )
    with pytest.raises(GatekeeperError, match="was in another one"):
        setting.keeper.answer(setting.changed(handover=later.encode()))
    fresh = make(
        setting.task,
        [setting.parts.one("a", 5), setting.parts.one("b", 4, 2)],
        lambda _: "GPU",
        setting.parts.encryptor,
    )
    ledger.append(
        msgspec.structs.replace(truth, handover_hash=hashlib.sha256(fresh.handover.encode()).digest())
    )
    with pytest.raises(GatekeeperError, match="has 2 releases"):
        setting.keeper.answer(setting.changed(handover=fresh.handover.encode()))


def next_hard(n: int) -> int:
    """An odd number above n without small factors."""
    primes = [p for p in range(3, 65_536, 2) if all(p % d for d in range(3, int(p**0.5) + 1, 2))]
    return next(m for m in range(n + 2, n + 10_000, 2) if all(m % p for p in primes))


def test_a_share_of_another_key_is_refused(
    setting: Setting, design_keys: DesignKeys, make_task: Callable[..., Task], tmp_path: Path
) -> None:
    other = PublicKey(next_hard(int(design_keys.paillier.public_key.n)))
    task = msgspec.structs.replace(make_task(), public_key=other.to_bytes())
    with pytest.raises(WrongKeyError):
        Gatekeeper(tmp_path / "share-2", task, setting.desk.signer, tmp_path / "other.sqlite")


def test_a_design_server_s_share_opens_with_its_passphrase(
    setting: Setting, design_keys: DesignKeys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_share(tmp_path / "share-1", setting.shares[0], passphrase=b"secret")
    (tmp_path / "a.task").write_bytes(sign(setting.task, design_keys.signing).encode())
    settings = DesignServerSettings(
        share_file=tmp_path / "share-1",
        task_file=tmp_path / "a.task",
        gatekeepers=("http://127.0.0.1:1",),
        releases_dir=tmp_path,
        passphrase_variable="SHARE",  # noqa: S106 - the name of one
    )
    monkeypatch.setenv("SHARE", "wrong")
    with pytest.raises(KeyFormatError, match="share-1: The key file does not open"):
        SharedDesignServer(settings)
    monkeypatch.setenv("SHARE", "secret")
    assert SharedDesignServer(settings).signer() == design_keys.signer
    without = settings.model_copy(update={"passphrase_variable": ""})
    with pytest.raises(KeyFormatError, match="share-1 opens only with a passphrase"):
        SharedDesignServer(without)
    write_share(tmp_path / "plain", setting.shares[0], passphrase=None)
    plain = without.model_copy(update={"share_file": tmp_path / "plain"})
    assert SharedDesignServer(plain).signed_task() == (tmp_path / "a.task").read_bytes()


def test_it_answers_over_http(setting: Setting) -> None:
    with serving(application(setting.keeper)) as url:
        party, request = gatekeeper_at(url, LinkSettings()), setting.desk.request(BATCH)
        assert ask_gatekeeper(party, request) == setting.keeper.answer(request)
        with pytest.raises(GatekeeperError, match="It refused: The hand-over") as caught:
            ask_gatekeeper(party, b"nonsense")
        assert caught.value.remedy == "Send the request that the release desk made."
        answer = party.ask("POST", "/partials", b"nonsense")
        assert (answer.status, answer.problem.title) == (409, "gatekeeper")


def test_a_service_does_not_start_with_a_gatekeeper_it_could_not_ask_safely(
    tmp_path: Path, design_keys: DesignKeys
) -> None:
    settings, draft = settings_in(tmp_path, design_keys)
    gatekeepers = {"gatekeepers": ("http://10.0.0.9:8473",)}
    design_server = settings.design_server.model_copy(update=gatekeepers)
    with pytest.raises(ConfigError, match=r"Plain http to the gatekeeper at 10\.0\.0\.9"):
        build(settings.model_copy(update={"design_server": design_server}), draft)
