"""A client's own snippet classes, and how many reports of each have gone into which batch."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from penrose_ray.actors.sent_reports import Sent
from penrose_ray.snippet.index import SnippetIndex
from penrose_ray.snippet.minhash import Signature

if TYPE_CHECKING:
    from penrose_ray.actors.sent_reports import SentReports
    from penrose_ray.task import Task
    from penrose_ray.types import BatchId


class LocalClass(NamedTuple):
    """A snippet class as one client numbers it. Sums are kept by GPU model, so equal GPUs share classes."""

    gpu_model: str
    number: int


class LocalClasses:
    """An index a GPU model, begun with the classes of reports that earlier lives of this client have sent.

    Args:
        task: whose classes.
        sent: what was sent before, and where more is noted.
    """

    def __init__(self, task: Task, sent: SentReports) -> None:
        self._task = task
        self._sent = sent
        self._indexes: dict[str, SnippetIndex[LocalClass]] = {}
        self._counts: Counter[tuple[LocalClass, int, BatchId]] = Counter()
        for each in sent.all():
            known = self.of(each.gpu_model, Signature.from_bytes(task.signature_scheme, each.signature))
            self._counts[known, each.counter_set, each.batch] += 1

    def __len__(self) -> int:
        return sum(len(index) for index in self._indexes.values())

    def all(self) -> list[LocalClass]:
        """Every class."""
        return [key for index in self._indexes.values() for key, _ in index]

    def of(self, gpu_model: str, signature: Signature) -> LocalClass:
        """The class of a snippet; a new one where none is near enough."""
        if gpu_model not in self._indexes:
            self._indexes[gpu_model] = SnippetIndex(self._task.signature_scheme, self._task.similarity)
        index = self._indexes[gpu_model]
        if found := index.find(signature):
            return found[0]
        made = LocalClass(gpu_model, len(index))
        index.add(made, signature)
        return made

    def representative(self, local_class: LocalClass) -> Signature:
        """The signature that its reports carry."""
        return self._indexes[local_class.gpu_model].representative(local_class)

    def may_send(self, local_class: LocalClass, counter_set: int, created_s: float) -> bool:
        """Whether a real report of that time is within r; a clock that was set back by batches gets none."""
        if not self._task.reports_per_class:
            return True
        batch = self._task.batch_of(created_s)
        newest = max((noted for _, _, noted in self._counts), default=batch)
        sent = self._counts[local_class, counter_set, batch]
        return batch >= newest - 1 and sent < self._task.reports_per_class

    def note(self, local_class: LocalClass, counter_set: int, created_s: float) -> None:
        """Count a real report before it is sealed; it is on disk when this returns.

        Raises:
            SpoolError: it cannot be noted, so the report must not be made.
        """
        if not self._task.reports_per_class:
            return
        batch = self._task.batch_of(created_s)
        signature = self.representative(local_class).to_bytes()
        self._sent.note(Sent(batch, local_class.gpu_model, counter_set, signature))
        self._counts[local_class, counter_set, batch] += 1

    def forget(self, now_s: float) -> None:
        """Of batches that ended a batch ago."""
        self._sent.forget(now_s)
        newest = max((noted for _, _, noted in self._counts), default=0)
        for key in [key for key in self._counts if key[2] < newest - 1]:
            del self._counts[key]
