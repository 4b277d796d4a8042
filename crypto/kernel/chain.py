"""The state of one running product; importable where llvmlite is not."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Chain:
    """One running product."""

    rows: list[int] = field(default_factory=list)
    """Where it lies, more than one after it was cut between lanes."""
    factors: int = 0
    """Factors in it so far."""
