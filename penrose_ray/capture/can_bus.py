"""Gauges of automotive SoCs from CAN messages, decoded with the vehicle's DBC file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penrose_ray.capture.events import Capabilities
from penrose_ray.capture.gauge import GaugeSource, Reading
from penrose_ray.errors import SourceError
from penrose_ray.histogram import Counter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penrose_ray.clock import Clock

_REMEDY = 'Install them with pip install "penrose-ray[automotive]".'
_MOST_MESSAGES = 4096


class CanSource(GaugeSource):
    """Signals of the messages on a bus; only those whose name is asked for become counters.

    Args:
        dbc: the file that describes messages and signals.
        signals: names of the signals to read, such as a SoC's GPU load.
        interface: python-can's interface, `socketcan` or `virtual`.
        channel: its channel.
        clock: for times.
        capacity: readings that may wait for `poll`.

    Raises:
        SourceError: python-can or cantools is missing, or the DBC file lacks a signal or is damaged.
    """

    def __init__(
        self,
        dbc: Path,
        signals: Sequence[str],
        *,
        interface: str,
        channel: str,
        clock: Clock,
        capacity: int = 1 << 16,
    ) -> None:
        self._database = _database(dbc)
        self._interface, self._channel = interface, channel
        self._by_signal = _counters(self._database, signals)
        super().__init__(tuple(self._by_signal.values()), clock=clock, period_s=0, capacity=capacity)
        self._bus: Any = None

    def probe(self) -> Capabilities:
        """Whether the bus can be opened."""
        try:
            self._open_bus().shutdown()
        except SourceError as error:
            return Capabilities(available=False, per_kernel_counters=False, reasons=(str(error),))
        return Capabilities(available=True, per_kernel_counters=False, reasons=("Signals of a whole SoC.",))

    def _open_bus(self) -> Any:  # noqa: ANN401 - python-can's bus
        import can  # noqa: PLC0415 - optional extra `automotive`

        try:
            return can.Bus(interface=self._interface, channel=self._channel)
        except (can.CanError, OSError, ValueError) as error:
            raise SourceError(
                f"CAN channel {self._channel} cannot be opened: {error}.",
                remedy="Bring it up with `ip link set CHANNEL up type can bitrate 500000`, or name another.",
            ) from error

    def _start(self) -> None:
        self._bus = self._open_bus()

    def _stop(self) -> None:
        self._bus.shutdown()
        self._bus = None

    def _readings(self) -> Sequence[Reading]:
        readings = []
        for _ in range(_MOST_MESSAGES):
            message = self._bus.recv(timeout=0)
            if message is None:
                break
            reading = self._decoded(message)
            if reading is not None:
                readings.append(reading)
        return readings

    def _decoded(self, message: Any) -> Reading | None:  # noqa: ANN401 - python-can's message
        try:
            decoded = self._database.decode_message(
                message.arbitration_id, message.data, decode_choices=False
            )
        except KeyError:
            return None
        except Exception as error:  # noqa: BLE001 - cantools documents no error of a damaged frame
            self.tally.damaged += 1
            self.tally.warn(f"CAN frames that do not fit the DBC file are left out: {error}.")
            return None
        values = {
            self._by_signal[name]: float(value) for name, value in decoded.items() if name in self._by_signal
        }
        node = f"{self._channel}/{message.arbitration_id:x}"
        return Reading(node, "automotive SoC", values, round(message.timestamp * 1e9)) if values else None


def _database(dbc: Path) -> Any:  # noqa: ANN401 - cantools' database
    try:
        import can  # noqa: F401, PLC0415 - optional extra `automotive`
        import cantools  # noqa: PLC0415 - as above
    except ImportError as error:
        raise SourceError("python-can or cantools is not installed.", remedy=_REMEDY) from error
    try:
        return cantools.database.load_file(dbc)
    except (OSError, cantools.Error) as error:
        raise SourceError(f"{dbc} is no DBC file: {error}.", remedy="Use the vehicle's DBC file.") from error


def _counters(database: Any, signals: Sequence[str]) -> dict[str, Counter]:  # noqa: ANN401 - cantools' database
    units = {signal.name: signal.unit or "" for message in database.messages for signal in message.signals}
    missing = [name for name in signals if name not in units]
    if missing:
        raise SourceError(
            f"The DBC file has no signal {missing[0]!r}.", remedy=f"Use one of {', '.join(sorted(units))}."
        )
    return {name: Counter(name, units[name], "can", "automotive") for name in signals}
