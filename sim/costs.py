"""Unit costs of the service: measured by this project's benchmarks where their results are at hand."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Final

from penrose_ray.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """What one unit of each part does. The defaults were measured on one core of an EPYC (Zen 4)."""

    durable_per_s_core: float = 25_000.0
    """Reports a second that a shard's core takes, from bytes to a committed journal and a sum."""
    requests_per_s_core: float = 2_000.0
    """HTTP requests of one report that a gateway's core answers; clients send reports singly."""
    decrypt_crt_ms: float = 16.0
    """Milliseconds of one core to open one sum of two ciphertexts, 3,072-bit key."""
    bytes_per_class: float = 4_096.0
    """Memory of one class in the matcher."""
    uploads_per_s_tor: float = 45.0
    """Uploads a second, each over its own circuit, of one tor process."""
    row_bytes: float = 2_900.0
    """One report in a journal: ciphertexts, signature, ids, index."""
    record_bytes: float = 4_096.0
    """One report on the wire."""
    wire_overhead: float = 1.10
    """TLS, HTTP and Tor cells on top of a record."""
    node_cores: float = 16.0
    node_memory_bytes: float = 64e9
    node_disk_bytes: float = 2e12
    node_bytes_per_s: float = 25e9 / 8
    node_usd_per_year: float = 5_519.0
    """Published price of the machine that serves 100,000 GPUs."""
    tor_users: float = 2e6
    """Daily users of the Tor network."""
    tor_share: float = 0.1
    """Share of its users that a good guest adds at most; an assumption, not a limit of the software."""


MEASURED: Final = {
    "durable_per_s_core": ("aggregate", ("durable_native_per_s_core", "durable_per_s_core")),
    "requests_per_s_core": ("aggregate", ("http_gateway_per_s_core",)),
    "bytes_per_class": ("aggregate", ("bytes_per_class",)),
    "decrypt_crt_ms": ("crypto", ("decrypt_crt_ms",)),
}
"""Unit cost -> benchmark and its keys, the first that has a value wins."""


def measured_costs(folder: Path) -> tuple[UnitCosts, tuple[str, ...]]:
    """Unit costs from the benchmarks' JSON in `folder`; returns them and the names that were found there.

    Raises:
        ConfigError: a file whose last line is no JSON object.
    """
    found: dict[str, float] = {}
    for name, (benchmark, keys) in MEASURED.items():
        path = folder / f"{benchmark}.json"
        if not path.exists():
            continue
        try:
            result = json.loads(path.read_text(encoding="utf-8").strip().splitlines()[-1])
            values = [result[key] for key in keys if result.get(key)]
        except (ValueError, IndexError, AttributeError) as error:
            raise ConfigError(
                f"{path} does not end with a benchmark's JSON object.", remedy="Run make bench again."
            ) from error
        if values:
            found[name] = float(values[0])
    return replace(UnitCosts(), **found), tuple(found)


def require_positive(costs: UnitCosts) -> None:
    """Raise ConfigError, naming the cost, unless all are above 0."""
    for each in fields(costs):
        if not getattr(costs, each.name) > 0:
            raise ConfigError(f"{each.name} is not above 0.", remedy="Measure it again.")
