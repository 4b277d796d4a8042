"""XLA's xplane protobuf (JAX, TensorFlow): GPU planes, one line for each stream.

Field numbers are those of tsl/profiler/protobuf/xplane.proto.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, NamedTuple

from penrose_ray.capture.files import plain
from penrose_ray.capture.protobuf import WireFormatError, children, fields, message, number, signed, text
from penrose_ray.capture.recording import Launch, LaunchRows, Recording, assemble, duration_counter
from penrose_ray.capture.tally import Tally
from penrose_ray.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FORMAT = "xplane"
_SPACE_PLANES, _SPACE_ERRORS, _SPACE_WARNINGS = 1, 2, 3
_PLANE_NAME, _PLANE_LINES, _PLANE_EVENTS, _PLANE_STATS, _PLANE_OWN_STATS = 2, 3, 4, 5, 6
_LINE_ID, _LINE_NAME, _LINE_START_NS, _LINE_EVENTS = 1, 2, 3, 4
_EVENT_KIND, _EVENT_OFFSET_PS, _EVENT_DURATION_PS, _EVENT_STATS = 1, 2, 3, 4
_STAT_KIND, _STAT_UINT, _STAT_INT, _STAT_STRING = 1, 3, 4, 5
_ENTRY_KEY, _ENTRY_VALUE, _NAMED = 1, 2, 2
_GPU_PLANE = re.compile(r"/device:GPU:(\d+)")
_DROPPED = re.compile(r"(\d+) events dropped because")
_STREAM_LINE = re.compile(r"Stream #(\d+)(?:\((.*)\))?")


class _Plane(NamedTuple):
    device: int
    model: str
    events: dict[int, str]
    stats: dict[int, str]


def is_xplane(head: bytes) -> bool:
    """Whether a file that starts like this can be an xplane: its first field is a plane with a name."""
    try:
        planes = message(head[:16])
    except WireFormatError as error:
        return (
            head[:1] == b"\n" and "ends at byte" in str(error) and b"\x12" in head[:8] and b"/" in head[:16]
        )
    return _SPACE_PLANES in planes


def read_xplane(path: Path) -> Recording:
    """The kernels on all GPU planes; copies are left out.

    A profiler whose buffers were full says in the file how many events it dropped, not which: it is a gap,
    counted and warned of.

    Raises:
        TraceError: the protobuf is damaged.
    """
    rows, tally = LaunchRows(), Tally()
    linked = 0
    try:
        with plain(path) as stream:
            data = stream.read()
        for field, value in fields(data):
            if field == _SPACE_PLANES and isinstance(value, bytes):
                linked += _add_plane(value, rows)
            elif field in (_SPACE_ERRORS, _SPACE_WARNINGS):
                _add_notice(text(value), tally)
    except (WireFormatError, EOFError, OSError, zlib.error) as error:
        raise TraceError(
            f"{path} is a damaged xplane file: {error}.", remedy="Copy it again or profile once more."
        ) from error
    return assemble(
        FORMAT,
        rows.columns(),
        names=rows.names,
        devices=rows.devices,
        duration=duration_counter(FORMAT, rows.devices),
        tally=tally,
        operators_linked=linked,
    )


def _add_notice(notice: str, tally: Tally) -> None:
    """What the profiler says of itself; its text names the host and is not repeated."""
    dropped = sum(map(int, _DROPPED.findall(notice)))
    if dropped:
        tally.gaps += 1
        tally.warn(f"The profiler dropped {dropped:,} events, launches among them: its buffers were full.")
    else:
        tally.warn("The profiler reports an error or a warning: launches may be missing.")


def _add_plane(raw: bytes, rows: LaunchRows) -> int:
    name = _GPU_PLANE.fullmatch(text(message(raw).get(_PLANE_NAME)))
    if name is None:
        return 0
    stats = _metadata(raw, _PLANE_STATS)
    plane = _Plane(int(name.group(1)), _model(raw, stats), _metadata(raw, _PLANE_EVENTS), stats)
    linked = 0
    for line in children(raw, _PLANE_LINES):
        for launch, has_operator in _launches(line, plane):
            rows.add(launch)
            linked += has_operator
    return linked


def _metadata(raw: bytes, field: int) -> dict[int, str]:
    """Id -> name of a plane's table of events or stats."""
    table = {}
    for entry in children(raw, field):
        parts = message(entry)
        value = parts.get(_ENTRY_VALUE)
        table[number(parts.get(_ENTRY_KEY))] = (
            text(message(value).get(_NAMED)) if isinstance(value, bytes) else ""
        )
    return table


def _model(raw: bytes, stats: dict[int, str]) -> str:
    own = {}
    for stat in children(raw, _PLANE_OWN_STATS):
        parts = message(stat)
        own[stats.get(number(parts.get(_STAT_KIND)), "")] = parts
    vendor = text(own.get("device_vendor", {}).get(_STAT_STRING))
    cores = number(own.get("core_count", {}).get(_STAT_INT))
    return f"{vendor} GPU with {cores} cores" if vendor and cores else vendor


def _launches(line: bytes, plane: _Plane) -> Iterator[tuple[Launch, bool]]:
    """The kernels of a line, each with whether an operator is named for it."""
    head = message(line)
    stream = _STREAM_LINE.fullmatch(text(head.get(_LINE_NAME)))
    if stream is None or (stream.group(2) is not None and "Kernel" not in stream.group(2)):
        return
    mixed = stream.group(2) != "Kernel"
    for raw in children(line, _LINE_EVENTS):
        event = message(raw)
        stats = _stats(raw, plane)
        if mixed and "kernel_details" not in stats:
            continue
        start = signed(head.get(_LINE_START_NS)) + signed(event.get(_EVENT_OFFSET_PS)) // 1000
        yield (
            Launch(
                name=plane.events.get(number(event.get(_EVENT_KIND)), ""),
                start_ns=start,
                end_ns=start + signed(event.get(_EVENT_DURATION_PS)) // 1000,
                device=plane.device,
                model=plane.model,
                stream=int(stream.group(1)),
                correlation=stats.get("correlation_id", 0),
            ),
            "hlo_op" in stats or "tf_op" in stats,
        )


def _stats(raw: bytes, plane: _Plane) -> dict[str, int]:
    found = {}
    for field, value in fields(raw):
        if field == _EVENT_STATS and isinstance(value, bytes):
            stat = message(value)
            number_ = number(stat.get(_STAT_UINT)) or number(stat.get(_STAT_INT))
            found[plane.stats.get(number(stat.get(_STAT_KIND)), "")] = number_
    return found
