"""Ray comes up in a time of its own, or is tried once more, or one error says so."""

from __future__ import annotations

import gc
import os
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, NoReturn

import pytest
import ray
import ray._private.node
import ray._private.services
from e2e.service_config import settings_in

from penrose_ray.actors.processes import end_ray, family
from penrose_ray.actors.ray_start import start_local
from penrose_ray.actors.topology import build
from penrose_ray.errors import PlacementError

if TYPE_CHECKING:
    from pathlib import Path

    from penrose_ray.crypto.keyfile import DesignKeys


@pytest.mark.parametrize(
    ("said", "raised", "tries"),
    [
        ("The current node timed out during startup. This could happen because ...", PlacementError, 2),
        ("something that Ray never said before", RuntimeError, 1),
    ],
)
def test_a_ray_too_slow_to_start_is_one_error_and_another_fault_keeps_its_own(
    tmp_path: Path,
    design_keys: DesignKeys,
    monkeypatch: pytest.MonkeyPatch,
    said: str,
    raised: type[Exception],
    tries: int,
) -> None:
    calls = []

    def init(**_: object) -> NoReturn:
        calls.append(1)
        raise RuntimeError(said)

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(raised) as caught:
        build(*settings_in(tmp_path, design_keys))
    assert len(calls) == tries
    if raised is PlacementError:
        assert "less busy" in str(caught.value)


def test_a_ray_that_ran_out_of_time_is_ended_and_started_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its clock jumps over the half minute before the node is there; the processes are real."""
    real = ray._private.services.get_node
    before = set(family(os.getpid()))
    left: set[int] = set()
    jumped_s = 0.0

    def get_node(*arguments: object) -> object:
        nonlocal jumped_s
        if not jumped_s:
            jumped_s = 31.0
            left.update(set(family(os.getpid())) - before)
            raise RuntimeError("the node is not there yet")
        return real(*arguments)

    clock = SimpleNamespace(sleep=time.sleep, time=time.time, monotonic=lambda: time.monotonic() + jumped_s)
    monkeypatch.setattr(ray._private.services, "get_node", get_node)
    monkeypatch.setattr(ray._private.node, "time", clock)
    try:
        start_local(num_cpus=1, num_gpus=0)
        assert ray.cluster_resources()["CPU"] == 1
        assert "trying once more" in caplog.text
        assert left
        assert not left & set(family(os.getpid())), "what the first one had started"
    finally:
        ray.shutdown()
        end_ray(before)
        gc.collect()  # no handle is dropped that would warn
