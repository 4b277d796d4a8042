"""Running a program under capture until it ends, with all its launches in one recording."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.capture.events import EventBatch
from penrose_ray.capture.injection import cuda_ring_source
from penrose_ray.capture.preload import opencl_ring_source
from penrose_ray.capture.recording import Recording
from penrose_ray.capture.tally import Tally
from penrose_ray.errors import ConfigError, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from penrose_ray.capture.source import EventSource
    from penrose_ray.capture.survey import Launchpad

RATE = "PENROSE_SAMPLING_RATE"
_POLL = 4096
_IDLE_S = 0.002
_AHEAD = 4096
"""Launches that are armed ahead of the stream: as many as a poll can take."""


def sampling_rate(environment: Mapping[str, str]) -> int:
    """S of `PENROSE_SAMPLING_RATE`: one launch in S is timed; 1 when it is not set.

    Raises:
        ConfigError: it is no whole number of 1 or more.
    """
    text = environment.get(RATE, "1")
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"{RATE}={text!r} is no whole number of 1 or more.", remedy="Set it to 1 or more.")
    return int(text)


def watch(
    pad: Launchpad,
    command: Sequence[str],
    directory: Path,
    *,
    rate: int = 1,
    wait: Callable[[float], None] = time.sleep,
) -> tuple[Recording, int]:
    """Start the command, poll its launches until it ends, and give them with its exit status.

    Raises:
        SourceError: the command cannot be started.
    """
    opencl = "opencl" in pad.sources
    with opencl_ring_source(directory, keep_marks=True) if opencl else cuda_ring_source(directory) as source:
        armed = _Arming(source, rate)
        armed.on(0)
        try:
            process = subprocess.Popen(list(command), env=dict(pad.environment))  # noqa: S603 - the user's own command
        except OSError as error:
            raise SourceError(
                f"{command[0]} cannot be started: {error.strerror}.", remedy="Check the command behind --."
            ) from error
        try:
            batch = _drain(source, process, armed, wait)
        finally:
            if process.poll() is None:
                process.terminate()
            status = process.wait()
        health = source.health()
        tally = Tally(seen=len(batch) + health.dropped, dropped=health.dropped, gaps=health.gaps)
        for warning in health.warnings:
            tally.warn(warning)
        if health.dropped:
            tally.warn(f"{health.dropped} launches came faster than they were read and are missing.")
        recording = Recording(
            "live", batch, tuple(source.names), tuple(source.devices), source.counters, tally,
            marks=source.marks,
        )  # fmt: skip
        return recording, status


def _drain(
    source: EventSource, process: subprocess.Popen[bytes], armed: _Arming, wait: Callable[[float], None]
) -> EventBatch:
    parts: list[EventBatch] = []
    seen = 0
    while True:
        ended = process.poll() is not None
        part = source.poll(_POLL)
        if len(part):
            parts.append(part)
            seen += len(part)
            armed.on(seen)
        elif ended:
            break
        else:
            wait(_IDLE_S)
    whole = EventBatch.concat(parts) if parts else EventBatch.empty(len(source.counters))
    return whole.replace(seq=np.arange(len(whole)))


class _Arming:
    """Keeps 1 launch in S armed ahead of the stream, at random distances so that no period is missed."""

    def __init__(self, source: EventSource, rate: int) -> None:
        self._source, self._rate = source, rate
        self._random = np.random.default_rng()
        self._next = 0

    def on(self, seen: int) -> None:
        """Arm what may come next when `seen` launches have been read."""
        coming: list[int] = []
        while self._next < seen + _AHEAD * self._rate and len(coming) < _AHEAD:
            coming.append(self._next)
            self._next += 1 if self._rate == 1 else int(self._random.integers(1, 2 * self._rate))
        if coming:
            self._source.arm(coming, self._source.counters)
