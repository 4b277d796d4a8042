"""What all benchmarks share: contenders take turns in one process, medians, the machine, one JSON line.

A contender is run once to warm up, then each round runs every contender after the other, so that a slow
minute of the machine hits all of them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penrose_ray.crypto.kernel.native import SWITCH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penrose_ray.actors.topology import Topology
    from penrose_ray.crypto.keyfile import DesignKeys

_TEST_KEYS = Path(__file__).parents[1] / "tests" / "vectors" / "test_keys.json"
_SERVICE = """\
policy_file = "{home}/policy.toml"

[task]
name = "benchmark"
demo = true
tokens_per_day = 0
{task}

[[task.counters]]
name = "duration"
unit = "ns"
source = "benchmark"
vendors = ["none"]
scale = "log"
low = 100.0
high = 1e9

[service]
shards = {shards}
gateways = {gateways}
state_dir = "{home}/state"

[design_server]
key_file = "{home}/design.key"
create_key = true
releases_dir = "{home}/releases"
"""


@dataclass(frozen=True)
class Contender:
    """Work that is timed: one run does `operations` of them."""

    name: str
    run: Callable[[], object]
    operations: int = 1


@dataclass(frozen=True)
class Timing:
    """Seconds an operation took, over the rounds."""

    name: str
    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """Median over the rounds."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Distance of the quartiles, relative to the median."""
        quartiles = statistics.quantiles(self.seconds, n=4)
        return (quartiles[2] - quartiles[0]) / self.median_s


def take_turns(
    contenders: Sequence[Contender], *, rounds: int = 7, clock: Callable[[], float] = time.process_time
) -> dict[str, Timing]:
    """Time contenders in turn (A B A B ...); the default clock counts this process' own CPU time."""
    for contender in contenders:
        contender.run()
    seconds: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for _ in range(rounds):
        for contender in contenders:
            start = clock()
            contender.run()
            seconds[contender.name].append((clock() - start) / contender.operations)
    return {name: Timing(name, tuple(values)) for name, values in seconds.items()}


@contextlib.contextmanager
def without_native() -> Iterator[None]:
    """What is made and first used inside does without compiled code."""
    old = os.environ.get(SWITCH)
    os.environ[SWITCH] = "0"
    try:
        yield
    finally:
        os.environ.pop(SWITCH)
        if old is not None:
            os.environ[SWITCH] = old


@contextlib.contextmanager
def service(
    *, shards: int, gateways: int = 1, task: str = "", more: str = "", **files: str
) -> Iterator[Topology]:
    """A service on Ray in a folder of its own, with a demo task of one counter and without tokens.

    Args:
        shards: how many.
        gateways: how many.
        task: further lines of the table `[task]`.
        more: further tables; `{home}` stands for the folder.
        files: contents of the TOML files `NAME.toml` in the folder.
    """
    from penrose_ray.actors.topology import build  # noqa: PLC0415 - Ray, which few benchmarks need
    from penrose_ray.settings import load_settings  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="penrose-bench-") as folder:
        home = Path(folder)
        for name, text in {"policy": "allow_demo = true\n", **files}.items():
            (home / f"{name}.toml").write_text(text)
        config = home / "service.toml"
        config.write_text((_SERVICE + more).format(home=home, shards=shards, gateways=gateways, task=task))
        with build(*load_settings(config)) as topology:
            yield topology


def frozen_keys() -> DesignKeys:
    """The frozen TEST keys: no key is generated in a benchmark."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    from penrose_ray.crypto.keyfile import DesignKeys  # noqa: PLC0415
    from penrose_ray.crypto.private_key import PrivateKey  # noqa: PLC0415

    frozen = json.loads(_TEST_KEYS.read_text())
    pair = frozen["std3072"]
    return DesignKeys(
        PrivateKey(int(pair["p"], 16), int(pair["q"], 16)),
        Ed25519PrivateKey.from_private_bytes(bytes.fromhex(frozen["signing_seed"])),
    )


def machine() -> dict[str, object]:
    """CPU model, cores of this process, load and versions."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load_1min": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "system": platform.system(),
    }


def significant(value: float | None, digits: int = 4) -> float | None:
    """Rounded to that many significant digits."""
    return None if value is None else float(f"{value:.{digits}g}")


def arguments(description: str) -> argparse.Namespace:
    """Options that every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="print nothing but one JSON object")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contender (7)")
    return parser.parse_args()


def show(timings: dict[str, Timing], *, unit: str = "ms") -> None:
    """A table of medians, against the first one."""
    scale = {"s": 1.0, "ms": 1e3, "us": 1e6}[unit]
    first = next(iter(timings.values()))
    for timing in timings.values():
        ratio = first.median_s / timing.median_s
        median = f"{timing.median_s * scale:>12.4f} {unit}"
        print(f"{timing.name:<44} {median} {ratio:>10.1f} x  +-{timing.spread:.0%}")


def finish(result: dict[str, object], *, table: bool = False) -> None:
    """Print the JSON object, as the last line; before it a line for each value with `table`."""
    if table:
        for name, value in result.items():
            print(f"{name:<40} {value}")
    print(json.dumps({**result, "machine": machine()}))
