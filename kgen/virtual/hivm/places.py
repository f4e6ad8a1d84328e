"""Source locations: `#loc7 = loc("kernels.py":12:4)`, `loc(callsite(#loc3 at #loc7))`."""

from __future__ import annotations

import re
from pathlib import PurePath

from kgen.virtual.hivm.nodes import Place

_DEFINITION = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
_FILE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)')
_NAMED = re.compile(r'"(?:[^"\\]|\\.)*"\((.+)\)')
_FUSED = re.compile(r"fused(?:<.*>)?\[(.+)\]")
_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|[(\[<]|[)\]>]| at |,|[^"()\[\]<>, ]+| ')

_MOST_NESTED = 64  # locations in one another, and characters of one: beyond, a location has no line
_MOST_CHARACTERS = 4000

Lines = tuple[tuple[str, int], ...]  # files and lines, innermost first


def read_places(text: str) -> dict[str, Place]:
    """Every location that has a line, by the text that stands in `loc(…)`: an alias such as `#loc7`.

    The line is the outermost caller's, a line of the kernel; `inner` is that of the helper's where there is one.
    """
    reader = _Reader(dict(_DEFINITION.findall(text)))
    places: dict[str, Place] = {}
    for name in reader.raw:
        lines = reader.lines(name)
        if lines:
            (file, line), inner = lines[-1], lines[0]
            places[name] = Place(file, line, inner[1] if len(lines) > 1 else None)
    return places


def location_lines(body: str) -> list[tuple[str, int]]:
    """Files (without folders) and lines of a location that is written out, innermost first."""
    return list(_Reader({}).lines(body))


class _Reader:
    """Locations by name, each read once; one that names itself has no line."""

    def __init__(self, raw: dict[str, str]) -> None:
        self.raw = raw
        self._read: dict[str, Lines] = {}
        self._depth = 0

    def lines(self, body: str) -> Lines:
        """What a location stands for: the innermost and the outermost line are what counts."""
        body = body.strip()
        if body not in self._read:
            self._read[body] = ()  # while it is being read
            self._depth += 1
            self._read[body] = self._of(self.raw.get(body, body).strip())
            self._depth -= 1
        return self._read[body]

    def _of(self, body: str) -> Lines:
        if self._depth > _MOST_NESTED or len(body) > _MOST_CHARACTERS:
            return ()
        if body in self.raw:
            return self.lines(body)
        if match := _FILE.fullmatch(body):
            return ((PurePath(match[1]).name, int(match[2])),)
        if body.startswith("callsite(") and body.endswith(")"):
            parts = _split(body[len("callsite(") : -1], " at ")
            found = sum((self.lines(part) for part in parts), ()) if len(parts) == 2 else ()
            return found if len(found) < 3 else (found[0], found[-1])
        if match := _NAMED.fullmatch(body):
            return self.lines(match[1])
        if match := _FUSED.fullmatch(body):
            return next(filter(None, (self.lines(part) for part in _split(match[1], ","))), ())
        return ()


def _split(text: str, separator: str) -> list[str]:
    """Split where a separator stands outside every bracket and string."""
    parts, depth = [""], 0
    for piece in _PIECE.findall(text):
        if piece == separator and depth == 0:
            parts.append("")
            continue
        depth += (piece in "([<") - (piece in ")]>") if len(piece) == 1 else 0
        parts[-1] += piece
    return parts
