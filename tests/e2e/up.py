"""`penrose up` in a process of its own, with the fleet's configuration made small."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from waiting import PROGRAM_S, end_with_stacks

from penrose_ray.draft import task_from
from penrose_ray.task import sign
from penrose_ray.toml_file import TomlFile

if TYPE_CHECKING:
    from penrose_ray.crypto.keyfile import DesignKeys

ROOT = Path(__file__).parents[2]


def config_in(tmp_path: Path, design_keys: DesignKeys) -> Path:
    """The fleet's configuration with paths in a folder of its own, a signed task, and a replay client."""
    (tmp_path / "policy.toml").write_text("allow_demo = true\nleast_sampling_interval = 1\n")
    text = (ROOT / "configs" / "fleet.toml").read_text()
    for old, new in (
        ("configs/policy.toml", f"{tmp_path}/policy.toml"),
        ('"fleet.task"', f'"{tmp_path}/fleet.task"'),
        ("keys/metrics.token", f"{tmp_path}/metrics.token"),
        ('"releases"', f'"{tmp_path}/releases"'),
        ('"state"', f'"{tmp_path}/state"'),
        ('host = "0.0.0.0"', 'host = "127.0.0.1"'),
        ("port = 8443", "port = 0"),
        ("most_shards = 16", "most_shards = 3"),
        ("sampling_interval = 10_000", "sampling_interval = 10"),
        ("samples_per_histogram = 10_000", "samples_per_histogram = 50"),
        ("min_samples = 100", "min_samples = 10"),
        ("reports_per_class = 1 ", "reports_per_class = 0 "),
        ("snippet_launches = 10_000", "snippet_launches = 1_000"),
        ('source = "cupti"', 'source = "opencl"'),
        ('vendors = ["nvidia"]', 'vendors = ["pocl"]'),
    ):
        assert old in text, old
        text = text.replace(old, new)
    path = tmp_path / "service.toml"
    path.write_text(text + '\n[[clients]]\nkind = "replay"\ntrace = "bundled"\n')
    task = task_from(TomlFile(path), design_keys.paillier.public_key)
    (tmp_path / "fleet.task").write_bytes(sign(task, design_keys.signing).encode())
    return path


class Service:
    """`penrose up` in a process of its own."""

    def __init__(self, config: Path, *overrides: str) -> None:
        changes = [part for each in overrides for part in ("--set", each)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penrose_ray.cli.app", "up", str(config), *changes],
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONFAULTHANDLER": "1"},
        )
        assert self.process.stderr is not None
        self.lines: list[str] = []
        late = threading.Timer(PROGRAM_S, end_with_stacks, [self.process])
        late.start()
        started = any(map(self._notes, self.process.stderr))
        late.cancel()
        assert started, "".join(self.lines)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _notes(self, line: str) -> bool:
        """Whether it is the last line of the start."""
        self.lines.append(line)
        if "the live page is at" in line:
            self.page = line.rsplit(maxsplit=1)[-1]
        if "reports are taken at" in line:
            self.url = line.rsplit(maxsplit=1)[-1]
        return "reports are taken at" in line

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines.extend(self.process.stderr)

    def wait(self) -> int:
        try:
            code = self.process.wait(timeout=300)
        except subprocess.TimeoutExpired:
            end_with_stacks(self.process)
            self._reader.join(10)
            pytest.fail("it does not end\n" + "".join(self.lines))
        self._reader.join(10)
        assert not self._reader.is_alive(), "a process that the service started has outlived it"
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code
