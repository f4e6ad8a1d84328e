"""Templates that move data: between global memory and UB, to L1 in fractals, within UB."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kgen.virtual.execute.elements import stored as as_stored
from kgen.virtual.execute.elements import widened
from kgen.virtual.execute.memory import STORAGE, Array, CoreMemory
from kgen.virtual.hivm.types import MemRef, Scalar, Type
from kgen.virtual.machine.protocol import Operand
from kgen.virtual.machine.views import View
from kgen.virtual.templates import Template

Handler = Callable[[CoreMemory, Sequence[Operand]], None]
_GRANULE = 32  # bytes: a load pads its last granule


def view_of(operand: Operand) -> View:
    """An operand that is a memref."""
    assert isinstance(operand, tuple)
    return operand


def number_of(operand: Operand) -> float:
    """An operand that is a scalar."""
    assert not isinstance(operand, tuple)
    return operand


def move_handler(template: Template, types: tuple[Type, ...]) -> Handler | None:
    """The meaning of a move, None for one that isn't known."""
    kinds = [t.element if isinstance(t, MemRef | Scalar) else "" for t in types]
    base = template.base
    if base == "load_gm_to_ubuf":
        return _load(kinds[0])
    if base == "store_ubuf_to_gm":
        return _store(kinds[0])
    if base == "nd2nz":
        return _to_fractals(kinds[0])
    if base == "set_l1":
        return _fill(kinds[1])
    if base == "copy_ubuf_to_ubuf" or base.startswith("deinterleave_channel_0"):
        return _copy(kinds[0])
    return None


def _load(element: str) -> Handler:
    """source, target, pad mode (0: zero, 1: first element, 2: value), value, elements padded on the left.

    Where a row is contiguous its last granule of 32 bytes is padded on the right; the rest of a tile is not.
    """
    if element == "i1":
        return lambda m, x: m.put_bits(view_of(x[1]), m.bits(view_of(x[0])).reshape(view_of(x[1])[2]))
    width = STORAGE[element].itemsize

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        source, target = view_of(x[0]), view_of(x[1])
        if 0 in source[2]:
            return
        read = m.array(source, element)
        left = int(number_of(x[4])) if len(x) > 4 else 0
        mode = int(number_of(x[2])) if len(x) > 2 else 0
        given = number_of(x[3]) if mode == 2 else 0.0
        pad = read.reshape(-1)[0] if mode == 1 else as_stored(np.array([given]), element)[0]
        written = m.array(target, element)
        if left:
            written[..., :left] = pad
            written[..., left : left + read.shape[-1]] = read
            return
        written[...] = read.reshape(written.shape)
        base, address, sizes, strides = target
        rest = -sizes[-1] * width % _GRANULE // width if strides[-1] == 1 else 0
        if rest and address // 8 % _GRANULE == 0:
            after = (base, address + 8 * width * sizes[-1], (*sizes[:-1], rest), strides)
            m.array(after, element)[...] = pad

    return run


def _store(element: str) -> Handler:
    """source, target, atomic kind (0 none, 1 add, 2 max, 3 min)."""
    if element == "i1":
        return lambda m, x: m.put_bits(view_of(x[1]), m.bits(view_of(x[0])).reshape(view_of(x[1])[2]))

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        source, target = view_of(x[0]), view_of(x[1])
        if 0 in source[2]:
            return
        values, there = m.array(source, element), m.array(target, element)
        values = values.reshape(there.shape)
        kind = int(number_of(x[2])) if len(x) > 2 else 0
        if kind:
            op = {1: np.add, 2: np.maximum, 3: np.minimum}[kind]
            values = as_stored(op(widened(there, element), widened(values, element)), element)
        there[...] = values

    return run


def _to_fractals(element: str) -> Handler:
    """Rows of a matrix to fractals `[columns / c0, rows / 16, 16, c0]`; what a fractal has beyond them stays."""

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        source, target = view_of(x[0]), view_of(x[1])
        if 0 in source[2] or 0 in target[2]:
            return
        put_matrix(m.array(target, element), m.array(source, element))

    return run


def put_matrix(fractals: Array, matrix: Array) -> None:
    """Write the upper left corner of a matrix that lies in fractals."""
    columns, rows, r0, c0 = fractals.shape
    by_rows = fractals.transpose(1, 2, 0, 3)
    if matrix.shape == (rows * r0, columns * c0):
        by_rows[...] = matrix.reshape(rows, r0, columns, c0)
        return
    whole = by_rows.reshape(rows * r0, columns * c0).copy()
    whole[: matrix.shape[0], : matrix.shape[1]] = matrix
    by_rows[...] = whole.reshape(rows, r0, columns, c0)


def _fill(element: str) -> Handler:
    """value, target."""

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        m.array(view_of(x[1]), element)[...] = as_stored(np.array([number_of(x[0])], np.float64), element)[0]

    return run


def _copy(element: str) -> Handler:
    """source, target. Taking a channel apart is a copy too: the source's view steps over the others."""
    if element == "i1":
        return lambda m, x: m.put_bits(view_of(x[1]), m.bits(view_of(x[0])).reshape(view_of(x[1])[2]))

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        source, target = view_of(x[0]), view_of(x[1])
        if 0 not in source[2]:
            written = m.array(target, element)
            written[...] = m.array(source, element).reshape(written.shape)

    return run
