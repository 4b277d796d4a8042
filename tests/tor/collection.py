"""A real gateway without Ray over a matcher and a shard on disk; it can be restarted, its sums opened."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import numpy as np
from e2e.one_shard import OneShard

from penrose_ray.actors.gateway import Gateway
from penrose_ray.actors.intake import Intake
from penrose_ray.actors.matcher import Matcher
from penrose_ray.aggregate.service import ShardService
from penrose_ray.clock import SystemClock
from penrose_ray.crypto.blinding import Encryptor
from penrose_ray.opening import open_sums
from penrose_ray.release.handover import build
from penrose_ray.seal import Contribution, Sealer
from penrose_ray.snippet.minhash import signature
from penrose_ray.task import sign, verify
from penrose_ray.wire import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from pathlib import Path
    from typing import Any

    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.settings import TlsSettings
    from penrose_ray.task import Task


class Backend(OneShard):
    """Its journals are on disk."""

    def __init__(self, home: Path, signed: bytes) -> None:
        self.shards: Sequence[str] = ["only"]
        self.matcher = Matcher(home / "classes.sqlite", signed)
        self.shard = ShardService(home / "shard.sqlite", verify(signed), SystemClock())


class Collection:
    """An aggregation service and the task that it collects for."""

    def __init__(
        self,
        home: Path,
        make_task: Callable[..., Task],
        keys: DesignKeys,
        port: int = 0,
        tls: TlsSettings | None = None,
    ) -> None:
        self._home = home
        self._keys = keys
        self.task = make_task(reports_per_class=0, cover_rate=0.0)
        self._signed = sign(self.task, keys.signing).encode()
        self._encryptor = Encryptor(self.task.key(), self.task.profile())
        self._sealer = Sealer(self.task, "Test GPU", self._encryptor)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.port = port
        self._tls = tls
        self.start()

    def start(self) -> None:
        """Open the journals and listen, at the same port each time."""
        self._backend = self._run(self._made())
        self._gateway = Gateway(Intake(self._signed, self._backend, most_reports=8), self._tls)
        self.port = self._run(self._gateway.start("127.0.0.1", self.port))

    def stop(self) -> None:
        """End the service; what it acknowledged is on disk."""
        self._run(self._gateway.stop())
        self._run(self._closed())

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def seal(self, number: int) -> bytes:
        """A report of 50 samples, in two neighbouring bins that `number` chooses."""
        names = [f"kernel_{n}" for n in range(20)]
        snippet = signature(np.arange(200) % 20, names, scheme_id=self.task.signature_scheme)
        contribution = Contribution(0, counts_of(number), real=True)
        return encode(self._sealer.seal(contribution, snippet, now_s=SystemClock().now_s()))

    @property
    def reports(self) -> int:
        """Distinct reports that were accepted."""
        return self._run(self._counted())

    def opened(self) -> np.ndarray:
        """The decrypted sum of everything."""
        return self._run(self._opened())

    async def _made(self) -> Backend:
        return Backend(self._home, self._signed)

    async def _closed(self) -> None:
        self._backend.shard.close()
        self._backend.matcher._journal.close()

    async def _counted(self) -> int:
        return self._backend.shard.counts().reports

    async def _opened(self) -> np.ndarray:
        shard = self._backend.shard
        models = {each.class_id: each.gpu_model for each in self._backend.matcher.classes()}
        total = np.zeros(128, np.int64)
        for each in shard.batches():
            shard.close_batch(each.batch)
            handover = build(self.task, shard.sums(each.batch), models.__getitem__, self._encryptor)
            opening = open_sums(self.task, handover.batch, handover.entries, self._keys.paillier)
            assert not opening.discarded
            total += sum(part.counts for part in opening.sums)
        return total

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - what the coroutine returns
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)


def counts_of(number: int) -> np.ndarray:
    """What report `number` holds in the clear."""
    counts = np.zeros(128, np.int64)
    counts[number % 127] = 30
    counts[number % 127 + 1] = 20
    return counts
