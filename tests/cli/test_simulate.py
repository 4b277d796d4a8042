"""`penrose simulate` and `penrose plan`."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[..., tuple[int, str, str]]

CONFIGS = Path(__file__).parents[2] / "configs"
PAPER = CONFIGS / "coverage-paper.toml"


def test_json_has_the_table_beside_published_hours_the_parameters_and_the_mode(call: Call) -> None:
    code, out, err = call("simulate", PAPER, "--format", "json")
    result = json.loads(out)
    assert code == 0
    assert result["mode"] == "poisson"
    assert result["parameters"]["fleet"]["clients"] == 100_000
    cells = {(row["apps"], row["mix"]): row for row in result["table"]}
    assert len(cells) == 9
    assert cells[500, "uniform"]["published_hours"] == 0.7
    for (apps, _), row in cells.items():
        assert row["ratio"] == pytest.approx(row["hours"] / row["published_hours"])
        assert apps == 2000 or 0.95 <= row["ratio"] <= 1.05
    assert len(result["curves"]) == 9
    assert "1,000 applications, small: " in err


def test_the_table_ends_with_the_reason_for_the_column_of_2000(call: Call) -> None:
    code, out, _ = call("simulate", PAPER)
    assert code == 0
    assert "published hours" in out
    assert out.strip().splitlines()[-1].startswith("2,000 applications: no single setting")


def test_csv_and_parquet_hold_table_and_curves(call: Call, tmp_path: Path) -> None:
    code, out, _ = call("simulate", PAPER, "--format", "csv", "--out", tmp_path / "found")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0
    assert [row["apps"] for row in rows] == ["2000"] * 3 + ["1000"] * 3 + ["500"] * 3
    table = pd.read_parquet(tmp_path / "found" / "table.parquet")
    assert table["hours"].tolist() == pytest.approx([float(row["hours"]) for row in rows])
    curves = pd.read_csv(tmp_path / "found" / "curves.csv")
    assert set(curves.columns) == {"apps", "mix", "hour", "coverage"}
    assert len(curves) == 9 * 145


def test_a_sweep_and_the_gate_print_rows(call: Call, tmp_path: Path) -> None:
    code, out, _ = call("simulate", CONFIGS / "sim-load.toml", "--format", "json")
    assert code == 0
    hours = [row["hours"] for row in json.loads(out)["table"]]
    assert hours[0] == pytest.approx(2 * hours[1], rel=0.01)
    small = tmp_path / "gate.toml"
    text = (CONFIGS / "sim-gate.toml").read_text()
    small.write_text(text.replace("apps = [2000]", "apps = [5]").replace("100_000", "1_000"))
    code, out, _ = call("simulate", small)
    assert code == 0
    assert "as configured" in out


def test_an_impossible_configuration_ends_with_its_field(call: Call, tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text(PAPER.read_text().replace("load = 0.1", "load = -1"))
    code, out, err = call("simulate", broken)
    assert (code, out) == (10, "")
    assert "fleet.load" in err


def test_plan_says_what_breaks_first(call: Call, tmp_path: Path) -> None:
    arguments = ("plan", "--gpus", "10_000_000", "--apps", "20_000", "--costs", tmp_path)
    code, out, _ = call(*arguments)
    assert code == 0
    assert "First to break: Tor network, at 1,600,000 GPUs" in out
    assert "99 % coverage after 0.29 h (uniform)" in out
    code, out, _ = call(*arguments, "--format", "json")
    result = json.loads(out)
    assert result["breaks_first"] == {"part": "Tor network", "gpus": 1_600_000, "limit": "10% of its users"}
    assert {part["part"] for part in result["parts"]} >= {"gateways", "shards", "journals", "design server"}
    code, out, _ = call(*arguments, "--format", "csv")
    assert len(out.splitlines()) == len(result["parts"]) + 1


def test_plan_refuses_an_empty_fleet(call: Call, tmp_path: Path) -> None:
    code, _, err = call("plan", "--gpus", 0, "--apps", 5, "--costs", tmp_path)
    assert code == 10
    assert "gpus" in err
