"""`penrose up` with [transport.tor], and a client's way to it by its address alone."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest
from e2e.service_config import settings_in
from tor.waiting import empty

from penrose_ray.clock import ManualClock, SystemClock
from penrose_ray.crypto.blinding import Encryptor
from penrose_ray.seal import Contribution, Sealer
from penrose_ray.snippet.minhash import signature
from penrose_ray.task import verify
from penrose_ray.transport.http import fetch_task
from penrose_ray.transport.outbox import Outbox
from penrose_ray.transport.route import route_to
from penrose_ray.types import TaskId
from penrose_ray.wire import encode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tor.network import TorNetwork

    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.task import Task

pytestmark = pytest.mark.slow
PENROSE = [sys.executable, "-m", "penrose_ray.cli.app"]


class Service:
    """A running `penrose up`: what it said about itself."""

    def __init__(self, config: Path) -> None:
        self.config = config
        self.process = subprocess.Popen(
            [*PENROSE, "up", config], stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self.process.stderr is not None
        self.said: list[str] = []
        for line in self.process.stderr:
            self.said.append(line.rstrip())
            if "reports are taken at http://127.0.0.1" in line:
                break
        else:
            pytest.fail("\n".join(self.said))
        self._reader = threading.Thread(target=self.process.stderr.read)
        self._reader.start()

    def word_after(self, text: str) -> str:
        line = next(line for line in self.said if line.startswith(text))
        return line.removeprefix(text).split()[0]

    def status(self) -> dict[str, object]:
        done = subprocess.run(
            [*PENROSE, "status", self.config, "--format", "json"], check=True, capture_output=True, text=True
        )
        return json.loads(done.stdout)[0]  # type: ignore[no-any-return]

    def down(self) -> int:
        subprocess.run([*PENROSE, "down", self.config], check=False, capture_output=True)
        code = self.process.wait(300)
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code


@pytest.fixture
def service(tmp_path: Path, network: TorNetwork, design_keys: DesignKeys) -> Iterator[Service]:
    settings_in(tmp_path, design_keys)
    config = tmp_path / "service.toml"
    table = f'\n[transport.tor]\nhome = "{tmp_path}/tor"\ntorrc = {json.dumps(network.lines())}\n'
    config.write_text(config.read_text() + table)
    service = Service(config)
    yield service
    if service.process.poll() is None:
        service.down()


def reports(task: Task, count: int) -> Iterator[bytes]:
    sealer = Sealer(task, "Test GPU", Encryptor(task.key(), task.profile()))
    snippet = signature(
        np.arange(200) % 20, [f"kernel_{n}" for n in range(20)], scheme_id=task.signature_scheme
    )
    for number in range(count):
        counts = np.zeros(128, np.int64)
        counts[number] = 20
        yield encode(sealer.seal(Contribution(0, counts, real=True), snippet, now_s=SystemClock().now_s()))


def test_a_configured_service_takes_reports_at_its_onion_address(
    service: Service, network: TorNetwork, tmp_path: Path
) -> None:
    onion = service.word_after("reports are taken at ")
    plain = service.said[-1].split()[-1]
    task_id = TaskId(bytes.fromhex(service.word_after("task ")))
    task = verify(fetch_task(plain, task_id))
    client = tmp_path / "client"
    client.mkdir(mode=0o700)
    (client / "torrc").write_text("\n".join(network.lines()))

    route = route_to([onion], task_id, client)
    try:
        clock = ManualClock()
        outbox = Outbox(route.ways[0].uploader, clock)
        for record in reports(task, 5):
            outbox.put(record)
        empty(outbox, clock)
    finally:
        route.close()

    assert route.anonymous
    assert sum(each["reports"] for each in service.status()["shards"]) == 5  # type: ignore[attr-defined]
    assert service.down() == 0
    assert (tmp_path / "tor" / "service-0" / "hs_ed25519_secret_key").stat().st_mode & 0o777 == 0o600
