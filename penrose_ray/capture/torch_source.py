"""PyTorch's profiler on a schedule: kernels where there is a GPU, operators where there is none.

Between the recorded steps nothing is seen, so every window begins with a gap. Recording costs the training
loop time; the schedule decides how much.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penrose_ray.capture.events import Capabilities, EventBatch, KernelKind
from penrose_ray.capture.formats import read_recording
from penrose_ray.capture.queued import DEFAULT_CAPACITY, QueuedSource
from penrose_ray.capture.recording import durations
from penrose_ray.errors import SourceError
from penrose_ray.histogram import Counter

if TYPE_CHECKING:
    from penrose_ray.capture.recording import Recording

_REMEDY = 'Install it with pip install "penrose-ray[torch]".'


class TorchSource(QueuedSource):
    """Records `active` steps out of every `wait + warmup + active`; the training loop calls `step`.

    Args:
        wait: steps that pass unrecorded.
        warmup: steps in which the profiler runs already and records nothing.
        active: steps that are recorded.
        capacity: launches that may wait for `poll`.
    """

    def __init__(
        self, *, wait: int = 990, warmup: int = 5, active: int = 5, capacity: int = DEFAULT_CAPACITY
    ) -> None:
        vendor = _vendor()
        super().__init__((Counter("duration", "ns", "torch", vendor),), capacity=capacity)
        self._schedule = {"wait": wait, "warmup": warmup, "active": active}
        self._profiler: Any = None

    def probe(self) -> Capabilities:
        """Whether torch is here, and whether it sees kernels or operators only."""
        try:
            import torch  # noqa: PLC0415 - optional extra `torch`
        except ImportError as error:
            return Capabilities(available=False, per_kernel_counters=False, reasons=(f"{error}. {_REMEDY}",))
        if torch.cuda.is_available():
            return Capabilities(available=True, per_kernel_counters=True)
        reason = "torch finds no GPU: operators are recorded instead of kernels."
        return Capabilities(available=True, per_kernel_counters=True, reasons=(reason,))

    def _start(self) -> None:
        try:
            import torch  # noqa: PLC0415 - optional extra `torch`
        except ImportError as error:
            raise SourceError("torch is not installed.", remedy=_REMEDY) from error
        profiler = torch.profiler
        activities = [profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(profiler.ProfilerActivity.CUDA)
        self._profiler = profiler.profile(
            activities=activities,
            schedule=profiler.schedule(**self._schedule),
            on_trace_ready=self._recorded,
            record_shapes=False,
            with_stack=False,
        )
        self._profiler.start()

    def _stop(self) -> None:
        self._profiler.stop()
        self._profiler = None

    def step(self) -> None:
        """Say that a training step is over."""
        if self._profiler is not None:
            self._profiler.step()

    def _recorded(self, profiler: Any) -> None:  # noqa: ANN401 - torch's profiler
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "window.json"
            profiler.export_chrome_trace(str(path))
            recording = read_recording(path)
        if len(recording.batch):
            self._push(recording)
        else:
            self._push_operators(profiler)

    def _push(self, recording: Recording) -> None:
        batch = recording.batch
        names = [self.name_id(name) for name in recording.names]
        devices = [
            self.device_id(model, f"{number} {model}") for number, model in enumerate(recording.devices)
        ]
        self._push_window(
            batch.replace(
                name_id=[names[name] for name in batch.name_id],
                device=[devices[device] for device in batch.device],
                counters=durations(batch.start_ns, batch.end_ns)[:, None],
            )
        )
        self.tally.bad_timestamps += recording.tally.bad_timestamps

    def _push_operators(self, profiler: Any) -> None:  # noqa: ANN401 - torch's profiler
        """Outermost operators of the window, in the order in which they began."""
        outermost = [
            event for event in profiler.events() if _is_operator(event) and not _is_operator(event.cpu_parent)
        ]
        events = sorted(outermost, key=lambda event: event.time_range.start)
        if not events:
            return
        start = [round(event.time_range.start * 1000) for event in events]
        length = [round(event.time_range.elapsed_us() * 1000) for event in events]
        self._push_window(
            EventBatch.of(
                len(events),
                1,
                name_id=[self.name_id(event.name) for event in events],
                kind=int(KernelKind.OPERATOR),
                device=self.device_id("CPU"),
                stream=[event.thread & 0xFFFFFFFF for event in events],
                start_ns=start,
                end_ns=[begun + lasted for begun, lasted in zip(start, length, strict=True)],
                counters=[[float(lasted)] for lasted in length],
            )
        )

    def _push_window(self, batch: EventBatch) -> None:
        if self.tally.seen:
            self.queue.skip(0)
        self.queue.push(batch)


def _is_operator(event: Any) -> bool:  # noqa: ANN401 - torch's event, or None
    """Operators have a namespace; annotations such as `ProfilerStep*` have none."""
    return event is not None and "::" in event.name


def _vendor() -> str:
    try:
        import torch  # noqa: PLC0415 - optional extra `torch`
    except ImportError:
        return "unknown"
    if not torch.cuda.is_available():
        return "cpu"
    return "amd" if torch.version.hip else "nvidia"
