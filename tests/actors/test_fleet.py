"""Virtual clients: the reports that real ones would send, the same however they are split."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
import pytest

from penrose_ray.actors.fleet import Fleet, FleetSettings, ReportBatch
from penrose_ray.crypto.accumulate import Accumulator
from penrose_ray.crypto.blinding import Encryptor
from penrose_ray.crypto.packing import check_sum, profile, unpack
from penrose_ray.crypto.plain import PlainAccumulators, plaintexts_of
from penrose_ray.errors import ConfigError
from penrose_ray.sim.scenario import Sampling, Scenario
from penrose_ray.sim.workloads import Group, grouped
from penrose_ray.snippet.minhash import Signature
from penrose_ray.types import BatchId
from penrose_ray.wire import decode

if TYPE_CHECKING:
    from collections.abc import Callable

    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.task import Task

    MakeTask = Callable[..., Task]

SEED = 5
BATCH = BatchId(3)


def settings_of(make_task: MakeTask, clients: int = 800, **changes: object) -> FleetSettings:
    fields = {"batch_s": 7200, "samples_per_histogram": 1000, "min_samples": 50, "reports_per_class": 1}
    workload = grouped(6, [Group(0.5, 0.6, spread=0.1), Group(0.5, 1.2, spread=0.1)])
    sampling = Sampling(counter_groups=2, rotation_s=1200.0)
    scenario = Scenario(workload, np.full(6, 1 / 6), clients=clients, sampling=sampling)
    return FleetSettings(make_task(**{**fields, **changes}), scenario, sealed_one_in=100)


def reports_of(settings: FleetSettings, parts: int = 1, batch: BatchId = BATCH) -> list[ReportBatch]:
    each = settings.scenario.clients // parts
    fleets = [Fleet(part * each, each, settings, SEED) for part in range(parts)]
    return [made for fleet in fleets for made in fleet.reports(batch, size=300)]


def test_a_fleet_in_1_2_or_8_actors_sends_the_same_bytes(make_task: MakeTask) -> None:
    settings = settings_of(make_task)
    digests = []
    for parts in (1, 2, 8):
        records = sorted(record for made in reports_of(settings, parts) for record in made.records())
        digests.append((len(records), hashlib.sha256(b"".join(records)).hexdigest()))
    assert digests[0][0] > 5000
    assert len(set(digests)) == 1


def test_every_report_obeys_the_rules_of_its_task(make_task: MakeTask) -> None:
    settings = settings_of(make_task)
    for made in reports_of(settings):
        assert len(made) <= 300
        assert (made.counts >= 0).all()
        samples = made.counts.sum(axis=1)
        assert (samples[~made.real] == 0).all()
        assert (samples[made.real] >= 50).all()
        assert (samples <= 1000).all()
        assert made.created_hour * 3600 // 7200 == BATCH
        for record in made.records()[:5]:
            report = decode(record)
            assert report.task_id == settings.task.task_id
            Signature.from_bytes(report.scheme, report.signature)


def test_a_client_sends_one_report_a_class_and_counter_set(make_task: MakeTask) -> None:
    seen: set[tuple[int, int, int]] = set()
    for made in reports_of(settings_of(make_task)):
        rows = zip(made.client[made.real], made.app[made.real], made.counter_set[made.real], strict=True)
        for row in rows:
            key = tuple(map(int, row))
            assert key not in seen
            seen.add(key)  # type: ignore[arg-type]
    assert len({client for client, _, _ in seen}) == 800


def test_report_ids_never_repeat_and_spread_over_buckets(make_task: MakeTask) -> None:
    settings = settings_of(make_task)
    fleet = Fleet(0, 800, settings, SEED)
    made = [each for batch in (0, 1) for each in fleet.reports(BatchId(batch))]
    ids = [row.tobytes() for each in made for row in each.report_id]
    assert len(set(ids)) == len(ids) > 10_000
    counts = np.bincount([each[0] for each in ids], minlength=256)
    expected = len(ids) / 256
    assert ((counts - expected) ** 2 / expected).sum() < 340  # chi squared, 255 degrees: p = 0.0003


def test_a_share_q_of_reports_is_cover(make_task: MakeTask) -> None:
    for rate in (0.0, 0.2):
        made = reports_of(settings_of(make_task, cover_rate=rate))
        real = sum(int(each.real.sum()) for each in made)
        total = sum(len(each) for each in made)
        deviation = np.sqrt(rate * (1 - rate) / total)
        assert abs(1 - real / total - rate) <= 4 * deviation + 1e-3 * (rate > 0)


def test_bins_follow_the_class_distribution(make_task: MakeTask) -> None:
    settings = settings_of(make_task)
    fleet = Fleet(0, 800, settings, SEED)
    total: dict[int, np.ndarray] = defaultdict(lambda: np.zeros(128))
    number: dict[int, int] = defaultdict(int)
    for made in fleet.reports(BATCH):
        for row in np.flatnonzero(made.real):
            pair = int(made.app[row] * 2 + made.counter_set[row])
            total[pair] += made.counts[row]
            number[pair] += 1
    assert len(total) == 12
    for pair, counts in total.items():
        masses = np.diff(fleet.shapes[pair], prepend=0)
        # each report's bin is off by less than 1, independently: standard deviation of at most 1/2 each
        assert np.abs(counts - masses * counts.sum()).max() < 5 * 0.5 * np.sqrt(number[pair])


def test_the_sealed_sample_opens_to_the_plain_sums(make_task: MakeTask, design_keys: DesignKeys) -> None:
    settings = settings_of(make_task)
    task, layout, clear = settings.task, settings.task.profile(), profile("plain3072")
    encryptor = Encryptor(task.key(), layout, exponent="short")
    sums: dict[tuple[int, int], Accumulator] = {}
    plain: PlainAccumulators[tuple[int, int]] = PlainAccumulators(clear, capacity=task.capacity())
    clients: set[int] = set()
    for made in reports_of(settings, parts=2):
        rows = np.flatnonzero(made.sealed)
        clients.update(made.client[rows].tolist())
        blobs = made.plain_blobs()
        for row, report in zip(rows, made.sealed_reports(encryptor), strict=True):
            key = int(made.app[row]), int(made.counter_set[row])
            sums.setdefault(key, Accumulator(task.key(), layout, capacity=task.capacity())).add_many(
                [report.blob]
            )
            plain.add_many([(key, blobs[row].tobytes())])
    assert len(clients) == 8  # one of each hundred consecutive clients
    assert len({client // 100 for client in clients}) == 8
    for key, total in sums.items():
        opened = unpack(design_keys.paillier.decrypt(total.to_bytes(), layout), layout)
        wanted = unpack(plaintexts_of(plain.to_bytes(key), clear), clear)
        assert (opened.bins == wanted.bins).all()
        assert (opened.unfilled, opened.real_reports) == (wanted.unfilled, wanted.real_reports)
        check_sum(opened, weight=total.weight, samples_per_histogram=1000)


def test_batches_come_in_order(make_task: MakeTask) -> None:
    fleet = Fleet(0, 10, settings_of(make_task), SEED)
    list(fleet.reports(BatchId(7)))
    list(fleet.reports(BatchId(8)))
    with pytest.raises(ConfigError, match="Batch 8"):
        list(fleet.reports(BatchId(8)))


def test_impossible_fleets_are_refused(make_task: MakeTask) -> None:
    settings = settings_of(make_task)
    with pytest.raises(ConfigError, match="Clients 700 to 900"):
        Fleet(700, 200, settings, SEED)
    with pytest.raises(ConfigError, match="counter_groups"):
        FleetSettings(settings.task, Scenario(settings.scenario.workload, settings.scenario.share))
    with pytest.raises(ConfigError, match="batch_s"):
        FleetSettings(make_task(batch_s=60), settings.scenario)
    with pytest.raises(ConfigError, match="sealed_one_in"):
        FleetSettings(settings.task, settings.scenario, sealed_one_in=-1)
