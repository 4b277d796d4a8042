"""Durable intake of sealed reports on one core, from the bytes of their ciphertexts to a committed journal.

The baseline is the published setting without any journal: n = 1,024, one ciphertext a bin, gmpy2, from bytes.
What needs Ray - HTTP intake and fleets of virtual clients - is in benchmarks/http.py and benchmarks/fleet.py.
Every report is committed with synchronous=FULL in groups of 1,000, with a new id and a class of its own
signature; the ciphertexts of 128 sealed reports are used in turn. Reports come one by one, and as columns,
which fleets send.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import secrets
import statistics
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import gmpy2
import numpy as np
from gmpy2 import mpz

from benchmarks.fleet import fleet_rounds
from benchmarks.harness import Contender, arguments, finish, show, significant, take_turns
from benchmarks.http import http_rounds
from penrose_ray.aggregate.arrival import Arrival, Outcome, Row, SumKey
from penrose_ray.aggregate.block import Block
from penrose_ray.aggregate.routing import bucket_of
from penrose_ray.aggregate.service import ShardService
from penrose_ray.aggregate.upkeep import REPORTS_A_SUM
from penrose_ray.clock import ManualClock
from penrose_ray.crypto.blinding import Encryptor
from penrose_ray.crypto.kernel import native
from penrose_ray.crypto.packing import BINS, Slots, pack
from penrose_ray.crypto.public_key import PublicKey
from penrose_ray.histogram import Axis, Counter, CounterSet
from penrose_ray.task import Task
from penrose_ray.types import BatchId, ClassId, ReportId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.harness import Timing

GROUP = 1000
REPORTS = 4000
CLASSES = 100
MANY_CLASSES = 10_000
SMALL, LARGE = 10_000, 1_000_000
NOW_S = 1_750_000_000.0
HOUR = int(NOW_S // 3600)
SIGNATURE_BYTES = 400
BASELINE = "plain gmpy2, n = 1024, no journal"


@dataclass(frozen=True)
class Traffic:
    """A task and the ciphertexts that its reports bring."""

    task: Task
    blobs: list[bytes]

    def reports(self, count: int, classes: int = CLASSES) -> list[Arrival]:
        """New reports, spread evenly over so many classes."""
        names = [hashlib.sha256(f"class {number}".encode()).digest() for number in range(classes)]
        signatures = [(name * (SIGNATURE_BYTES // len(name) + 1))[:SIGNATURE_BYTES] for name in names]
        return [
            Arrival(
                ReportId(os.urandom(32)),
                ClassId(names[number % classes][:16]),
                names[number % classes],
                0,
                HOUR,
                signatures[number % classes],
                self.blobs[number % len(self.blobs)],
            )
            for number in range(count)
        ]

    def blocks(self, count: int) -> list[Block]:
        """New reports as columns, in groups."""
        reports = self.reports(count)
        return [Block.of(reports[start : start + GROUP]) for start in range(0, count, GROUP)]


def main() -> None:
    """Run all groups; the last line is the JSON object."""
    options = arguments("Durable intake of sealed reports on one core.")
    traffic = make_traffic()
    gc.freeze()  # as in an actor's process
    result: dict[str, object] = {"native": native.unavailable() or "on", "reports_a_commit": GROUP}
    with tempfile.TemporaryDirectory(prefix="penrose-bench-") as folder:
        result["bytes_per_class"] = bytes_per_class(traffic, Path(folder))
        timings = intake(traffic, Path(folder), options.rounds)
        result |= intake_figures(timings)
        if not options.json:
            show(timings, unit="us")
        result["cost_growth_ratio"] = significant(cost_growth(traffic, Path(folder), options.rounds))
        result["class_growth_ratio"] = significant(class_growth(traffic, Path(folder), options.rounds))
    rounds = min(options.rounds, 5)
    finish(result | http_rounds(min(rounds, 3)) | fleet_rounds(rounds))


def make_traffic() -> Traffic:
    """Sealed reports under a new key; nobody will open them, so plain primes do."""
    primes = [gmpy2.next_prime(secrets.randbits(1536) | 3 << 1534) for _ in range(2)]
    axis = Axis("log", 1e2, 1e9)
    counter = Counter("duration", "ns", "benchmark", "none")
    task = Task(
        name="benchmark",
        demo=True,
        public_key=PublicKey(primes[0] * primes[1]).to_bytes(),
        counter_sets=(CounterSet("duration", (counter,), (axis,)),),
        rotation=(("duration",),),
    )
    encryptor = Encryptor(task.key(), task.profile(), exponent="short")
    blobs = []
    for bin_ in range(BINS):
        bins = np.zeros(BINS, dtype=np.int64)
        bins[bin_] = task.samples_per_histogram
        blobs.append(encryptor.encrypt(pack(Slots(bins, 0, 1), task.profile())))
    return Traffic(task, blobs)


def intake(traffic: Traffic, folder: Path, rounds: int) -> dict[str, Timing]:
    """The published setting, then a shard with gmpy2 alone and with the native kernel."""
    paper = paper_sum(50)
    contenders = [Contender(BASELINE, paper, 50)]
    with contextlib.ExitStack() as stack:
        for name, switch in (("shard, gmpy2", "0"), ("shard, native", "1")):
            if switch == "1" and native.unavailable():
                continue
            with switched(switch):
                single = stack.enter_context(service(traffic, folder / f"intake-{switch}"))
                columns = stack.enter_context(service(traffic, folder / f"columns-{switch}"))
            reports = iter([traffic.reports(REPORTS) for _ in range(rounds + 1)])
            blocks = iter([traffic.blocks(REPORTS) for _ in range(rounds + 1)])
            contenders += [
                Contender(name, partial(take_next, single, reports), REPORTS),
                Contender(f"{name}, columns", partial(take_blocks, columns, blocks), REPORTS),
            ]
        return take_turns(contenders, rounds=rounds)


def intake_figures(timings: dict[str, Timing]) -> dict[str, object]:
    """Reports a second and core, and the ratios to the published setting."""
    paper_s, gmpy2_s = timings[BASELINE].median_s, timings["shard, gmpy2"].median_s
    columns_s = timings["shard, gmpy2, columns"].median_s
    native_s = timings["shard, native"].median_s if "shard, native" in timings else None
    native_columns_s = timings["shard, native, columns"].median_s if native_s else None
    return {
        "paper_baseline_per_s_core": significant(1 / paper_s),
        "durable_per_s_core": significant(1 / gmpy2_s),
        "durable_native_per_s_core": significant(native_s and 1 / native_s),
        "durable_vs_paper_ratio": significant(paper_s / gmpy2_s),
        "durable_native_vs_paper_ratio": significant(native_s and paper_s / native_s),
        "durable_columns_vs_paper_ratio": significant(paper_s / columns_s),
        "durable_native_columns_vs_paper_ratio": significant(native_columns_s and paper_s / native_columns_s),
    }


@contextlib.contextmanager
def switched(value: str) -> Iterator[None]:
    """The native kernel on or off for what is made inside."""
    before = os.environ.get(native.SWITCH)
    os.environ[native.SWITCH] = value
    try:
        yield
    finally:
        del os.environ[native.SWITCH]
        if before is not None:
            os.environ[native.SWITCH] = before


def paper_sum(count: int) -> Callable[[], None]:
    """Adds `count` reports of 128 ciphertexts of 2,048 bits each, from bytes."""
    n = gmpy2.next_prime(secrets.randbits(512) | 3 << 510) * gmpy2.next_prime(
        secrets.randbits(512) | 3 << 510
    )
    n_squared, width = n * n, 256
    blob = b"".join(int(mpz(secrets.randbits(2040))).to_bytes(width, "little") for _ in range(BINS))
    sums = [mpz(1)] * BINS

    def run() -> None:
        nonlocal sums
        for _ in range(count):
            factors = [mpz.from_bytes(blob[at : at + width], "little") for at in range(0, len(blob), width)]
            sums = [total * factor % n_squared for total, factor in zip(sums, factors, strict=True)]

    return run


def service(traffic: Traffic, path: Path) -> ShardService:
    """A new shard on its own journal."""
    return ShardService(path, traffic.task, ManualClock(NOW_S))


def take(shard: ShardService, arrivals: list[Arrival]) -> None:
    """Accept reports in groups; every one must be new."""
    for start in range(0, len(arrivals), GROUP):
        answers = shard.accept(arrivals[start : start + GROUP])
        if any(answer.outcome.value != "accepted" for answer in answers):
            raise RuntimeError("a report was not accepted")


def take_blocks(shard: ShardService, waiting: Iterator[list[Block]]) -> None:
    """Accept the next blocks of a prepared series; every report must be new."""
    for block in next(waiting):
        if shard.accept_block(block).counts() != {Outcome.ACCEPTED: len(block)}:
            raise RuntimeError("a report was not accepted")


def take_next(shard: ShardService, waiting: Iterator[list[Arrival]]) -> None:
    """Accept the next batch of a prepared series."""
    take(shard, next(waiting))


def cost_growth(traffic: Traffic, folder: Path, rounds: int) -> float:
    """Cost of a report in a journal of a million against one of ten thousand."""
    with service(traffic, folder / "small") as small, service(traffic, folder / "large") as large:
        for shard, size in ((small, SMALL), (large, LARGE)):
            fill(shard, traffic, size)
        contenders = [
            Contender(
                name,
                partial(take_next, shard, iter([traffic.reports(GROUP) for _ in range(rounds + 1)])),
                GROUP,
            )
            for name, shard in (("small", small), ("large", large))
        ]
        timings = take_turns(contenders, rounds=rounds)
    return timings["large"].median_s / timings["small"].median_s


def fill(shard: ShardService, traffic: Traffic, size: int) -> None:
    """Put rows into a shard's journal without adding them up: only their number matters here."""
    batch = BatchId(traffic.task.batch_of(NOW_S) - 1)
    journal = shard._core.journal  # noqa: SLF001 - a benchmark sets the stage
    for _ in range(size // GROUP):
        arrivals = traffic.reports(GROUP)
        journal.record(
            [Row(each, bucket_of(each.report_id), SumKey(each.class_id, 0, batch)) for each in arrivals]
        )


def bytes_per_class(traffic: Traffic, folder: Path) -> int:
    """Memory of the process that a class in use takes; measured first, while no freed memory hides it."""
    with service(traffic, folder / "memory") as shard:
        arrivals = traffic.reports(2 * MANY_CLASSES, 2 * MANY_CLASSES)
        take(shard, arrivals[:MANY_CLASSES])
        before_bytes = resident_bytes()
        take(shard, arrivals[MANY_CLASSES:])
        return round((resident_bytes() - before_bytes) / MANY_CLASSES)


def class_growth(traffic: Traffic, folder: Path, rounds: int) -> float:
    """Cost of a report with 10,000 known classes against 100, with its share of storing sums."""
    few, many = service(traffic, folder / "few"), service(traffic, folder / "many")
    with few, many:
        reports = {
            few: traffic.reports(MANY_CLASSES, CLASSES),
            many: traffic.reports(MANY_CLASSES, MANY_CLASSES),
        }
        seconds: dict[ShardService, list[float]] = {few: [], many: []}
        for turn in range(rounds + 1):
            for shard, arrivals in reports.items():
                fresh = [renewed(arrival) for arrival in arrivals]
                start_s = time.process_time()
                take(shard, fresh)
                taken_s = time.process_time() - start_s
                shard.upkeep.checkpoint()  # of few sums it is done by now
                stored_s = time.process_time() - start_s - taken_s
                if turn:  # the first one makes the classes
                    seconds[shard].append(taken_s + stored_s / REPORTS_A_SUM)
    return statistics.median(seconds[many]) / statistics.median(seconds[few])


def renewed(arrival: Arrival) -> Arrival:
    """The same report under a new id."""
    return Arrival(
        ReportId(os.urandom(32)),
        arrival.class_id,
        arrival.snippet_hash,
        arrival.counter_set,
        arrival.created_hour,
        arrival.signature,
        arrival.blob,
    )


def resident_bytes() -> int:
    """Memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
