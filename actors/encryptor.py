"""Encryptors of a pool: one a core, for virtual clients only.

Whoever blinds a report can open it, so a real client encrypts in its own process and never asks a pool.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from penrose_ray.crypto.blinding import Encryptor
from penrose_ray.task import verify

if TYPE_CHECKING:
    from collections.abc import Sequence

READY: Final = 256
"""Reports whose blinding is made while nothing is asked."""
_STEP: Final = 16


class PoolEncryptor:
    """Seals packed reports of one task; in between it fills its pool of blinding, a few reports at a time."""

    def __init__(self, signed_task: bytes, ready: int = READY) -> None:
        task = verify(signed_task)
        self._encryptor = Encryptor(task.key(), task.profile())
        self._ready = ready
        self._turn = threading.Lock()
        self._used = threading.Event()
        self._used.set()
        threading.Thread(target=self._fill, name="blinding", daemon=True).start()

    def encrypt_many(self, plaintexts: Sequence[tuple[int, ...]]) -> list[bytes]:
        """Blobs of packed reports, in order."""
        with self._turn:
            blobs = self._encryptor.encrypt_many(plaintexts)
        self._used.set()
        return blobs

    def pool_size(self) -> int:
        """Reports whose blinding is ready."""
        return self._encryptor.pool_size

    def _fill(self) -> None:
        while True:
            self._used.wait()
            self._used.clear()
            while self._encryptor.pool_size < self._ready:
                with self._turn:
                    self._encryptor.fill_pool(min(_STEP, self._ready))
