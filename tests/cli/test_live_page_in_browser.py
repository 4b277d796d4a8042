"""The live page of a real service in a real browser, while reports arrive."""

from __future__ import annotations

import http.client
import json
import re
import signal
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import matplotlib.image as mpimg
import numpy as np
import pytest
from e2e import browser, up
from waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penrose_ray.crypto.keyfile import DesignKeys

pytestmark = browser.MARKS
WAIT = "--virtual-time-budget=4000"


def live(service: up.Service) -> dict[str, Any]:
    connection = http.client.HTTPConnection(urlsplit(service.page).netloc, timeout=30)
    connection.request("GET", "/live.json")
    found = dict(json.load(connection.getresponse()))
    connection.close()
    return found


def has_lines(points: list[dict[str, int]]) -> bool:
    return len(points) >= 5 and points[-1]["reports"] >= 20


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, design_keys: DesignKeys) -> Iterator[up.Service]:
    config = up.config_in(tmp_path_factory.mktemp("live"), design_keys)
    config.write_text(config.read_text().replace("[service]", "[service]\nscale_every_s = 0.5"))
    started = up.Service(config)
    try:
        until(lambda: has_lines(live(started)["points"]))
        yield started
    finally:
        started.process.send_signal(signal.SIGTERM)
        assert started.wait() == 0


def test_the_page_draws_what_the_service_says(service: up.Service, tmp_path: Path) -> None:
    before = live(service)["points"][-1]
    dom = browser.browse(service.page, tmp_path / "profile", "--dump-dom", WAIT)
    now = live(service)["points"][-1]
    shown = dict(re.findall(r"<dt>([^<]+)</dt><dd>([^<]+)</dd>", dom))
    assert before["reports"] <= int(shown["reports"].replace(",", "")) <= now["reports"]
    assert before["classes"] <= int(shown["classes"]) <= now["classes"]
    assert dom.count("<polyline") == 3
    assert re.search(r'aria-label="Reports a minute over time, now [\d,]+', dom)
    assert "shard-0" in dom
    assert "shard-1" in dom
    assert ">1.<" in dom, "the largest class, by its place"


@pytest.mark.parametrize("width", [1200, 500])
@pytest.mark.parametrize("scheme", [(), (browser.DARK,)], ids=["light", "dark"])
def test_it_fits_its_window_and_can_be_read(
    service: up.Service, tmp_path: Path, width: int, scheme: tuple[str, ...]
) -> None:
    dom = browser.browse(service.page, tmp_path / "live", "--dump-dom", WAIT)
    still = re.sub(r"<script>.*?</script>", "", dom, flags=re.DOTALL)
    seen = browser.probe(still, tmp_path, f"--window-size={width},2000", *scheme)
    assert seen["over"] <= 0
    assert seen["contrast"] >= 4.5, seen["worst"]  # WCAG 2.2, 1.4.3, level AA


def test_screenshot_shows_the_lines(service: up.Service, tmp_path: Path) -> None:
    shot = tmp_path / "live.png"
    options = ("--window-size=1200,1900", f"--screenshot={shot}", WAIT)
    browser.browse(service.page, tmp_path / "profile", *options)
    pixels = (mpimg.imread(shot)[:, :, :3] * 255).round().astype(np.uint32)
    colours = set(np.unique(pixels @ np.array([65536, 256, 1])).tolist())
    assert {0x2363C4, 0x2364C5, 0xC05A11} <= colours  # rate, past the gate, class known
