"""What every reader of an operation is given, and how results get their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from kgen.virtual.hivm import nodes as n
from kgen.virtual.hivm.affine import AffineMap
from kgen.virtual.hivm.cursor import Cursor
from kgen.virtual.hivm.errors import HivmError

ReadBlock = Callable[[], n.Block]


class Context(NamedTuple):
    """What reading an operation needs beside the cursor. `results` are the names before the `=`, with their counts."""

    line: int
    name: str
    results: tuple[tuple[str, int], ...]
    maps: Mapping[str, AffineMap]
    block: ReadBlock


def define(c: Cursor, x: Context) -> n.Value:
    """The single result."""
    if len(x.results) != 1 or x.results[0][1] != 1:
        raise HivmError(f"{x.name} has {len(x.results)} results, expected one", x.line)
    return c.define(x.results[0][0])


def define_all(c: Cursor, x: Context) -> tuple[n.Value, ...]:
    """All results: `%a:2` gives `%a#0` and `%a#1`."""
    out: list[n.Value] = []
    for name, count in x.results:
        unique = c.define(name, count)
        out += [unique] if count == 1 else [f"{unique}#{i}" for i in range(count)]
    return tuple(out)
