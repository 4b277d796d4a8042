"""Snippets: an application is known only as MinHash signatures of runs of kernel names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penrose_ray.snippet.classify import Classification, ClassifiedWindow, classify
from penrose_ray.snippet.minhash import Signature, signature

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Classification", "ClassifiedWindow", "Signature", "classify", "signature", "similarity"]


def similarity(first: Sequence[str], second: Sequence[str]) -> float:
    """Estimated Jaccard similarity of two runs of kernel names, 0 to 1."""
    return _of_names(first).jaccard(_of_names(second))


def _of_names(names: Sequence[str]) -> Signature:
    table = list(dict.fromkeys(names))
    position = {name: index for index, name in enumerate(table)}
    return signature([position[name] for name in names], table)
