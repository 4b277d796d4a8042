"""Decompression that gives everything there is before it complains about the damage."""

from __future__ import annotations

import io
import zlib
from typing import BinaryIO

MAGIC = b"\x1f\x8b"
_RAW_BYTES = 256 << 10
_GZIP_WINDOW = 31
"""zlib's code for the gzip format with the largest window."""


class GzipStream(io.BufferedIOBase):
    """Reads a gzip file of one or more members.

    `read` raises EOFError for a cut-off file and zlib.error for a damaged one, but only after all bytes
    before the fault were read; the standard library's reader loses up to a whole block of them.
    """

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._unzip = zlib.decompressobj(_GZIP_WINDOW)
        self._ready = bytearray()
        self._compressed = b""
        self._fault: Exception | None = None
        self._ended = False

    def readable(self) -> bool:
        """Always true."""
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """At most `size` bytes, all when negative; empty at the end."""
        wanted = -1 if size is None else size
        while not self._ended and (wanted < 0 or len(self._ready) < wanted):
            self._fill()
        if not self._ready and self._fault is not None:
            raise self._fault
        count = len(self._ready) if wanted < 0 else wanted
        part = bytes(self._ready[:count])
        del self._ready[:count]
        return part

    def read1(self, size: int = -1, /) -> bytes:
        """The same as `read`."""
        return self.read(size if size >= 0 else _RAW_BYTES)

    def _fill(self) -> None:
        data = self._compressed or self._raw.read(_RAW_BYTES)
        self._compressed = b""
        if not data:
            self._ended = True
            if not self._unzip.eof:
                self._fault = EOFError("the gzip data end too early")
            return
        if self._unzip.eof:
            if not data.startswith(MAGIC):  # padding behind the last member
                self._ended = True
                return
            self._unzip = zlib.decompressobj(_GZIP_WINDOW)
        try:
            self._ready += self._unzip.decompress(data)
        except zlib.error as error:
            self._ended, self._fault = True, error
        else:
            self._compressed = self._unzip.unused_data
