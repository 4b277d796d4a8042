"""Virtual clients by the ten thousand: columns instead of processes, the same reports.

A fleet gives what real clients would send at the end of a batch: one histogram a (class, counter group),
cover reports in between, and of a stratified sample the really sealed reports. Everything depends on the
client's number, the batch and the seed, so one fleet of 100,000 and eight of 12,500 send the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from penrose_ray.crypto.packing import Slots, pack
from penrose_ray.crypto.plain import pack_many
from penrose_ray.errors import ConfigError
from penrose_ray.histogram import BINS
from penrose_ray.sim.fill import Fill, Reporting
from penrose_ray.sim.hashing import HALF, LOW, at, below, by_number, scramble, stream
from penrose_ray.sim.session import blocks
from penrose_ray.snippet.minhash import scheme
from penrose_ray.types import ReportId
from penrose_ray.wire import Report, encode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from penrose_ray.sim.fill import Due
    from penrose_ray.sim.scenario import Scenario
    from penrose_ray.task import Task
    from penrose_ray.types import BatchId, TaskId

_IDS, _SHAPES, _ROUNDING, _SIGNATURES, _COVER, _STRATA = 11, 12, 13, 14, 15, 16
_HOUR_S = 3600
_ID_WORDS = 4
_MOST_COVERS = 8


class EncryptsMany(Protocol):
    """Who seals a fleet's sample: an encryptor, or a pool of them."""

    def encrypt_many(self, plaintexts: Sequence[tuple[int, ...]]) -> list[bytes]:
        """Blobs of packed reports, in order."""
        ...


@dataclass(frozen=True, eq=False)
class FleetSettings:
    """What the virtual clients of a topology have in common."""

    task: Task
    scenario: Scenario
    sealed_one_in: int = 1000
    """Of so many consecutive clients one seals its reports with the task's key; 0 for none, 1 for all."""
    gpu_model: str = "simulated"

    def __post_init__(self) -> None:
        """Refuse settings that contradict the task."""
        groups = self.scenario.sampling.counter_groups
        if groups != len(self.task.counter_sets):
            raise ConfigError(
                f"counter_groups = {groups}, the task has {len(self.task.counter_sets)} counter sets.",
                remedy="Simulate one group for each counter set.",
            )
        if self.task.batch_s < self.scenario.sampling.reset_s:
            raise ConfigError(
                f"batch_s = {self.task.batch_s} is shorter than a window.", remedy="Lower reset_s."
            )
        if self.sealed_one_in < 0:
            raise ConfigError(f"sealed_one_in = {self.sealed_one_in} is negative.", remedy="Give 0 or more.")

    @cached_property
    def task_id(self) -> TaskId:
        """Of the task, hashed once."""
        return self.task.task_id

    @property
    def reporting(self) -> Reporting:
        """The task's rules of reporting."""
        return Reporting(
            samples_per_histogram=self.task.samples_per_histogram,
            min_samples=self.task.min_samples,
            reports_per_class=self.task.reports_per_class,
            tokens_per_batch=self.task.tokens_per_batch,
            cover_rate=self.task.cover_rate,
        )


@dataclass(frozen=True, eq=False)
class ReportBatch:
    """Reports of a fleet, one row each; it stays in the fleet's process, what `*_reports` give leaves it."""

    settings: FleetSettings
    signatures: NDArray[np.uint32]
    """MinHash values by application, shape (applications, values)."""
    client: NDArray[np.int64]
    report_id: NDArray[np.uint8]
    """Shape (n, 32)."""
    app: NDArray[np.int64]
    counter_set: NDArray[np.int64]
    created_hour: int
    counts: NDArray[np.int64]
    """Shape (n, 128): what a real client never lets out of its process."""
    real: NDArray[np.bool_]
    sealed: NDArray[np.bool_]
    """Rows of the stratified sample."""

    def __len__(self) -> int:
        return len(self.client)

    @cached_property
    def unfilled(self) -> NDArray[np.int64]:
        """Samples missing from full histograms."""
        return np.asarray(self.settings.task.samples_per_histogram - self.counts.sum(axis=1), np.int64)

    def plain_blobs(self) -> NDArray[np.uint8]:
        """Packed slots without encryption, shape (n, bytes)."""
        profile = self.settings.task.profile()
        return pack_many(self.counts, self.unfilled, self.real.astype(np.int64), profile)

    def plain_reports(self) -> list[Report]:
        """All reports, with plain blobs."""
        return [self._report(row, blob.tobytes()) for row, blob in enumerate(self.plain_blobs())]

    def sealed_blobs(self, encryptor: EncryptsMany) -> list[bytes]:
        """Ciphertexts of the stratified sample."""
        rows, profile = np.flatnonzero(self.sealed).tolist(), self.settings.task.profile()
        slots = [Slots(self.counts[row], int(self.unfilled[row]), int(self.real[row])) for row in rows]
        return encryptor.encrypt_many([pack(each, profile) for each in slots])

    def sealed_reports(self, encryptor: EncryptsMany) -> list[Report]:
        """The reports of the stratified sample, really encrypted."""
        rows = np.flatnonzero(self.sealed).tolist()
        return [self._report(row, blob) for row, blob in zip(rows, self.sealed_blobs(encryptor), strict=True)]

    def records(self, encryptor: EncryptsMany | None = None) -> list[bytes]:
        """Wire records: of all reports in the clear, or of the sealed sample when an encryptor is given."""
        reports = self.plain_reports() if encryptor is None else self.sealed_reports(encryptor)
        return [encode(each, self.settings.task.service_key) for each in reports]

    def _report(self, row: int, blob: bytes) -> Report:
        task = self.settings.task
        return Report(
            task_id=self.settings.task_id,
            report_id=ReportId(self.report_id[row].tobytes()),
            created_hour=self.created_hour,
            gpu_model=self.settings.gpu_model,
            scheme=task.signature_scheme,
            signature=self.signatures[self.app[row]].astype("<u4").tobytes(),
            counter_set=int(self.counter_set[row]),
            blob=blob,
        )


class Fleet:
    """Clients `first` to `first + count` of one large fleet.

    Args:
        first: number of the first client.
        count: how many; 25,000 to 100,000 suit an actor.
        settings: the same for all fleets of a topology.
        seed: the same for all fleets of a topology.
    """

    def __init__(self, first: int, count: int, settings: FleetSettings, seed: int) -> None:
        if first < 0 or count < 1 or first + count > settings.scenario.clients:
            raise ConfigError(
                f"Clients {first} to {first + count} are not among {settings.scenario.clients}.",
                remedy="Split scenario.clients among the fleets.",
            )
        self.first, self.count, self.settings, self._seed = first, count, settings, seed
        self._blocks = list(blocks(settings.scenario, seed, first, count))
        self._fill = Fill(settings.scenario, settings.reporting, seed, first=first, count=count)
        self._batch: int | None = None

    @cached_property
    def signatures(self) -> NDArray[np.uint32]:
        """A signature for each application; no two are alike."""
        apps, size = len(self.settings.scenario.workload), scheme(self.settings.task.signature_scheme).size
        numbers = np.arange(apps * size, dtype=np.uint64).reshape(apps, size)
        return (by_number(stream(self._seed, _SIGNATURES), numbers) >> HALF).astype(np.uint32)

    @cached_property
    def shapes(self) -> NDArray[np.float64]:
        """Cumulative distribution over bins of each (application, counter set), shape (pairs, 128)."""
        pairs = len(self.settings.scenario.workload) * self.settings.scenario.sampling.counter_groups
        numbers = np.arange(pairs * BINS, dtype=np.uint64).reshape(pairs, BINS)
        uniform = (by_number(stream(self._seed, _SHAPES), numbers) >> np.uint64(11)) / 2**53
        masses = -(np.log1p(-uniform) ** 3)  # a few bins hold most
        reach = np.cumsum(np.abs(masses), axis=1)
        reach /= reach[:, -1:]
        reach[:, -1] = 1.0
        return reach

    def reports(self, batch: BatchId, size: int = 1000) -> Iterator[ReportBatch]:
        """All reports of a batch, `size` at a time; batches come in order.

        Raises:
            ConfigError: a batch is left out or asked for again, so carried samples would be wrong.
        """
        if self._batch is not None and batch != self._batch + 1:
            raise ConfigError(
                f"Batch {batch} does not follow batch {self._batch}.", remedy="Ask for batches in order."
            )
        self._batch = batch
        windows = int(self.settings.task.batch_s // self.settings.scenario.sampling.reset_s)
        for window in range(batch * windows, (batch + 1) * windows):
            self._fill.start_window()
            for block in self._blocks:
                self._fill.take(block.visits(window), block.first)
        rows = _by_class([self._rows(due, batch) for due in self._fill.close()])
        for start in range(0, len(rows.client), size):
            yield self._batch_of(rows.part(slice(start, start + size)), batch)

    def _rows(self, due: Due, batch: BatchId) -> _Rows:
        """One row a report, cover reports included."""
        most = self.settings.task.samples_per_histogram
        pieces = due.full + (due.rest > 0)
        owner = np.repeat(np.arange(len(pieces)), pieces)
        piece = np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        samples = np.where(piece < due.full[owner], most, due.rest[owner])
        number = piece * (_MOST_COVERS + 1)
        real = _Rows(due.client[owner], due.cycle[owner], samples, number)
        return _joined([real, self._covers(real, due, batch)])

    def _covers(self, real: _Rows, due: Due, batch: BatchId) -> _Rows:
        """Cover reports of these clients: after each real one geometrically many, of any of its classes."""
        bits = self._bits(_COVER, real, batch)
        rate = self.settings.task.cover_rate
        uniform = (bits >> np.uint64(11)) / 2**53
        with np.errstate(divide="ignore"):  # no cover at all
            count = np.floor(np.log1p(-uniform) / np.log(rate)) if rate else np.zeros(len(bits))
        many = np.minimum(count, _MOST_COVERS).astype(np.int64)
        of = np.repeat(np.arange(len(many)), many)
        index = np.arange(len(of)) - np.repeat(np.cumsum(many) - many, many) + 1
        begin = np.searchsorted(due.client, real.client[of])
        classes = np.searchsorted(due.client, real.client[of], side="right") - begin
        drawn = scramble(bits[of] + index.astype(np.uint64)) & LOW
        chosen = due.cycle[begin + below(drawn, classes.astype(np.uint64)).astype(np.int64)]
        marker = real.cycle[of] * (1 << 20) + real.number[of] + index
        return _Rows(real.client[of], chosen, np.zeros(len(of), np.int64), marker)

    def _bits(self, purpose: int, rows: _Rows, batch: BatchId) -> NDArray[np.uint64]:
        """64 random bits a report."""
        state = by_number(stream(self._seed, purpose), rows.client.astype(np.uint64))
        state ^= at(rows.cycle.astype(np.uint64), batch)
        state += rows.number.astype(np.uint64)
        return scramble(state)

    def _batch_of(self, rows: _Rows, batch: BatchId) -> ReportBatch:
        groups = self.settings.scenario.sampling.counter_groups
        offset = (self._bits(_ROUNDING, rows, batch) >> np.uint64(11)) / 2**53
        # systematic rounding: every bin within one of its expectation, unbiased, n samples in all
        reach = np.floor(self.shapes[rows.cycle] * rows.samples[:, None] + offset[:, None]).astype(np.int64)
        counts = np.diff(reach, axis=1, prepend=0)
        identity = self._bits(_IDS, rows, batch)
        words = np.stack([at(identity, word) for word in range(_ID_WORDS)], axis=1)
        return ReportBatch(
            settings=self.settings,
            signatures=self.signatures,
            client=rows.client,
            report_id=words.astype("<u8").view(np.uint8),
            app=rows.cycle // groups,
            counter_set=rows.cycle % groups,
            created_hour=int((batch + 1) * self.settings.task.batch_s - 1) // _HOUR_S,
            counts=counts,
            real=rows.samples > 0,
            sealed=self._is_sampled(rows.client),
        )

    def _is_sampled(self, client: NDArray[np.int64]) -> NDArray[np.bool_]:
        """One client of each stratum of `sealed_one_in` consecutive ones."""
        each = self.settings.sealed_one_in
        if not each:
            return np.zeros(len(client), np.bool_)
        stratum, place = np.divmod(client, each)
        bits = by_number(stream(self._seed, _STRATA), stratum.astype(np.uint64)) >> HALF
        return np.asarray(below(bits, np.uint64(each)).astype(np.int64) == place, np.bool_)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Reports before they have bytes."""

    client: NDArray[np.int64]
    cycle: NDArray[np.int64]
    samples: NDArray[np.int64]
    number: NDArray[np.int64]
    """Tells reports of one client and cycle apart."""

    def part(self, rows: slice | NDArray[np.int64]) -> _Rows:
        return _Rows(self.client[rows], self.cycle[rows], self.samples[rows], self.number[rows])

    def columns(self) -> tuple[NDArray[np.int64], ...]:
        """Client, cycle, samples, number."""
        return self.client, self.cycle, self.samples, self.number


def _joined(parts: Sequence[_Rows]) -> _Rows:
    return _Rows(*map(np.concatenate, zip(*(part.columns() for part in parts), strict=True)))


def _by_class(parts: Sequence[_Rows]) -> _Rows:
    """All rows, those of a class and counter group together, so that a message has few signatures.

    The order depends on clients and reports only.
    """
    rows = _joined(parts)
    return rows.part(np.lexsort((rows.number, rows.client, rows.cycle)))
