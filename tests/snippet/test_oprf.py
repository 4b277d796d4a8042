from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from penrose_ray.clock import ManualClock
from penrose_ray.errors import QuotaError, TransportError, WireError, WrongKeyError
from penrose_ray.snippet import Signature, signature
from penrose_ray.snippet.key_server import EpochKeys, LocalKeyServer
from penrose_ray.snippet.oprf import EpochKey, Oprf
from penrose_ray.snippet.scheme import DEFAULT_SCHEME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

ristretto = pytest.importorskip("voprf.ristretto", reason="the extra `oprf` is not installed")

SIGNING = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PINNED = SIGNING.public_key().public_bytes_raw()
SCHEME = "g8-plain-v1"
DAY_S = 86_400


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


class Quota:
    """So many points a client and epoch; who asks is not checked."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.spent: Counter[tuple[bytes, int]] = Counter()

    def spend(self, credential: bytes, epoch: int, points: int) -> None:
        if self.spent[credential, epoch] + points > self.most:
            raise QuotaError("no points left", remedy="wait")
        self.spent[credential, epoch] += points


def server_of(clock: ManualClock, secret: bytes = b"s" * 32, points: int = 450) -> LocalKeyServer:
    keys = EpochKeys(int(clock.now_s() // DAY_S), secret, SIGNING, epoch_s=DAY_S)
    return LocalKeyServer(keys, Quota(points), clock, keep=lambda _: None)


@pytest.fixture
def server(clock: ManualClock) -> LocalKeyServer:
    return server_of(clock)


Make = Callable[[str], list[Signature]]


@pytest.fixture
def make(program: Callable[..., NDArray[np.int64]], names: list[str]) -> Make:
    """A program, the same with a third of another one, and the other one, in a scheme."""
    first, second = program(1, 900), program(2, 900)
    mixed = np.concatenate((first, second[:120]))
    return lambda scheme: [signature(ids, names, scheme_id=scheme) for ids in (first, mixed, second)]


@pytest.fixture
def made(make: Make) -> list[Signature]:
    return make(SCHEME)


class Counting:
    """A key server that is watched, and may answer wrongly."""

    def __init__(self, inner: LocalKeyServer, forge: Callable[[bytes], bytes] = bytes) -> None:
        self.inner, self.forge = inner, forge
        self.points: list[bytes] = []

    def current(self) -> EpochKey:
        return self.inner.current()

    def evaluate(self, client: bytes, epoch: int, points: Sequence[bytes]) -> bytes:
        self.points += points
        return self.forge(self.inner.evaluate(client, epoch, points))


@pytest.mark.parametrize("scheme", [SCHEME, DEFAULT_SCHEME])
def test_similarities_are_what_they_were(clock: ManualClock, make: Make, scheme: str) -> None:
    made = make(scheme)
    identity = Oprf(server_of(clock, points=2_000), PINNED, b"client")

    shown = [identity.shown(each) for each in made]

    for first in range(3):
        assert not (shown[first].values == made[first].values).any()
        for second in range(3):
            assert shown[first].jaccard(shown[second]) == made[first].jaccard(made[second])


def test_clients_agree_and_the_server_sees_different_points(
    server: LocalKeyServer, made: list[Signature]
) -> None:
    watched = [Counting(server), Counting(server)]

    shown = [
        Oprf(each, PINNED, name).shown(made[0]) for each, name in zip(watched, (b"a", b"b"), strict=True)
    ]

    assert shown[0].to_bytes() == shown[1].to_bytes()
    assert not set(watched[0].points) & set(watched[1].points)


def test_a_value_is_asked_for_once_an_epoch(
    server: LocalKeyServer, clock: ManualClock, made: list[Signature]
) -> None:
    watched = Counting(server)
    identity = Oprf(watched, PINNED, b"client")

    before = identity.shown(made[0])
    identity.shown(made[0])
    assert len(watched.points) == 100
    clock.advance(DAY_S)
    after = identity.shown(made[0])

    assert len(watched.points) == 200
    assert not (before.values == after.values).any(), "classes start empty in each epoch"


def test_a_client_has_so_many_points_an_epoch(
    server: LocalKeyServer, clock: ManualClock, program: Callable[..., NDArray[np.int64]], names: list[str]
) -> None:
    identity = Oprf(server, PINNED, b"greedy")
    programs = [signature(program(seed, 900), names, scheme_id=SCHEME) for seed in range(6)]
    for each in programs[:4]:
        identity.shown(each)

    with pytest.raises(QuotaError):
        identity.shown(programs[4])
    identity.shown(programs[0])
    Oprf(server, PINNED, b"modest").shown(programs[4])
    clock.advance(DAY_S)
    identity.shown(programs[4])


def test_an_epoch_key_of_another_server_is_refused(server: LocalKeyServer, made: list[Signature]) -> None:
    stranger = Ed25519PrivateKey.generate().public_key().public_bytes_raw()

    with pytest.raises(WrongKeyError, match="not signed by the task's key server"):
        Oprf(server, stranger, b"client").shown(made[0])
    with pytest.raises(WrongKeyError, match="not signed"):
        Oprf(server, b"short", b"client").shown(made[0])


def test_an_evaluation_under_another_key_is_refused(
    server: LocalKeyServer, clock: ManualClock, made: list[Signature]
) -> None:
    """A server that gave each client a key of its own could tell their signatures apart."""
    other = server_of(clock, b"o" * 32)

    class TwoFaced(Counting):
        def evaluate(self, client: bytes, epoch: int, points: Sequence[bytes]) -> bytes:
            return other.evaluate(client, epoch, points)

    with pytest.raises(WrongKeyError, match="does not prove"):
        Oprf(TwoFaced(server), PINNED, b"client").shown(made[0])


@pytest.mark.parametrize(
    "forge", [lambda _: b"", lambda raw: raw[:-1], lambda raw: raw[64:], lambda raw: bytes(len(raw))]
)
def test_a_damaged_answer_is_refused(
    server: LocalKeyServer, made: list[Signature], forge: Callable[[bytes], bytes]
) -> None:
    with pytest.raises(WrongKeyError, match="does not prove"):
        Oprf(Counting(server, forge), PINNED, b"client").shown(made[0])


@pytest.mark.parametrize("points", [[], [b"x" * 31], [b"\xff" * 32], [bytes(32)]])
def test_what_are_no_points_is_refused(server: LocalKeyServer, points: list[bytes]) -> None:
    with pytest.raises(WireError, match="points of 32 bytes"):
        server.evaluate(b"client", server.current().epoch, points)


def test_a_past_epoch_is_over(server: LocalKeyServer, clock: ManualClock) -> None:
    past = server.current().epoch
    clock.advance(DAY_S)

    with pytest.raises(TransportError, match="not the present one"):
        server.evaluate(b"client", past, [bytes(32)])


def test_the_library_computes_the_published_vector() -> None:
    """RFC 9497, appendix A.1.2 (ristretto255-SHA512, VOPRF mode): key pair and first output."""
    evaluator = ristretto.Evaluator.from_seed(b"\xa3" * 32, b"test key")

    assert evaluator.public_key.serialize().hex() == PUBLIC
    assert evaluator.evaluate_known_input(b"\x00").hex() == OUTPUT


PUBLIC = "c803e2cc6b05fc15064549b5920659ca4a77b2cca6f04f6b357009335476ad4e"
OUTPUT = (
    "b58cfbe118e0cb94d79b5fd6a6dafb98764dff49c14e1770b566e42402da1a7d"
    "a4d8527693914139caee5bd03903af43a491351d23b430948dd50cde10d32b3c"
)
