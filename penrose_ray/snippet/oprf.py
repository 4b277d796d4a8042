"""Signatures through a verifiable oblivious pseudo-random function (RFC 9497, mode VOPRF, ristretto255).

Each MinHash value goes blinded to a key server apart from the aggregation service and comes back as a
pseudo-random value. Equal values stay equal, so similarities do not change; without the key server nobody
can compute the signature of a program that he can run. A proof shows that all clients are served under one
key. Keys last an epoch; classes start empty in each.
"""

from __future__ import annotations

import hashlib
import struct
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from penrose_ray.errors import SourceError, TransportError, WireError, WrongKeyError
from penrose_ray.snippet.minhash import Signature
from penrose_ray.snippet.scheme import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from penrose_ray.clock import Clock

T = TypeVar("T")
MOST_POINTS = 65_535
"""Points of one request (RFC 9497, section 3.3.2)."""
_POINT_BYTES = 32
_CONTEXT = b"penrose-ray oprf epoch v1\x00"
_CACHED = 65_536


@dataclass(frozen=True, slots=True)
class EpochKey:
    """The public key of an epoch, signed with the key server's long-lived Ed25519 key."""

    epoch: int
    public_key: bytes
    signature: bytes

    def verify(self, server: bytes) -> None:
        """Raise WrongKeyError unless the key server `server` (Ed25519, 32 bytes) signed it."""
        try:
            Ed25519PublicKey.from_public_bytes(server).verify(self.signature, self._signed())
        except (InvalidSignature, ValueError) as error:
            raise WrongKeyError(
                f"The key of epoch {self.epoch} is not signed by the task's key server.",
                remedy="Do not use this key server; ask the design server's operator.",
            ) from error

    def _signed(self) -> bytes:
        return _CONTEXT + struct.pack(">Q", self.epoch) + self.public_key


class KeyServer(Protocol):
    """What a client asks of the key server."""

    def current(self) -> EpochKey:
        """The present epoch's key."""
        ...

    def evaluate(self, client: bytes, epoch: int, points: Sequence[bytes]) -> bytes:
        """Evaluate blinded points in one batch with one proof."""
        ...


class LocalKeyServer:
    """The key server itself; who calls it (a process, a service) is not its business."""

    def __init__(
        self,
        seed: bytes,
        signing: Ed25519PrivateKey,
        clock: Clock,
        *,
        epoch_s: int = 86_400,
        most_points: int = 20_000,
    ) -> None:
        """Derive each epoch's key from `seed`, 32 secret bytes; a client gets `most_points` an epoch."""
        self._seed = seed
        self._signing = signing
        self._clock = clock
        self._epoch_s = epoch_s
        self._most_points = most_points
        self._epoch = -1
        self._spent: dict[bytes, int] = {}

    def current(self) -> EpochKey:
        """The present epoch's key."""
        epoch = int(self._clock.now_s() // self._epoch_s)
        unsigned = EpochKey(epoch, self._evaluator(epoch).public_key.serialize(), b"")
        return EpochKey(epoch, unsigned.public_key, self._signing.sign(unsigned._signed()))  # noqa: SLF001 - one module

    def evaluate(self, client: bytes, epoch: int, points: Sequence[bytes]) -> bytes:
        """Evaluate blinded points for an enrolled client.

        Raises:
            TransportError: the epoch is over, or the client has spent its points: keep the snippet.
            WireError: no points, too many, or something that is none.
        """
        present = int(self._clock.now_s() // self._epoch_s)
        if epoch != present:
            raise TransportError(f"Epoch {epoch} is not the present one.", remedy="Ask for the present key.")
        if not 0 < len(points) <= MOST_POINTS or any(len(point) != _POINT_BYTES for point in points):
            raise _no_points(len(points))
        if self._epoch != present:
            self._epoch, self._spent = present, {}
        spent = self._spent.get(client, 0) + len(points)
        if spent > self._most_points:
            raise TransportError(
                f"The client has asked for {spent} points, {self._most_points} an epoch are allowed.",
                remedy="Go on in the next epoch.",
            )
        self._spent[client] = spent
        library = _library()
        blinded = _guarded(
            lambda: [library.BlindedInput.deserialize(point) for point in points], _no_points(len(points))
        )
        return bytes(self._evaluator(epoch).evaluate_batch(blinded).serialize())

    def _evaluator(self, epoch: int) -> Any:  # noqa: ANN401 - the library has no types at run time
        return _library().Evaluator.from_seed(self._seed, _CONTEXT + struct.pack(">Q", epoch))


class Oprf:
    """Identity mode `oprf`: asks the key server for values that it has not asked for in this epoch."""

    name_key = b""

    def __init__(self, server: KeyServer, server_key: bytes, client: bytes) -> None:
        """`server_key` is the key server's Ed25519 key from the task; `client` names the enrolled client."""
        self._server = server
        self._server_key = server_key
        self._client = client
        self._epoch = -1
        self._known: OrderedDict[tuple[str, int, int], int] = OrderedDict()

    def shown(self, signature: Signature) -> Signature:
        """The signature with each value replaced by 32 bits of its pseudo-random one.

        Raises:
            TransportError: the key server cannot be asked now.
            WrongKeyError: the epoch's key or an evaluation is not the key server's.
        """
        epoch = self._server.current()
        epoch.verify(self._server_key)
        if epoch.epoch != self._epoch:
            self._epoch = epoch.epoch
            self._known.clear()
        wanted = [
            (signature.scheme, number % FUNCTIONS, value)
            for number, value in enumerate(signature.values.tolist())
        ]
        missing = [each for each in dict.fromkeys(wanted) if each not in self._known]
        if missing:
            self._ask(epoch, missing)
        shown = np.array([self._known[each] for each in wanted], np.uint32)
        for each in wanted:
            self._known.move_to_end(each)
        while len(self._known) > _CACHED:
            self._known.popitem(last=False)
        return Signature(signature.scheme, shown)

    def _ask(self, epoch: EpochKey, missing: list[tuple[str, int, int]]) -> None:
        library = _library()
        clients, points = zip(*(library.Client.blind(_message(*each)) for each in missing), strict=True)
        answer = self._server.evaluate(self._client, epoch.epoch, [point.serialize() for point in points])
        outputs = _guarded(lambda: self._unblinded(clients, answer, epoch), _not_its_key())
        for each, output in zip(missing, outputs, strict=True):
            self._known[each] = int.from_bytes(hashlib.sha256(output).digest()[:4], "little")

    @staticmethod
    def _unblinded(clients: Sequence[Any], answer: bytes, epoch: EpochKey) -> list[bytes]:
        library = _library()
        batch = library.VerifiableBatchOutput.deserialize(answer)
        public = library.PublicKey.deserialize(epoch.public_key)
        return list(library.Client.finalize_batch(list(clients), batch, public))


def _message(scheme: str, function: int, value: int) -> bytes:
    return scheme.encode() + struct.pack(">BI", function, value)


def _library() -> ModuleType:
    try:
        from voprf import ristretto  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise SourceError(
            "The identity mode `oprf` needs the package voprf.", remedy="Run: pip install 'penrose-ray[oprf]'"
        ) from error
    return ristretto


def _guarded(work: Callable[[], T], problem: Exception) -> T:
    """The library panics over bad input, which is no Exception."""
    try:
        return work()
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise problem from error
        raise


def _no_points(count: int) -> WireError:
    return WireError(
        f"These are not 1 to {MOST_POINTS} points of {_POINT_BYTES} bytes ({count} given).",
        remedy="Send blinded elements of ristretto255.",
    )


def _not_its_key() -> WrongKeyError:
    return WrongKeyError(
        "The key server's answer does not prove that its published key was used.",
        remedy="Do not use this key server: it could tell clients apart by their keys.",
    )
