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
from penrose_ray.cli.run import RELEASE, REPORT, SUMMARY, run
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
        _copy(settings.run.out_dir, to)


def _copy(folder: Path, to: str) -> None:
    place, root = pafs.FileSystem.from_uri(to if "://" in to else str(Path(to).absolute()))
    place.create_dir(root, recursive=True)
    for name in (RELEASE, REPORT, SUMMARY):
        pafs.copy_files(
            str(folder / name), f"{root}/{name}", pafs.LocalFileSystem(), destination_filesystem=place
        )
    say(f"{to} has {RELEASE}, {REPORT} and {SUMMARY}")


if __name__ == "__main__":
    main(app)
