"""The aggregation service's side: its gateway's port as onion services, through stem."""

from __future__ import annotations

import base64
import queue
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from penrose_ray.errors import ConfigError, TorError
from penrose_ray.transport.tor.address import check_onion
from penrose_ray.transport.tor.options import service_lines
from penrose_ray.transport.tor.process import BOOTSTRAP_TIMEOUT_S, TorProcess, has_pow, tor_binary

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penrose_ray.settings import TorSettings

_NAME: Final = re.compile(r"[\w-]{1,64}")
_SINGLE_HOP: Final = ["HiddenServiceSingleHopMode 1", "HiddenServiceNonAnonymousMode 1"]


@dataclass(frozen=True, slots=True)
class AuthorisationKey:
    """A key pair that lets a client find a service that is not for everybody (x25519, base32)."""

    private: str
    public: str

    @classmethod
    def generate(cls) -> AuthorisationKey:
        """A new pair."""
        key = X25519PrivateKey.generate()
        return cls(_base32(key.private_bytes_raw()), _base32(key.public_key().public_bytes_raw()))

    def client_line(self, onion: str) -> str:
        """What a client writes into a file `NAME.auth_private` of its tor's ClientOnionAuthDir."""
        return f"{check_onion(onion).removesuffix('.onion')}:descriptor:x25519:{self.private}\n"


class OnionService:
    """Onion services in front of one gateway; keys stay in `home`, so addresses outlive restarts.

    Args:
        home: tor's directory. tor makes it and the keys readable by their owner only (0700 and 0600).
        instances: how many addresses; clients spread over them.
        authorised: public keys of clients by name; empty lets everyone in who knows the address.
        single_hop: half the hops and latency, when the service's own location need not be hidden.
        lines: more torrc lines.
    """

    def __init__(
        self,
        home: Path,
        *,
        instances: int = 1,
        authorised: dict[str, str] | None = None,
        single_hop: bool = False,
        lines: Sequence[str] = (),
        start_timeout_s: float = BOOTSTRAP_TIMEOUT_S,
    ) -> None:
        if bad := [name for name in authorised or {} if not _NAME.fullmatch(name)]:
            raise ConfigError(f"{bad[0]!r} is no name of a client.", remedy="Use letters, digits, - and _.")
        self._has_pow = has_pow(tor_binary())
        self._homes = [home / f"service-{number}" for number in range(instances)]
        self._authorised = dict(authorised or {})
        self._start_timeout_s = start_timeout_s
        own = ["SocksPort 0", *(_SINGLE_HOP if single_hop else [])]
        self.process = TorProcess(home, [*own, *lines])

    @classmethod
    def from_settings(cls, settings: TorSettings) -> Self:
        """As configured; TorError when tor is missing."""
        return cls(
            settings.home.absolute(),
            instances=settings.instances,
            authorised=settings.authorised,
            single_hop=settings.single_hop,
            lines=settings.torrc,
            start_timeout_s=settings.start_timeout_s,
        )

    @property
    def addresses(self) -> tuple[str, ...]:
        """The onion host names, once it has started."""
        return tuple(check_onion((home / "hostname").read_text().strip()) for home in self._homes)

    def start(self, gateway_port: int) -> None:
        """Start tor, publish, and wait until each address is in the directory.

        Args:
            gateway_port: where the gateway listens on 127.0.0.1, now and after its restarts.

        Raises:
            TorError: tor is missing, does not start, or could not publish in time.
        """
        deadline = time.monotonic() + self._start_timeout_s
        self.process.start(self._start_timeout_s)
        try:
            uploaded: queue.SimpleQueue[str] = queue.SimpleQueue()
            self._listen(uploaded)
            self._configure(gateway_port)
            self._await_published(uploaded, deadline)
        except BaseException:
            self.stop()
            raise

    def _configure(self, gateway_port: int) -> None:
        """Once a start: a second time would give descriptors that clients have kept another seed of work."""
        from stem import ControllerError  # noqa: PLC0415 - an optional package

        self._write_authorised()
        lines = [
            line for home in self._homes for line in service_lines(home, gateway_port, has_pow=self._has_pow)
        ]
        pairs: list[tuple[str, ...]] = [tuple(line.split(" ", 1)) for line in lines]
        try:
            self.process.controller.set_options(pairs)
        except ControllerError as error:
            raise TorError(
                f"tor does not take the onion service: {error}.",
                remedy="Check tor's version: 0.4.7 or newer.",
            ) from error

    def stop(self) -> None:
        """End tor; the keys stay."""
        self.process.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _write_authorised(self) -> None:
        for home in self._homes:
            folder = home / "authorized_clients"
            for each in (home, folder):
                each.mkdir(exist_ok=True, mode=0o700)
            for old in folder.glob("*.auth"):
                old.unlink()
            for name, public in self._authorised.items():
                (folder / f"{name}.auth").write_text(f"descriptor:x25519:{public}\n")

    def _listen(self, uploaded: queue.SimpleQueue[str]) -> None:
        from stem.control import EventType  # noqa: PLC0415 - an optional package

        def heard(event: Any) -> None:  # noqa: ANN401 - stem has no types
            if event.action == "UPLOADED":
                uploaded.put(f"{event.address}.onion")

        self.process.controller.add_event_listener(heard, EventType.HS_DESC)

    def _await_published(self, uploaded: queue.SimpleQueue[str], deadline: float) -> None:
        missing = set(self.addresses)
        while missing:
            try:
                missing.discard(uploaded.get(timeout=max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                raise TorError(
                    f"{len(missing)} onion addresses were not published in time.",
                    remedy=f"Look into {self.process.home / 'log'}, and try again.",
                ) from None


def _base32(raw: bytes) -> str:
    return base64.b32encode(raw).decode().rstrip("=")
