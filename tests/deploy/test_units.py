"""systemd units: systemd's own checker, hardening, and commands that exist."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penrose_ray.settings import load_settings

ROOT = Path(__file__).parents[2]
UNITS = sorted((ROOT / "configs" / "systemd").glob("*.service"))
ANALYZE = shutil.which("systemd-analyze")
MOST_EXPOSED = 25
"""Tenths of systemd's exposure level: a service that needs the network has 0.5 at the least."""


class Unit(configparser.RawConfigParser):
    """A unit file: keys keep their case and may come again."""

    def __init__(self, path: Path) -> None:
        super().__init__(strict=False, delimiters=("=",), comment_prefixes=("#",), interpolation=None)
        self.optionxform = str  # type: ignore[assignment, method-assign]
        self.read_string(path.read_text().replace("\\\n", " "))


def installed(unit: Path, folder: Path) -> Path:
    """The unit with this environment's command, as one that is installed for an instance."""
    text = unit.read_text().replace("/opt/penrose/bin/penrose", f"{Path(sys.executable).parent}/penrose")
    copy = folder / unit.name.replace("@", "@root")
    copy.write_text(text.replace("User=penrose", "User=root"))
    return copy


def analyze(*arguments: object) -> subprocess.CompletedProcess[str]:
    if ANALYZE is None:
        pytest.skip("systemd-analyze is not installed")
    return subprocess.run(
        [ANALYZE, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "LC_ALL": "C"},
    )


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_accepts_the_unit(unit: Path, tmp_path: Path) -> None:
    done = analyze("verify", "--man=no", installed(unit, tmp_path))
    complaints = [line for line in done.stderr.splitlines() if unit.stem.rstrip("@") in line]
    assert not complaints
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_unit_is_hardened(unit: Path, tmp_path: Path) -> None:
    done = analyze("security", "--offline=true", f"--threshold={MOST_EXPOSED}", installed(unit, tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_stopping_asks_penrose_alone_and_nobody_else_reads_its_files(unit: Path) -> None:
    service = Unit(unit)["Service"]
    assert service["KillMode"] == "mixed"
    assert service["UMask"] == "0077"
    assert service["StateDirectoryMode"] == "0700"
    assert service["NoNewPrivileges"] == "yes"
    assert not service["CapabilityBoundingSet"]


def test_the_service_s_variables_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "configs" / "systemd" / "penrose.service").read_text()
    lines = [line for line in text.splitlines() if line.startswith("Environment=PENROSE__")]
    for line in lines:
        key, _, value = line.removeprefix("Environment=").partition("=")
        monkeypatch.setenv(key, value)
    settings, _ = load_settings(ROOT / "configs" / "fleet.toml")
    assert len(lines) == 5
    assert settings.service.state_dir.is_relative_to("/var/lib/penrose")
    assert settings.design_server.task_file.is_relative_to("/etc/penrose")
    assert not settings.design_server.is_here
    assert settings.service.metrics_token_file.is_relative_to("/var/lib/penrose")
