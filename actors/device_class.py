"""The class of readings of whole devices, which belong to no program: one a GPU model and task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.capture.events import EventBatch
from penrose_ray.capture.gauge import NAME
from penrose_ray.snippet.cutter import SnippetCutter
from penrose_ray.snippet.minhash import scheme

if TYPE_CHECKING:
    from penrose_ray.snippet.identity import Identity
    from penrose_ray.snippet.minhash import Signature
    from penrose_ray.task import Task


class DeviceClass:
    """Readings are reported under the signature of a snippet of nothing but readings, the same everywhere.

    Args:
        task: names the scheme and the length of snippets.
        identity: the task's identity mode.
    """

    def __init__(self, task: Task, identity: Identity) -> None:
        self._task = task
        self._identity = identity
        self._signature: Signature | None = None

    def signature(self) -> Signature | None:
        """The signature; None while the key server gives no values for it."""
        if self._signature is None:
            length = self._task.snippet_launches
            cutter = SnippetCutter(length, scheme(self._task.signature_scheme), self._identity)
            found = cutter.push(EventBatch.of(length, 0, seq=np.arange(length)), [NAME])
            self._signature = found[0].signature if found else None
        return self._signature
