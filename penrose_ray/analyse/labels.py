"""Names of classes, as `penrose label` found them: a file beside the releases.

A class id is random. Whoever ran a program as an enrolled client may ask which class its reports fell into;
the answer is kept here and shown wherever the class is.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penrose_ray.durable import replace
from penrose_ray.errors import ConfigError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

FILE = "labels.json"
"""The file that is found by itself, in the folder of a release."""
VERSION = 1
_EVERYTHING = "all"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+:/()-]{0,31}")


class Label(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One class with its name."""

    task_id: str
    """Hexadecimal, as in frames."""
    class_id: str
    gpu_model: str
    name: str
    share: float = 1.0
    """Share of the reference program's snippets that fell into this class."""


class Labels(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Content of the file."""

    version: int = VERSION
    labels: tuple[Label, ...] = ()


def check_name(name: str) -> str:
    """The name itself.

    Raises:
        ConfigError: not 1 to 32 letters, digits, spaces and `._+:/()-`, beginning with a letter or digit; or
            `all`, which tables use for all classes together.
    """
    if not _NAME.fullmatch(name) or name == _EVERYTHING:
        raise ConfigError(
            f"{name!r} cannot name a class.",
            remedy="Use up to 32 letters, digits, spaces and ._+:/()-, and begin with a letter or digit.",
        )
    return name


def read_labels(path: Path) -> Labels:
    """A file of labels; none at all where there is no file.

    Raises:
        ConfigError: it is not one, or of another version.
    """
    if not path.exists():
        return Labels()
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Labels)
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(
            f"{path} holds no labels: {error}.", remedy="Let penrose label ask write it again."
        ) from error
    if found.version != VERSION:
        raise ConfigError(
            f"{path} has version {found.version}, this program reads {VERSION}.",
            remedy="Use the version of penrose-ray that wrote it.",
        )
    for each in found.labels:
        check_name(each.name)
    return found


def add_labels(path: Path, more: Iterable[Label]) -> Labels:
    """Write labels into a file, whole or not at all; a class that had a name gets the new one."""
    kept = {(each.task_id, each.class_id): each for each in read_labels(path).labels}
    kept |= {(each.task_id, each.class_id): each for each in more}
    labels = Labels(labels=tuple(kept[key] for key in sorted(kept)))
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, msgspec.json.format(msgspec.json.encode(labels)) + b"\n", mode=0o644)
    return labels


def read_names(release: Path, labels: str | os.PathLike[str] | None, task_id: str | None) -> dict[str, str]:
    """Name of each class of a task that has one.

    Args:
        release: the release's file; `labels.json` beside it is read when `labels` is None.
        labels: a file of labels, which must exist.
        task_id: the release's task; None when it is empty.

    Raises:
        ConfigError: the named file is missing, or holds no labels.
    """
    path = release.parent / FILE if labels is None else Path(labels)
    if labels is not None and not path.exists():
        raise ConfigError(f"There is no file {path}.", remedy="Name a file that penrose label ask wrote.")
    return {each.class_id: each.name for each in read_labels(path).labels if each.task_id == task_id}
