"""Templates of the matrix unit and fixpipe.

Operands lie in L1 as fractals `[columns / c0, rows / 16, 16, c0]` with c0 = 32 bytes, results in L0C as fp32 fractals
`[columns / 16, rows / 16, 16, 16]` (AscendNPU-IR, lib/Template: LocalMmad, Fixpipe).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kgen.virtual.execute.elements import stored, widened
from kgen.virtual.execute.memory import Array, CoreMemory
from kgen.virtual.execute.move_calls import Handler, number_of, view_of
from kgen.virtual.hivm.types import MemRef, Type
from kgen.virtual.machine.protocol import Operand
from kgen.virtual.templates import Template

_FRACTAL = 16


def cube_handler(template: Template, types: tuple[Type, ...]) -> Handler | None:
    """The meaning of a product or of a fixpipe, None for one that isn't known."""
    base = template.base
    if base.startswith("mma_tile") and len(types) >= 7:
        suffix = base.removeprefix("mma_tile").removeprefix("_to")
        if suffix not in ("", "_ta", "_tb", "_ta_tb"):
            return None
        left, right = types[0], types[1]
        if isinstance(left, MemRef) and isinstance(right, MemRef):
            return _product(left.element, right.element, "_ta" in suffix, "_tb" in suffix)
    if base.startswith("fixpipe_nz2nd") and isinstance(types[0], MemRef) and isinstance(types[1], MemRef):
        return _fixpipe(types[0].element, types[1].element)
    return None


def matrix(fractals: Array) -> Array:
    """Fractals as the matrix that they hold, padding and all."""
    columns, rows, r0, c0 = fractals.shape
    whole: Array = fractals.transpose(1, 2, 0, 3).reshape(rows * r0, columns * c0)
    return whole


def _product(left: str, right: str, left_turned: bool, right_turned: bool) -> Handler:
    """a, b, initialise, m, k, n, c, events…, unit flag: c (+)= a b in fp32.

    Rows past m and columns up to whole fractals come from what lies in L1; the columns after them stay as they were.
    """

    def run(core: CoreMemory, x: Sequence[Operand]) -> None:
        m, k, n = (int(number_of(x[i])) for i in (3, 4, 5))
        if not m or not k or not n:
            return
        a = widened(matrix(core.array(view_of(x[0]), left)), left)
        b = widened(matrix(core.array(view_of(x[1]), right)), right)
        c = core.array(view_of(x[6]), "f32")
        columns, rows = c.shape[0] * c.shape[3], c.shape[1] * c.shape[2]
        n = min(-(-n // _FRACTAL) * _FRACTAL, columns)
        a = (a.T if left_turned else a)[:rows, :k].astype(np.float32)
        b = (b.T if right_turned else b)[:k, :n].astype(np.float32)
        with np.errstate(all="ignore"):
            new = matrix(c).copy()
            product = a @ b
            new[: a.shape[0], : b.shape[1]] = product if number_of(x[2]) else new[: a.shape[0], : b.shape[1]] + product
        c.transpose(1, 2, 0, 3)[...] = new.reshape(c.shape[1], c.shape[2], c.shape[0], c.shape[3])

    return run


def _fixpipe(source: str, target: str) -> Handler:
    """source in L0C, rows in global memory, quantisation, relu (1: yes), channel split, unit flag."""

    def run(core: CoreMemory, x: Sequence[Operand]) -> None:
        if 0 in view_of(x[1])[2]:
            return
        there = core.array(view_of(x[1]), target)
        values = matrix(core.array(view_of(x[0]), source))[: there.shape[0], : there.shape[1]]
        if int(number_of(x[3])):
            values = np.maximum(values, 0)
        there[...] = stored(values, target)

    return run
