"""What is looked at before Ray starts."""

from __future__ import annotations

from pathlib import Path

from penrose_ray.cli.precheck import precheck
from penrose_ray.settings import load_settings

CONFIG = Path(__file__).parents[2] / "configs" / "laptop.toml"


def test_the_folders_of_journals_and_releases_are_their_owner_s(tmp_path: Path) -> None:
    folders = {"service.state_dir": "state", "design_server.releases_dir": "releases", "run.out_dir": "out"}
    overrides = tuple(f"{key}={tmp_path / name}" for key, name in folders.items())
    settings, draft = load_settings(CONFIG, overrides)
    precheck(settings, draft)
    assert {each.name: each.stat().st_mode & 0o077 for each in tmp_path.iterdir() if each.name != "out"} == {
        "state": 0,
        "releases": 0,
    }
