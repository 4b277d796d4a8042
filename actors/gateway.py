"""The HTTP face of the aggregation service: decodes, routes to matcher and shards, answers.

Bodies and statuses follow RFC 9457: every refusal is `application/problem+json` with a remedy.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import msgspec
from aiohttp import web

from penrose_ray.aggregate.arrival import Answer, Arrival, Outcome
from penrose_ray.errors import JournalError, PenroseError, PortInUseError, WireError
from penrose_ray.release.tokens import Verifier
from penrose_ray.snippet.minhash import Signature
from penrose_ray.task import verify
from penrose_ray.transport.tls import gateway_context
from penrose_ray.wire import RECORD_BYTES, Report, decode, split

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from ssl import SSLContext

    from penrose_ray.settings import TlsSettings
    from penrose_ray.snippet.journal import SnippetClass
    from penrose_ray.types import ReportId

_CACHED_CLASSES = 100_000
_RETRY_AFTER_S = 1
_BODY_TIMEOUT_S = 20.0
_SILENT = logging.getLogger("penrose_ray.gateway.silent")
"""aiohttp would log clients' addresses and pieces of their bodies."""
_SILENT.disabled = True
_ATTEMPTS = 4
"""Tries to find the shard of a bucket that moves meanwhile; then the client is asked to come back."""


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


class Refusal(msgspec.Struct, frozen=True):
    """One report of a body that was not taken."""

    index: int
    code: str
    detail: str


class Receipt(msgspec.Struct, frozen=True):
    """What became of the reports of a body; a repeated report counts as accepted."""

    accepted: int
    refused: tuple[Refusal, ...] = ()


@dataclass(frozen=True, slots=True)
class _Refused:
    code: str
    detail: str
    status: int = 400


class Intake:
    """From the bytes of a request to answers; knows nothing of HTTP."""

    def __init__(
        self, signed_task: bytes, backend: Backend, *, most_reports: int, quote: bytes = b""
    ) -> None:
        self.signed_task = signed_task
        self.quote = quote
        self.task = verify(signed_task)
        self._backend = backend
        self._most_reports = most_reports
        self._blob_bytes = self.task.profile().blob_bytes
        self._tokens = Verifier(self.task.task_id, self.task.issuer_keys)
        self._classes: OrderedDict[tuple[str, bytes], SnippetClass] = OrderedDict()

    async def take(self, body: bytes) -> list[Answer | _Refused]:
        """Handle a body; the answers are in the order of its reports.

        Raises:
            WireError: the body as a whole is not a row of records.
            UnavailableError: matcher or shard is restarting; nothing is lost when the client repeats.
        """
        answers: list[Answer | _Refused | None] = []
        reports: list[tuple[int, Report]] = []
        for index, record in enumerate(split(body, most=self._most_reports)):
            checked = self._check(record)
            answers.append(checked if isinstance(checked, _Refused) else None)
            if isinstance(checked, Report):
                reports.append((index, checked))
        for attempt in range(_ATTEMPTS):
            if attempt:
                await self._backend.refresh()
            reports = await self._deliver_all(reports, answers)
            if not reports:
                break
        return [answer for answer in answers if answer is not None]

    async def _deliver_all(
        self, reports: list[tuple[int, Report]], answers: list[Answer | _Refused | None]
    ) -> list[tuple[int, Report]]:
        """Fill in answers; returns the reports whose bucket is not where it was thought to be."""
        lost: list[tuple[int, Report]] = []
        for shard, mine in (await self._by_shard(reports)).items():
            done = await self._deliver(shard, [report for _, report in mine])
            for (index, report), answer in zip(mine, done, strict=True):
                answers[index] = answer
                if answer.outcome is Outcome.REFUSED_WRONG_OWNER:
                    lost.append((index, report))
        return lost

    def _check(self, record: bytes) -> Report | _Refused:
        try:
            report = decode(record)
        except WireError as error:
            return _Refused(error.code, str(error))
        return self._fault(report) or report

    def _fault(self, report: Report) -> _Refused | None:
        if report.task_id != self.task.task_id:
            return _Refused("wrong-task", f"The report is for task {report.task_id.hex()}.", 404)
        if report.scheme != self.task.signature_scheme:
            return _Refused("wrong-scheme", f"The task's snippet scheme is {self.task.signature_scheme}.")
        if report.counter_set >= len(self.task.counter_sets):
            return _Refused("counter-set", f"The task has {len(self.task.counter_sets)} counter sets.")
        if len(report.blob) != self._blob_bytes:
            return _Refused("ciphertext", f"A report of this task has {self._blob_bytes} ciphertext bytes.")
        try:
            Signature.from_bytes(report.scheme, report.signature)
        except PenroseError as error:
            return _Refused("invalid-message", str(error))
        return self._token_fault(report)

    def _token_fault(self, report: Report) -> _Refused | None:
        """A repeat carries the same token again, so its signature still holds; its id is known."""
        if not self.task.tokens_per_day:
            return _Refused("token", "This task has no tokens.") if report.token else None
        try:
            paid = self._tokens.check(report.token, created_s=report.created_hour * 3600)
        except PenroseError as error:
            return _Refused("token", error.message)
        return None if paid == report.report_id else _Refused("token", "The id is not that of the token.")

    async def _by_shard(self, reports: Iterable[tuple[int, Report]]) -> dict[str, list[tuple[int, Report]]]:
        grouped: dict[str, list[tuple[int, Report]]] = defaultdict(list)
        for index, report in reports:
            grouped[await self._backend.owner_of(report.report_id)].append((index, report))
        return grouped

    async def _deliver(self, shard: str, reports: list[Report]) -> list[Answer]:
        """Look ids up first: a repeated report must not found a class, nor be judged again."""
        strangers = [each for each in reports if self._cached(each) is None]
        known: set[ReportId] = set()
        if strangers:
            known = await self._backend.known(shard, [each.report_id for each in strangers])
            await self._learn([each for each in strangers if each.report_id not in known])
        fresh = [(index, each) for index, each in enumerate(reports) if each.report_id not in known]
        answers = [Answer(each.report_id, Outcome.KNOWN, "already counted") for each in reports]
        if fresh:
            done = await self._backend.accept(shard, [self._arrival(each) for _, each in fresh])
            for (index, _), answer in zip(fresh, done, strict=True):
                answers[index] = answer
        return answers

    def _cached(self, report: Report) -> SnippetClass | None:
        key = (report.gpu_model, report.signature)
        if key in self._classes:
            self._classes.move_to_end(key)
            return self._classes[key]
        return None

    async def _learn(self, reports: list[Report]) -> None:
        if not reports:
            return
        wanted = list({(each.gpu_model, each.scheme, each.signature) for each in reports})
        for (gpu_model, _, signature), found in zip(wanted, await self._backend.match(wanted), strict=True):
            self._classes[gpu_model, signature] = found
        while len(self._classes) > _CACHED_CLASSES:
            self._classes.popitem(last=False)

    def _arrival(self, report: Report) -> Arrival:
        found = self._classes[report.gpu_model, report.signature]
        return Arrival.of(report, found.class_id, found.snippet_hash)


def application(intake: Intake) -> web.Application:
    """Routes: GET the task and the machine's quote, POST reports, GET health."""
    app = web.Application(
        client_max_size=intake._most_reports * RECORD_BYTES + 1,  # noqa: SLF001 - same module
        middlewares=[_problems],
    )
    task_path = f"/tasks/{intake.task.task_id.hex()}"

    async def task(_request: web.Request) -> web.Response:
        return web.Response(body=intake.signed_task, content_type="application/octet-stream")

    async def quote(_request: web.Request) -> web.Response:
        return web.Response(body=intake.quote, content_type="application/octet-stream")

    async def reports(request: web.Request) -> web.Response:
        if "Content-Encoding" in request.headers:
            return _problem(415, "http", "Reports are sent as they are, not compressed.")
        try:
            body = await asyncio.wait_for(request.read(), _BODY_TIMEOUT_S)
        except TimeoutError:
            return _problem(408, "http", "The body did not come in time.")
        return _response(await intake.take(body))

    async def health(_request: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "task": intake.task.task_id.hex()})

    async def other_task(request: web.Request) -> web.Response:
        if request.match_info["task"] == intake.task.task_id.hex():
            method = "POST" if request.path.endswith("/reports") else "GET"
            raise web.HTTPMethodNotAllowed(request.method, [method])
        return _problem(404, "wrong-task", f"This service has no task {request.match_info['task']}.")

    app.router.add_get(task_path, task)
    app.router.add_get(f"{task_path}/quote", quote)
    app.router.add_post(f"{task_path}/reports", reports)
    app.router.add_get("/health", health)
    app.router.add_route("*", "/tasks/{task}", other_task)
    app.router.add_route("*", "/tasks/{task}/reports", other_task)
    app.on_response_prepare.append(_hide_version)
    return app


async def _hide_version(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Server"] = "penrose"


_STATUS = {Outcome.REFUSED_CAPACITY: 507, Outcome.REFUSED_BUSY: 503, Outcome.REFUSED_WRONG_OWNER: 503}
_REMEDIES = {
    "wrong-task": "Fetch the task that this service offers and seal reports for it.",
    "too-large": "Send fewer reports a request.",
    "invalid-message": "Send reports made by the same version of penrose-ray.",
    "wrong-scheme": "Compute signatures with the scheme that the task names.",
    "counter-set": "Seal reports for the task that this service offers.",
    "capacity": "Send the report again after the batch is released.",
    "wrong-owner": "Send the same bytes again: its bucket has just moved.",
    "ciphertext": "Seal the report again with the task's public key.",
    "token": "Ask the issuer for the day's tokens.",
    "too-early": "Set the clock of the client's machine.",
    "too-late": "Nothing: a report that old is lost.",
    "busy": "Send the same bytes again after the pause.",
}


def _response(answers: list[Answer | _Refused]) -> web.Response:
    refusals = [(index, _refused(answer)) for index, answer in enumerate(answers)]
    refused = tuple(Refusal(index, each.code, each.detail) for index, each in refusals if each is not None)
    if len(answers) == 1 and refused:
        only = next(each for _, each in refusals if each is not None)
        return _problem(only.status, only.code, only.detail)
    receipt = Receipt(len(answers) - len(refused), refused)
    return web.Response(body=msgspec.json.encode(receipt), content_type="application/json")


def _refused(answer: Answer | _Refused) -> _Refused | None:
    if isinstance(answer, _Refused):
        return answer
    if answer.outcome.acknowledged:
        return None
    return _Refused(answer.outcome.value, answer.detail, _STATUS.get(answer.outcome, 400))


def _problem(status: int, code: str, detail: str) -> web.Response:
    problem = {
        "type": f"urn:penrose:error:{code}",
        "title": code,
        "status": status,
        "detail": detail,
        "remedy": _REMEDIES.get(code, "See docs/exit-codes.md."),
    }
    headers = {"Retry-After": str(_RETRY_AFTER_S)} if status in (429, 503) else {}
    return web.json_response(problem, status=status, content_type="application/problem+json", headers=headers)


@web.middleware
async def _problems(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPRequestEntityTooLarge:
        return _problem(413, "too-large", "The body is larger than this service takes.")
    except web.HTTPMethodNotAllowed as error:
        allowed = ", ".join(sorted(error.allowed_methods))
        response = _problem(405, "http", f"The method here is {allowed}.")
        response.headers["Allow"] = allowed
        return response
    except web.HTTPException as error:
        return _problem(error.status, "http", error.reason)
    except WireError as error:
        return _problem(400, error.code, error.message)
    except (JournalError, UnavailableError) as error:
        return _problem(503, UnavailableError.code, error.message)


class Gateway:
    """An HTTP server on the running event loop; with `tls` it also listens there, for known clients."""

    def __init__(self, intake: Intake, tls: TlsSettings | None = None) -> None:
        self._intake = intake
        self._tls = tls
        self._runner: web.AppRunner | None = None
        self.port = 0
        """The port that is listened on, 0 while there is none."""

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port, which the kernel chooses when `port` is 0.

        Raises:
            PortInUseError: another process listens there.
            ConfigError: certificates that are none.
        """
        places = [(host, port, None), *self._secured()]
        runner = web.AppRunner(application(self._intake), access_log=None, logger=_SILENT)
        await runner.setup()
        for where, at, secured in places:
            try:
                await web.TCPSite(runner, where, at, ssl_context=secured).start()
            except OSError as error:
                await runner.cleanup()
                if error.errno not in (errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL):
                    raise
                raise PortInUseError(
                    f"The gateway cannot listen on {where}:{at}: {error.strerror}.",
                    remedy="Stop the other process or set service.port to 0 or another port.",
                ) from error
        self._runner = runner
        self.port = int(runner.addresses[0][1])
        return self.port

    def _secured(self) -> list[tuple[str, int, SSLContext | None]]:
        if self._tls is None:
            return []
        context = gateway_context(self._tls.certificate, self._tls.key, self._tls.clients)
        return [(self._tls.host, self._tls.port, context)]

    async def stop(self) -> None:
        """Finish running requests and close the port."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner, self.port = None, 0
