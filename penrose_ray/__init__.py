"""Privacy-preserving performance profiling of GPU fleets.

The public names load on first use (PEP 562): importing this package imports neither Ray nor pandas.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penrose_ray.analyse.frames import open_release
    from penrose_ray.capture.tools.annotate import annotate
    from penrose_ray.errors import PenroseError
    from penrose_ray.snippet import similarity

__version__ = "0.1.0"
__all__ = ["PenroseError", "__version__", "annotate", "open_release", "similarity"]

_PLACES = {
    "PenroseError": "penrose_ray.errors",
    "annotate": "penrose_ray.capture.tools.annotate",
    "open_release": "penrose_ray.analyse.frames",
    "similarity": "penrose_ray.snippet",
}


def __getattr__(name: str) -> object:
    """Load a public name from its module."""
    if name not in _PLACES:
        raise AttributeError(f"module 'penrose_ray' has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    """Public names, loaded or not."""
    return sorted(__all__)
