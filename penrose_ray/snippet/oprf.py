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

from penrose_ray.errors import SourceError, WrongKeyError
from penrose_ray.snippet.minhash import WHOLE, Signature
from penrose_ray.snippet.scheme import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

T = TypeVar("T")
MOST_POINTS = 65_535
"""Points of one request (RFC 9497, section 3.3.2)."""
POINT_BYTES = 32
_CONTEXT = b"penrose-ray oprf epoch v2\x00"
_CACHED = 65_536


@dataclass(frozen=True, slots=True)
class EpochKey:
    """The public key of an epoch, signed with the key server's long-lived Ed25519 key."""

    epoch: int
    ends_s: int
    """Unix time at which the epoch is over."""
    public_key: bytes
    signature: bytes

    @classmethod
    def signed(cls, epoch: int, ends_s: int, public_key: bytes, signing: Ed25519PrivateKey) -> EpochKey:
        """Sign it."""
        return cls(epoch, ends_s, public_key, signing.sign(_signed(epoch, ends_s, public_key)))

    def verify(self, server: bytes) -> None:
        """Raise WrongKeyError unless the key server `server` (Ed25519, 32 bytes) signed it."""
        try:
            signed = _signed(self.epoch, self.ends_s, self.public_key)
            Ed25519PublicKey.from_public_bytes(server).verify(self.signature, signed)
        except (InvalidSignature, ValueError) as error:
            raise WrongKeyError(
                f"The key of epoch {self.epoch} is not signed by the task's key server.",
                remedy="Do not use this key server; ask the design server's operator.",
            ) from error


def _signed(epoch: int, ends_s: int, public_key: bytes) -> bytes:
    return _CONTEXT + struct.pack(">QQ", epoch, ends_s) + public_key


class KeyServer(Protocol):
    """What a client asks of the key server."""

    def current(self) -> EpochKey:
        """The present epoch's key."""
        ...

    def evaluate(self, client: bytes, epoch: int, points: Sequence[bytes]) -> bytes:
        """Evaluate blinded points in one batch with one proof; `client` is its credential."""
        ...


class Oprf:
    """Identity mode `oprf`: asks the key server for values that it has not asked for in this epoch."""

    name_key = b""

    def __init__(self, server: KeyServer, server_key: bytes, client: bytes) -> None:
        """`server_key` is the key server's Ed25519 key from the task; `client` is its credential."""
        self._server = server
        self._server_key = server_key
        self._client = client
        self._epoch = -1
        self._known: OrderedDict[tuple[str, int, int], int] = OrderedDict()

    def shown(self, signature: Signature) -> Signature:
        """The signature with each value replaced by 31 bits of its pseudo-random one; the lowest bit stays.

        Raises:
            TransportError: the key server cannot be asked now.
            QuotaError: the client has spent its points of this epoch.
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
        voprf = library()
        clients, points = zip(*(voprf.Client.blind(_message(*each)) for each in missing), strict=True)
        answer = self._server.evaluate(self._client, epoch.epoch, [point.serialize() for point in points])
        outputs = guarded(lambda: self._unblinded(clients, answer, epoch), _not_its_key())
        for each, output in zip(missing, outputs, strict=True):
            random = int.from_bytes(hashlib.sha256(output).digest()[:4], "little")
            self._known[each] = random & ~WHOLE | each[2] & WHOLE

    @staticmethod
    def _unblinded(clients: Sequence[Any], answer: bytes, epoch: EpochKey) -> list[bytes]:
        voprf = library()
        batch = voprf.VerifiableBatchOutput.deserialize(answer)
        public = voprf.PublicKey.deserialize(epoch.public_key)
        return list(voprf.Client.finalize_batch(list(clients), batch, public))


def _message(scheme: str, function: int, value: int) -> bytes:
    return scheme.encode() + struct.pack(">BI", function, value)


def library() -> ModuleType:
    """Voprf's ristretto255-SHA512; SourceError where it is not installed."""
    try:
        from voprf import ristretto  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise SourceError(
            "The identity mode `oprf` needs the package voprf.", remedy="Run: pip install 'penrose-ray[oprf]'"
        ) from error
    return ristretto


def guarded(work: Callable[[], T], problem: Exception) -> T:
    """The library panics over bad input, which is no Exception."""
    try:
        return work()
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise problem from error
        raise


def _not_its_key() -> WrongKeyError:
    return WrongKeyError(
        "The key server's answer does not prove that its published key was used.",
        remedy="Do not use this key server: it could tell clients apart by their keys.",
    )
