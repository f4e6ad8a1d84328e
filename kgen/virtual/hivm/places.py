"""Source locations: `#loc7 = loc("kernels.py":12:4)`, `loc(callsite(#loc3 at #loc7))`."""

from __future__ import annotations

import re
from pathlib import PurePath

from kgen.virtual.hivm.nodes import Place

_DEFINITION = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
_FILE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)')
_CALLSITE = re.compile(r"callsite\((.+) at (.+)\)")
_NAMED = re.compile(r'"(?:[^"\\]|\\.)*"\((.+)\)')
_FUSED = re.compile(r"fused(?:<.*>)?\[(.+)\]")
_DEEPEST = 40  # calls in calls; a cycle would otherwise never end


def read_places(text: str) -> dict[str, Place]:
    """Every location that has a line, by the text that stands in `loc(…)`: an alias such as `#loc7`.

    The line is the outermost caller's, a line of the kernel; `inner` is that of the helper's where there is one.
    """
    raw = dict(_DEFINITION.findall(text))
    places: dict[str, Place] = {}
    for name in raw:
        lines = _lines(name, raw, 0)
        if lines:
            (file, line), inner = lines[-1], lines[0]
            places[name] = Place(file, line, inner[1] if len(lines) > 1 else None)
    return places


def location_lines(body: str) -> list[tuple[str, int]]:
    """Files (without folders) and lines of a location that is written out, innermost first."""
    return _lines(body, {}, 0)


def _lines(body: str, raw: dict[str, str], depth: int) -> list[tuple[str, int]]:
    """Files and lines, innermost first."""
    body = raw.get(body, body).strip()
    if depth > _DEEPEST:
        return []
    if match := _FILE.fullmatch(body):
        return [(PurePath(match[1]).name, int(match[2]))]
    if match := _CALLSITE.fullmatch(body):
        return _lines(match[1], raw, depth + 1) + _lines(match[2], raw, depth + 1)
    if match := _NAMED.fullmatch(body):
        return _lines(match[1], raw, depth + 1)
    if match := _FUSED.fullmatch(body):
        return next(filter(None, (_lines(part, raw, depth + 1) for part in match[1].split(","))), [])
    return []
