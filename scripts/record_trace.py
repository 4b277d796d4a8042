"""Record the sort program's launches: `python scripts/record_trace.py OUT.json.gz [LAUNCHES]`.

Made penrose_ray/capture/samples/sort.json.gz, the trace that the replay client of the demonstration plays.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from penrose_ray.actors.programs import sort
from penrose_ray.capture.opencl import OpenCLSource
from penrose_ray.capture.record import record

DEFAULT_LAUNCHES = 15_600


def main(arguments: list[str]) -> None:
    """Run the program in a thread and write its launches."""
    path = Path(arguments[0])
    launches = int(arguments[1]) if arguments[1:] else DEFAULT_LAUNCHES
    with OpenCLSource(arm_all=True) as source:
        stopped = threading.Event()
        program = threading.Thread(target=sort.run, args=(stopped.is_set,))
        program.start()
        written = record(source, path, max_launches=launches)
        stopped.set()
        program.join()
    print(f"{written} launches, {path.stat().st_size} bytes in {path}")


if __name__ == "__main__":
    main(sys.argv[1:])
