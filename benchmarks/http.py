"""HTTP intake end to end on this machine: gateway, matcher and two shards on Ray, and whoever sends.

Sealed reports (3,072 bits) are on disk when they are acknowledged. Senders hold keep-alive connections and
write prepared bytes; they take their share of the same cores. Two settings: one report a request, which real
clients send, and 100 a request. At half of the rate that one a request reached, requests are sent at fixed
times, and latency counts from the time at which a request was due.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import numpy as np

from benchmarks.harness import arguments, finish, service, significant
from penrose_ray.actors.gateway import NAME
from penrose_ray.actors.remote import ask
from penrose_ray.crypto.blinding import Encryptor
from penrose_ray.crypto.packing import BINS, Slots, pack
from penrose_ray.snippet.minhash import scheme
from penrose_ray.types import ReportId
from penrose_ray.wire import Report, encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penrose_ray.actors.topology import Topology
    from penrose_ray.task import Task

CONNECTIONS = 256
FEW_CONNECTIONS = 32
"""With many reports a request: more would be told that too much waits."""
CLASSES = 100
SINGLY, TOGETHER = 6_000, 30_000
"""Reports of a round with one, and with many a request."""
MANY = 100
CALM_S = 3.0
GATEWAYS = 2
_READY_S = 0.5
"""Until the first request is due: making thousands of them wait takes the sender a tenth of a second."""


def http_rounds(rounds: int) -> dict[str, object]:
    """Rates and latencies of one gateway and of `GATEWAYS`, by turns in one service; medians over rounds."""
    with service(shards=2, gateways=GATEWAYS) as topology:
        sender = Sender(topology.url, topology.task)
        found = {1: Rates(), GATEWAYS: Rates()}
        for _ in range(rounds + 1):
            for gateways, each in found.items():
                listen(topology, gateways)
                each.singly.append(sender.rate(SINGLY, 1))
                each.together.append(sender.rate(TOGETHER, MANY))
        half_load = statistics.median(found[1].singly[1:]) / 2
        for _ in range(rounds):
            for gateways, each in found.items():
                listen(topology, gateways)
                each.latencies_s += sender.latencies_s(half_load, CALM_S)
        listen(topology, 1)
        gateway_s = sender.gateway_s(ask(topology.gateways.handles[NAME].pid.remote()))
    one, several = found[1].figures("http_"), found[GATEWAYS].figures("http_gateways_")
    return {
        **one,
        "http_many": MANY,
        "http_half_load_per_s": significant(half_load),
        "http_gateway_per_s_core": significant(SINGLY / gateway_s),
        "http_gateways": GATEWAYS,
        **several,
    }


@dataclass
class Rates:
    """What was measured with some number of gateways; the first round warms up."""

    singly: list[float] = field(default_factory=list)
    together: list[float] = field(default_factory=list)
    latencies_s: list[float] = field(default_factory=list)

    def figures(self, prefix: str) -> dict[str, object]:
        """Medians, for JSON."""
        p50_s, p99_s = np.percentile(self.latencies_s, (50, 99))
        return {
            f"{prefix}reports_per_s": significant(statistics.median(self.singly[1:])),
            f"{prefix}many_reports_per_s": significant(statistics.median(self.together[1:])),
            f"{prefix}p50_ms": significant(float(p50_s) * 1e3),
            f"{prefix}p99_ms": significant(float(p99_s) * 1e3),
        }


def listen(topology: Topology, count: int) -> None:
    """Let so many of the gateways listen, and the others not."""
    handles = list(topology.gateways.handles.values())
    ask([each.stop.remote() for each in handles[count:]])
    if count == len(handles):
        topology.gateways.tend()


class Sender:
    """Makes requests of new reports and sends them."""

    def __init__(self, url: str, task: Task) -> None:
        self._task, self._place = task, urlsplit(url)
        encryptor = Encryptor(task.key(), task.profile(), exponent="short")
        bins = np.eye(BINS, dtype=np.int64) * task.samples_per_histogram
        self._blobs = encryptor.encrypt_many([pack(Slots(row, 0, 1), task.profile()) for row in bins])
        size = scheme(task.signature_scheme).size * 4
        self._signatures = [os.urandom(size) for _ in range(CLASSES)]

    def requests(self, reports: int, each: int) -> list[bytes]:
        """Whole HTTP requests of `each` new reports."""
        records = [self._record(number) for number in range(reports)]
        head = (
            f"POST /tasks/{self._task.task_id.hex()}/reports HTTP/1.1\r\nHost: {self._place.netloc}\r\n"
            f"Content-Type: application/octet-stream\r\nContent-Length: {each * len(records[0])}\r\n\r\n"
        ).encode()
        return [head + b"".join(records[at : at + each]) for at in range(0, reports, each)]

    def _record(self, number: int) -> bytes:
        report = Report(
            task_id=self._task.task_id,
            report_id=ReportId(os.urandom(32)),
            created_hour=int(time.time() // 3600),
            gpu_model="benchmark",
            scheme=self._task.signature_scheme,
            signature=self._signatures[number % CLASSES],
            counter_set=0,
            blob=self._blobs[number % BINS],
        )
        return encode(report)

    def rate(self, reports: int, each: int) -> float:
        """Reports a second when every connection sends its next request as soon as it has an answer."""
        requests = self.requests(reports, each)
        return reports / asyncio.run(self._as_fast_as_it_goes(requests, each))

    def gateway_s(self, pid: int) -> float:
        """CPU seconds that the gateway takes for a round of single reports."""
        before_s = _cpu_s(pid)
        self.rate(SINGLY, 1)
        return _cpu_s(pid) - before_s

    async def _as_fast_as_it_goes(self, requests: Sequence[bytes], each: int) -> float:
        count = CONNECTIONS if each == 1 else FEW_CONNECTIONS
        lines = [await Line.to(self._place.hostname, self._place.port) for _ in range(count)]
        waiting = iter(requests)

        async def work(line: Line) -> None:
            for request in waiting:
                await line.ask(request, each)

        start_s = time.perf_counter()
        await asyncio.gather(*(work(line) for line in lines))
        taken_s = time.perf_counter() - start_s
        for line in lines:
            line.transport.close()
        return taken_s

    def latencies_s(self, per_s: float, seconds: float) -> list[float]:
        """Seconds from when each request was due to its answer, at a steady rate."""
        return asyncio.run(self._at_fixed_times(self.requests(int(per_s * seconds), 1), per_s))

    async def _at_fixed_times(self, requests: Sequence[bytes], per_s: float) -> list[float]:
        free: asyncio.Queue[Line] = asyncio.Queue()
        for _ in range(CONNECTIONS):
            free.put_nowait(await Line.to(self._place.hostname, self._place.port))
        start_s = time.perf_counter() + _READY_S

        async def one(number: int, request: bytes) -> float:
            due_s = start_s + number / per_s
            await asyncio.sleep(due_s - time.perf_counter())
            line = await free.get()
            await line.ask(request, 1)
            free.put_nowait(line)
            return time.perf_counter() - due_s

        return await asyncio.gather(*(one(*each) for each in enumerate(requests)))


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass
class Line(asyncio.Protocol):
    """A keep-alive connection that takes one request at a time."""

    received: bytearray = field(default_factory=bytearray)

    @classmethod
    async def to(cls, host: str | None, port: int | None) -> Line:
        """Connect."""
        _, line = await asyncio.get_running_loop().create_connection(cls, host, port)
        return line

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """Hand the answer over once it is whole."""
        self.received += data
        head, found, body = bytes(self.received).partition(b"\r\n\r\n")
        if found and len(body) >= int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]):
            self.received.clear()
            self._answer.set_result(head[:12] + body)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let the asker know."""
        if not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("the gateway closed the connection"))

    async def ask(self, request: bytes, reports: int) -> None:
        """Send a request and wait until all its reports are acknowledged."""
        self._answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        answer = await self._answer
        if not answer.startswith(b"HTTP/1.1 200") or f'"accepted":{reports},'.encode() not in answer:
            raise RuntimeError(f"a request of {reports} reports was answered {answer!r}")


def main() -> None:
    """The last line is the JSON object."""
    options = arguments("HTTP intake end to end.")
    finish(http_rounds(min(options.rounds, 3)))


if __name__ == "__main__":
    main()
