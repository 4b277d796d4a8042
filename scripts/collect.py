"""A whole collection on a Ray cluster: service, clients, release and report.

ray job submit --working-dir . -- python scripts/collect.py --config configs/laptop.toml --to s3://bucket/run-1
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import pyarrow.fs as pafs
import typer

from penrose_ray.actors.job import ADDRESS_VARIABLE
from penrose_ray.cli.app import main
from penrose_ray.cli.output import Format, FormatOption, SetOption, say
from penrose_ray.cli.run import run
from penrose_ray.settings import load_settings

app = typer.Typer()


@app.command()
def collect(
    config: Annotated[Path, typer.Option("--config", help="Such as configs/laptop.toml.")],
    overrides: SetOption = None,
    form: FormatOption = Format.TABLE,
    to: Annotated[str, typer.Option("--to", help="Where run.out_dir is copied: a path or s3://...")] = "",
) -> None:
    """Do what penrose run does, in the cluster of the job; the opened rows go to stdout."""
    changes = list(overrides or ())
    if address := os.environ.get(ADDRESS_VARIABLE):
        changes.append(f'service.ray_address="{address}"')
    run(config, changes, form)
    if to:
        settings, _ = load_settings(config, tuple(changes))
        for name in ("release.parquet", "report.html", "run.json"):
            pafs.copy_files(str(settings.run.out_dir / name), f"{to.rstrip('/')}/{name}")
        say(f"{to} has the release, the report and run.json")


if __name__ == "__main__":
    main(app)
