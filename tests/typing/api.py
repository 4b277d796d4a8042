"""How the public API is used: never run, only type-checked (make lint)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, assert_type

import penrose_ray as pr
from penrose_ray.policy import OwnerPolicy, load_policy
from penrose_ray.settings import Settings, load_settings
from penrose_ray.sim.closed_form import hit_probability, hours_to_coverage
from penrose_ray.task import Task, verify
from penrose_ray.toml_file import TomlFile

if TYPE_CHECKING:
    import pandas as pd

assert_type(pr.__version__, str)
frame: pd.DataFrame = pr.open_release("out/release.parquet")
also: pd.DataFrame = pr.open_release(Path("out/release.parquet"))

with pr.annotate("training"):
    pass


def handled(error: pr.PenroseError) -> str:
    """Every error has these."""
    assert_type(error.code, str)
    assert_type(error.exit_code, int)
    assert_type(error.docs, str)
    return f"{error.message} {error.remedy}"


assert_type(load_settings(Path("configs/laptop.toml")), tuple[Settings, TomlFile])
assert_type(load_policy(Path("configs/policy.toml")), OwnerPolicy)
assert_type(verify(b"", trusted_signer=None), Task)
assert_type(hit_probability(10_000, 100_000), float)
assert_type(hours_to_coverage(0.99, sampling_interval=10_000, launches_per_s=2_000, gpus=100), float)
assert_type(pr.similarity(["a", "b"], ["a", "b"]), float)
