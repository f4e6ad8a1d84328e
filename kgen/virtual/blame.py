"""Which tiles a kernel that overflows is made of: read from the IR that the compiler prints when placing them fails."""

from __future__ import annotations

import re

from kgen.virtual.hivm.errors import HivmError
from kgen.virtual.hivm.places import location_lines
from kgen.virtual.hivm.read_types import read_memref

OPTIONS = ("--mlir-print-ir-after-failure", "--mlir-print-debuginfo")
_DUMP = "// -----// IR Dump After "
_ALLOC = re.compile(r"= memref\.alloc\(.*?\).*? : (memref<.*>) loc\((.*)\)$")
_MOST = 3


def blamed(output: str, space: str) -> str:
    """The largest tiles of a space (`ub`, `cbuf`, `cc`) in the last attempt, as text; empty where nothing is told.

    `64x128xf32 (32768 bytes, kernels.py:212), …`
    """
    last = output.rsplit(_DUMP, 1)
    if len(last) < 2:
        return ""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for line in last[1].splitlines():
        match = _ALLOC.search(line)
        if match is None:
            continue
        try:
            kind = read_memref(match[1])
            shape = tuple(size for size in kind.shape if size is not None)
            if kind.space != space or len(shape) != len(kind.shape):
                continue
            size = -(-kind.span(shape) * kind.bits // 8)
        except HivmError:
            continue
        lines = location_lines(match[2])
        place = f"{lines[-1][0]}:{lines[-1][1]}" if lines else ""
        key = ("x".join([*map(str, shape), kind.element]), place)
        found[key] = (size, found.get(key, (0, 0))[1] + 1)
    largest = sorted(found.items(), key=lambda item: (-item[1][0], item[0]))[:_MOST]
    return ", ".join(_text(*key, *value) for key, value in largest)


def _text(shape: str, place: str, size: int, count: int) -> str:
    many = f"{count} x " if count > 1 else ""
    where = f", {place}" if place else ""
    return f"{many}{shape} ({size} bytes{where})"
