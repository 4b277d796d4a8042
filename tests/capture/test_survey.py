from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penrose_ray import compiled
from penrose_ray.capture import injection, survey
from penrose_ray.capture.survey import launchpad
from penrose_ray.errors import SourceError

if TYPE_CHECKING:
    from pathlib import Path


def test_every_source_says_whether_it_works_and_why_not() -> None:
    found = survey.survey()
    assert set(found) == {"opencl", "cupti", "torch", "nvml", "dcgm"}
    for name, capabilities in found.items():
        assert capabilities.available or capabilities.reasons, name


def test_launchpad_leaves_out_what_this_machine_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(injection, "_folders", lambda: iter(()))
    monkeypatch.setattr(survey, "_ENVIRONMENTS", {**survey._ENVIRONMENTS, "opencl": _fits})
    pad = launchpad(tmp_path / "rings")
    assert pad.sources == ("opencl",)
    assert pad.environment["FITS"] == "1"
    assert "cuda.h is not found" in pad.left_out["cuda"]


def _fits(_: Path, base: dict[str, str]) -> dict[str, str]:
    return {**base, "FITS": "1"}


def test_launchpad_without_any_way_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compiled.shutil, "which", lambda _: None)
    with pytest.raises(SourceError, match=r"No program can be captured here.*no C compiler"):
        launchpad(tmp_path / "rings")


def test_unknown_source_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"no source 'opncl'.*Use one of opencl, cuda"):
        launchpad(tmp_path, "opncl")
