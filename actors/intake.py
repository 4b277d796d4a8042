"""From the bytes of a request to answers: decodes, routes to matcher and shards. It knows nothing of HTTP."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penrose_ray.aggregate.arrival import Answer, Arrival, Outcome
from penrose_ray.errors import PenroseError, WireError, WrongKeyError
from penrose_ray.release.tokens import Verifier
from penrose_ray.snippet.minhash import Signature
from penrose_ray.task import verify
from penrose_ray.telemetry import CACHED_CLASSES, REPORTS
from penrose_ray.wire import Report, decode, split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TypeAlias

    from penrose_ray.crypto.envelope import ServiceKey
    from penrose_ray.snippet.journal import SnippetClass
    from penrose_ray.task import Task
    from penrose_ray.types import ReportId

    _Known: TypeAlias = OrderedDict[tuple[str, bytes], SnippetClass]

_MOST_CLASSES = 100_000
_ATTEMPTS = 4
"""Tries to find the shard of a bucket that moves meanwhile; then the client is asked to come back."""
_STAGE = "gateway"
_THROTTLED = "the service has more work than it can take at the moment"


class Backend(Protocol):
    """Matcher and shards, wherever they run."""

    async def owner_of(self, report_id: ReportId) -> str:
        """Name of the shard that takes this report, as far as is known here."""
        ...

    async def refresh(self) -> None:
        """Learn the shards' places anew: a bucket has moved."""
        ...

    async def match(self, wanted: Sequence[tuple[str, str, bytes]]) -> list[SnippetClass]:
        """Class of each (GPU model, scheme, signature)."""
        ...

    async def known(self, shard: str, ids: Sequence[ReportId]) -> set[ReportId]:
        """Which report ids a shard has already accepted."""
        ...

    async def accept(self, shard: str, arrivals: Sequence[Arrival]) -> list[Answer]:
        """Journal and add arrivals."""
        ...


class UnavailableError(PenroseError):
    """A part of the service is restarting."""

    code = "busy"
    exit_code = 40


class BacklogError(PenroseError):
    """As many reports wait as may."""

    code = "busy"
    exit_code = 40


@dataclass(frozen=True, slots=True)
class Refused:
    """A report that no shard was asked about: it is none of this task."""

    code: str
    detail: str
    status: int = 400


class Intake:
    """From the bytes of a request to answers; knows nothing of HTTP."""

    def __init__(
        self,
        signed_task: bytes,
        backend: Backend,
        *,
        most_reports: int,
        quote: bytes = b"",
        key: ServiceKey | None = None,
        admits: Callable[[], bool] = lambda: True,
    ) -> None:
        """Serve one task.

        Args:
            signed_task: as the design server signed it.
            backend: matcher and shards.
            most_reports: in one body.
            quote: the machine's TPM quote for this task.
            key: the service's, in a task whose reports have sealed tags.
            admits: whether new reports of the next body are taken; known ones are acknowledged anyway.

        Raises:
            WrongKeyError: the task's reports are sealed to another key.
        """
        self._admits = admits
        self.signed_task = signed_task
        self.quote = quote
        self.task = verify(signed_task)
        self._key = _own_key(self.task, key)
        self._backend = backend
        self.most_reports = most_reports
        self._blob_bytes = self.task.profile().blob_bytes
        self._task_id = self.task.task_id
        self._tokens = Verifier(self._task_id, self.task.issuer_keys)
        self._classes: _Known = OrderedDict()

    def forget_classes(self) -> None:
        """Ask the matcher again for every signature: a class was split.

        What is under way goes on with what it knew, and nobody learns from it.
        """
        self._classes = OrderedDict()

    async def take(self, body: bytes) -> list[Answer | Refused]:
        """Handle a body; the answers are in the order of its reports.

        Raises:
            WireError: the body as a whole is not a row of records.
            BacklogError: as many reports wait as may.
            UnavailableError: matcher or shard is restarting; nothing is lost when the client repeats.
        """
        answers = await self._take(body, admitted=self._admits())
        codes = Counter(each.code if isinstance(each, Refused) else each.outcome.value for each in answers)
        for code, reports in codes.items():
            REPORTS.add(reports, stage=_STAGE, outcome=code)
        return answers

    async def _take(self, body: bytes, *, admitted: bool) -> list[Answer | Refused]:
        answers: list[Answer | Refused | None] = []
        reports: list[tuple[int, Report]] = []
        for index, record in enumerate(split(body, most=self.most_reports)):
            checked = self._check(record)
            answers.append(checked if isinstance(checked, Refused) else None)
            if isinstance(checked, Report):
                reports.append((index, checked))
        for attempt in range(_ATTEMPTS):
            if attempt:
                await self._backend.refresh()
            reports = await self._deliver_all(reports, answers, admitted=admitted)
            if not reports:
                break
        return [answer for answer in answers if answer is not None]

    async def _deliver_all(
        self, reports: list[tuple[int, Report]], answers: list[Answer | Refused | None], *, admitted: bool
    ) -> list[tuple[int, Report]]:
        """Fill in answers; returns the reports whose bucket is not where it was thought to be."""
        lost: list[tuple[int, Report]] = []
        for shard, mine in (await self._by_shard(reports)).items():
            done = await self._deliver(shard, [report for _, report in mine], admitted=admitted)
            for (index, report), answer in zip(mine, done, strict=True):
                answers[index] = answer
                if answer.outcome is Outcome.REFUSED_WRONG_OWNER:
                    lost.append((index, report))
        return lost

    def _check(self, record: bytes) -> Report | Refused:
        try:
            report = decode(record, self._key)
        except WireError as error:
            return Refused(error.code, str(error))
        return self._fault(report) or report

    def _fault(self, report: Report) -> Refused | None:
        if report.task_id != self._task_id:
            return Refused("wrong-task", f"The report is for task {report.task_id.hex()}.", 404)
        if report.scheme != self.task.signature_scheme:
            return Refused("wrong-scheme", f"The task's snippet scheme is {self.task.signature_scheme}.")
        if report.counter_set >= len(self.task.counter_sets):
            return Refused("counter-set", f"The task has {len(self.task.counter_sets)} counter sets.")
        if len(report.blob) != self._blob_bytes:
            return Refused("ciphertext", f"A report of this task has {self._blob_bytes} ciphertext bytes.")
        try:
            Signature.from_bytes(report.scheme, report.signature)
        except PenroseError as error:
            return Refused("invalid-message", str(error))
        return self._token_fault(report)

    def _token_fault(self, report: Report) -> Refused | None:
        """A repeat carries the same token again, so its signature still holds; its id is known."""
        if not self.task.tokens_per_day:
            return Refused("token", "This task has no tokens.") if report.token else None
        try:
            paid = self._tokens.check(report.token, created_s=report.created_hour * 3600)
        except PenroseError as error:
            return Refused("token", error.message)
        return None if paid == report.report_id else Refused("token", "The id is not that of the token.")

    async def _by_shard(self, reports: Iterable[tuple[int, Report]]) -> dict[str, list[tuple[int, Report]]]:
        grouped: dict[str, list[tuple[int, Report]]] = defaultdict(list)
        for index, report in reports:
            grouped[await self._backend.owner_of(report.report_id)].append((index, report))
        return grouped

    async def _deliver(self, shard: str, reports: list[Report], *, admitted: bool) -> list[Answer]:
        """Look ids up first: a repeated report must not found a class, nor be judged again."""
        classes = self._classes
        strangers = [each for each in reports if not _has(classes, each)] if admitted else reports
        known: set[ReportId] = set()
        if strangers:
            known = await self._backend.known(shard, [each.report_id for each in strangers])
        answers = [Answer(each.report_id, Outcome.KNOWN, "already counted") for each in reports]
        fresh = [(index, each) for index, each in enumerate(reports) if each.report_id not in known]
        if fresh and not admitted:
            for index, each in fresh:
                answers[index] = Answer(each.report_id, Outcome.REFUSED_BUSY, _THROTTLED)
        elif fresh:
            await self._learn(classes, [each for each in strangers if each.report_id not in known])
            done = await self._backend.accept(shard, [_arrival(classes, each) for _, each in fresh])
            for (index, _), answer in zip(fresh, done, strict=True):
                answers[index] = answer
        if strangers:
            CACHED_CLASSES.add(len(strangers), result="miss")
        if len(strangers) < len(reports):
            CACHED_CLASSES.add(len(reports) - len(strangers), result="hit")
        return answers

    async def _learn(self, classes: _Known, reports: list[Report]) -> None:
        if not reports:
            return
        wanted = list({(each.gpu_model, each.scheme, each.signature) for each in reports})
        for (gpu_model, _, signature), found in zip(wanted, await self._backend.match(wanted), strict=True):
            classes[gpu_model, signature] = found
        while len(classes) > _MOST_CLASSES:
            classes.popitem(last=False)


def _has(classes: _Known, report: Report) -> bool:
    """Whether the class of a report's signature is known; the latest asked for is forgotten last."""
    key = (report.gpu_model, report.signature)
    if key in classes:
        classes.move_to_end(key)
    return key in classes


def _arrival(classes: _Known, report: Report) -> Arrival:
    found = classes[report.gpu_model, report.signature]
    return Arrival.of(report, found.class_id, found.snippet_hash)


def _own_key(task: Task, key: ServiceKey | None) -> ServiceKey | None:
    """The key that opens the task's reports, None where their tags are clear."""
    if not task.service_key:
        return None
    if key is None or key.public != task.service_key:
        raise WrongKeyError(
            f"Reports of this task are sealed to {task.service_key.hex()}, "
            f"the gateway {f'has {key.public.hex()}' if key else 'has no key'}.",
            remedy="Give service.keys_dir the key file of the service that the task was signed for.",
        )
    return key
