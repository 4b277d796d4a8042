"""Coverage experiments on a Ray cluster: every cell of a configuration is a task of its own.

ray job submit --working-dir . -- python scripts/coverage.py --config configs/coverage-paper.toml
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penrose_ray.actors.job import joined, spread
from penrose_ray.cli.app import main
from penrose_ray.cli.output import Format, FormatOption, say
from penrose_ray.cli.simulate import OutOption, show
from penrose_ray.sim.catalogue import Found, run
from penrose_ray.sim.cells import cells, united
from penrose_ray.sim.settings import load_simulation

app = typer.Typer()


@app.command()
def coverage(
    config: Annotated[Path, typer.Option("--config", help="Such as configs/coverage-paper.toml.")],
    form: FormatOption = Format.TABLE,
    out: OutOption = None,
) -> None:
    """Run an experiment's cells side by side; the result is that of penrose simulate."""
    settings = load_simulation(config)
    parts = cells(settings)
    found: dict[int, Found] = {}
    with joined():
        for position, part in spread(run, parts):
            found[position] = part
            say(f"{len(found)} of {len(parts)} cells done")
    show(settings, united([found[position] for position in range(len(parts))]), form, out)


if __name__ == "__main__":
    main(app)
