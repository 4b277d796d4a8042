"""`penrose up` in a process of its own, with the fleet's configuration made small."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

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
        )
        assert self.process.stderr is not None
        self.lines: list[str] = []
        for line in self.process.stderr:
            self.lines.append(line)
            if "the live page is at" in line:
                self.page = line.split()[-1]
            if "reports are taken at" in line:
                self.url = line.split()[-1]
                break
        else:
            pytest.fail("".join(self.lines))
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines.extend(self.process.stderr)

    def wait(self) -> int:
        code = self.process.wait(timeout=300)
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code
