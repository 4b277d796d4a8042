from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from penrose_ray.draft import require_agreement, task_from
from penrose_ray.errors import ConfigError
from penrose_ray.toml_file import TomlFile, override_with

if TYPE_CHECKING:
    from pathlib import Path

    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.task import Task

DRAFT = """\
[task]
name = "laptop"
demo = true
rotation = [["duration"], ["kind"]]
tokens_per_day = 0
min_contributors = 3
noise_sigma = 0

[[task.counter_sets]]
name = "duration"
counters = [{ name = "duration", unit = "ns", source = "opencl", vendor = "any" }]

[[task.counter_sets.axes]]
scale = "log"
low = 100
high = 1e9

[[task.counter_sets]]
name = "kind"
categories = ["gemm", "other"]
[[task.counter_sets.counters]]
name = "kind"
unit = ""
source = "opencl"
vendor = "any"
"""


def draft(tmp_path: Path, design_keys: DesignKeys, text: str) -> Task:
    path = tmp_path / "task.toml"
    path.write_text(text)
    return task_from(TomlFile(path), design_keys.paillier.public_key)


def line_with(text: str, part: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if part in line)


def test_a_draft_becomes_a_task_for_the_key(tmp_path: Path, design_keys: DesignKeys) -> None:
    task = draft(tmp_path, design_keys, DRAFT)

    assert task.key() == design_keys.paillier.public_key
    assert (task.min_contributors, task.samples_per_histogram) == (3, 10_000)
    assert task.counter_sets[0].axes[0].high == 1e9
    assert task.counter_sets[1].categories == ("gemm", "other")


@pytest.mark.parametrize(
    ("old", "new", "key", "nearest"),
    [
        ("min_contributors = 3", "min_contributers = 3", "task.min_contributers", "min_contributors"),
        ('scale = "log"', 'scael = "log"', "task.counter_sets.0.axes.0.scael", "scale"),
        ('source = "opencl"\n', 'sorce = "opencl"\n', "task.counter_sets.1.counters.0.sorce", "source"),
        (
            'unit = "ns", source',
            'unit = "ns", sorce',
            "task.counter_sets.0.counters.0.sorce",
            "source",
        ),
        ("categories =", "catgories =", "task.counter_sets.1.catgories", "categories"),
    ],
)
def test_an_unknown_key_is_named_with_line_and_nearest_valid_one(
    tmp_path: Path, design_keys: DesignKeys, old: str, new: str, key: str, nearest: str
) -> None:
    text = DRAFT.replace(old, new)

    with pytest.raises(ConfigError) as caught:
        draft(tmp_path, design_keys, text)

    assert f"line {line_with(text, new.strip())}: unknown key '{key}'" in str(caught.value)
    assert f"Did you mean '{nearest}'?" in str(caught.value)


@pytest.mark.parametrize("value", ["5", '"duration"', "[5]", '["duration"]'])
@pytest.mark.parametrize("key", ["counters", "counter_sets"])
def test_lists_of_counters_that_are_none_are_refused(
    tmp_path: Path, design_keys: DesignKeys, key: str, value: str
) -> None:
    with pytest.raises(ConfigError, match=rf"line 5: task\.{key}.*: Expected"):
        draft(tmp_path, design_keys, f'[task]\nname = "x"\ndemo = true\n\n{key} = {value}\n')


def test_the_key_is_not_the_draft_s_to_choose(tmp_path: Path, design_keys: DesignKeys) -> None:
    with pytest.raises(ConfigError, match=r"line 2: unknown key 'task\.public_key'"):
        draft(tmp_path, design_keys, DRAFT.replace("[task]", '[task]\npublic_key = "AAAA"'))


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("min_contributors = 3", 'min_contributors = "three"', "task.min_contributors"),
        ("high = 1e9", 'high = "far"', "task.counter_sets.0.axes.0.high"),
        ('categories = ["gemm", "other"]', "categories = [1, 2]", "task.counter_sets.1.categories.0"),
        ('scale = "log"', 'scale = "logarithmic"', "task.counter_sets.0.axes.0.scale"),
    ],
)
def test_a_wrong_type_is_named_with_its_line(
    tmp_path: Path, design_keys: DesignKeys, old: str, new: str, key: str
) -> None:
    text = DRAFT.replace(old, new)

    with pytest.raises(ConfigError) as caught:
        draft(tmp_path, design_keys, text)

    assert f"line {line_with(text, new)}: {key}: " in str(caught.value)


def test_a_missing_field_is_named(tmp_path: Path, design_keys: DesignKeys) -> None:
    with pytest.raises(ConfigError, match=r"line 1: task: .*`demo`"):
        draft(tmp_path, design_keys, DRAFT.replace("demo = true\n", ""))


@pytest.mark.parametrize("text", ["", "task = 5\n", '[[task]]\nname = "x"\n'])
def test_a_file_without_a_task_is_refused(tmp_path: Path, design_keys: DesignKeys, text: str) -> None:
    with pytest.raises(ConfigError, match="a table is needed"):
        draft(tmp_path, design_keys, text)


def test_values_that_cannot_work_together_are_refused(tmp_path: Path, design_keys: DesignKeys) -> None:
    with pytest.raises(ConfigError, match="the floor is 50"):
        draft(
            tmp_path,
            design_keys,
            DRAFT.replace("demo = true", "demo = false").replace("tokens_per_day = 0", "tokens_per_day = 1"),
        )


COUNTERS = """\
[task]
name = "laptop"
demo = true
tokens_per_day = 0
min_contributors = 3

[[task.counters]]
name = "duration"
unit = "ns"
source = "opencl"
vendors = ["pocl", "nvidia"]
scale = "log"
low = 100
high = 1e9
"""


def test_counters_make_a_counter_set_for_each_vendor(tmp_path: Path, design_keys: DesignKeys) -> None:
    task = draft(tmp_path, design_keys, COUNTERS)

    assert [each.name for each in task.counter_sets] == ["duration-pocl", "duration-nvidia"]
    assert [each.counters[0].vendor for each in task.counter_sets] == ["pocl", "nvidia"]
    assert task.rotation == (("duration-pocl", "duration-nvidia"),)


def test_an_unknown_key_of_a_counter_is_named(tmp_path: Path, design_keys: DesignKeys) -> None:
    with pytest.raises(ConfigError, match=r"line 11: unknown key 'task\.counters\.0\.vendor'.*'vendors'"):
        draft(tmp_path, design_keys, COUNTERS.replace("vendors", "vendor"))


def test_a_draft_has_to_say_what_the_signed_task_says(tmp_path: Path, design_keys: DesignKeys) -> None:
    path = tmp_path / "task.toml"
    task = draft(tmp_path, design_keys, DRAFT)
    paid = msgspec.structs.replace(task, issuer_keys=b"added when it was signed", service_key=bytes(32))
    require_agreement(TomlFile(path), paid)
    path.write_text(DRAFT.replace("min_contributors = 3", "min_contributors = 2"))
    with pytest.raises(ConfigError, match=r"task\.min_contributors: the signed task has 3") as caught:
        require_agreement(TomlFile(path), task)
    assert f"line {line_with(DRAFT, 'min_contributors')}" in str(caught.value)
    path.write_text("[service]\n")
    require_agreement(TomlFile(path), task)


@pytest.mark.parametrize(
    "override",
    [
        "task.cover_rate=2",
        "task.sampling_interval=0",
        "task.batch_s=7",
        "task.slot_profile=nope",
        "task.tokens_per_day=0",
        'task.rotation=[["nope"]]',
        "task.counter_sets.0.axes.0.low=-1",
        "task.counter_sets.1.categories=[]",
    ],
)
def test_a_value_that_cannot_work_is_blamed_on_the_option_that_gave_it_else_on_its_line(
    tmp_path: Path, design_keys: DesignKeys, override: str
) -> None:
    path = tmp_path / "task.toml"
    path.write_text(DRAFT.replace("demo = true", "demo = false").replace("= 3", "= 200"))
    file = TomlFile(path)
    override_with(file, [override])
    with pytest.raises(ConfigError) as caught:
        task_from(file, design_keys.paillier.public_key)
    assert caught.value.message.startswith(f"--set {override}: ")
    plain = DRAFT.replace("min_contributors = 3", "min_contributors = 0")
    line = line_with(plain, "min_contributors")
    with pytest.raises(ConfigError, match=f"task.toml, line {line}: Task field min_contributors = 0"):
        draft(tmp_path, design_keys, plain)
