"""The report in a real browser: it fits, it can be read, in light, dark, on a telephone and on paper."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import matplotlib.image as mpimg
import numpy as np
import pytest

from penrose_ray.analyse.report import write_report

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penrose_ray.histogram import CounterSet

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="needs chromium (apt-get install chromium)"),
]

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
DARK = "--blink-settings=preferredColorScheme=0"
PROBE = """<script>
const channel = v => { v /= 255; return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4 };
const rgba = s => (s.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
const light = c => .2126 * channel(c[0]) + .7152 * channel(c[1]) + .0722 * channel(c[2]);
const behind = e => { for (; e; e = e.parentElement) {
  const c = rgba(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > .99) return c } };
let least = [99, ""];
for (const e of document.querySelectorAll("body *")) {
  if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
  if (["TITLE", "SCRIPT", "STYLE"].includes(e.tagName.toUpperCase())) continue;
  const style = getComputedStyle(e), ink = e.closest("svg") ? style.fill : style.color;
  const pair = [light(rgba(ink)), light(behind(e))].sort((a, b) => b - a);
  const ratio = (pair[0] + .05) / (pair[1] + .05);
  if (ratio < least[0]) least = [ratio, e.textContent.slice(0, 40)];
}
const page = document.documentElement;
document.title = JSON.stringify({over: page.scrollWidth - page.clientWidth, contrast: least[0],
  worst: least[1], paper: getComputedStyle(document.body).backgroundColor});
</script></body>"""


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


def browse(page: Path, profile: Path, *options: str) -> str:
    command = [str(BROWSER), *FLAGS, f"--user-data-dir={profile}", *options, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def probe(report: Path, tmp_path: Path, *options: str) -> dict[str, Any]:
    copy = tmp_path / "probe.html"
    copy.write_text(report.read_text(encoding="utf-8").replace("</body>", PROBE), encoding="utf-8")
    dom = browse(copy, tmp_path / "profile", "--dump-dom", *options)
    found = re.search(r"<title>(\{.*?\})</title>", dom)
    assert found, dom[:400]
    return dict(json.loads(html.unescape(found[1])))


@pytest.mark.parametrize("width", [1280, 500])
@pytest.mark.parametrize("scheme", [(), (DARK,)], ids=["light", "dark"])
def test_fits_its_window_and_can_be_read(
    report: Path, tmp_path: Path, width: int, scheme: tuple[str, ...]
) -> None:
    seen = probe(report, tmp_path, f"--window-size={width},2000", *scheme)
    assert seen["over"] <= 0
    assert seen["contrast"] >= 4.5, seen["worst"]  # WCAG 2.2, 1.4.3, level AA
    brightness = sum(map(int, re.findall(r"\d+", seen["paper"])[:3]))
    assert (brightness < 150) is bool(scheme)


def test_screenshot_shows_the_figures(report: Path, tmp_path: Path) -> None:
    shot = tmp_path / "report.png"
    browse(report, tmp_path / "profile", "--window-size=1200,5200", f"--screenshot={shot}")
    pixels = (mpimg.imread(shot)[:, :, :3] * 255).round().astype(np.uint32)
    assert pixels.shape == (5200, 1200, 3)
    colours = set(np.unique(pixels @ np.array([65536, 256, 1])).tolist())
    for colour in (0x2364C5, 0xC05A11, 0x0F7B68):  # classes 1 to 3, as bars
        assert colour in colours


def test_prints_on_a_few_pages(report: Path, tmp_path: Path) -> None:
    paper = tmp_path / "report.pdf"
    browse(report, tmp_path / "profile", "--no-pdf-header-footer", f"--print-to-pdf={paper}", DARK)
    content = paper.read_bytes()
    assert content.startswith(b"%PDF")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 14
