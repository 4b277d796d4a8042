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


def measure(name: str) -> str:
    """The last line of a benchmark's output, which is its JSON."""
    command = [sys.executable, "-m", f"benchmarks.{name}", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(f"benchmarks.{name}: {done.stderr.strip()[-500:]}", remedy="Look at its message.")
    return done.stdout.strip().rpartition("\n")[2]


@app.command()
def bench(
    names: Annotated[list[str], typer.Option("--name", help="A module of benchmarks/; may be repeated.")],
    needs: Annotated[
        str, typer.Option("--needs", help="Resources of the node, JSON; all its CPUs keep others away.")
    ] = '{"CPU": 1}',
) -> None:
    """Run benchmarks one after the other."""
    resources = json.loads(needs)
    with joined():
        for name in names:
            for _, line in spread(measure, [name], resources):
                print(json.dumps({"benchmark": name, **json.loads(line)}), flush=True)


if __name__ == "__main__":
    main(app)
