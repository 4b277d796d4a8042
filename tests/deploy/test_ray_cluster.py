"""configs/ray/cluster.yaml, by Ray's own rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

from penrose_ray.actors.shard_pool import SHARD_RESOURCE
from penrose_ray.settings import load_settings

ROOT = Path(__file__).parents[2]
CLUSTER: dict[str, Any] = yaml.safe_load((ROOT / "configs" / "ray" / "cluster.yaml").read_text())


def test_ray_takes_the_configuration() -> None:
    validate_config(prepare_config(json.loads(json.dumps(CLUSTER))))


def test_ray_refuses_a_misspelt_key_and_too_few_workers() -> None:
    with pytest.raises(Exception, match="idle_timeout"):
        validate_config(prepare_config({**CLUSTER, "idle_timeout": 5}))
    with pytest.raises(ValueError, match="max_workers"):
        validate_config(prepare_config({**CLUSTER, "max_workers": 0}))


def test_the_pools_hold_the_smallest_and_the_largest_service() -> None:
    types = CLUSTER["available_node_types"]
    shard = types["shard"]
    settings, _ = load_settings(ROOT / "configs" / "fleet.toml")
    assert shard["resources"][SHARD_RESOURCE] == shard["resources"]["CPU"]
    assert shard["min_workers"] * shard["resources"][SHARD_RESOURCE] >= settings.service.shards
    assert shard["max_workers"] * shard["resources"][SHARD_RESOURCE] >= settings.service.most_shards
    assert types["gpu_client"]["resources"]["GPU"] >= 1
    assert SHARD_RESOURCE not in types["gpu_client"]["resources"]
    workers = sum(each.get("max_workers", 0) for each in types.values())
    assert CLUSTER["max_workers"] >= workers


def test_no_node_runs_ray_without_a_token() -> None:
    for command in CLUSTER["head_start_ray_commands"] + CLUSTER["worker_start_ray_commands"]:
        assert "RAY_AUTH_MODE=token" in command
        assert "ray stop" not in command
