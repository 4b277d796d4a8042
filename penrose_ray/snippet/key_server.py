"""The key server of identity mode `oprf`: evaluates blinded points under the present epoch's key.

An epoch's secret is the hash of the one before. The server keeps the present one only, so that whoever takes
its key file can compute no signature of an epoch that is over.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from penrose_ray.crypto.secretfile import KEY_SERVER, body_of, read_secret, replace_secret, write_secret
from penrose_ray.errors import ClockError, TransportError, WireError
from penrose_ray.snippet.oprf import MOST_POINTS, POINT_BYTES, EpochKey, guarded, library

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from penrose_ray.clock import Clock

EPOCH_S: Final = 86_400
_SECRET_BYTES: Final = 32
_NEXT: Final = b"penrose-ray oprf next epoch v1\x00"
_KEY: Final = b"penrose-ray oprf epoch key v1\x00"


class EpochKeys:
    """The secret of an epoch, from which those of later epochs follow and no earlier one's."""

    def __init__(
        self, epoch: int, secret: bytes, signing: Ed25519PrivateKey, *, epoch_s: int = EPOCH_S
    ) -> None:
        self.epoch = epoch
        self.epoch_s = epoch_s
        self.signing = signing
        self._secret = secret

    @classmethod
    def generate(cls, now_s: float, *, epoch_s: int = EPOCH_S) -> EpochKeys:
        """New keys, the first epoch is the present one."""
        secret = secrets.token_bytes(_SECRET_BYTES)
        return cls(int(now_s // epoch_s), secret, Ed25519PrivateKey.generate(), epoch_s=epoch_s)

    def public(self) -> bytes:
        """The server's long-lived Ed25519 key, a task's `identity_key`."""
        return self.signing.public_key().public_bytes_raw()

    def advance(self, now_s: float) -> bool:
        """Go on to the epoch of `now_s`, and forget the one before; returns whether there was one to forget.

        Raises:
            ClockError: that epoch is over.
        """
        present = int(now_s // self.epoch_s)
        if present < self.epoch:
            raise ClockError(
                f"The clock says epoch {present}, the key of {self.epoch} was in use before.",
                remedy="Set the key server's clock.",
            )
        behind = present - self.epoch
        for _ in range(behind):
            self._secret = hashlib.sha256(_NEXT + self._secret).digest()
        self.epoch = present
        return bool(behind)

    def evaluator(self) -> Any:  # noqa: ANN401 - the library has no types at run time
        """The present epoch's key of RFC 9497."""
        return library().Evaluator.from_seed(self._secret, _KEY + self.epoch.to_bytes(8, "big"))

    def write(self, path: Path, *, passphrase: bytes | None = None, replace: bool = False) -> None:
        """Write a new key file, or replace the one that there is; see `secretfile`."""
        write = replace_secret if replace else write_secret
        body = msgspec.msgpack.encode(
            [self.epoch, self.epoch_s, self._secret, self.signing.private_bytes_raw()]
        )
        write(path, KEY_SERVER, body, passphrase=passphrase, token=None)

    @classmethod
    def read(cls, path: Path, *, passphrase: bytes | None = None) -> EpochKeys:
        """Read a key file; raises like `secretfile.read_secret`."""
        body = read_secret(path, KEY_SERVER, passphrase=passphrase, token=None)
        with body_of(path):
            epoch, epoch_s, secret, signing = msgspec.msgpack.decode(body, type=tuple[int, int, bytes, bytes])
            return cls(epoch, secret, Ed25519PrivateKey.from_private_bytes(signing), epoch_s=epoch_s)


class Quota(Protocol):
    """How many points a client may ask for."""

    def spend(self, credential: bytes, epoch: int, points: int) -> None:
        """Book points; QuotaError when they are too many or the client is unknown."""
        ...


class LocalKeyServer:
    """The key server itself; who calls it (a process, a service) is not its business. Any thread may."""

    def __init__(
        self, keys: EpochKeys, quota: Quota, clock: Clock, *, keep: Callable[[EpochKeys], object]
    ) -> None:
        """`keep` is called with the keys of each new epoch before they are used."""
        self._keys = keys
        self._quota = quota
        self._clock = clock
        self._keep = keep
        self._lock = threading.Lock()

    def current(self) -> EpochKey:
        """The present epoch's key; ClockError when the clock moved back."""
        with self._lock:
            self._advance()
            keys = self._keys
            public = keys.evaluator().public_key.serialize()
            return EpochKey.signed(keys.epoch, (keys.epoch + 1) * keys.epoch_s, public, keys.signing)

    def evaluate(self, client: bytes, epoch: int, points: Sequence[bytes]) -> bytes:
        """Evaluate blinded points for an enrolled client, given by its credential.

        Raises:
            TransportError: the epoch is not the present one.
            QuotaError: not enrolled, or the client has spent its points.
            WireError: no points, too many, or something that is none.
            ClockError: the clock moved back.
        """
        if not 0 < len(points) <= MOST_POINTS or any(len(point) != POINT_BYTES for point in points):
            raise _no_points(len(points))
        with self._lock:
            self._advance()
            if epoch != self._keys.epoch:
                raise TransportError(
                    f"Epoch {epoch} is not the present one.", remedy="Ask for the present key."
                )
            evaluator = self._keys.evaluator()
        kind = library().BlindedInput
        blinded = guarded(lambda: [kind.deserialize(point) for point in points], _no_points(len(points)))
        self._quota.spend(client, epoch, len(points))
        return bytes(evaluator.evaluate_batch(blinded).serialize())

    def _advance(self) -> None:
        if self._keys.advance(self._clock.now_s()):
            self._keep(self._keys)


def _no_points(count: int) -> WireError:
    return WireError(
        f"These are not 1 to {MOST_POINTS} points of {POINT_BYTES} bytes ({count} given).",
        remedy="Send blinded elements of ristretto255.",
    )
