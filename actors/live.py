"""A client at work: a source, a thread that feeds it, and a thread that takes from it."""

from __future__ import annotations

import importlib
import threading
import time
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from penrose_ray.actors.attested import require_attested
from penrose_ray.actors.client import POLL_EVENTS, Client, ClientCounts
from penrose_ray.actors.identities import enrolled
from penrose_ray.capture.opencl import OpenCLSource
from penrose_ray.capture.replay import ReplaySource
from penrose_ray.clock import SystemClock
from penrose_ray.errors import ConfigError
from penrose_ray.policy import load_policy
from penrose_ray.task import verify
from penrose_ray.transport.http import HttpUploader, fetch_quote
from penrose_ray.transport.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from penrose_ray.settings import ClientSettings

PROGRAMS = ("train", "stencil", "sort")
BUNDLED_TRACE = "sort.json.gz"
_IDLE_S = 0.01
_DRAIN_S = 10.0


class Feed(Protocol):
    """What brings launches about."""

    def start(self) -> None:
        """Begin."""
        ...

    def pace(self) -> int:
        """How many launches may be taken now."""
        ...

    def stop(self) -> bool:
        """End; returns whether launches that happened are still to be taken."""
        ...


class _Program:
    """A GPU program in a thread of this process."""

    def __init__(self, source: OpenCLSource, name: str, seed: int) -> None:
        if name not in PROGRAMS:
            raise ConfigError(f"There is no program {name!r}.", remedy=f"Use one of {', '.join(PROGRAMS)}.")
        self._source = source
        self._run = importlib.import_module(f"penrose_ray.actors.programs.{name}").run
        self._seed = seed
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"program {name}", daemon=True)
        self.error: Exception | None = None

    def start(self) -> None:
        self._thread.start()

    def pace(self) -> int:
        if self.error:
            raise self.error
        return POLL_EVENTS

    def stop(self) -> bool:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._source.stop()
        return True

    def _work(self) -> None:
        try:
            self._run(self._stopping.is_set, seed=self._seed)
        except Exception as error:  # noqa: BLE001 - it reaches the client's thread, which raises it
            self.error = error


class _Paced:
    """A replay at a steady rate, or as fast as it goes."""

    def __init__(self, launches_per_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._rate = launches_per_s
        self._monotonic = monotonic
        self._started = 0.0
        self._granted = 0

    def start(self) -> None:
        self._started = self._monotonic()

    def pace(self) -> int:
        if not self._rate:
            return POLL_EVENTS
        due = int((self._monotonic() - self._started) * self._rate)
        grant = min(due - self._granted, POLL_EVENTS)
        self._granted += grant
        return grant

    def stop(self) -> bool:
        return False


class LiveClient:
    """Runs one client until told to stop. Its calls may come from any thread."""

    def __init__(
        self, settings: ClientSettings, policy_file: Path, gateway_url: str, signed_task: bytes, signer: bytes
    ) -> None:
        task = verify(signed_task, trusted_signer=signer)
        policy = load_policy(policy_file)
        require_attested(policy, task.task_id, lambda: fetch_quote(gateway_url, task.task_id))
        self._source, self._feed = _source(settings)
        clock = SystemClock()
        self._outbox = Outbox(HttpUploader(gateway_url, task.task_id), clock)
        self._source.open()
        self._enrolled = enrolled(task, settings, clock)
        self._client = Client(
            self._source,
            task,
            policy,
            self._outbox,
            clock=clock,
            rng=np.random.default_rng(),
            enrolled=self._enrolled,
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="client", daemon=True)
        self._error: Exception | None = None

    def start(self) -> None:
        """Begin; returns at once."""
        self._feed.start()
        self._thread.start()

    def counts(self) -> ClientCounts:
        """What has been done; raises what ended the client if something did."""
        if self._error:
            raise self._error
        return self._client.counts

    def wait(self) -> None:
        """Return when a replay has come to its end and is sent; a program has none."""
        self._thread.join()

    def stop(self) -> ClientCounts:
        """End the program, send what is due, and return the final counts."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._source.close()
        return self.counts()

    def _work(self) -> None:
        try:
            while not self._stopping.is_set() and not self._source.exhausted:
                self._enrolled.top_up()
                grant = self._feed.pace()
                if not grant or not self._client.step(grant):
                    self._stopping.wait(_IDLE_S)
            left = self._feed.stop()
            while left and not self._source.exhausted and self._client.step():
                pass
            self._client.finish()
            self._drain()
        except Exception as error:  # noqa: BLE001 - it reaches whoever asks for the counts
            self._error = error
            self._feed.stop()

    def _drain(self) -> None:
        deadline = time.monotonic() + _DRAIN_S
        while not self._outbox.flush() and time.monotonic() < deadline:
            time.sleep(_IDLE_S)


def _source(settings: ClientSettings) -> tuple[OpenCLSource | ReplaySource, Feed]:
    if settings.kind == "gpu":
        source = OpenCLSource()
        return source, _Program(source, settings.program, settings.seed)
    bundled = files("penrose_ray.capture") / "samples" / BUNDLED_TRACE
    path = Path(str(bundled)) if settings.trace == "bundled" else Path(settings.trace)
    return ReplaySource(path, repeat=settings.repeat), _Paced(settings.launches_per_s)
