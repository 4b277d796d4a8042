"""`penrose classes`: what the running service takes for one program, and what an operator does about it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penrose_ray.cli.control import LONG_S, request
from penrose_ray.cli.output import Format, FormatOption, SetOption, print_rows, say
from penrose_ray.cli.service import folder_of

app = typer.Typer(no_args_is_help=True, help="List, merge and split snippet classes of the running service.")
ConfigArgument = Annotated[Path, typer.Argument(help="The service's configuration.")]
_COLUMNS = ("class_id", "gpu_model", "snippet_hash", "merged_into")


@app.command("list")
def classes(config: ConfigArgument, overrides: SetOption = None, form: FormatOption = Format.TABLE) -> None:
    """Print every class, the snippet that founded it, and the class that it was merged into.

    Example: penrose classes list configs/fleet.toml --format json
    """
    print_rows(request(folder_of(config, overrides), "classes"), _COLUMNS, form, "snippet classes")


@app.command("merge")
def merge(
    config: ConfigArgument,
    kept: Annotated[str, typer.Argument(help="The class that stays.")],
    gone: Annotated[str, typer.Argument(help="The class that becomes another name for it.")],
    overrides: SetOption = None,
) -> None:
    """Hand over the sums of two classes as one, from the next release on.

    Example: penrose classes merge configs/fleet.toml 6f1c... 90ab...

    The gate asks for more reports of a merged sum, because a client may have reported both classes. A task
    with noise merges none. To undo it, split off the snippet that founded the class that is gone.
    """
    request(folder_of(config, overrides), "merge", kept, gone)
    say(f"{gone} is another name of {kept}")


@app.command("split")
def split(
    config: ConfigArgument,
    class_id: Annotated[str, typer.Argument(help="The class that holds two programs.")],
    snippet_hash: Annotated[str, typer.Argument(help="A snippet of the one that is to leave.")],
    overrides: SetOption = None,
) -> None:
    """Found a class for the reports that are nearer to a snippet, those of open batches included.

    Example: penrose classes split configs/fleet.toml 6f1c... 03d2...

    The operators' query on partial_histograms (docs/aggregation.md) lists the snippets.
    """
    made = request(folder_of(config, overrides), "split", class_id, snippet_hash, timeout_s=LONG_S)
    say(f"founded class {made}")
