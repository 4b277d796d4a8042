"""What a client keeps on a host, who may run on it, and how all of it goes again."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from penrose_ray.capture.ring_source import remove_rings
from penrose_ray.errors import ConfigError, KeyPermissionError
from penrose_ray.transport.route import OWN_TOR, TLS, TLS_FILES, TORRC
from penrose_ray.transport.spool import kept

if TYPE_CHECKING:
    from collections.abc import Iterator

RINGS: Final = "rings"
_PID: Final = "client.pid"
_DATABASE_FILES: Final = ("", "-wal", "-shm", "-journal")
_POLL_S: Final = 0.1
_STOP_S: Final = 20.0
"""Until a client that was asked to end is killed, and as long until it is given up."""


class SwitchedOff(NamedTuple):
    """What became of a client."""

    ran: bool
    kept: tuple[str, ...]
    """Names in the directory that no client writes."""


class StateDirectory:
    """Everything that a client keeps on a host: rings, spool, key, notes; for its owner only."""

    def __init__(self, path: Path) -> None:
        """Make the directory, or check that nobody else can open it.

        Raises:
            KeyPermissionError: others may enter it.
            ConfigError: it is a file.
            SpoolError: it cannot be made.
        """
        with kept(path):
            try:
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            except (FileExistsError, NotADirectoryError) as error:
                raise ConfigError(f"{path} is no directory.", remedy="Choose another --state.") from error
        if path.stat().st_mode & 0o077:
            raise KeyPermissionError(
                f"{path} can be opened by others.",
                remedy=f"Run chmod 700 {shlex.quote(str(path))} or choose another --state.",
            )
        self.path = path
        self.rings = path / RINGS
        self.spool = path / "spool.sqlite"
        self.spool_key = path / "spool.key"
        self.sent = path / "sent.sqlite"
        self.tokens = path / "tokens.sqlite"
        self.watched = path / "client.source"
        """What the client watches, for `penrose client env`."""
        self._pid = path / _PID
        self._lock: int | None = None

    def lock(self) -> None:
        """Be the only client on this directory until `release`.

        Raises:
            ConfigError: another client runs.
            SpoolError: the lock cannot be written, as where the disk is full.
        """
        file = self._take()
        if file is None:
            raise ConfigError(
                f"Another client runs on {self.path}.",
                remedy=f"Stop it with penrose client off --state {shlex.quote(str(self.path))}.",
            )
        with kept(self._pid):
            os.ftruncate(file, 0)
            os.write(file, str(os.getpid()).encode())

    def note_watched(self, source: str) -> None:
        """Have `penrose client env` know what the client watches; raises SpoolError like `lock`."""
        with kept(self.watched):
            self.watched.write_text(source)

    def release(self) -> None:
        """Let another client run here."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def switch_off(self) -> SwitchedOff:
        """Stop the client that runs here and delete all that clients write; what else lies here stays.

        Raises:
            ConfigError: no client has used this directory, or the one that runs cannot be stopped.
        """
        if not any(each.exists() for each in (self._pid, self.rings, self.spool, self.spool_key, self.sent)):
            raise ConfigError(
                f"{self.path} holds no client's state; nothing was deleted.",
                remedy="Give the --state of penrose client run.",
            )
        ran = self._stop()
        try:
            remove_rings(self.rings)
            for path in self._written():
                _delete(path)
        finally:
            self.release()
        with contextlib.suppress(OSError):
            self.path.rmdir()
        kept = self.path.iterdir() if self.path.exists() else ()
        return SwitchedOff(ran, tuple(sorted(each.name for each in kept)))

    def _written(self) -> Iterator[Path]:
        """Every path beside the rings that a client may have written here, the lock last."""
        for database in (self.spool, self.sent, self.tokens):
            yield from (database.with_name(database.name + end) for end in _DATABASE_FILES)
        yield self.spool_key
        yield self.watched
        yield from self.path.glob(f".{self.spool_key.name}.*")
        yield from (self.path / TLS / name for name in TLS_FILES)
        yield from (self.path / name for name in (OWN_TOR, TORRC))
        with contextlib.suppress(OSError):  # missing, or it holds what is not ours
            (self.path / TLS).rmdir()
        yield self._pid

    def _stop(self) -> bool:
        """Take the lock, of a client that runs by ending it; returns whether one ran."""
        started_s = time.monotonic()
        asked: set[tuple[int, int]] = set()
        ran = False
        while self._take() is None:
            ran = True
            waited_s = time.monotonic() - started_s
            number = signal.SIGTERM if waited_s < _STOP_S else signal.SIGKILL
            pid = self._holder()
            if waited_s > 2 * _STOP_S:
                raise ConfigError(f"The client {pid or ''} does not end.", remedy="End it, then try again.")
            if pid is not None and (pid, number) not in asked:
                asked.add((pid, number))
                self._signal(pid, number)
            time.sleep(_POLL_S)
        return ran

    def _signal(self, pid: int, number: signal.Signals) -> None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass  # it has ended by itself
        except PermissionError as error:
            raise ConfigError(
                f"The client {pid} runs as another user.", remedy="Switch it off as that user, or as root."
            ) from error

    def _take(self) -> int | None:
        """Lock the directory; None when a client has it."""
        while True:
            with kept(self._pid):
                file = os.open(self._pid, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(file), self._pid.stat()):
                    self._lock = file
                    return file
            except BlockingIOError:
                os.close(file)
                return None
            except FileNotFoundError:
                pass  # switched off in between: lock the file that is there now
            os.close(file)

    def _holder(self) -> int | None:
        """Process that holds the lock; None while it has not written its number."""
        with contextlib.suppress(OSError, ValueError):
            pid = int(self._pid.read_text())
            held = self._pid.stat()
            for each in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if os.path.samestat(each.stat(), held):
                        return pid
        return None


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
