"""`penrose linkability`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[..., tuple[int, str, str]]


def test_it_prints_each_observer_s_chances_with_their_assumptions(call: Call) -> None:
    code, out, err = call("linkability", "--rounds", 100_000, "--format", "json")
    rows = json.loads(out)

    assert code == 0
    assert rows[0]["percent"] == pytest.approx(0.001)
    assert rows[0]["within_limit"] is True
    assert rows[0]["assumptions"]["clients"] == 100_000
    assert rows[0]["tor_load"]["uploads_per_s"] == pytest.approx(33.3, abs=0.1)
    assert {"aggregation service", "one guard", "service and hostile guards"} == {
        row["observer"] for row in rows
    }
    assert "Tor Project" in err


def test_the_paper_s_three_guards_are_worse(call: Call) -> None:
    one, three = (
        json.loads(call("linkability", "--rounds", 1000, "--guards", guards, "--format", "json")[1])
        for guards in (1, 3)
    )
    assert three[-1]["probability"] > 2.9 * one[-1]["probability"]


def test_a_wrong_number_has_a_remedy(call: Call) -> None:
    assert call("linkability", "--clients", 1)[0] == 10


def test_tables_and_csv_are_printed(call: Call) -> None:
    assert "0.001" in call("linkability", "--rounds", 1000)[1]
    assert call("linkability", "--rounds", 1000, "--format", "csv")[1].startswith("observer,")
