"""A service on a cluster whose nodes come and go; a program of its own, for namespaces of its own.

Ray's cluster for such tests ends with `ray stop --force`, which kills every Ray of the machine. Here the
whole process tree ends with the namespace instead. Prints what it saw as one line of JSON.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import ray
from chaos.senders import Senders
from e2e.reports import one_bin_each, opened_bins
from e2e.service_config import settings_in

from penrose_ray.actors.processes import adopt_orphans, end_ray, family
from penrose_ray.actors.ray_start import patiently
from penrose_ray.actors.scaler import Load, Scaler
from penrose_ray.actors.topology import build
from penrose_ray.clock import ManualClock
from penrose_ray.crypto.keyfile import read_keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from penrose_ray.actors.topology import Topology

CLASSES = 2
PORT = 6379
NODE = {"CPU": 1, "shard": 1}
CONFIG = {
    "cluster_name": "autoscaled",
    "max_workers": 4,
    "idle_timeout_minutes": 0.1,
    "upscaling_speed": 1.0,
    "provider": {
        "type": "fake_multinode",
        "use_node_id_as_ip": True,
        "disable_node_updaters": True,
        "disable_launch_config_check": True,
    },
    "head_node_type": "ray.head.default",
    "available_node_types": {
        "ray.head.default": {"resources": {"CPU": 4}, "node_config": {}, "max_workers": 0},
        "shard": {"resources": NODE, "node_config": {}, "min_workers": 1, "max_workers": 4},
    },
    "auth": {},
    "file_mounts": {},
    "cluster_synced_files": [],
    "file_mounts_sync_continuously": False,
    "rsync_exclude": [],
    "initialization_commands": [],
    "setup_commands": [],
    "head_setup_commands": [],
    "worker_setup_commands": [],
    "head_start_ray_commands": [],
    "worker_start_ray_commands": [],
}


def loopback_up() -> None:
    """What `ip link set lo up` does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        name = b"lo".ljust(16, b"\0")
        (flags,) = struct.unpack("16xH14x", fcntl.ioctl(handle, 0x8913, name + b"\0" * 16))
        fcntl.ioctl(handle, 0x8914, struct.pack("16sH14x", name, flags | 1))


def start_head(home: Path, ray_folder: str) -> None:
    config = home / "cluster.json"
    config.write_text(json.dumps(CONFIG))
    environment = {
        **os.environ,
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        "RAY_FAKE_CLUSTER": "1",
    }
    done = subprocess.run(
        [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--num-cpus=4"),
            *(f"--port={PORT}", "--node-ip-address=127.0.0.1", "--include-dashboard=false"),
            *(f"--autoscaling-config={config}", f"--temp-dir={ray_folder}"),
        ],
        env=environment,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    print(done.stdout, file=sys.stderr)  # noqa: T201 - shown when the test fails
    if done.returncode:
        raise RuntimeError(done.stdout)


def nodes() -> int:
    """Nodes that have a shard resource."""
    return sum(1 for each in ray.nodes() if each["Alive"] and each["Resources"].get("shard"))


def until(true: Callable[[], bool], what: str, tend: Callable[[], object] = lambda: None) -> None:
    deadline = time.monotonic() + 300
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        tend()
        time.sleep(0.2)


class Scripted:
    """The service's own pool, as busy as it is told."""

    def __init__(self, service: Topology, clock: ManualClock) -> None:
        self._pool, self._clock = service.pool, clock
        self._busy_s: dict[str, float] = {}
        self.share, self._waiting = 0.0, 0
        self.pending, self.grow, self.shrink = self._pool.pending, self._pool.grow, self._pool.shrink

    def say(self, share: float, waiting: int) -> None:
        self.share, self._waiting = share, waiting

    def load(self) -> Load:
        real = self._pool.load()
        self._busy_s = {name: self._busy_s.get(name, 0.0) + 5 * self.share for name in real.busy_s}
        self._clock.advance(5)
        return replace(real, busy_s=self._busy_s, waiting=self._waiting)


def main(home: Path, ray_folder: str) -> None:
    loopback_up()
    before = set(family(os.getpid()))
    adopt_orphans()
    patiently(lambda: start_head(home, ray_folder), lambda: end_ray(before))
    keys = read_keys(home / "keys", passphrase=None)
    ray.init(address=f"127.0.0.1:{PORT}", namespace="penrose", log_to_driver=False)
    until(lambda: nodes() == 1, "the first node")
    ray.shutdown()
    settings = settings_in(
        home, keys, f'service.ray_address="127.0.0.1:{PORT}"', "service.shards=1", "service.most_shards=3"
    )
    seen = []

    with build(*settings) as service:
        clock = ManualClock()
        pool = Scripted(service, clock)
        scaler = Scaler(pool, clock, least=1, most=3)

        def note() -> None:
            seen.append([len(service.pool.working), nodes()])

        note()
        records = one_bin_each(service.task, CLASSES)
        first = Senders(service, records[:100])
        pool.say(0.95, 40)
        until(lambda: any(made.decision.delta == 2 for made in scaler.made), "a decision", scaler.tick)
        until(lambda: len(service.pool.working) == 3, "three shards", scaler.tick)
        first.join()
        until(lambda: nodes() == 3, "three nodes")
        note()
        second = Senders(service, records[60:200])
        pool.say(0.05, 0)
        until(lambda: len(service.pool.working) == 1, "one shard", scaler.tick)
        second.join()
        Senders(service, records[150:]).join()
        until(lambda: nodes() == 1, "the nodes to go")
        note()
        handovers = [service.release(batch) for batch in service.batches()]
        service.open(handovers, home / "release.parquet")
        decisions = [(made.decision.delta, made.decision.reason) for made in scaler.made]
    bins = list(opened_bins(home / "release.parquet").values())
    print(json.dumps({"shards_and_nodes": seen, "bins": bins, "decisions": decisions}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
