"""A headless browser: pages as they are rendered, in pictures, on paper."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MARKS = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="needs chromium (apt-get install chromium)"),
]
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage",
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


def browse(address: str, profile: Path, *options: str) -> str:
    """What the browser prints for these options."""
    command = [str(BROWSER), *FLAGS, f"--user-data-dir={profile}", *options, address]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout


def probe(page: str, folder: Path, *options: str) -> dict[str, Any]:
    """Pixels over the window's width, least contrast of a text and which, colour of the paper."""
    copy = folder / "probe.html"
    copy.write_text(page.replace("</body>", PROBE), encoding="utf-8")
    dom = browse(copy.as_uri(), folder / "profile", "--dump-dom", *options)
    found = re.search(r"<title>(\{.*?\})</title>", dom)
    assert found, dom[:400]
    return dict(json.loads(html.unescape(found[1])))
