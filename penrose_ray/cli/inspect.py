"""`penrose inspect`: what is in trace files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from penrose_ray.capture.summary import summarise
from penrose_ray.cli.capture import (
    PageOption,
    RedactOption,
    RegionOption,
    ToolsOption,
    announced,
    chosen_tools,
    show,
)
from penrose_ray.cli.output import Format, FormatOption, print_rows
from penrose_ray.errors import ConfigError, TraceError

_COLUMNS = ("file", "format", "kernels", "distinct_names", "devices", "streams", "operators_linked", "error")


def inspect(
    files: Annotated[list[Path], typer.Argument(help="Trace files, compressed or not.")],
    tools: ToolsOption = "",
    page: PageOption = None,
    form: FormatOption = Format.TABLE,
    region: RegionOption = "",
    *,
    redact: RedactOption = False,
) -> None:
    """Count kernels, names, devices and streams of trace files, and say what is wrong with them.

    Example: penrose inspect trace.json.gz --format json

    With -t TOOL,... tools look at the files instead, all ranks together, with --region at one region alone.

    Exit code 20 when no file at all can be read, with tools when one of them cannot.
    """
    if tools:
        from penrose_ray.capture.tools.reading import read_traces  # noqa: PLC0415 - only with tools
        from penrose_ray.capture.tools.regions import only  # noqa: PLC0415 - as above
        from penrose_ray.capture.tools.session import analyse  # noqa: PLC0415 - as above

        chosen = chosen_tools(tools)
        traces = announced(only(read_traces(files), region), redact=redact)
        show(analyse(traces, chosen), chosen, form, page, redact=redact)
        return
    for option, given in (("--html", page), ("--region", region)):
        if given:
            raise ConfigError(f"{option} would not be used: no tool is named.", remedy="Name some with -t.")
    summaries = [summarise(path) for path in files]
    rows = [msgspec.to_builtins(each) for each in summaries]
    print_rows(_redacted(rows) if redact else rows, _COLUMNS, form, "Trace files")
    if all(each.error for each in summaries):
        raise TraceError("None of the files can be read.", remedy="See the error of each file.")


def _redacted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Numbers for the files' names, and warnings and errors without who and where."""
    from penrose_ray.capture.scrub import Scrubber  # noqa: PLC0415 - only to redact

    scrub = Scrubber([row["file"] for row in rows])
    this_machine = Scrubber.of_this_machine()
    return [
        {
            **row,
            "file": f"file {number}",
            "error": this_machine(scrub(row["error"])),
            "health": {
                **row["health"],
                "warnings": [this_machine(scrub(text)) for text in row["health"]["warnings"]],
            },
        }
        for number, row in enumerate(rows, start=1)
    ]
