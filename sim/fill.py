"""How clients fill histograms: what is sent at a batch's end, and what is lost.

A client keeps one open histogram for each (class, counter group). At the end of a batch it sends at most r
reports of each, up to H samples; one under `min_samples` is carried over once, then dropped. With tokens it
chooses what to send at random, weighted by samples (Efraimidis and Spirakis 2006).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penrose_ray.errors import ConfigError
from penrose_ray.sim.hashing import by_number, stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from penrose_ray.sim.scenario import Scenario
    from penrose_ray.sim.session import Visits

_CHOICE = 4
_SORT_CLIENTS = 8_192


@dataclass(frozen=True, slots=True)
class Reporting:
    """The task's rules of reporting."""

    samples_per_histogram: int = 10_000
    """H."""
    min_samples: int = 100
    reports_per_class: int = 1
    """r; 0 is no bound."""
    tokens_per_batch: int = 0
    """Reports, cover included, that a client may send a batch; 0 is no bound."""
    cover_rate: float = 0.1
    """q: the share of tokens that goes into cover reports."""

    def __post_init__(self) -> None:
        """Refuse impossible rules, by the field's name."""
        for name in ("samples_per_histogram", "min_samples"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} = {getattr(self, name)} is below 1.", remedy="Give 1 or more.")
        for name in ("reports_per_class", "tokens_per_batch"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} = {getattr(self, name)} is negative.", remedy="Give 0 or more.")
        if not 0 <= self.cover_rate < 1:
            raise ConfigError(f"cover_rate = {self.cover_rate} is no share.", remedy="Give 0 to below 1.")


@dataclass(frozen=True, eq=False)
class Sent:
    """What a fleet sends at the end of a batch; arrays have shape (applications, groups)."""

    reports: NDArray[np.int64]
    """Real reports."""
    clients: NDArray[np.int64]
    """Clients that sent at least one of them."""
    samples_by_pair: NDArray[np.int64]
    """Samples in these reports."""
    taken: int
    """Samples taken in the batch."""
    dropped: int
    """Samples of histograms under `min_samples`, beyond r H, or without a token."""
    full: int
    """Reports of H samples."""

    @property
    def samples(self) -> int:
        """Samples in reports."""
        return int(self.samples_by_pair.sum())


@dataclass(frozen=True, eq=False)
class Open:
    """Open histograms of one batch: one row each, ordered by client and cycle."""

    client: NDArray[np.int64]
    cycle: NDArray[np.int64]
    samples: NDArray[np.int64]
    carried: NDArray[np.bool_]


_NONE = Open(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.bool_))


class Due(NamedTuple):
    """Reports that are due, of some clients; one row a (client, cycle), ordered by both."""

    client: NDArray[np.int64]
    cycle: NDArray[np.int64]
    """application x groups + group."""
    full: NDArray[np.int64]
    """Reports of H samples."""
    rest: NDArray[np.int64]
    """Samples of one more report; 0 when there is none."""


class Fill:
    """Histograms of clients `first` to `first + count` (default: the whole fleet) over a batch's windows."""

    def __init__(
        self,
        scenario: Scenario,
        reporting: Reporting,
        seed: int = 0,
        *,
        first: int = 0,
        count: int | None = None,
    ) -> None:
        self._apps = len(scenario.workload)
        self._groups = scenario.sampling.counter_groups
        self._cycles = self._apps * self._groups
        self._first = first
        self._clients = scenario.clients if count is None else count
        self._reporting = reporting
        self._seed = seed
        self._whole = np.repeat(np.floor(scenario.samples_per_window).astype(np.int64), self._groups)
        self._kind: type[np.uint16 | np.uint32] = np.uint16 if self._cycles < 2**15 else np.uint32
        self._idle = np.iinfo(self._kind).max
        self._rows: list[NDArray[np.uint16 | np.uint32]] = []
        self._carried = _NONE
        self._settled = 0
        self._batch = 0

    def start_window(self) -> None:
        """Make room for a window."""
        self._rows.append(np.full(self._clients, self._idle, self._kind))

    def take(self, visits: Visits, first: int) -> None:
        """What a block of clients, beginning with number `first`, does in this window."""
        cycle = visits.app
        if self._groups > 1:
            cycle = cycle * np.uint64(self._groups) + visits.group
        # one number says the cycle and whether the window gave one sample more than the whole part
        self._rows[-1][visits.client + (first - self._first)] = cycle << np.uint64(1) | visits.extra

    def close(self) -> Iterator[Due]:
        """What is due at the batch's end, some clients at a time; exhausting it starts the next batch."""
        kept: list[Open] = []
        self._settled = 0
        for start in range(0, self._clients, _SORT_CLIENTS):
            opened = self._opened(start, min(start + _SORT_CLIENTS, self._clients))
            self._settled += int(opened.samples.sum())
            kept.append(self._carry(opened))
            yield self._due(opened)
        self._carried = Open(*(np.concatenate(column) for column in zip(*map(_columns, kept), strict=True)))
        self._rows.clear()
        self._batch += 1

    def end_batch(self) -> Sent:
        """Send what is due and start the next batch."""
        before = int(self._carried.samples.sum())
        reports, clients, samples = (np.zeros(self._cycles, np.int64) for _ in range(3))
        full = 0
        for due in self.close():
            owners = np.bincount(due.cycle, minlength=self._cycles)
            clients += owners
            if due.full.any():
                each = due.full * self._reporting.samples_per_histogram + due.rest
                reports += _sums(due.cycle, due.full + (due.rest > 0), self._cycles)
                samples += _sums(due.cycle, each, self._cycles)
                full += int(due.full.sum())
            else:
                reports += owners
                samples += _sums(due.cycle, due.rest, self._cycles)
        shape = (self._apps, self._groups)
        return Sent(
            reports=reports.reshape(shape),
            clients=clients.reshape(shape),
            samples_by_pair=samples.reshape(shape),
            taken=self._settled - before,
            dropped=self._settled - int(self._carried.samples.sum()) - int(samples.sum()),
            full=full,
        )

    def _opened(self, start: int, end: int) -> Open:
        """Open histograms of the clients in rows `start` to `end` at the batch's end."""
        rows = np.stack([row[start:end] for row in self._rows], axis=1)
        rows.sort(axis=1)
        client, cycle, count, extra = _runs(rows)
        used = cycle != int(self._idle) >> 1
        if not used.all():
            client, cycle, count, extra = client[used], cycle[used], count[used], extra[used]
        client += start + self._first
        samples = self._whole[cycle] * count + extra
        opened = Open(client, cycle, samples, np.zeros(len(client), np.bool_))
        mine = (self._carried.client >= start + self._first) & (self._carried.client < end + self._first)
        if not mine.any():
            return opened
        carried = (column[mine] for column in _columns(self._carried))
        both = [np.concatenate(pair) for pair in zip(_columns(opened), carried, strict=True)]
        order = np.lexsort((both[1], both[0]))
        return _merged(Open(*(column[order] for column in both)))

    def _carry(self, opened: Open) -> Open:
        """Short histograms that get one more batch."""
        carry = (opened.samples < self._reporting.min_samples) & ~opened.carried
        kept = np.ones(int(carry.sum()), np.bool_)
        return Open(opened.client[carry], opened.cycle[carry], opened.samples[carry], kept)

    def _due(self, opened: Open) -> Due:
        rules = self._reporting
        due = opened.samples >= rules.min_samples
        if rules.tokens_per_batch:
            due &= self._chosen(opened, due)
        samples, most = opened.samples, rules.samples_per_histogram
        client, cycle = opened.client, opened.cycle
        if not due.all():
            client, cycle, samples = client[due], cycle[due], samples[due]
        if samples.max(initial=0) < most:  # nearly always: a division for nothing takes its time
            return Due(client, cycle, np.zeros(len(samples), np.int64), samples)
        if rules.reports_per_class:
            samples = np.minimum(samples, rules.reports_per_class * most)
        full, rest = np.divmod(samples, most)
        rest[rest < rules.min_samples] = 0
        return Due(client, cycle, full, rest)

    def _chosen(self, opened: Open, due: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The reports that tokens pay for: a random choice weighted by samples."""
        most = max(1, int(self._reporting.tokens_per_batch * (1 - self._reporting.cover_rate)))
        numbers = (opened.client * self._cycles + opened.cycle).astype(np.uint64)
        bits = by_number(stream(self._seed, _CHOICE + 16 * self._batch), numbers)
        uniform = (bits >> np.uint64(11)).astype(np.float64) / 2**53
        late = -np.log1p(-uniform) / np.maximum(opened.samples, 1)
        late[~due] = np.inf
        if len(late) == 0:
            return due
        # a row a client: the `most` smallest of it are chosen
        owner = opened.client - opened.client[0]
        begins = np.searchsorted(owner, np.arange(int(owner[-1]) + 2))
        place = np.arange(len(owner)) - begins[owner]
        table = np.full((int(owner[-1]) + 1, int(np.diff(begins).max())), np.inf)
        if table.shape[1] <= most:
            return due
        table[owner, place] = late
        last = np.partition(table, most - 1, axis=1)[:, most - 1]
        return np.asarray(due & (late <= last[owner]), np.bool_)


def _sums(cycle: NDArray[np.int64], values: NDArray[np.int64], cycles: int) -> NDArray[np.int64]:
    return np.bincount(cycle, values, cycles).astype(np.int64)


def _columns(
    opened: Open,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    return opened.client, opened.cycle, opened.samples, opened.carried


def _runs(
    rows: NDArray[np.uint16 | np.uint32],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Row, cycle, windows and extra samples of each run of one cycle in sorted rows of 2 cycle + extra."""
    cycles = rows >> 1
    begins = np.ones(rows.shape, np.bool_)
    np.not_equal(cycles[:, 1:], cycles[:, :-1], out=begins[:, 1:])
    first = np.flatnonzero(begins)
    end = np.append(first[1:], rows.size)
    before = np.cumsum(rows & 1, dtype=np.int32)
    extra = before[end - 1].astype(np.int64)
    extra[1:] -= extra[:-1].copy()
    return first // rows.shape[1], cycles.reshape(-1)[first].astype(np.int64), end - first, extra


def _merged(opened: Open) -> Open:
    """One row for each (client, cycle) of rows that are ordered by both."""
    new = np.ones(len(opened.client), np.bool_)
    new[1:] = (opened.client[1:] != opened.client[:-1]) | (opened.cycle[1:] != opened.cycle[:-1])
    if new.all():
        return opened
    begins = np.flatnonzero(new)
    return Open(
        opened.client[begins],
        opened.cycle[begins],
        np.add.reduceat(opened.samples, begins),
        np.logical_or.reduceat(opened.carried, begins),
    )
