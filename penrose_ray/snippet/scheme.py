"""Schemes: every parameter that changes a signature, under one id.

Signatures of different schemes are never compared, so a scheme never changes once it is published; a better
one gets another id.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.errors import ConfigError
from penrose_ray.snippet.names import DEFAULT_POLICY, NamePolicy

if TYPE_CHECKING:
    from numpy.typing import NDArray

FUNCTIONS = 100
"""Hash functions of each view."""
_WORDS = 2


@dataclass(frozen=True, slots=True)
class View:
    """Which grams of a window count: those seen at least so often.

    The least count is the greater of `floor` and c / `divisor`, where c is the count that grams holding a
    `share` of the window have at most. Relative to the window, the rule keeps everything where a window
    holds one iteration and drops what is accidental where it holds a hundred.
    """

    share: float = 0.0
    divisor: float = 1.0
    floor: int = 1


EVERYTHING = View()
"""All grams, as published."""


@dataclass(frozen=True)
class Scheme:
    """Parameters of a signature."""

    id: str
    gram: int
    """Kernel names in a row that make a gram."""
    views: tuple[View, ...]
    """Sets that are hashed; two snippets are as similar as the most similar of their views."""
    least_grams: int
    """A view that would keep fewer grams than this keeps all."""
    mended: bool
    """Whether launches that were lost are put back before grams are built."""
    seed: bytes
    shape: int = 0
    """Launches that make a gram of the shape view (see `shape.py`); 0 for a scheme without one."""
    names: NamePolicy = DEFAULT_POLICY

    @property
    def size(self) -> int:
        """Values of a signature."""
        return FUNCTIONS * (len(self.views) + bool(self.shape))

    @cached_property
    def families(self) -> tuple[tuple[NDArray[np.uint64], NDArray[np.uint64]], ...]:
        """For each view odd factors and offsets of 100 hash functions, uint64."""
        raw = hashlib.shake_256(self.seed).digest(8 * _WORDS * FUNCTIONS * len(self.views))
        words = np.frombuffer(raw, "<u8").astype(np.uint64).reshape(len(self.views), _WORDS, FUNCTIONS)
        return tuple((each[0] | np.uint64(1), each[1]) for each in words)


_SEED = b"penrose-ray g8 v1"
SCHEMES = {
    scheme.id: scheme
    for scheme in (
        Scheme(
            "g8-mended-v1",
            gram=8,
            views=(EVERYTHING, View(0.15, 2.0), View(0.4, 8.0)),
            least_grams=20,
            mended=True,
            seed=_SEED,
            shape=32,
        ),
        Scheme("g8-recurring-v1", gram=8, views=(View(floor=2),), least_grams=20, mended=False, seed=_SEED),
        Scheme("g8-plain-v1", gram=8, views=(EVERYTHING,), least_grams=0, mended=False, seed=_SEED),
    )
}
DEFAULT_SCHEME = "g8-mended-v1"


def scheme(id_: str) -> Scheme:
    """The scheme of that id; ConfigError when there is none."""
    try:
        return SCHEMES[id_]
    except KeyError as error:
        raise ConfigError(
            f"There is no snippet scheme {id_!r}.", remedy=f"Use one of {', '.join(SCHEMES)}."
        ) from error
