"""What the daemon of `penrose client` costs a host: CPU, memory, upload; beside the published figures.

The daemon and the watched program are processes of their own; the gateway here counts the bytes of requests.
The program is the stencil of the demonstration where OpenCL works, else one that writes a ring by itself.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import IO, TYPE_CHECKING, ClassVar, Self

from benchmarks.harness import Contender, arguments, finish, frozen_keys, significant, take_turns
from penrose_ray.capture.nvml import DRAM, NvmlSource
from penrose_ray.capture.opencl_device import pick_device, vendor_of
from penrose_ray.clock import SystemClock
from penrose_ray.crypto.blinding import Encryptor
from penrose_ray.draft import CounterDraft
from penrose_ray.errors import SourceError
from penrose_ray.task import Task, sign

if TYPE_CHECKING:
    from collections.abc import Iterator

WARM_S = 10.0
MEASURED_S = 30.0
IDLE_S = 6.0
INTERVAL = 1_000
"""S of the run; with the published 10,000 no histogram would fill in a minute."""
SAMPLES = 100
"""H of the run."""
PUBLISHED_ENCRYPTION_PERCENT = 0.0035
PUBLISHED_SECONDS_A_HISTOGRAM = 3_000
BUDGET_MB_A_GPU = 50
COVER_RATE = 0.1
_TICKS = os.sysconf("SC_CLK_TCK")
PENROSE = [sys.executable, "-m", "penrose_ray.cli.app", "client"]

STENCIL = "from penrose_ray.actors.programs import stencil; stencil.run(lambda: False, max_steps=10**9)"
RING = """
import os, time
from pathlib import Path
import numpy as np
from penrose_ray.capture.ring import DEVICE_NAME, KERNEL_NAME, LAUNCH, RECORD, RingWriter
ring = RingWriter(Path(os.environ["PENROSE_RING_DIR"]) / f"{os.getpid()}.ring")
ring.add_name(DEVICE_NAME, "replayed")
for number in range(12):
    ring.add_name(KERNEL_NAME, f"kernel_{number}")
records = np.zeros(200, RECORD)
records["name"] = np.arange(200) % 12
records["record_kind"], records["start_ns"], records["end_ns"] = LAUNCH, 1_000, 9_000
while True:
    ring.append(records)
    time.sleep(0.02)
"""


class Gateway(BaseHTTPRequestHandler):
    """Acknowledges everything; counts requests and their bytes."""

    requests: ClassVar[int] = 0
    bytes_taken: ClassVar[int] = 0

    def do_POST(self) -> None:
        """Take one body."""
        size = int(self.headers["Content-Length"])
        self.rfile.read(size)
        lines = [self.requestline, *(f"{name}: {value}" for name, value in self.headers.items()), ""]
        Gateway.requests += 1
        Gateway.bytes_taken += sum(len(line) + 2 for line in lines) + size
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Keep stderr for the daemon."""


@dataclass(frozen=True)
class Usage:
    """What a process has used so far."""

    cpu_s: float
    at_s: float

    @classmethod
    def of(cls, pid: int) -> Usage:
        """Of a running process, its ended threads included."""
        values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return cls((int(values[11]) + int(values[12])) / _TICKS, time.monotonic())

    def percent_since(self, before: Usage) -> float:
        """Of one CPU."""
        return 100 * (self.cpu_s - before.cpu_s) / (self.at_s - before.at_s)


def memory_mb(pid: int) -> dict[str, float]:
    """Resident set, its part that no file backs, and the peak, in MB of 2^20 bytes."""
    text = Path(f"/proc/{pid}/status").read_text()
    kib = {name: int(value) for name, value in re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)}
    names = {"rss": "VmRSS", "anonymous": "RssAnon", "peak": "VmHWM"}
    return {name: kib[key] / 1024 for name, key in names.items()}


def task_for(vendor: str) -> Task:
    """A demo task about durations."""
    draft = CounterDraft("duration", "ns", "opencl", (vendor,), "log", 100.0, 1e9)
    sets = tuple(draft.counter_sets())
    return Task(
        name="benchmark",
        demo=True,
        public_key=frozen_keys().paillier.public_key.to_bytes(),
        counter_sets=sets,
        rotation=(tuple(each.name for each in sets),),
        sampling_interval=INTERVAL,
        samples_per_histogram=SAMPLES,
        min_samples=SAMPLES // 2,
        min_contributors=2,
        tokens_per_day=0,
        reports_per_class=0,
        cover_rate=COVER_RATE,
    )


class Daemon:
    """`penrose client run` on a state of its own; a context manager."""

    def __init__(self, folder: Path, url: str, *, budget_percent: float) -> None:
        self._state = folder / f"state-{budget_percent:g}"
        policy = folder / f"policy-{budget_percent:g}.toml"
        policy.write_text(
            "allow_demo = true\nleast_sampling_interval = 1\nleast_contributors = 1\n"
            f"max_overhead_percent = {budget_percent}\n"
        )
        task = str(folder / "fleet.task")
        self._options = [task, "--gateway", url, "--policy", str(policy), "--state", str(self._state)]
        self._options += ["--gap-s", "0"]
        self.counts: dict[str, int] = {}
        self.overhead = ""

    def __enter__(self) -> Self:
        """Wait until it watches."""
        command = [*PENROSE, "run", *self._options]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        line = self._errors.readline()
        if "watching" not in line:
            raise RuntimeError(line + self._errors.read())
        return self

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def _errors(self) -> IO[str]:
        if self._process.stderr is None:
            raise RuntimeError("stderr is a pipe")
        return self._process.stderr

    def environment(self) -> dict[str, str]:
        """Under which it watches a program."""
        command = [*PENROSE, "env", "--state", str(self._state)]
        listed = subprocess.run(command, capture_output=True, text=True, check=True)
        variables = dict(line.split("=", 1) for line in listed.stdout.splitlines())
        return {**os.environ, **{name: shlex.split(value)[0] for name, value in variables.items()}}

    def __exit__(self, *_: object) -> None:
        """End it; it says what it did."""
        self._process.terminate()
        said = self._errors.read().splitlines()
        self._process.wait()
        self.counts = json.loads(said[-1])
        self.overhead = next((line for line in reversed(said) if line.startswith("overhead")), "")


def opencl_vendor() -> str | None:
    """Vendor of the OpenCL device here, None when there is none."""
    try:
        return vendor_of(pick_device())
    except SourceError:
        return None


@dataclass(frozen=True)
class Cost:
    """Of one run of the daemon."""

    idle_percent: float
    """Of one CPU, without a program to watch."""
    percent: float
    """Of one CPU, with one."""
    memory: dict[str, float]
    launches: int
    reports: int
    watched_s: float
    overhead: str
    """What its guard says."""


def cost_of(folder: Path, url: str, program: str, *, budget_percent: float) -> Cost:
    """The daemon without a program, then with one that has warmed up."""
    with Daemon(folder, url, budget_percent=budget_percent) as daemon:
        environment = daemon.environment()
        time.sleep(IDLE_S)  # the blinding of the first reports is made
        fresh = Usage.of(daemon.pid)
        time.sleep(IDLE_S)
        idle = Usage.of(daemon.pid)
        with subprocess.Popen([sys.executable, "-c", program], env=environment) as watched:
            started = time.monotonic()
            time.sleep(WARM_S)
            begun = Usage.of(daemon.pid)
            time.sleep(MEASURED_S)
            done = Usage.of(daemon.pid)
            used = memory_mb(daemon.pid)
            watched.kill()
            watched_s = time.monotonic() - started
    return Cost(
        idle_percent=idle.percent_since(fresh),
        percent=done.percent_since(begun),
        memory=used,
        launches=daemon.counts["launches"],
        reports=daemon.counts["reports"] + daemon.counts["cover_reports"],
        watched_s=watched_s,
        overhead=daemon.overhead,
    )


def seal_ms(rounds: int) -> float:
    """CPU time to encrypt one histogram as the daemon does, blinding included."""
    task = task_for("any")
    encryptor = Encryptor(task.key(), task.profile(), small=True)
    plaintexts = [1] * task.profile().ciphertexts
    timings = take_turns([Contender("seal", lambda: encryptor.encrypt(plaintexts))], rounds=rounds)
    return 1000 * timings["seal"].median_s


def dram_percent(seconds: float) -> float | None:
    """Mean use of the memory bandwidth of the GPUs; None where nothing measures it."""
    source = NvmlSource(clock=SystemClock())
    if not source.probe().available:
        return None
    source.open()
    column = source.counters.index(DRAM)
    readings = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        readings.extend(source.poll(64).counters[:, column].tolist())
        time.sleep(0.5)
    source.close()
    known = [value for value in readings if value == value]  # noqa: PLR0124 - NaN where not measured
    return statistics.mean(known) if known else None


@contextmanager
def gateway() -> Iterator[str]:
    """Something that takes reports, at a port of its own."""
    with HTTPServer(("127.0.0.1", 0), Gateway) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def measure(rounds: int) -> dict[str, object]:
    """All keys."""
    vendor = opencl_vendor()
    program = RING if vendor is None else STENCIL
    with tempfile.TemporaryDirectory() as name, gateway() as url:
        folder = Path(name)
        task = task_for(vendor or "unknown")
        (folder / "fleet.task").write_bytes(sign(task, frozen_keys().signing).encode())
        within = cost_of(folder, url, program, budget_percent=3.0)
        always = cost_of(folder, url, program, budget_percent=100.0)
    sealing = seal_ms(rounds)
    encryption = 100 * sealing / 1000 / PUBLISHED_SECONDS_A_HISTOGRAM
    report_bytes = Gateway.bytes_taken / Gateway.requests if Gateway.requests else None
    an_hour = 3600 / PUBLISHED_SECONDS_A_HISTOGRAM / (1 - COVER_RATE)
    return {
        "program": "ring" if vendor is None else f"stencil on {vendor}",
        "encryption_ms": significant(sealing),
        "encryption_cpu_percent": significant(encryption),
        "encryption_vs_published_ratio": significant(PUBLISHED_ENCRYPTION_PERCENT / encryption),
        "cpu_percent": significant(within.percent),
        "cpu_percent_always_on": significant(always.percent),
        "cpu_percent_idle": significant(within.idle_percent),
        "launches_per_s": significant(always.launches / always.watched_s),
        "cpu_us_per_launch": significant(1e4 * always.percent / (always.launches / always.watched_s)),
        "guard": within.overhead,
        "rss_mb": significant(always.memory["rss"]),
        "rss_anonymous_mb": significant(always.memory["anonymous"]),
        "rss_peak_mb": significant(always.memory["peak"]),
        "rss_mb_within_budget": significant(within.memory["rss"]),
        "rss_anonymous_mb_within_budget": significant(within.memory["anonymous"]),
        "rss_budget_ratio": significant(always.memory["rss"] / BUDGET_MB_A_GPU),
        "reports_in_run": within.reports + always.reports,
        "bytes_per_report": significant(report_bytes),
        "upload_bytes_per_hour": significant(report_bytes and report_bytes * an_hour),
        "gpu_memory_bandwidth_percent": dram_percent(10.0),
    }


def main() -> None:
    """Run and print."""
    options = arguments(__doc__ or "")
    result = measure(options.rounds)
    finish(result, table=not options.json)


if __name__ == "__main__":
    main()
