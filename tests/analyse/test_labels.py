from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from penrose_ray.analyse.frames import class_table, open_release
from penrose_ray.analyse.joint import quadrants
from penrose_ray.analyse.labels import FILE, Label, add_labels, check_name, read_labels
from penrose_ray.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penrose_ray.histogram import CounterSet


@pytest.fixture
def release(
    make_task: Callable[..., Any],
    opened: Callable[..., Any],
    write_release: Callable[..., Path],
    joint: CounterSet,
) -> Path:
    sums = [opened(joint, np.arange(128), name=name) for name in (1, 2, 3)]
    return write_release(make_task(joint), sums)


def label(release: Path, number: int, name: str) -> Label:
    task_id = open_release(release).attrs["task_id"]
    class_id = f"{number:02x}" * 16
    return Label(task_id=task_id, class_id=class_id, gpu_model="A100", name=name, share=0.7)


def labels_of(release: Path, **options: object) -> list[str]:
    return list(open_release(release, **options)["label"].unique())  # type: ignore[arg-type]


def test_names_beside_a_release_are_shown_wherever_the_class_is(release: Path) -> None:
    add_labels(release.parent / FILE, [label(release, 2, "bert train")])
    assert labels_of(release) == ["01010101", "bert train", "03030303"]
    assert class_table(release)["label"].unique().tolist() == ["01010101", "bert train", "03030303"]
    assert set(quadrants(open_release(release))["label"]) == {"all", "01010101", "bert train", "03030303"}


def test_two_classes_of_one_program_stay_apart(release: Path) -> None:
    add_labels(release.parent / FILE, [label(release, n, "bert") for n in (1, 2)])
    assert labels_of(release) == ["bert 01010101", "bert 02020202", "03030303"]
    add_labels(release.parent / FILE, [label(release, 1, "03030303")])
    assert labels_of(release) == ["03030303 01010101", "bert", "03030303"]


def test_a_new_name_replaces_the_old_one_and_other_tasks_stay(release: Path, tmp_path: Path) -> None:
    names = tmp_path / "names.json"
    add_labels(names, [label(release, 1, "old")])
    other = Label(task_id="ff" * 32, class_id="01" * 16, gpu_model="A100", name="elsewhere")
    add_labels(names, [label(release, 1, "new"), other])
    assert labels_of(release, labels=names)[0] == "new"
    assert [each.name for each in read_labels(names).labels if each.task_id == "ff" * 32] == ["elsewhere"]


@pytest.mark.parametrize("name", ["", " x", "all", "$\\sum$", "a" * 33, "a\nb", "<b>", "x\u202ey"])
def test_names_that_a_figure_or_page_could_take_for_something_else_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot name a class"):
        check_name(name)


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "holds no labels"), (b'{"labels":1}', "holds no labels"), (b'{"version":9}', "version 9")],
)
def test_a_file_that_is_none(release: Path, content: bytes, reason: str) -> None:
    (release.parent / FILE).write_bytes(content)
    with pytest.raises(ConfigError, match=reason):
        open_release(release)


def test_a_named_file_must_exist(release: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="There is no file"):
        open_release(release, labels=tmp_path / "none.json")
