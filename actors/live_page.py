"""The operator's live page: what arrives, on one page that needs nothing else, and the same as JSON.

It listens on this machine only. It shows how many classes report how often, which the service knows anyway,
and no class id, signature or hash: a glance over the operator's shoulder tells nobody what runs where.
"""

from __future__ import annotations

import http.server
import json
import threading
from collections import Counter
from dataclasses import asdict, dataclass, replace
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Self

from penrose_ray.analyse.page import page, section
from penrose_ray.errors import PortInUseError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from penrose_ray.aggregate.arrival import SumKey
    from penrose_ray.clock import Clock
    from penrose_ray.task import Task

HOST = "127.0.0.1"
_LARGEST = 12
_NAMES = ("127.0.0.1", "localhost")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"


@dataclass(frozen=True, slots=True)
class Point:
    """The service at one moment."""

    at_s: float
    """Seconds since the epoch."""
    reports: int
    """Reports in the sums of all shards."""
    classes: int
    """Classes with a report."""
    sums: int
    """Sums, each of one class, counter set and batch."""
    passing: int
    """Sums that have as many reports as the gate asks for."""
    reached: float
    """Coverage: share of the reports that lie in these sums, 0 to 1."""
    known: float
    """Chance that the next report's class is known already, 0 to 1; see `known_share`."""
    waiting: int
    """Reports that no shard has taken yet."""


@dataclass(frozen=True, slots=True)
class ShardState:
    """One shard."""

    shard: str
    buckets: int
    reports: int
    sums: int
    busy_s: float
    """CPU seconds since it started."""
    busy: float = 0.0
    """Share of one CPU since the last look."""


@dataclass(frozen=True, slots=True)
class Look:
    """What the service says of itself at one moment."""

    weights: Mapping[SumKey, int]
    """Reports of each sum over all shards."""
    waiting: int
    shards: tuple[ShardState, ...]


def known_share(reports: Collection[int]) -> float:
    """Good and Turing's estimate that the next report is of a known class: 1 - (classes seen once) / reports.

    I. J. Good, Biometrika 40, 1953. Takes the reports of each class; 0 where there is none.
    """
    total = sum(reports)
    once = sum(count == 1 for count in reports)
    return 1 - once / total if total else 0.0


class History:
    """Points over time. When there are `most`, every second one goes, so that all time stays visible."""

    def __init__(self, most: int = 720) -> None:
        self._most = most
        self._kept: list[Point] = []
        self._last: Point | None = None
        self._seen = 0
        self._every = 1

    @property
    def points(self) -> list[Point]:
        """Evenly spaced points, and the newest."""
        tail = [self._last] if self._last and self._last is not self._kept[-1] else []
        return self._kept + tail

    def add(self, point: Point) -> None:
        """Take a point; one in so many stays."""
        if self._seen % self._every == 0:
            self._kept.append(point)
        self._seen += 1
        self._last = point
        if len(self._kept) >= self._most:
            self._kept = self._kept[::2]
            self._every *= 2


class LiveState:
    """What the page shows; `note` is called every few seconds, `content` by every reader."""

    def __init__(self, task: Task, clock: Clock) -> None:
        self._task = task
        self._clock = clock
        self._needed = task.reports_needed()
        self._history = History()
        self._shards: tuple[ShardState, ...] = ()
        self._largest: list[dict[str, object]] = []
        self._mutex = threading.Lock()

    def note(self, look: Look) -> None:
        """Take a look at the service into account."""
        classes: Counter[bytes] = Counter()
        best: Counter[bytes] = Counter()
        for key, weight in look.weights.items():
            classes[key.class_id] += weight
            best[key.class_id] = max(best[key.class_id], weight)
        passing = [weight for weight in look.weights.values() if weight >= self._needed]
        total = classes.total()
        point = Point(
            at_s=self._clock.now_s(),
            reports=total,
            classes=len(classes),
            sums=len(look.weights),
            passing=len(passing),
            reached=sum(passing) / total if total else 0.0,
            known=known_share(classes.values()),
            waiting=look.waiting,
        )
        largest: list[dict[str, object]] = [
            {"place": place, "reports": count, "largest_sum": best[key], "passes": best[key] >= self._needed}
            for place, (key, count) in enumerate(classes.most_common(_LARGEST), start=1)
        ]
        with self._mutex:
            self._shards = self._busy(look.shards, point.at_s)
            self._largest = largest
            self._history.add(point)

    def _busy(self, shards: tuple[ShardState, ...], now_s: float) -> tuple[ShardState, ...]:
        """CPU seconds as a share of the time since the last look."""
        before = {each.shard: each.busy_s for each in self._shards}
        points = self._history.points
        passed_s = now_s - points[-1].at_s if points else 0.0
        if passed_s <= 0:
            return shards
        return tuple(
            replace(each, busy=max(0.0, each.busy_s - before.get(each.shard, each.busy_s)) / passed_s)
            for each in shards
        )

    def content(self) -> dict[str, object]:
        """The page's data, ready for JSON."""
        with self._mutex:
            return {
                "task": self._task.name,
                "demo": self._task.demo,
                "min_contributors": self._task.min_contributors,
                "reports_needed": self._needed,
                "points": [asdict(each) for each in self._history.points],
                "shards": [asdict(each) for each in self._shards],
                "largest": self._largest,
            }


class LivePage:
    """Serves `/` and `/live.json` in threads of its own; a context manager."""

    def __init__(self, state: LiveState, task: Task, port: int = 0) -> None:
        """Listen on this machine.

        Raises:
            PortInUseError: another process listens there.
        """
        answers = {
            "/": ("text/html; charset=utf-8", _html(task).encode),
            "/live.json": ("application/json", lambda: json.dumps(state.content()).encode()),
        }
        handler = type("Handler", (_Handler,), {"answers": answers})
        try:
            self._server = http.server.ThreadingHTTPServer((HOST, port), handler)
        except OSError as error:
            raise PortInUseError(
                f"The live page cannot listen on {HOST}:{port}: {error.strerror}.",
                remedy="Set service.page_port to 0 or another port.",
            ) from error
        self._server.daemon_threads = True
        self.url = f"http://{HOST}:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, name="live page", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(http.server.BaseHTTPRequestHandler):
    answers: Mapping[str, tuple[str, Callable[[], bytes]]]
    server_version = "penrose"
    sys_version = ""

    def do_GET(self) -> None:
        host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        if host not in _NAMES:  # a foreign page's name that resolves to this machine
            self.send_error(403)
            return
        if self.path not in self.answers:
            self.send_error(404)
            return
        kind, make = self.answers[self.path]
        body = make()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", _POLICY)
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nobody needs a line a request."""


def _html(task: Task) -> str:
    badge = ' <span class="badge">DEMO</span>' if task.demo else ""
    header = (
        f'<p class="eyebrow">penrose-ray service</p><h1>{escape(task.name)}{badge}</h1>'
        '<p class="when" id="when" role="status">no figures yet</p><dl class="facts" id="facts"></dl>'
    )
    body = (
        section("Reports over time", _chart("rate"))
        + section("Coverage over time", _chart("coverage"))
        + section("Shards", _table("shards", "Shards"))
        + section("Largest classes", _table("classes", "Largest classes"))
    )
    script = files("penrose_ray.actors").joinpath("live_page.js").read_text(encoding="utf-8")
    footer = (
        f"Task <code>{task.task_id.hex()}</code>. Served on this machine only; the data is at "
        "<code>/live.json</code>."
    )
    return page(
        title=f"{task.name}{' (DEMO)' if task.demo else ''} - penrose-ray service",
        header=header,
        body=f"{body}<script>{script}</script>",
        footer=footer,
    )


def _chart(name: str) -> str:
    return f'<figure><svg id="{name}"></svg><figcaption id="{name}-text"></figcaption></figure>'


def _table(name: str, spoken: str) -> str:
    return f'<div class="wide" id="{name}" role="region" aria-label="{spoken}" tabindex="0"></div>'
