"""The report in a real browser: it fits, it can be read, in light, dark, on a telephone and on paper."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import matplotlib.image as mpimg
import numpy as np
import pytest
from e2e import browser

from penrose_ray.analyse.report import write_report

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penrose_ray.histogram import CounterSet

pytestmark = browser.MARKS


@pytest.fixture(scope="module")
def report(
    make_task: Callable[..., Any],
    opened: Callable[..., Any],
    write_release: Callable[..., Path],
    duration: CounterSet,
    joint: CounterSet,
    kinds: CounterSet,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    random = np.random.default_rng(6)
    sums = [
        opened(each, random.binomial(60 * (9 - number), random.random(128)).astype(np.int64), name=number)
        for number in range(1, 9)
        for each in (duration, joint, kinds)
    ]
    out = tmp_path_factory.mktemp("browser") / "report.html"
    release = write_release(make_task(duration, joint, kinds, demo=True, name="browser"), sums)
    write_report(release, out, run={"seconds": {"capture": 20.0, "open": 0.4}, "peak_pss_mb": 900})
    return out


@pytest.mark.parametrize("width", [1280, 500])
@pytest.mark.parametrize("scheme", [(), (browser.DARK,)], ids=["light", "dark"])
def test_fits_its_window_and_can_be_read(
    report: Path, tmp_path: Path, width: int, scheme: tuple[str, ...]
) -> None:
    seen = browser.probe(report.read_text(encoding="utf-8"), tmp_path, f"--window-size={width},2000", *scheme)
    assert seen["over"] <= 0
    assert seen["contrast"] >= 4.5, seen["worst"]  # WCAG 2.2, 1.4.3, level AA
    brightness = sum(map(int, re.findall(r"\d+", seen["paper"])[:3]))
    assert (brightness < 150) is bool(scheme)


def test_screenshot_shows_the_figures(report: Path, tmp_path: Path) -> None:
    shot = tmp_path / "report.png"
    browser.browse(report.as_uri(), tmp_path / "profile", "--window-size=1200,5200", f"--screenshot={shot}")
    pixels = (mpimg.imread(shot)[:, :, :3] * 255).round().astype(np.uint32)
    assert pixels.shape == (5200, 1200, 3)
    colours = set(np.unique(pixels @ np.array([65536, 256, 1])).tolist())
    for colour in (0x2364C5, 0xC05A11, 0x0F7B68):  # classes 1 to 3, as bars
        assert colour in colours


def test_prints_on_a_few_pages(report: Path, tmp_path: Path) -> None:
    paper = tmp_path / "report.pdf"
    browser.browse(
        report.as_uri(),
        tmp_path / "profile",
        "--no-pdf-header-footer",
        f"--print-to-pdf={paper}",
        browser.DARK,
    )
    content = paper.read_bytes()
    assert content.startswith(b"%PDF")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 14
