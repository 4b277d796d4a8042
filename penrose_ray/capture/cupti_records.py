"""CUPTI's kernel activity records as columns, from arrays in C layout or from cupti-python's objects."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import numpy as np

from penrose_ray.capture.events import EventBatch, KernelKind
from penrose_ray.capture.recording import checked_times

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from penrose_ray.capture.tally import Tally

_FIELDS = (
    "start",
    "end",
    "queued",
    "device_id",
    "context_id",
    "stream_id",
    "graph_node_id",
    "correlation_id",
    "grid_x",
    "grid_y",
    "grid_z",
    "block_x",
    "block_y",
    "block_z",
)
_FINE: dict[KernelKind | None, str] = {KernelKind.COPY: "memory copy", KernelKind.SET: "memory set"}
_I63 = (1 << 63) - 1

Fields = dict[str, "NDArray[np.int64]"]


def kind_of(activity: Any) -> KernelKind | None:  # noqa: ANN401 - cupti-python's record
    """What a record is, None when it is no row of the stream."""
    if hasattr(activity, "grid_x"):
        return KernelKind.KERNEL
    if hasattr(activity, "copy_kind"):
        return KernelKind.COPY
    return KernelKind.SET if hasattr(activity, "memory_kind") and hasattr(activity, "value") else None


def fields_of_objects(activities: Sequence[Any]) -> tuple[Fields, list[str]]:
    """Fields and names of cupti-python's activity objects; copies and fills have names of their own."""
    fields = {
        name: np.array([int(getattr(each, name, 0)) & _I63 for each in activities], dtype=np.int64)
        for name in _FIELDS
    }
    kinds = map(kind_of, activities)
    return fields, [
        _FINE.get(kind) or str(each.name or "") for kind, each in zip(kinds, activities, strict=True)
    ]


def device_identity(device: Any) -> str:  # noqa: ANN401 - cupti-python's record
    """A device's UUID as NVIDIA's tools write it, the instance's where the GPU is divided (MIG)."""
    whole = f"GPU-{uuid.UUID(bytes=bytes(device.uuid.bytes))}"
    if not getattr(device, "is_mig_enabled", 0):
        return whole
    instance = bytes(device.mig_uuid.bytes)
    if any(instance):
        return f"MIG-{uuid.UUID(bytes=instance)}"
    return f"{whole}/{device.gpu_instance_id}/{device.compute_instance_id}"


def kernel_batch(
    fields: Fields,
    names: Sequence[str],
    *,
    name_id: Callable[[str], int],
    device: Callable[[int], int],
    width: int,
    tally: Tally,
    kinds: Sequence[KernelKind] | KernelKind = KernelKind.KERNEL,
) -> EventBatch:
    """Launches with duration and queue delay in the first two of `width` counters.

    Records with impossible times (CUPTI delivers some after millions of graph launches) keep their place and
    lose their times.
    """
    rows = len(names)
    start, end = checked_times(fields["start"], fields["end"], tally)
    known = end != 0
    counters = np.full((rows, width), np.nan)
    counters[known, 0] = (end - start)[known]
    delayed = known & (fields["queued"] > 0) & (fields["queued"] <= start)
    counters[delayed, 1] = (start - fields["queued"])[delayed]
    return EventBatch.of(
        rows,
        width,
        kind=kinds,
        name_id=[name_id(name) for name in names],
        device=[device(number) for number in fields["device_id"].tolist()],
        context=fields["context_id"] & 0xFFFFFFFF,
        stream=fields["stream_id"] & 0xFFFFFFFF,
        graph_node=fields["graph_node_id"] & 0xFFFFFFFF,
        correlation=fields["correlation_id"],
        start_ns=start,
        end_ns=end,
        grid=np.column_stack([fields[f"grid_{axis}"] for axis in "xyz"]) & 0xFFFFFFFF,
        block=np.column_stack([fields[f"block_{axis}"] for axis in "xyz"]) & 0xFFFFFFFF,
        counters=counters,
    )
