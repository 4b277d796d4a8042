"""Several addresses of one service: each upload goes to one at random, and to another when that one fails."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from penrose_ray.errors import TransportError
from penrose_ray.transport.uploader import BusyError

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from penrose_ray.transport.uploader import Uploader


class AnyOf:
    """An `Uploader` over others.

    A report whose acknowledgement was lost may reach the service twice, by two addresses: its id tells.

    Args:
        uploaders: at least one, all of one service.
        rng: of the choices; the machine's own by default.
    """

    def __init__(self, uploaders: Sequence[Uploader], *, rng: random.Random | None = None) -> None:
        self._uploaders = list(uploaders)
        self._rng = rng or secrets.SystemRandom()

    def send(self, record: bytes) -> None:
        """See `Uploader.send`; where all fail, an error that asks for a pause goes before others."""
        errors: list[TransportError] = []
        for each in self._rng.sample(self._uploaders, len(self._uploaders)):
            try:
                each.send(record)
            except TransportError as error:
                errors.append(error)
            else:
                return
        raise next((each for each in errors if isinstance(each, BusyError)), errors[0])
