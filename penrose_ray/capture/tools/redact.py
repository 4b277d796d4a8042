"""Findings that may be passed on: names replaced by pseudonyms, the rest of the text scrubbed."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from penrose_ray.capture.scrub import Scrubber, salted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penrose_ray.capture.tools.base import Findings, Tool

_DIGITS = 10


class Redactor:
    """Pseudonyms of one report: equal names stay equal within it, and cannot be tied to another report.

    Args:
        salt: 32 bytes or more of fresh randomness, kept nowhere.
    """

    def __init__(self, salt: bytes) -> None:
        self._salt = salt
        self._scrub = Scrubber.of_this_machine()

    def pseudonym(self, name: str) -> str:
        """40 bits of it under the salt; an empty name stays empty."""
        return f"name-{salted(name, self._salt)[:_DIGITS]}" if name else ""

    def __call__(self, findings: Findings, tool: Tool) -> Findings:
        """The findings without a name from the trace."""
        frame = findings.frame.copy()
        known: dict[str, str] = {}
        for column in tool.secret:
            for value in map(str, frame[column].unique()):
                if value:
                    known.setdefault(value, self.pseudonym(value))
            frame[column] = [known.get(str(value), "") for value in frame[column]]
        replaced = _Replacer(known, self._scrub)
        return replace(
            findings,
            frame=frame,
            advice=tuple(
                replace(each, text=replaced(each.text), evidence=replaced(each.evidence))
                for each in findings.advice
            ),
            notes=tuple(replaced(note) for note in findings.notes),
        )


class _Replacer:
    def __init__(self, known: dict[str, str], scrub: Scrubber) -> None:
        self._known = known
        self._scrub = scrub
        words = "|".join(re.escape(word) for word in sorted(known, key=len, reverse=True))
        self._pattern = re.compile(rf"(?<!\w)(?:{words})(?!\w)") if words else None

    def __call__(self, text: str) -> str:
        if self._pattern is not None:
            text = self._pattern.sub(lambda match: self._known[match.group()], text)
        return self._scrub(text)


def redacted(findings: Sequence[Findings], tools: Iterable[Tool], salt: bytes) -> list[Findings]:
    """All findings of a run under one salt."""
    redactor = Redactor(salt)
    return [redactor(each, tool) for each, tool in zip(findings, tools, strict=True)]
