"""A client's way over Tor: a tor of its own or one that runs, and uploaders to onion services."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final, Self

from penrose_ray.transport.http import HttpUploader
from penrose_ray.transport.tor.address import check_onion
from penrose_ray.transport.tor.options import Profile, client_lines
from penrose_ray.transport.tor.process import BOOTSTRAP_TIMEOUT_S, TorProcess
from penrose_ray.transport.tor.socks import NoWayError, SocksDial, SocksPort

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence
    from pathlib import Path

    from penrose_ray.types import TaskId

UPLOAD_TIMEOUT_S: Final = 120.0
"""An upload that takes longer is given up and repeated over another circuit."""

FORGET_GAP_S: Final = 300.0
"""A descriptor more in so long, where no way is found."""


def onion_uploader(
    onion: str, task_id: TaskId, dial: SocksDial | OwnTor, *, timeout_s: float = UPLOAD_TIMEOUT_S
) -> HttpUploader:
    """Uploads to an onion service, a circuit a report.

    Raises:
        ConfigError: `onion` is no onion address.
    """
    return HttpUploader(f"http://{check_onion(onion)}", task_id, dial=dial, timeout_s=timeout_s)


class OwnTor:
    """A `Dial` through a tor that is started when first needed, and again when it has died.

    Args:
        home: tor's directory. Keep it: a client that loses it chooses new guards.
        profile: `paper` sets what the published system set, for comparison only.
        lines: more torrc lines, such as those of a private network.
        forget_gap_s: least time between two descriptors that are asked for because no way was found. A fleet
            whose service is down must not flood the directory relays, which keep its descriptor.
    """

    scheme = "http"

    def __init__(
        self,
        home: Path,
        *,
        profile: Profile = Profile.RECOMMENDED,
        lines: Sequence[str] = (),
        binary: str = "tor",
        start_timeout_s: float = BOOTSTRAP_TIMEOUT_S,
        forget_gap_s: float = FORGET_GAP_S,
    ) -> None:
        self._forget_gap_s = forget_gap_s
        self._forgot_at_s = -math.inf
        self._socks = home / "socks"
        self._dial = SocksDial(SocksPort(self._socks))
        self._start_timeout_s = start_timeout_s
        self._authorisations = home / "onion_auth"
        own = [*client_lines(self._socks, profile), f"ClientOnionAuthDir {self._authorisations}"]
        self.process = TorProcess(home, [*own, *lines], binary=binary)

    def connect(self, host: str, port: int, timeout_s: float) -> socket.socket:
        """A stream to the service.

        Where tor finds no way it is told to forget what it has learnt of services, once in a while. Else a
        directory relay that is gone would hold up all streams that wait for the descriptor, and introduction
        points that failed once would be passed over for two minutes.

        Raises:
            TorError: tor does not start, or has no circuit to the service.
        """
        self.start()
        try:
            return self._dial.connect(host, port, timeout_s)
        except NoWayError:
            self._forget()
            raise

    def start(self) -> None:
        """Start tor, unless it runs."""
        if self.process.pid is None:
            self._make_folders()
            self.process.start(self._start_timeout_s)

    def authorise(self, name: str, line: str) -> None:
        """Keep a key for one service, see `AuthorisationKey.client_line`; from now on it is used."""
        self._make_folders()
        path = self._authorisations / f"{name}.auth_private"
        path.touch(mode=0o600)
        path.write_text(line)
        self.process.signal("RELOAD")

    def stop(self) -> None:
        """End tor."""
        self.process.stop()

    def _forget(self) -> None:
        now_s = time.monotonic()
        if now_s - self._forgot_at_s >= self._forget_gap_s:
            self._forgot_at_s = now_s
            self.process.signal("NEWNYM")

    def _make_folders(self) -> None:
        for each in (self.process.home, self._authorisations):
            each.mkdir(parents=True, exist_ok=True, mode=0o700)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
