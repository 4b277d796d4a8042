"""The sample torrc files: the options of the code, and accepted by tor."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from penrose_ray.settings import Settings, TorSettings
from penrose_ray.transport.tor.options import client_lines, service_lines

CONFIGS = Path(__file__).parents[2] / "configs" / "tor"
TOR = shutil.which("tor")


def lines_of(name: str) -> list[str]:
    text = (CONFIGS / name).read_text()
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_the_client_s_sample_has_the_options_of_the_code() -> None:
    assert lines_of("client.torrc") == client_lines("127.0.0.1:9050")


def test_the_service_s_sample_has_the_options_of_the_code() -> None:
    assert lines_of("service.torrc") == service_lines(Path("/var/lib/tor/penrose"), 8443, has_pow=True)


@pytest.mark.skipif(TOR is None, reason="tor is not installed (apt-get install tor)")
@pytest.mark.parametrize("name", ["client.torrc", "service.torrc"])
def test_tor_accepts_the_samples(name: str, tmp_path: Path) -> None:
    text = (CONFIGS / name).read_text().replace("/var/lib/tor", str(tmp_path))
    (tmp_path / "torrc").write_text(f"{text}\nDataDirectory {tmp_path / 'data'}\n")
    command = [str(TOR), "--defaults-torrc", "NONE", "--verify-config", "-f", str(tmp_path / "torrc")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_a_service_without_the_table_has_no_tor() -> None:
    assert Settings.model_fields["transport"].default.tor is None
    assert TorSettings(home=Path("tor")).instances == 1
