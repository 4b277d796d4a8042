"""The matcher: the only writer of snippet classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penrose_ray.snippet.journal import ClassJournal, SnippetClass
from penrose_ray.snippet.minhash import Signature
from penrose_ray.task import verify
from penrose_ray.telemetry import CLASSES, REPORTS, stage_call

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penrose_ray.types import ClassId


class Matcher:
    """Shell around the class journal; a restarted matcher reads its journal again."""

    def __init__(self, path: Path, signed_task: bytes) -> None:
        task = verify(signed_task)
        self._scheme = task.signature_scheme
        self._journal = ClassJournal(path, task.signature_scheme, task.similarity)

    def match(self, wanted: Sequence[tuple[str, str, bytes]]) -> list[SnippetClass]:
        """Class of each (GPU model, scheme, signature); new classes are durable before this returns."""
        with stage_call("matcher"):
            found = self._journal.match(
                [(gpu_model, Signature.from_bytes(scheme, raw)) for gpu_model, scheme, raw in wanted]
            )
        REPORTS.add(len(found), stage="matcher", outcome="matched")
        CLASSES.set(len(self._journal))
        return found

    def merge(self, kept: ClassId, gone: ClassId) -> None:
        """Sums of both are one at release from now on; raises like `ClassJournal.merge`."""
        self._journal.merge(kept, gone)

    def split(self, class_id: ClassId, signature: bytes) -> SnippetClass:
        """Found a class for what is nearer to this signature; raises like `ClassJournal.split`."""
        return self._journal.split(class_id, Signature.from_bytes(self._scheme, signature))

    def classes(self) -> list[SnippetClass]:
        """All classes."""
        return self._journal.classes()
