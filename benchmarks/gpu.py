"""On an NVIDIA GPU: counters of one large matrix product, and what capture costs a training loop.

Needs the extras `cupti` and `torch`, and a driver that lets this user read counters. Without a GPU all
figures are null and `reason` says why.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness import Contender, arguments, finish, show, significant, take_turns
from penrose_ray.capture.cupti_source import CuptiSource, PmSampler
from penrose_ray.capture.events import EventBatch
from penrose_ray.errors import SourceError
from penrose_ray.histogram import Counter

if TYPE_CHECKING:
    from collections.abc import Callable

METRICS = {
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": Counter("dram_use", "%", "cupti-pm", "nvidia"),
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": Counter(
        "tensor_use", "%", "cupti-pm", "nvidia"
    ),
}
FIGURES = (
    "matmul_dram_percent",
    "matmul_tensor_percent",
    "matmul_kernels_measured",
    "training_slowdown_percent",
)
SIZE, PRODUCTS = 16_384, 20
STEPS, BATCH, WIDTH, LAYERS = 50, 512, 4096, 6
INTERVAL = 10_000


def main() -> None:
    """Run both groups where there is a GPU; the last line is the JSON object."""
    options = arguments("GPU: counters of a matrix product, cost of capture in a training loop.")
    figures: dict[str, object] = dict.fromkeys(FIGURES)
    reason = unusable()
    if not reason:
        try:
            figures |= product() | training(options.rounds, quiet=options.json)
        except SourceError as error:
            reason = str(error)
    finish(figures | {"reason": reason})


def unusable() -> str:
    """Why the figures cannot be measured here; empty where they can."""
    try:
        import torch  # noqa: PLC0415 - optional extra `torch`
    except ImportError:
        return 'torch is not installed: pip install "penrose-ray[torch]".'
    if not torch.cuda.is_available():
        return "torch finds no GPU."
    capabilities = CuptiSource().probe()
    return "" if capabilities.available else " ".join(capabilities.reasons)


def product() -> dict[str, object]:
    """DRAM and tensor use of a bfloat16 product of two square matrices: medians over its kernels."""
    import torch  # noqa: PLC0415 - optional extra `torch`

    left, right = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    with CuptiSource(sampler=PmSampler(METRICS), hold=0) as source:
        source.arm(range(PRODUCTS * 8), source.counters)
        for _ in range(PRODUCTS):
            left @ right
        torch.cuda.synchronize()
        source.stop()
        batch = _drained(source)
    long = batch.counters[:, 0] > np.nanmax(batch.counters[:, 0]) / 2
    dram, tensor = (_median(batch.counters[long, column]) for column in (2, 3))
    measured = int(np.isfinite(batch.counters[long, 2:]).all(axis=1).sum())
    return {
        "matmul_dram_percent": dram,
        "matmul_tensor_percent": tensor,
        "matmul_kernels_measured": measured,
    }


def training(rounds: int, *, quiet: bool) -> dict[str, object]:
    """Slow-down by the clock on the wall of a training loop whose kernels are captured, 1 in S timed."""
    step = _network()
    source = CuptiSource()

    def captured() -> None:
        with source:
            source.arm(range(source.health().seen, source.health().seen + 10**6, INTERVAL), source.counters)
            step()
            source.stop()
            _drained(source)

    contenders = [Contender("plain", step, STEPS), Contender("captured", captured, STEPS)]
    timings = take_turns(contenders, rounds=rounds, clock=time.perf_counter)
    if not quiet:
        show(timings, unit="us")
    ratio = timings["captured"].median_s / timings["plain"].median_s
    return {"training_slowdown_percent": significant(100 * (ratio - 1))}


def _network() -> Callable[[], None]:
    """A perceptron, and STEPS steps of its training."""
    import torch  # noqa: PLC0415 - optional extra `torch`

    layers: list[Any] = []
    for _ in range(LAYERS):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()]
    network = torch.nn.Sequential(*layers).to("cuda")
    optimiser = torch.optim.SGD(network.parameters(), lr=1e-3)
    batch = torch.randn(BATCH, WIDTH, device="cuda")

    def steps() -> None:
        for _ in range(STEPS):
            optimiser.zero_grad()
            network(batch).square().mean().backward()
            optimiser.step()
        torch.cuda.synchronize()

    return steps


def _drained(source: CuptiSource) -> EventBatch:
    parts = [source.poll(1 << 16)]
    while len(parts[-1]):
        parts.append(source.poll(1 << 16))
    return EventBatch.concat(parts)


def _median(values: np.ndarray[Any, Any]) -> float | None:
    known = values[np.isfinite(values)]
    return significant(float(np.median(known))) if len(known) else None


if __name__ == "__main__":
    main()
