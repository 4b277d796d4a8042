"""What a local Ray started is gone when its end is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from penrose_ray.actors.processes import end_ray, family, is_alive

STUBBORN = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
ready = int(sys.argv[1])
if len(sys.argv) > 2 and os.fork() == 0:
    python, program = sys.argv[2:]
    os.execv(python, ["ray::child", "-c", program, str(ready)])
os.write(ready, b".")
signal.pause()
"""


def test_processes_that_ignore_the_request_are_gone_afterwards_their_children_too() -> None:
    before = set(family(os.getpid()))
    reader, writer = os.pipe()
    parent = subprocess.Popen(
        ["ray::parent", "-c", STUBBORN, str(writer), sys.executable, STUBBORN],  # noqa: S607 - a name of Ray's
        executable=sys.executable,
        pass_fds=[writer],
    )
    os.close(writer)
    try:
        for _ in range(2):
            assert os.read(reader, 1) == b"."
        started = set(family(os.getpid())) - before
        assert len(started) == 2
        end_ray(before, grace_s=0.05)
        assert not [pid for pid in started if is_alive(pid)]
    finally:
        for pid in set(family(os.getpid())) - before:
            os.kill(pid, signal.SIGKILL)
        parent.wait()
        os.close(reader)
