from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from e2e import fleet

from penrose_ray.actors.client import POOLED_REPORTS
from penrose_ray.analyse.kinds import kind_duration_set
from penrose_ray.clock import ManualClock, SystemClock
from penrose_ray.histogram import Counter, CounterSet, marginal
from penrose_ray.kernel_names import KINDS
from penrose_ray.task import verify
from penrose_ray.transport.direct import DirectUploader

if TYPE_CHECKING:
    from pathlib import Path

    from penrose_ray.crypto.keyfile import DesignKeys

MIXED = ("gemm_128x64_tn", "ampere_sgemm_64", "softmax_warp_forward", "ncclDevKernel_AllReduce")


def test_an_idle_client_fills_its_blinding_pool_and_reports_take_from_it(
    tmp_path: Path, design_keys: DesignKeys
) -> None:
    trace = tmp_path / "trace.json.gz"
    fleet.write_trace(trace, seed=1, rounds=1)
    signed = fleet.signed_task(design_keys, fleet.counters_of(trace), cover_rate=0.0)
    task = verify(signed.encode())
    records: list[bytes] = []
    client, _ = fleet.replay_client(
        trace, task, DirectUploader(records.append), fleet.Truth(), clock=SystemClock(), seed=1
    )
    while client.step(1600):
        pass
    for _ in range(2 * POOLED_REPORTS):
        client.step()
    assert client._encryptor.pool_size == POOLED_REPORTS

    sealed = len(records)
    client.finish()
    assert len(records) > sealed
    assert client._encryptor.pool_size == POOLED_REPORTS - (len(records) - sealed)


def test_kinds_of_kernels_are_reported_alone_and_beside_their_durations(
    tmp_path: Path, design_keys: DesignKeys
) -> None:
    trace = tmp_path / "trace.json.gz"
    fleet.write_trace(trace, seed=1, rounds=2, programs=(MIXED,))
    (duration,) = fleet.counters_of(trace)
    kind = Counter("kernel_kind", "1", duration.source, duration.vendor)
    sets = (
        CounterSet("kinds", (kind,), categories=KINDS),
        kind_duration_set(duration.source, duration.vendor),
    )
    for chosen in (sets, sets[:1]):
        signed = fleet.signed_task(
            design_keys, (), counter_sets=chosen, rotation=(tuple(each.name for each in chosen),),
            sampling_interval=1, cover_rate=0.0,
        )  # fmt: skip
        truth = fleet.Truth()
        client, _ = fleet.replay_client(
            trace, verify(signed.encode()), DirectUploader(lambda _: None), truth, clock=SystemClock(), seed=1
        )
        while client.step(1600):
            pass
        client.finish()
        counted = [sum(truth.counts[key] for key in truth.counts if key[1] == number) for number in (0, 1)]
        launches = 2 * 4 * fleet.SNIPPET
        wanted = dict.fromkeys(KINDS, 0) | {
            "gemm": launches // 2, "reduction": launches // 4, "collective": launches // 4
        }  # fmt: skip
        assert np.asarray(counted[0])[: len(KINDS)].tolist() == list(wanted.values())
        if len(chosen) > 1:
            assert marginal(chosen[1], np.asarray(counted[1])).tolist() == list(wanted.values())


def test_what_is_due_is_sent_without_a_look_at_the_source(tmp_path: Path, design_keys: DesignKeys) -> None:
    trace = tmp_path / "trace.json.gz"
    fleet.write_trace(trace, seed=1, rounds=1)
    signed = fleet.signed_task(
        design_keys, fleet.counters_of(trace), cover_rate=0.0, samples_per_histogram=100
    )
    task = verify(signed.encode())
    records: list[bytes] = []
    clock = ManualClock()
    client, _ = fleet.replay_client(
        trace, task, DirectUploader(records.append), fleet.Truth(), clock=clock, seed=1
    )
    client.step(fleet.SNIPPET)
    client.settle()
    assert records == []
    clock.advance(task.batch_s)
    client.settle()
    assert len(records) == 1
    assert client.counts.launches == fleet.SNIPPET
