"""What XLA's profiler says of itself in its files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from capture.rigs.protobuf_bytes import field
from capture.rigs.writers import Written, write_xplane

from penrose_ray.capture.summary import summarise

if TYPE_CHECKING:
    from pathlib import Path

ERRORS, WARNINGS = 2, 3
DROPPED = (
    b"Detected GPU events dropped on node17: Profiler has collected 2097152 driver events and 2097152 device "
    b"events. 1200 events dropped because total device(activity) events reaches max; "
    b"34 events dropped because total driver(callback) events reaches max."
)


@pytest.mark.parametrize(
    ("notices", "gaps", "said"),
    [
        (b"", 0, ()),
        (
            field(WARNINGS, DROPPED),
            1,
            ("The profiler dropped 1,234 events, launches among them: its buffers were full.",),
        ),
        (
            field(ERRORS, b"No GPU was traced on node17"),
            0,
            ("The profiler reports an error or a warning: launches may be missing.",),
        ),
    ],
)
def test_events_that_the_profiler_dropped_are_counted(
    tmp_path: Path, notices: bytes, gaps: int, said: tuple[str, ...]
) -> None:
    path = tmp_path / "host.xplane.pb"
    write_xplane(path, [Written(1), Written(2)])
    path.write_bytes(path.read_bytes() + notices)
    health = summarise(path).health
    assert (health.seen, health.gaps) == (2, gaps)
    assert health.warnings == said, "and no host's name"
