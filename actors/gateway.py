"""The HTTP face of the aggregation service; docs/openapi.json describes it.

Bodies and statuses follow RFC 9457: every refusal is `application/problem+json` with a remedy.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import msgspec
from aiohttp import web

from penrose_ray import telemetry
from penrose_ray.actors.intake import BacklogError, Intake, Refused, UnavailableError
from penrose_ray.actors.metrics import CONTENT_TYPE, page
from penrose_ray.actors.openapi import document
from penrose_ray.actors.problems import SEND_AGAIN, UNFORESEEN, problem, problems
from penrose_ray.actors.scraping import Scrapers
from penrose_ray.actors.serving import Place, Sharing, listen
from penrose_ray.aggregate.arrival import Answer, Outcome
from penrose_ray.errors import JournalError, PenroseError, WireError
from penrose_ray.telemetry import BUSY_SECONDS, HTTP_BODY_BYTES, HTTP_REQUESTS, HTTP_SECONDS, UP
from penrose_ray.transport.tls import gateway_context
from penrose_ray.wire import RECORD_BYTES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from penrose_ray.settings import TlsSettings
    from penrose_ray.telemetry import Snapshot

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

T = TypeVar("T")
_LOG = logging.getLogger("penrose_ray.gateway")
_SILENT = logging.getLogger("penrose_ray.gateway.silent")
"""aiohttp would log clients' addresses and pieces of their bodies."""
_SILENT.disabled = True
_STATUS = {Outcome.REFUSED_CAPACITY: 507, Outcome.REFUSED_BUSY: 429, Outcome.REFUSED_WRONG_OWNER: 503}
_NOT_READY = "A part of the service is not ready."
_LINGER_S = 1.0
"""For the rest of a body that was refused: a client that still sends can read why."""
NAME = "gateway-0"
"""The only gateway, or the first of several."""
_FRESH_S = 1.0
"""Age up to which answers about the other parts are given again: one asker must not load all of them."""


class Parts(Protocol):
    """The other parts of the service, as `GET /ready` and `GET /metrics` ask about them."""

    async def missing(self) -> list[str]:
        """Names of matcher, directory and shards that do not answer."""
        ...

    async def beside(self) -> list[str]:
        """Names of the other gateways that listen at this one's address."""
        ...

    async def snapshots(self) -> Mapping[str, Snapshot | None]:
        """What each part, other gateways included, has counted; None for one that does not answer."""
        ...


class Alone:
    """A gateway whose matcher and shards are in its own process."""

    async def missing(self) -> list[str]:
        """Nothing."""
        return []

    async def beside(self) -> list[str]:
        """None."""
        return []

    async def snapshots(self) -> Mapping[str, Snapshot | None]:
        """Nothing: all is counted in the gateway's own process."""
        return {}


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a client may take; what is slower is cut off."""

    body_s: float = 20.0
    idle_s: float = 30.0
    """For a request's head, and between requests of a connection."""


class Refusal(msgspec.Struct, frozen=True):
    """One report of a body that was not taken."""

    index: int
    code: str
    detail: str


class Receipt(msgspec.Struct, frozen=True):
    """What became of the reports of a body; a repeated report counts as accepted."""

    accepted: int
    refused: tuple[Refusal, ...] = ()


class _Face:
    """Handlers of the resources."""

    def __init__(self, name: str, intake: Intake, parts: Parts, limits: Limits, scrapers: Scrapers) -> None:
        self._name = name
        self._intake, self._limits, self._scrapers = intake, limits, scrapers
        self.task_id = intake.task.task_id.hex()
        self.most_bytes = intake.most_reports * RECORD_BYTES
        self._missing = _Fresh(parts.missing)
        self._beside = _Fresh(parts.beside)
        self._snapshots = _Fresh(parts.snapshots)

    async def task(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._intake.signed_task, content_type="application/octet-stream")

    async def quote(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._intake.quote, content_type="application/octet-stream")

    async def reports(self, request: web.Request) -> web.StreamResponse:
        if "Content-Encoding" in request.headers:
            return await _cut_off(
                request, problem(415, "http", "Reports are sent as they are, not compressed.")
            )
        if (request.content_length or 0) > self.most_bytes:
            return await _cut_off(request, _too_large())
        try:
            async with asyncio.timeout(self._limits.body_s):
                body = await request.read()
        except TimeoutError:
            return await _cut_off(request, problem(408, "too-slow", "The body did not come in time."))
        except web.HTTPRequestEntityTooLarge:
            return await _cut_off(request, _too_large())
        HTTP_BODY_BYTES.add(len(body))
        return _response(await self._intake.take(body))

    async def health(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "task": self.task_id})

    async def ready(self, _request: web.Request) -> web.Response:
        if missing := await self._missing.get():
            return problem(503, UnavailableError.code, f"Not there: {', '.join(missing)}.")
        gateways = sorted([self._name, *await self._beside.get()])
        return web.json_response({"ready": True, "gateways": gateways})

    async def metrics(self, request: web.Request) -> web.Response:
        if refusal := self._scrapers.refusal(request):
            return refusal
        found = await self._snapshots.get()  # first: it brings the gateway's own gauges up to date
        told: dict[str, Snapshot] = {self._name: {**counted(), UP.name: {(): 1.0}}}
        for name, snapshot in found.items():
            told[name] = {UP.name: {(): float(snapshot is not None)}, **(snapshot or {})}
        return web.Response(body=page(told), headers={"Content-Type": CONTENT_TYPE})

    async def openapi(self, _request: web.Request) -> web.Response:
        return web.json_response(document(self.task_id, most_reports=self._intake.most_reports))

    async def other_task(self, request: web.Request) -> web.Response:
        task = request.match_info["task"]
        if task == self.task_id:
            methods = ["POST"] if request.path.endswith("/reports") else ["GET", "HEAD"]
            raise web.HTTPMethodNotAllowed(request.method, methods)
        return problem(404, "wrong-task", f"This service has no task {task}.")


def counted() -> Snapshot:
    """What this process, a gateway's, has counted, its CPU time included."""
    BUSY_SECONDS.add(time.process_time() - BUSY_SECONDS.value(stage="gateway"), stage="gateway")
    return telemetry.snapshot()


class _Fresh(Generic[T]):
    """An answer that is asked for at most once in `_FRESH_S`, whoever wants it."""

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask = ask
        self._lock = asyncio.Lock()
        self._until_s = float("-inf")
        self._answer: T

    async def get(self) -> T:
        async with self._lock:
            if time.monotonic() > self._until_s:
                self._answer = await self._ask()
                self._until_s = time.monotonic() + _FRESH_S
            return self._answer


def application(
    intake: Intake,
    parts: Parts | None = None,
    limits: Limits | None = None,
    scrapers: Scrapers | None = None,
    name: str = NAME,
) -> web.Application:
    """All resources of the gateway of that name."""
    face = _Face(name, intake, parts or Alone(), limits or Limits(), scrapers or Scrapers())
    app = web.Application(client_max_size=face.most_bytes + 1, middlewares=[_counted, problems(_problem_of)])
    path = f"/tasks/{face.task_id}"
    routes: tuple[tuple[str, str, str, Handler], ...] = (
        ("GET", path, "task", face.task),
        ("GET", f"{path}/quote", "quote", face.quote),
        ("POST", f"{path}/reports", "reports", face.reports),
        ("GET", "/health", "health", face.health),
        ("GET", "/ready", "ready", face.ready),
        ("GET", "/metrics", "metrics", face.metrics),
        ("GET", "/openapi.json", "openapi", face.openapi),
        ("*", "/tasks/{task}", "other-task", face.other_task),
        ("*", "/tasks/{task}/quote", "other-quote", face.other_task),
        ("*", "/tasks/{task}/reports", "other-reports", face.other_task),
    )
    for method, where, resource, handler in routes:
        add = app.router.add_get if method == "GET" else partial(app.router.add_route, method)
        add(where, handler, name=resource)
    app.on_response_prepare.append(_hide_version)
    return app


async def _hide_version(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Server"] = "penrose"


async def _cut_off(request: web.Request, answer: web.Response) -> web.Response:
    """Answer and close: what is left of the body is not waited for."""
    answer.force_close()
    await answer.prepare(request)
    await answer.write_eof()
    return answer


def _too_large() -> web.Response:
    return problem(413, "too-large", "The body is larger than this service takes.")


def _response(answers: list[Answer | Refused]) -> web.Response:
    refusals = [(index, _refused(answer)) for index, answer in enumerate(answers)]
    refused = [(index, each) for index, each in refusals if each is not None]
    if refused and len(refused) == len(answers):
        (_, first), *others = refused
        if not others or (
            first.status in SEND_AGAIN and all(each.status in SEND_AGAIN for _, each in others)
        ):
            return problem(first.status, first.code, first.detail)
    receipt = Receipt(
        len(answers) - len(refused), tuple(Refusal(index, each.code, each.detail) for index, each in refused)
    )
    return web.Response(body=msgspec.json.encode(receipt), content_type="application/json")


def _refused(answer: Answer | Refused) -> Refused | None:
    if isinstance(answer, Refused):
        return answer
    if answer.outcome.acknowledged:
        return None
    return Refused(answer.outcome.value, answer.detail, _STATUS.get(answer.outcome, 400))


@web.middleware
async def _counted(request: web.Request, handler: Handler) -> web.StreamResponse:
    resource = request.match_info.route.name or "none"
    started_s = time.perf_counter()
    response = await handler(request)
    HTTP_SECONDS.observe(time.perf_counter() - started_s, resource=resource)
    HTTP_REQUESTS.add(resource=resource, status=str(response.status))
    return response


def _problem_of(error: PenroseError) -> web.Response:
    if isinstance(error, BacklogError):
        return problem(429, error.code, error.message)
    if isinstance(error, WireError):
        return problem(400, error.code, error.message)
    if isinstance(error, UnavailableError):
        return problem(503, error.code, _NOT_READY)
    _LOG.error("a request failed: %s", error)  # its message may hold paths and names of this machine
    if isinstance(error, JournalError):
        return problem(503, UnavailableError.code, _NOT_READY)
    return problem(500, error.code, UNFORESEEN)


class Gateway:
    """An HTTP server on the running event loop; with `tls` it also listens there, for known clients."""

    def __init__(
        self,
        intake: Intake,
        tls: TlsSettings | None = None,
        *,
        parts: Parts | None = None,
        limits: Limits | None = None,
        scrapers: Scrapers | None = None,
        name: str = NAME,
    ) -> None:
        self._intake, self._tls, self._parts, self._scrapers = intake, tls, parts, scrapers
        self._limits, self._name = limits or Limits(), name
        self._runner: web.AppRunner | None = None
        self.port = 0
        """The port that is listened on, 0 while there is none."""

    async def start(self, host: str, port: int, sharing: Sharing = Sharing.NONE) -> int:
        """Listen there and for TLS; returns the port, which the kernel chooses when `port` is 0.

        Raises:
            PortInUseError: another process listens there.
            ConfigError: certificates that are none.
        """
        self._runner, self.port = await listen(
            application(self._intake, self._parts, self._limits, self._scrapers, self._name),
            Place(host, port, sharing=sharing),
            *self._secured(sharing),
            logger=_SILENT,
            keepalive_timeout=self._limits.idle_s,
            lingering_time=_LINGER_S,
        )
        return self.port

    def _secured(self, sharing: Sharing) -> list[Place]:
        if self._tls is None:
            return []
        context = gateway_context(self._tls.certificate, self._tls.key, self._tls.clients)
        return [Place(self._tls.host, self._tls.port, context, sharing)]

    def forget_classes(self) -> None:
        """Ask the matcher again for every signature: a class was split."""
        self._intake.forget_classes()

    async def stop(self) -> None:
        """Finish running requests and close the port."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner, self.port = None, 0
