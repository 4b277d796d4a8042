"""`penrose linkability`: what observers of uploads can join, and what the fleet means for Tor."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Annotated

import numpy as np
import typer

from penrose_ray.cli.output import Format, FormatOption, print_rows, say
from penrose_ray.errors import ConfigError
from penrose_ray.transport.linkability import LIMIT, Assumptions, TorLoad, findings, tor_load

_COLUMNS = ("observer", "question", "percent", "simulated_percent", "within_limit", "assumes")
_PERCENT = 100.0


def linkability(  # noqa: PLR0913, PLR0917 - each argument is an option of the command
    clients: Annotated[
        int, typer.Option(min=1, max=10**12, help="Clients that upload to one service.")
    ] = 100_000,
    report_every_s: Annotated[float, typer.Option(help="Mean time between a client's reports.")] = 3000.0,
    spread_s: Annotated[float, typer.Option(help="Standard deviation of that time.")] = 300.0,
    mean_gap_s: Annotated[float, typer.Option(help="Mean gap of the client's pace.")] = 300.0,
    latency_s: Annotated[float, typer.Option(help="How well two ends can match moments.")] = 2.0,
    guards: Annotated[int, typer.Option(help="Guards of a client; the paper sets 3.")] = 1,
    hostile_guards: Annotated[float, typer.Option(help="Hostile share of Tor's guards.")] = 0.01,
    rounds: Annotated[int, typer.Option(min=1000, max=10_000_000, help="Draws.")] = 1_000_000,
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 1,
    form: FormatOption = Format.TABLE,
) -> None:
    """Say how likely observers link an upload to a client, against the published 0.001 %.

    Example: penrose linkability --clients 100000 --guards 3
    """
    numbers = (report_every_s, spread_s, mean_gap_s, latency_s, hostile_guards)
    if not all(map(math.isfinite, numbers)):
        raise ConfigError("An option is no finite number.", remedy="Give times in seconds and a share.")
    assumptions = Assumptions(
        clients, report_every_s, spread_s, mean_gap_s, latency_s, guards, hostile_guards
    )
    found = findings(assumptions, rounds=rounds, rng=np.random.default_rng(seed))
    rows = [
        {
            "observer": each.observer,
            "question": each.question,
            "probability": each.probability,
            "percent": _PERCENT * each.probability,
            "simulated_percent": "" if each.simulated is None else _PERCENT * each.simulated,
            "within_limit": each.within_limit,
            "assumes": each.assumes,
            "assumptions": asdict(assumptions),
            "tor_load": asdict(tor_load(assumptions)),
        }
        for each in found
    ]
    print_rows(rows, _COLUMNS, form, f"linkability of an upload; the limit is {_PERCENT * LIMIT:g} %")
    _say_load(tor_load(assumptions))


def _say_load(load: TorLoad) -> None:
    say(
        f"Tor load: {load.uploads_per_s:,.1f} uploads/s, {load.circuits_per_s:,.0f} circuits/s, "
        f"{load.relay_mbit_per_s:,.1f} Mbit/s over all relays; synchronised clients would send "
        f"{load.synchronous_uploads_per_s:,.0f}/s; at most {load.most_clients_per_address:,} clients behind "
        "one address. Agree with the Tor Project before a fleet uses the public network (docs/tor.md)."
    )
