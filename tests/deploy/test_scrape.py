"""A real Prometheus with the configuration as it is shipped reads /metrics with its copy of the token."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import subprocess
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest
from e2e.http_service import HttpService

from penrose_ray.actors.scraping import Scrapers
from penrose_ray.task import sign

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.task import Task

FOLDER = Path(__file__).parents[2] / "configs" / "prometheus"
DEADLINE_S = 300.0


@contextmanager
def prometheus(home: Path, gateway: str) -> Iterator[int]:
    """Its port; it scrapes `gateway` as configs/prometheus says."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("Prometheus is not installed (Debian: prometheus)")
    shutil.copy(FOLDER / "alerts.yml", home)
    text = (FOLDER / "prometheus.yml").read_text()
    assert "gateway.example:8443" in text
    often = text.replace("scrape_interval: 5s", "scrape_interval: 500ms")
    (home / "prometheus.yml").write_text(often.replace("gateway.example:8443", gateway))
    command = [program, f"--config.file={home}/prometheus.yml", f"--storage.tsdb.path={home}/data"]
    command.append("--web.listen-address=127.0.0.1:0")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            found = (re.search(r'"Listening on" address=127\.0\.0\.1:(\d+)', line) for line in process.stderr)
            late = threading.Timer(DEADLINE_S, process.kill)
            late.start()
            port = next((int(each[1]) for each in found if each), 0)
            late.cancel()
            assert port, "Prometheus does not say where it listens"
            yield port
        finally:
            process.kill()


def wait_for(port: int, query: str, wanted: str) -> None:
    """Return once an instant query answers that; a scrape may have run out of its half second before."""
    deadline, seen = time.monotonic() + DEADLINE_S, ""
    while time.monotonic() < deadline:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", f"/api/v1/query?{urlencode({'query': query})}")
        response = connection.getresponse()
        raw = response.read()
        connection.close()
        if response.status == 200 and (result := json.loads(raw)["data"]["result"]):  # 503 while it starts
            seen = str(result[0]["value"][1])
            if seen == wanted:
                return
        time.sleep(0.05)  # polls; nothing depends on its length
    raise AssertionError(f"{query}: {seen}")


@pytest.mark.parametrize(("copied", "up"), [(True, "1"), (False, "0")])
def test_prometheus_reads_with_the_token_and_not_with_another(
    tmp_path: Path, make_task: Callable[..., Task], design_keys: DesignKeys, *, copied: bool, up: str
) -> None:
    signed = sign(make_task(), design_keys.signing).encode()
    service = HttpService(tmp_path, signed, scrapers=Scrapers.known(tmp_path / "own.token", alone=False))
    try:
        if copied:
            shutil.copy(tmp_path / "own.token", tmp_path / "metrics.token")
        else:
            (tmp_path / "metrics.token").write_text("the token of another service\n")
        with prometheus(tmp_path, f"127.0.0.1:{service.port}") as port:
            wait_for(port, 'up{job="penrose"}', up)
            if copied:
                wait_for(port, 'penrose_sums{actor="shard-0"}', "3")
    finally:
        service.close()
