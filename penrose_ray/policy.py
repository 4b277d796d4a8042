"""The GPU owner's policy: what a task may ask of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from penrose_ray.errors import PolicyError
from penrose_ray.settings import Section
from penrose_ray.toml_file import load_section

if TYPE_CHECKING:
    from pathlib import Path

    from penrose_ray.task import Task


class OwnerPolicy(Section):
    """`policy.toml`. The defaults are strict: a client without a policy file accepts no demo."""

    allow_demo: bool = False
    """Accept demo tasks, whose releases may show a single machine."""
    allowed_counters: tuple[str, ...] = ("*",)
    """Counter names, or `*` for all that the sources offer."""
    least_sampling_interval: int = Field(default=1_000, ge=1)
    """Least S: a task that samples more often is refused."""
    least_contributors: int = Field(default=50, ge=1)
    """Least k."""
    attestation_key: str = ""
    """The gateway's TPM attestation key, hexadecimal; with one, nothing is uploaded without a quote by it."""
    attestation_state: str = ""
    """SHA-256 of the software state that the quote must show, hexadecimal."""
    least_samples: int = Field(default=10, ge=1)
    """Least `min_samples`: a task whose histograms may show fewer launches is refused."""
    least_snippet_launches: int = Field(default=100, ge=8)
    """Least L: a short snippet tells more about a program than a long one."""
    max_overhead_percent: float = Field(default=3.0, gt=0, le=100)
    """Budget of one core for capture and encryption."""

    def check(self, task: Task) -> None:
        """Raise PolicyError naming the first thing that the owner does not allow."""
        _require_sealed(task)
        if task.demo and not self.allow_demo:
            raise _refusal("it is a demo task, whose releases may show one contributor", "allow_demo = true")
        if task.sampling_interval < self.least_sampling_interval:
            raise _refusal(
                f"it samples one launch in {task.sampling_interval}",
                f"least_sampling_interval = {task.sampling_interval}",
            )
        if task.min_contributors < self.least_contributors:
            raise _refusal(
                f"it opens sums of {task.min_contributors} contributors",
                f"least_contributors = {task.min_contributors}",
            )
        if task.min_samples < self.least_samples:
            raise _refusal(
                f"its histograms may hold {task.min_samples} samples", f"least_samples = {task.min_samples}"
            )
        if task.snippet_launches < self.least_snippet_launches:
            raise _refusal(
                f"its snippets have {task.snippet_launches} launches",
                f"least_snippet_launches = {task.snippet_launches}",
            )
        if "*" not in self.allowed_counters:
            for counter_set in task.counter_sets:
                for counter in counter_set.counters:
                    if counter.name not in self.allowed_counters:
                        raise _refusal(
                            f"it reads the counter {counter.name!r}",
                            f'allowed_counters = [..., "{counter.name}"]',
                        )


def _require_sealed(task: Task) -> None:
    """No owner can allow a task whose reports are in the clear."""
    if not task.profile().sealed:
        raise PolicyError(
            "This task's reports are not encrypted: it is for simulated fleets.",
            remedy="Nothing: no real client takes part in such a task.",
        )


def _refusal(reason: str, setting: str) -> PolicyError:
    return PolicyError(
        f"The owner's policy refuses this task: {reason}.",
        remedy=f"If the owner agrees, set {setting} in policy.toml.",
    )


def load_policy(path: Path) -> OwnerPolicy:
    """Read a `policy.toml`; ConfigError names an unknown key with its line and the nearest valid one."""
    return load_section(path, OwnerPolicy)
