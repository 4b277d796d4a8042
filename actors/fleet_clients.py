"""Virtual clients at work: an actor that makes the reports of a batch and sends them to the shards."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

from penrose_ray.actors.client import ClientCounts
from penrose_ray.actors.fleet import Fleet, FleetSettings
from penrose_ray.actors.fleet_sender import FleetSender
from penrose_ray.actors.remote import RemoteEncryptors, RemoteRoute
from penrose_ray.aggregate.arrival import Outcome
from penrose_ray.clock import SystemClock
from penrose_ray.crypto.blinding import Encryptor
from penrose_ray.errors import ConfigError
from penrose_ray.sim.settings import load_simulation, scenario_of
from penrose_ray.task import verify
from penrose_ray.types import BatchId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penrose_ray.actors.fleet import EncryptsMany, ReportBatch
    from penrose_ray.actors.fleet_sender import Pair, Truth
    from penrose_ray.settings import ClientSettings
    from penrose_ray.task import Task

_COVER = "cover"


def fleet_of(settings: ClientSettings, copy: int, task: Task) -> Fleet:
    """The part number `copy` of `settings.count` equal parts of the fleet that the settings describe.

    Raises:
        ConfigError: there is no simulation, or it does not fit the task.
    """
    if settings.simulation is None:
        raise ConfigError("A fleet needs clients.simulation.", remedy="Name a configuration of a simulation.")
    simulation = load_simulation(settings.simulation)
    scenario = scenario_of(simulation, simulation.apps[0], next(iter(simulation.mixes)))
    first, end = (scenario.clients * part // settings.count for part in (copy, copy + 1))
    fleet = FleetSettings(task, scenario, sealed_one_in=settings.sealed_one_in)
    return Fleet(first, end - first, fleet, settings.seed)


class FleetClients:
    """Sends the batch that has just ended.

    In a task of sealed reports only the stratified sample is sent; in one of plain reports everything, and
    the sample goes, really sealed, to a shard of its own.

    Args:
        settings: kind `fleet`.
        copy: which of the equal parts of the fleet.
        prefix: of the service's actors.
        signed_task: the service's.
        sample: signed task and shard of the sealed sample of a fleet whose reports are plain.
        encryptors: names of the pool's actors; without any the sample is sealed here.
    """

    def __init__(
        self,
        settings: ClientSettings,
        copy: int,
        prefix: str,
        signed_task: bytes,
        sample: tuple[bytes, str] | None = None,
        encryptors: Sequence[str] = (),
    ) -> None:
        self._task = verify(signed_task)
        self._fleet = fleet_of(settings, copy, self._task)
        self._size = settings.reports_per_message
        self._whole: FleetSender | None = None
        self._sealed: FleetSender | None = None
        self._encryptor: EncryptsMany | None = None
        sealing = self._task
        route = RemoteRoute(prefix)
        self._table = route.table
        if not self._task.profile().sealed:
            self._whole = FleetSender(route, keep_truth=False)
        if self._whole is None or sample is not None:
            self._sealed = FleetSender(RemoteRoute(prefix, only=sample[1] if sample else ""))
            sealing = verify(sample[0]) if sample else self._task
            self._encryptor = RemoteEncryptors(prefix, encryptors) if encryptors else _own(sealing)
        self._counts: Counter[str] = Counter()
        self._apps: set[int] = set()
        self._done = threading.Event()
        self._error: Exception | None = None
        self._stopping = threading.Event()

    def start(self, batch: BatchId | None = None) -> None:
        """Begin to send a batch, the last one that has ended; returns at once."""
        chosen = BatchId(self._task.batch_of(SystemClock().now_s()) - 1) if batch is None else batch
        self._done.clear()
        threading.Thread(target=self._work, args=(chosen,), name="fleet", daemon=True).start()

    def _work(self, batch: BatchId) -> None:
        try:
            shards = len(set(self._table().owners))
            for made in self._fleet.reports(batch, self._size * shards):
                if self._stopping.is_set():
                    break
                self._send(made)
            for sender in self._senders():
                sender.finish()
        except Exception as error:  # noqa: BLE001 - it reaches whoever asks for the counts
            self._error = error
        finally:
            self._done.set()

    def _send(self, made: ReportBatch) -> None:
        if self._whole:
            self._whole.send(made)
        if self._sealed and self._encryptor:
            self._sealed.send_sealed(made, self._encryptor)
        rows = slice(None) if self._whole else made.sealed
        real = made.real[rows]
        self._counts["samples"] += int(made.counts[rows].sum())
        self._counts["real"] += int(real.sum())
        self._counts[_COVER] += int((~real).sum())
        self._apps.update(made.app[rows].tolist())

    def _senders(self) -> list[FleetSender]:
        return [each for each in (self._whole, self._sealed) if each]

    def counts(self) -> ClientCounts:
        """What has been done; raises what ended the work if something did."""
        if self._error:
            raise self._error
        outcomes = next(iter(self._senders())).outcomes
        refused = sum(count for outcome, count in outcomes.items() if not outcome.acknowledged)
        return ClientCounts(
            launches=self._counts["samples"] * self._task.sampling_interval,
            samples=self._counts["samples"],
            classes=len(self._apps),
            reports=self._counts["real"],
            cover_reports=self._counts[_COVER],
            refused=refused,
        )

    def acknowledged(self) -> int:
        """Reports that a shard has taken, now or before."""
        outcomes = next(iter(self._senders())).outcomes
        return outcomes[Outcome.ACCEPTED] + outcomes[Outcome.KNOWN]

    def truth(self) -> dict[Pair, Truth]:
        """Sums, in the clear, of the sealed sample that was acknowledged."""
        return dict(self._sealed.truth) if self._sealed else {}

    def finished(self) -> bool:
        """Whether all reports are acknowledged."""
        return self._done.is_set()

    def wait(self) -> None:
        """Return when all reports are acknowledged."""
        self._done.wait()

    def stop(self) -> ClientCounts:
        """Make no more reports, wait for the answers that are due, and return the final counts."""
        self._stopping.set()
        self._done.wait()
        return self.counts()


def _own(task: Task) -> Encryptor:
    return Encryptor(task.key(), task.profile())
