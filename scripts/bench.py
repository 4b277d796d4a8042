"""Benchmarks on a node of a Ray cluster, one JSON line each.

ray job submit --working-dir . -- python scripts/bench.py --name crypto --name snippet
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Annotated

import typer

from penrose_ray.actors.job import joined, spread
from penrose_ray.cli.app import main
from penrose_ray.errors import ConfigError

app = typer.Typer()


def measure(job: tuple[str, int]) -> str:
    """The last line of the output of a benchmark (name, rounds), which is its JSON."""
    name, rounds = job
    command = [sys.executable, "-m", f"benchmarks.{name}", "--json", "--rounds", str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(f"benchmarks.{name}: {done.stderr.strip()[-500:]}", remedy="Look at its message.")
    return done.stdout.strip().rpartition("\n")[2]


@app.command()
def bench(
    names: Annotated[list[str], typer.Option("--name", help="A module of benchmarks/; may be repeated.")],
    rounds: Annotated[int, typer.Option("--rounds", min=2, help="Turns of each contender.")] = 7,
    cpus: Annotated[float, typer.Option("--cpus", min=0.1, help="All of a node's keep others away.")] = 1,
    gpus: Annotated[float, typer.Option("--gpus", min=0, help="GPUs that the node must have.")] = 0,
) -> None:
    """Run benchmarks one after the other."""
    with joined():
        for name in names:
            for _, line in spread(measure, [(name, rounds)], {"CPU": cpus, "GPU": gpus}):
                print(json.dumps({"benchmark": name, **json.loads(line)}), flush=True)


if __name__ == "__main__":
    main(app)
