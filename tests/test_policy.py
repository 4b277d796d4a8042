from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penrose_ray.errors import ConfigError, PolicyError
from penrose_ray.policy import OwnerPolicy, load_policy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penrose_ray.task import Task


def test_a_policy_refuses_demo_tasks_unless_the_owner_agrees(make_task: Callable[..., Task]) -> None:
    with pytest.raises(PolicyError, match=r"demo task.*set allow_demo = true"):
        OwnerPolicy(least_contributors=1).check(make_task())
    OwnerPolicy(allow_demo=True, least_contributors=1).check(make_task())


def test_the_default_policy_takes_a_default_task(make_task: Callable[..., Task]) -> None:
    OwnerPolicy().check(make_task(demo=False, tokens_per_day=32, min_contributors=50))


@pytest.mark.parametrize(
    ("changed", "reason", "setting"),
    [
        ({"sampling_interval": 999}, "one launch in 999", "least_sampling_interval = 999"),
        ({"min_contributors": 49}, "sums of 49 contributors", "least_contributors = 49"),
    ],
)
def test_a_task_that_asks_for_more_is_refused_with_the_setting_that_would_allow_it(
    make_task: Callable[..., Task], changed: dict[str, object], reason: str, setting: str
) -> None:
    asked = {"min_contributors": 50, **changed}

    with pytest.raises(PolicyError, match=reason) as caught:
        OwnerPolicy(allow_demo=True).check(make_task(**asked))
    assert setting in caught.value.remedy


def test_only_named_counters_may_be_read(make_task: Callable[..., Task]) -> None:
    task = make_task(min_contributors=50)

    with pytest.raises(PolicyError, match="the counter 'kind'"):
        OwnerPolicy(allow_demo=True, allowed_counters=("duration",)).check(task)
    OwnerPolicy(allow_demo=True, allowed_counters=("duration", "kind")).check(task)


def test_an_empty_list_of_counters_allows_none(make_task: Callable[..., Task]) -> None:
    with pytest.raises(PolicyError, match="the counter 'duration'"):
        OwnerPolicy(allow_demo=True, allowed_counters=()).check(make_task(min_contributors=50))


def test_a_policy_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("allow_demo = true\nmax_overhead_percent = 1.5\n")

    policy = load_policy(path)

    assert (policy.allow_demo, policy.max_overhead_percent, policy.least_contributors) == (True, 1.5, 50)


def test_an_empty_policy_file_is_the_strict_default(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("")

    assert load_policy(path) == OwnerPolicy()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# mine\nalow_demo = true\n", "line 2: unknown key 'alow_demo'. Did you mean 'allow_demo'?"),
        ("max_overhead_percent = 0\n", "line 1: max_overhead_percent: Input should be greater than 0"),
        ("max_overhead_percent = 101\n", "line 1: max_overhead_percent: Input should be less than"),
        ("allow_demo = 7\n", "line 1: allow_demo: "),
        ("[policy]\nallow_demo = true\n", "line 1: unknown key 'policy'"),
    ],
)
def test_a_wrong_policy_file_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)

    with pytest.raises(ConfigError) as caught:
        load_policy(path)
    assert message in str(caught.value)
