"""Uploads to a real gateway: directly, and over fresh circuits of a private Tor network on 127.0.0.1."""

from __future__ import annotations

import socket
import statistics
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from pyhpke import AEADId, CipherSuite, KDFId, KEMId

from benchmarks.harness import Contender, arguments, finish, frozen_keys, significant, take_turns
from penrose_ray.crypto.envelope import ServiceKey, seal
from penrose_ray.errors import TransportError
from penrose_ray.histogram import Axis, Counter, CounterSet
from penrose_ray.task import Task
from penrose_ray.transport.http import HttpUploader
from penrose_ray.transport.tor.client import OwnTor, onion_uploader
from penrose_ray.transport.tor.service import OnionService
from penrose_ray.wire import RECORD_BYTES

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # the private network and the gateway are those of the tests

from ports import held_ports  # noqa: E402
from tor.collection import Collection  # noqa: E402
from tor.network import PORTS, TorNetwork, missing  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

    from penrose_ray.crypto.keyfile import DesignKeys

UPLOADS = 40
PARALLEL = 16
PARALLEL_UPLOADS = 160
TRIES = 5
TIMEOUT_S = 20.0
TAG_BYTES, TAG_RUNS = 2048, 200
"""About what is left for tags in a record, and how often they are sealed a turn."""
TOR_KEYS = (
    "tor_median_ms",
    "tor_p90_ms",
    "uploads_per_s_per_tor",
    "cpu_ms_per_upload",
    "cpu_ms_per_upload_both_ends_python",
    "repeated_uploads",
)


class Scale:
    """A `Dial` to a service in this process that weighs what it gets."""

    scheme = "http"

    def __init__(self) -> None:
        self.size_bytes = 0

    def connect(self, _host: str, _port: int, _timeout_s: float) -> socket.socket:
        """One end of a pair; the other end answers 200 when the body is there."""
        mine, other = socket.socketpair()
        threading.Thread(target=self._weigh, args=(other,)).start()
        return mine

    def _weigh(self, other: socket.socket) -> None:
        with other:
            got = b""
            while len(got) - (got.find(b"\r\n\r\n") + 4) < RECORD_BYTES:
                got += other.recv(65_536)
            self.size_bytes = len(got)
            other.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


def make_task(design_keys: DesignKeys) -> Callable[..., Task]:
    """A small demo task."""
    counter = Counter("duration", "ns", "opencl", "any")
    duration = CounterSet("duration", (counter,), (Axis("log", 100.0, 1e9),))
    fields = {
        "name": "benchmark",
        "demo": True,
        "public_key": design_keys.paillier.public_key.to_bytes(),
        "counter_sets": (duration,),
        "rotation": (("duration",),),
        "samples_per_histogram": 100,
        "min_samples": 10,
        "min_contributors": 2,
        "tokens_per_day": 0,
    }
    return lambda **changed: Task(**{**fields, **changed})  # type: ignore[arg-type]


def deliver(send: Callable[[bytes], None], record: bytes) -> tuple[float, int]:
    """Seconds until acknowledged, repeats included, and the number of repeats."""
    start = time.perf_counter()
    for tried in range(TRIES):
        try:
            send(record)
            return time.perf_counter() - start, tried
        except TransportError:
            if tried == TRIES - 1:
                raise
    raise AssertionError


def in_turn(senders: dict[str, Callable[[bytes], None]], collection: Collection) -> dict[str, list[float]]:
    """Seconds of each upload; the ways take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in senders}
    for number in range(UPLOADS):
        for name, send in senders.items():
            seconds[name].append(deliver(send, collection.seal(number))[0])
    return seconds


def in_parallel(send: Callable[[bytes], None], collection: Collection) -> tuple[float, int]:
    """Uploads a second through one tor with many in flight, and how many had to be repeated."""
    records = [collection.seal(number) for number in range(PARALLEL_UPLOADS)]
    start = time.perf_counter()
    with ThreadPoolExecutor(PARALLEL) as pool:
        repeats = [tried for _, tried in pool.map(lambda record: deliver(send, record), records)]
    return PARALLEL_UPLOADS / (time.perf_counter() - start), sum(tried > 0 for tried in repeats)


def cpu_s(pid: int | None) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def p90(seconds: list[float]) -> float:
    """Ninth decile."""
    return statistics.quantiles(seconds, n=10)[-1]


def measure(home: Path) -> dict[str, object]:
    """Start everything, measure, stop everything."""
    with held_ports(PORTS) as ports:
        return _measured(home, TorNetwork(home, ports))


def _measured(home: Path, network: TorNetwork) -> dict[str, object]:
    design_keys = frozen_keys()
    (home / "as").mkdir()
    collection = Collection(home / "as", make_task(design_keys), design_keys)
    try:
        network.start()
        lines = network.lines()
        with (
            OnionService(home / "s", lines=lines, start_timeout_s=60) as service,
            OwnTor(home / "c", lines=lines, start_timeout_s=60) as tor,
        ):
            service.start(collection.port)
            tor.start()
            return figures(collection, service, tor)
    finally:
        collection.close()
        network.stop()


def without_tor(home: Path) -> dict[str, object]:
    """The keys that need no tor; the others are null."""
    design_keys = frozen_keys()
    collection = Collection(home, make_task(design_keys), design_keys)
    direct = HttpUploader(f"http://127.0.0.1:{collection.port}", collection.task.task_id)
    try:
        seconds = in_turn({"direct": direct.send}, collection)["direct"]
        size_bytes = weighed(collection, f"127.0.0.1:{collection.port}")
    finally:
        collection.close()
    nothing = dict.fromkeys(TOR_KEYS)
    return {**direct_figures(seconds), **nothing, "parallel": PARALLEL, "bytes_per_report": size_bytes}


def direct_figures(seconds: list[float]) -> dict[str, object]:
    """Uploads without Tor."""
    return {
        "direct_median_ms": significant(statistics.median(seconds) * 1e3),
        "direct_p90_ms": significant(p90(seconds) * 1e3),
    }


def weighed(collection: Collection, address: str) -> int:
    """Bytes of a request with one report."""
    scale = Scale()
    HttpUploader(f"http://{address}", collection.task.task_id, dial=scale).send(collection.seal(0))
    return scale.size_bytes


def tags(rounds: int) -> dict[str, object]:
    """Sealing a report's tags and opening them, against pyhpke on the same texts."""
    key, text, info = ServiceKey(bytes(range(32))), bytes(TAG_BYTES), bytes(46)
    suite = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.AES128_GCM)
    public = suite.kem.deserialize_public_key(key.public)
    private = suite.kem.deserialize_private_key(bytes(range(32)))
    sealed = seal(text, key.public, info)

    def times(work: Callable[[], object]) -> Callable[[], None]:
        return lambda: [work() for _ in range(TAG_RUNS)] and None

    def other_seal() -> None:
        suite.create_sender_context(public, info=info)[1].seal(text)

    def other_open() -> None:
        suite.create_recipient_context(sealed[:32], private, info=info).open(sealed[32:])

    work = {
        "seal_tags_us": lambda: seal(text, key.public, info),
        "seal_tags_pyhpke_us": other_seal,
        "open_tags_us": lambda: key.open(sealed, info),
        "open_tags_pyhpke_us": other_open,
    }
    contenders = [Contender(name, times(run), TAG_RUNS) for name, run in work.items()]
    timings = take_turns(contenders, rounds=rounds)
    return {name: significant(each.median_s * 1e6) for name, each in timings.items()}


def figures(collection: Collection, service: OnionService, tor: OwnTor) -> dict[str, object]:
    """All keys of the JSON object."""
    task_id = collection.task.task_id
    direct = HttpUploader(f"http://127.0.0.1:{collection.port}", task_id)
    onion = onion_uploader(service.addresses[0], task_id, tor, timeout_s=TIMEOUT_S)
    size_bytes = weighed(collection, service.addresses[0])
    seconds = in_turn({"direct": direct.send, "tor": onion.send}, collection)
    before, own_before = cpu_s(tor.process.pid), time.process_time()
    rate, repeated = in_parallel(onion.send, collection)
    used = cpu_s(tor.process.pid) - before
    own = time.process_time() - own_before
    return {
        **direct_figures(seconds["direct"]),
        "tor_median_ms": significant(statistics.median(seconds["tor"]) * 1e3),
        "tor_p90_ms": significant(p90(seconds["tor"]) * 1e3),
        "uploads_per_s_per_tor": significant(rate),
        "cpu_ms_per_upload": significant(used / PARALLEL_UPLOADS * 1e3),
        "cpu_ms_per_upload_both_ends_python": significant(own / PARALLEL_UPLOADS * 1e3),
        "repeated_uploads": repeated,
        "parallel": PARALLEL,
        "bytes_per_report": size_bytes,
    }


def main() -> None:
    """The last line is the JSON object."""
    options = arguments("Uploads, directly and over a private Tor network.")
    reason = missing()
    with tempfile.TemporaryDirectory(prefix="penrose-tor-") as home:
        result = {**(without_tor if reason else measure)(Path(home)), **tags(options.rounds)}
    if reason:
        result["reason"] = f"There is no private Tor network without tor: {reason}."
    finish(result, table=not options.json)


if __name__ == "__main__":
    main()
