r"""Repair of JSON that profilers are known to write.

Bare `inf` and `N/A`, escapes that JSON does not know (`C:\path`), bytes that are no UTF-8, raw control
characters, and quotes inside names.
"""

from __future__ import annotations

import re

_BARE = re.compile(
    rb'("(?:[^"\\]++|\\.)*+")|(?<![\w.])(?:[-+]?(?:inf(?:inity)?|nan)|n/a)(?![\w.])',
    re.IGNORECASE | re.DOTALL,
)
_ESCAPE = re.compile(rb"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_KNOWN_ESCAPES = frozenset(b'"\\/bfnrt')
_NAME = re.compile(
    rb'("name"\s*:\s*")(.*?)("\s*(?:,\s*"(?:ph|cat|pid|tid|ts|dur|args|id|bp|s)"\s*:|\}\s*$))', re.DOTALL
)
_QUOTE = re.compile(rb'(?<!\\)"')
_CONTROL = bytes(max(code, 32) for code in range(256))


def repaired(text: bytes) -> bytes:
    """`text` with all known faults mended; still to be decoded, since not every fault can be."""
    text = text.translate(_CONTROL).decode("utf-8", "replace").encode()
    text = _ESCAPE.sub(_known_escape, text)
    text = _NAME.sub(_quoted, text)
    return _BARE.sub(lambda match: match.group(1) or b"null", text)


def _known_escape(match: re.Match[bytes]) -> bytes:
    escaped = match.group(1)
    whole = match.group()
    known = len(escaped) > 1 or escaped[0] in _KNOWN_ESCAPES
    return whole if known else b"\\" + whole


def _quoted(match: re.Match[bytes]) -> bytes:
    return match.group(1) + _QUOTE.sub(rb'\\"', match.group(2)) + match.group(3)
