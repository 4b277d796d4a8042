from __future__ import annotations

from typing import TYPE_CHECKING

from e2e import fleet

from penrose_ray.actors.client import POOLED_REPORTS
from penrose_ray.clock import SystemClock
from penrose_ray.task import verify
from penrose_ray.transport.direct import DirectUploader

if TYPE_CHECKING:
    from pathlib import Path

    from penrose_ray.crypto.keyfile import DesignKeys


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
