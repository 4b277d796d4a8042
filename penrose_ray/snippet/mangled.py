"""Mangled C++ names (Itanium C++ ABI, section 5.1), as far as identity needs them.

A full demangler would have to be the same on every client. This one reads the identifiers, which carry their
length, and tells the function's own name from its template arguments.
"""

from __future__ import annotations

import re

_LENGTH = re.compile(r"(\d{1,9})(?=[A-Za-z_])")  # a longer number is no length, nor a position
_ABBREVIATION = re.compile(r"DF\d+_|D[a-z]|[ST][0-9A-Z]*_|S[a-z]")
_OPENING = frozenset("INXJ")
_BUILTIN = {
    "f": "float",
    "d": "double",
    "i": "int",
    "l": "long",
    "j": "int",
    "m": "long",
    "b": "bool",
    "c": "char",
}


def identifiers(mangled: str) -> tuple[str, str]:
    """Name of the function, and the identifiers of its template arguments, separated by spaces.

    A text that is not mangled after all is its own name.
    """
    position = 3 if mangled.startswith("_ZN") else 2
    base = ""
    while found := _LENGTH.match(mangled, position):
        start = found.end()
        position = start + int(found[1])
        word = mangled[start:position]
        if not word.startswith("_GLOBAL__N_"):
            base = word
        if mangled[position : position + 1] == "I":
            break
    if not base:
        return mangled, ""
    return base, " ".join(_argument_words(mangled, position))


def _argument_words(mangled: str, position: int) -> list[str]:
    """Identifiers inside the `I...E` that starts at `position`, without namespaces."""
    if mangled[position : position + 1] != "I":
        return []
    words: list[str] = []
    depth = 0
    while position < len(mangled):
        letter = mangled[position]
        if found := _LENGTH.match(mangled, position):
            start = found.end()
            position = start + int(found[1])
            words.append(mangled[start:position])
            continue
        if found := _ABBREVIATION.match(mangled, position):
            position = found.end()
            continue
        if letter == "L":  # a literal: its value is no name
            position = mangled.find("E", position) + 1 or len(mangled)
            continue
        if letter == "E":
            depth -= 1
            if depth == 0:
                break
        elif letter in _OPENING:
            depth += 1
        elif letter in _BUILTIN:
            words.append(_BUILTIN[letter])
        position += 1
    return words
