"""A small service for tests: 2 shards, duration of Kineto traces, k = 3."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penrose_ray.crypto.keyfile import write_keys
from penrose_ray.settings import load_settings

if TYPE_CHECKING:
    from pathlib import Path

    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.settings import Settings
    from penrose_ray.toml_file import TomlFile

CONFIG = """\
policy_file = "{home}/policy.toml"

[task]
name = "on ray"
demo = true
samples_per_histogram = 40
sampling_interval = 8
snippet_launches = 400
min_samples = 10
reports_per_class = 0
min_contributors = 3
tokens_per_day = 0
cover_rate = 0.2

[[task.counters]]
name = "duration"
unit = "ns"
source = "kineto"
vendors = ["unknown", "nvidia"]
scale = "log"
low = 100.0
high = 1e7

[service]
shards = 2
handover_every_s = 0
state_dir = "{home}/state"
start_timeout_s = 600

[design_server]
key_file = "{home}/design.key"
releases_dir = "{home}/releases"
"""


def settings_in(
    home: Path, keys: DesignKeys, *overrides: str, clients: str = ""
) -> tuple[Settings, TomlFile]:
    write_keys(home / "design.key", keys, passphrase=None)
    (home / "policy.toml").write_text(
        "allow_demo = true\nleast_sampling_interval = 1\nleast_contributors = 1\n"
    )
    config = home / "service.toml"
    config.write_text((CONFIG + clients).format(home=home))
    return load_settings(config, overrides)
