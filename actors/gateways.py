"""Gateways as actors: one or several on a machine, which the kernel deals connections of one address out to.

What a report's fate depends on is with matcher, directory and shards. A gateway of its own has a cache of
classes, what waits for the shards, and the throttle that goes by it; so any of them may take any report.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

import ray
from ray.exceptions import RayError

from penrose_ray.actors.gateway import Gateway, counted
from penrose_ray.actors.intake import Intake
from penrose_ray.actors.remote import Handle, RemoteBackend, ask
from penrose_ray.actors.scraping import Scrapers, is_alone
from penrose_ray.actors.serving import Sharing
from penrose_ray.actors.throttle import Throttle
from penrose_ray.crypto.envelope import ServiceKey
from penrose_ray.errors import PenroseError
from penrose_ray.task import verify
from penrose_ray.telemetry import UP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penrose_ray.settings import ServiceSettings, TransportSettings
    from penrose_ray.telemetry import Snapshot

_LOG = logging.getLogger("penrose_ray.service")
_LOOK_TIMEOUT_S = 2.0
"""For a gateway that works; one that restarts is asked again the next time."""
_START_TIMEOUT_S = 10.0
_AWAY = "it does not answer"


def gateway_names(count: int) -> list[str]:
    """Names of so many gateways."""
    return [f"gateway-{number}" for number in range(count)]


class State(NamedTuple):
    """How a gateway does."""

    port: int
    """0 while it listens to nobody."""
    waiting: int
    """Reports that no shard has taken yet."""
    lag_s: float
    """Seconds that they will take."""


class GatewayActor:
    """A gateway on an actor's event loop."""

    def __init__(
        self,
        name: str,
        signed_task: bytes,
        prefix: str,
        settings: ServiceSettings,
        transport: TransportSettings,
        quote: bytes,
    ) -> None:
        """Make one of `settings.gateways`; it listens when it is told to."""
        self._beside = [each for each in gateway_names(settings.gateways) if each != name]
        self._backend = RemoteBackend(prefix, -(-settings.most_waiting // settings.gateways))
        self._elsewhere: Snapshot = {}
        self._throttle = throttle = Throttle(
            settings.heavy_load_s, settings.admitted_share, self._backend.load_s
        )
        intake = Intake(
            signed_task,
            self._backend,
            most_reports=settings.most_reports_per_request,
            quote=quote,
            key=ServiceKey.read(settings.key_file) if verify(signed_task).service_key else None,
            admits=throttle.admits,
        )
        scrapers = Scrapers.known(settings.metrics_token_file, alone=is_alone(settings, transport))
        self._gateway = Gateway(intake, transport.tls, parts=self, scrapers=scrapers, name=name)
        self._starting = asyncio.Lock()

    async def start(self, host: str, port: int, sharing: Sharing) -> int:
        """Listen, if it does not yet; returns the port."""
        async with self._starting:
            return self._gateway.port or await self._gateway.start(host, port, sharing)

    async def look(self) -> State:
        """How it does."""
        return State(self._gateway.port, self._backend.waiting(), self._backend.load_s())

    async def hear(self, told: Snapshot) -> None:
        """Take what the service's own process has counted, for `GET /metrics`."""
        self._elsewhere = told

    async def counted(self) -> Snapshot:
        """What it has counted, for the page of another gateway."""
        self._note()
        return {**counted(), UP.name: {(): float(bool(self._gateway.port))}}

    async def missing(self) -> list[str]:
        """Names of matcher, directory and shards that do not answer."""
        return await self._backend.missing()

    async def beside(self) -> list[str]:
        """Names of the other gateways that listen."""
        found: Mapping[str, State] = await self._backend.ask_each(self._beside, "look")
        return [name for name, state in found.items() if state.port]

    async def snapshots(self) -> dict[str, Snapshot | None]:
        """What each part has counted; None for one that does not answer."""
        self._note()
        parts, others = await asyncio.gather(
            self._backend.snapshots(), self._backend.ask_each(self._beside, "counted")
        )
        beside = {name: others.get(name) for name in self._beside}
        return {**parts, **beside, "service": self._elsewhere}

    def _note(self) -> None:
        self._backend.waiting()
        self._throttle.note()

    async def forget_classes(self) -> None:
        """Ask the matcher again for every signature: a class was split."""
        self._gateway.forget_classes()

    async def stop(self) -> None:
        """Close the port."""
        await self._gateway.stop()


class Gateways:
    """All gateways of a service as its own process sees them, by name."""

    def __init__(self, handles: Mapping[str, Handle], host: str, port: int) -> None:
        """Keep them; `port` 0 lets the kernel choose one for all."""
        self.handles = handles
        self._host, self.port = host, port
        self._faults: dict[str, str] = {}
        self._waiting: dict[str, int] = {}

    def start(self, timeout_s: float) -> None:
        """Let all listen.

        Raises:
            PortInUseError: another process listens there.
            ConfigError: certificates that are none.
        """
        for number, handle in enumerate(self.handles.values()):
            self._listen(handle, timeout_s, beside=number > 0)

    def tend(self) -> None:
        """Let those listen that do not, after a restart; whoever cannot is asked again the next time."""
        found = self._looks()
        listening = {name for name, state in found.items() if state.port}
        away = self.handles.keys() - found.keys()  # one that is too busy to answer listens all the same
        faults = dict.fromkeys(away, _AWAY)
        for name in sorted(found.keys() - listening):
            try:
                self._listen(self.handles[name], _START_TIMEOUT_S, beside=bool(listening or away))
                listening.add(name)
            except (PenroseError, RayError, OSError) as error:
                faults[name] = str(error)
        for name, fault in faults.items():
            if fault not in (_AWAY, self._faults.get(name)):
                _LOG.warning("%s takes no reports, and tries again: %s", name, fault)
        self._faults = faults

    def _listen(self, handle: Handle, timeout_s: float, *, beside: bool) -> None:
        """Let one listen, `beside` others or first; a single one shares its address with nobody."""
        sharing = Sharing.JOINING if beside else Sharing.FIRST
        if len(self.handles) == 1:
            sharing = Sharing.NONE
        self.port = ask(handle.start.remote(self._host, self.port, sharing), timeout_s)

    def waiting(self) -> int:
        """Reports that no shard has taken yet; of a gateway too busy to answer, as many as it said last."""
        self._waiting |= {name: state.waiting for name, state in self._looks().items()}
        return sum(self._waiting.values())

    def state(self) -> list[dict[str, Any]]:
        """How each does, ready for JSON."""
        found = self._looks()
        return [self._row(name, found.get(name)) for name in self.handles]

    def _row(self, name: str, state: State | None) -> dict[str, Any]:
        if state is None:
            return {"gateway": name, "listens": False, "waiting": 0, "lag_s": 0.0, "fault": _AWAY}
        fault = "" if state.port else self._faults.get(name, "it has restarted")
        return {
            "gateway": name,
            "listens": bool(state.port),
            "waiting": state.waiting,
            "lag_s": round(state.lag_s, 2),
            "fault": fault,
        }

    def hear(self, told: Snapshot) -> None:
        """Tell them what this process has counted, for `GET /metrics`; nobody waits."""
        for handle in self.handles.values():
            handle.hear.remote(told)

    def forget_classes(self) -> None:
        """Let all ask the matcher again."""
        ask([handle.forget_classes.remote() for handle in self.handles.values()])

    def stop(self, timeout_s: float) -> None:
        """Let none listen any more."""
        ask([handle.stop.remote() for handle in self.handles.values()], timeout_s)

    def _looks(self) -> dict[str, State]:
        """How those do that answer."""
        asked = {handle.look.remote(): name for name, handle in self.handles.items()}
        done, _ = ray.wait(list(asked), num_returns=len(asked), timeout=_LOOK_TIMEOUT_S)
        found = {asked[each]: _result(each) for each in done}
        return {name: state for name, state in found.items() if state is not None}


def _result(reference: Any) -> State | None:  # noqa: ANN401 - Ray gives references no type
    try:
        state: State = ray.get(reference)
    except RayError:
        return None
    return state
