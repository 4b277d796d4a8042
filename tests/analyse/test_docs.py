"""What docs/analysis.md says, against the code."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penrose_ray import accuracy, analyse
from penrose_ray.analyse import energy

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from penrose_ray.histogram import CounterSet

TEXT = (Path(__file__).parents[2] / "docs" / "analysis.md").read_text(encoding="utf-8")
MODULES = "|".join(
    each.stem for each in Path(analyse.__file__).parent.glob("*.py") if each.stem != "__init__"
)


def test_every_function_that_is_named_exists() -> None:
    named = set(re.findall(rf"`({MODULES})\.(?!json)(\w+)", TEXT))
    assert all(hasattr(accuracy, name) for name in re.findall(r"`accuracy\.(\w+)", TEXT))
    assert len(named) > 15
    for module, name in named:
        assert hasattr(importlib.import_module(f"penrose_ray.analyse.{module}"), name), f"{module}.{name}"


def test_the_example_runs(
    make_task: Callable[..., Any],
    opened: Callable[..., Any],
    write_release: Callable[..., Path],
    duration: CounterSet,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    release = write_release(make_task(duration), [opened(duration, np.arange(128))])
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "release.parquet").write_bytes(release.read_bytes())
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    exec(compile(example, "docs/analysis.md", "exec"), {})  # noqa: S102 - the documentation's own text
    assert (tmp_path / "out" / "report.html").is_file()


def test_the_figures_are_the_codes() -> None:
    assert "9.2 million" in TEXT
    assert round(float(accuracy.samples_for_share(1 / 128)) / 1e6, 1) == 9.2
    assert "728 for 0.1" in TEXT
    assert 727 < accuracy.samples_for_mean(0.1) < 728
    sigma = accuracy.noise_sigma(2.0, 1e-5, accuracy.sensitivity(10_000, tokens=32))
    assert f"sigma {sigma:,.0f}" in TEXT
    assert f"{round(accuracy.contributors_for(sigma, 0.01), -2):,} contributors" in TEXT
    assert f"{round(100 * accuracy.noise_error(sigma, 100_000), 1)} % of an average bin" in TEXT
    one_token = accuracy.noise_sigma(2.0, 1e-5, accuracy.sensitivity(10_000, tokens=1))
    assert f"{round(accuracy.contributors_for(one_token, 0.01), -2):,} would do" in TEXT
    factors = energy.efficiency_factors()
    assert all(f"{name} {value:.2f}" in TEXT for name, value in factors.items())
