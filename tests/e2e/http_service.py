"""A gateway on its own event loop with a matcher and a shard in this process; the test says what they do."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
import time
from typing import TYPE_CHECKING, TypeVar

from e2e.one_shard import OneShard

from penrose_ray.actors.gateway import Gateway, Limits
from penrose_ray.actors.intake import Intake
from penrose_ray.actors.matcher import Matcher
from penrose_ray.aggregate.service import ShardService
from penrose_ray.clock import ManualClock
from penrose_ray.task import verify

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping
    from pathlib import Path

    from penrose_ray.actors.scraping import Scrapers
    from penrose_ray.telemetry import Snapshot

T = TypeVar("T")


class HttpService(OneShard):
    """Real HTTP, a real journal each, and a clock that the test moves."""

    def __init__(
        self, home: Path, signed: bytes, limits: Limits | None = None, scrapers: Scrapers | None = None
    ) -> None:
        self.task = verify(signed)
        self.clock = ManualClock(time.time())
        self.gone: list[str] = []
        self.asked = 0
        self.admitted = True
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.run(self._made(home, signed))
        intake = Intake(signed, self, most_reports=4, admits=lambda: self.admitted)
        self._gateway = Gateway(intake, parts=self, limits=limits, scrapers=scrapers)
        self.port = self.run(self._gateway.start("127.0.0.1", 0))

    async def _made(self, home: Path, signed: bytes) -> None:
        self.matcher = Matcher(home / "classes.sqlite", signed)
        self.shard = ShardService(home / "shard.sqlite", self.task, self.clock)

    def run(self, work: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def close(self) -> None:
        self.run(self._gateway.stop())
        self.run(self._closed())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _closed(self) -> None:
        self.shard.close()

    async def missing(self) -> list[str]:
        self.asked += 1
        return self.gone

    async def beside(self) -> list[str]:
        return ["gateway-1"]

    async def snapshots(self) -> Mapping[str, Snapshot | None]:
        self.asked += 1
        return {"shard-0": {"penrose_sums": {(): 3.0}}, "shard-1": None}

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, path, body, dict(headers or {}))
        answer = connection.getresponse()
        raw = answer.read()
        connection.close()
        return answer.status, dict(answer.headers), raw

    @property
    def reports(self) -> str:
        return f"/tasks/{self.task.task_id.hex()}/reports"

    def post(self, body: bytes) -> tuple[int, Mapping[str, str], dict[str, object]]:
        status, headers, raw = self.request("POST", self.reports, body)
        return status, headers, json.loads(raw)
