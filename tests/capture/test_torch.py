from __future__ import annotations

import numpy as np
import pytest

from penrose_ray.capture.events import EventBatch, KernelKind
from penrose_ray.capture.source import EventSource
from penrose_ray.capture.torch_source import TorchSource


def _work(source: TorchSource, steps: int) -> None:
    torch = pytest.importorskip("torch")
    weights = torch.ones(8, 8)
    for _ in range(steps):
        torch.relu(weights @ weights) + 1
        source.step()


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_recorded_steps_give_their_operators_in_order() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("with a GPU this source records kernels")
    with TorchSource(wait=3, warmup=1, active=2) as source:
        assert isinstance(source, EventSource)
        source.arm([4], source.counters)
        _work(source, 12)
        batch = EventBatch.concat([source.poll(6), source.poll(6)])
    names = [source.names[name] for name in batch.name_id]
    assert names == ["aten::matmul", "aten::relu", "aten::add"] * 4
    assert (batch.kind == KernelKind.OPERATOR).all()
    assert batch.gap.tolist() == [False] * 6 + [True] + [False] * 5
    assert np.flatnonzero(~np.isnan(batch.counters[:, 0])).tolist() == [4]
    assert (batch.end_ns >= batch.start_ns).all()


def test_probe_says_what_torch_can_see() -> None:
    pytest.importorskip("torch")
    capabilities = TorchSource().probe()
    assert capabilities.available


def test_without_torch_the_reason_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    capabilities = TorchSource().probe()
    assert not capabilities.available
    assert 'pip install "penrose-ray[torch]"' in capabilities.reasons[0]
