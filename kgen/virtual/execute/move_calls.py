"""Templates that move data: between global memory and UB, to L1 in fractals, within UB (AscendNPU-IR, lib/Template:
DMA/Ubuf, DMA/Cbuf)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kgen.virtual.execute.elements import stored as as_stored
from kgen.virtual.execute.elements import widened
from kgen.virtual.execute.errors import ExecutionError
from kgen.virtual.execute.memory import STORAGE, Array, CoreMemory
from kgen.virtual.execute.operands import (
    BLOCK_BITS,
    Handler,
    element_names,
    is_dma_like,
    is_empty,
    number_of,
    view_of,
)
from kgen.virtual.hivm.types import Type
from kgen.virtual.machine.protocol import Operand
from kgen.virtual.machine.views import View
from kgen.virtual.templates import Template

_FIRST, _VALUE = 1, 2  # pad modes; 0 pads with zeros
_ATOMIC = {1: np.add, 2: np.maximum, 3: np.minimum}  # HIVM's `AtomicKind` has more, which the library doesn't know


def move_handler(template: Template, types: tuple[Type, ...]) -> Handler | None:
    """The meaning of a move, None for one that isn't known."""
    kinds = element_names(types)
    base = template.base
    if base == "load_gm_to_ubuf":
        return _load(kinds[0])
    if base == "store_ubuf_to_gm":
        return _store(kinds[0])
    if base == "nd2nz":
        return _to_fractals(kinds[0])
    if base == "set_l1":
        return _fill(kinds[1])
    if base in ("copy_ubuf_to_ubuf", "load_gm_to_cbuf"):
        return copying(kinds[0])
    return None


def copying(element: str) -> Handler:
    """source, target, of as many elements each, in the same order."""
    if element == "i1":
        return lambda m, x: m.put_bits(view_of(x[1]), m.bits(view_of(x[0])).reshape(view_of(x[1])[2]))

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        source, target = view_of(x[0]), view_of(x[1])
        if not is_empty(source):
            written = m.array(target, element)
            written[...] = m.array(source, element).reshape(written.shape)

    return run


def _load(element: str) -> Handler:
    """source, target, pad mode (0: zero, 1: first element, 2: value), value, elements padded on the left.

    Elements on the left lie before the target, which is the data alone. On the right each burst of a DMA is padded to
    the end of its last block of 32 bytes; the rest of a tile is not.
    """
    copy = copying(element)
    if element == "i1":
        return copy
    bits = 8 * STORAGE[element].itemsize

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        copy(m, x)
        source, target = view_of(x[0]), view_of(x[1])
        if is_empty(source) or len(x) < 3:
            return
        left = int(number_of(x[4])) if len(x) > 4 else 0
        _, address, sizes, strides = target
        if not left and strides[-1] == 1 and (address + sizes[-1] * bits) % BLOCK_BITS == 0:
            return
        mode = int(number_of(x[2]))
        given = np.array([number_of(x[3]) if mode == _VALUE else 0.0])
        pad = m.array(source, element).reshape(-1)[0] if mode == _FIRST else as_stored(given, element)[0]
        for margin in _margins(source, target, left, bits):
            m.array(margin, element)[...] = pad

    return run


def _margins(source: View, target: View, left: int, bits: int) -> list[View]:
    """What a load pads around the data; nothing on the right where the library loads element by element."""
    base, address, sizes, strides = target
    step = strides[-1]
    margins: list[View] = []
    start = address - left * step * bits
    if left:
        margins.append((base, start, (*sizes[:-1], left), strides))
    if _is_by_scalar(source, target, start, bits):
        return margins
    if step == 1:
        end = address + sizes[-1] * bits
        if end - start > -start % BLOCK_BITS and end % BLOCK_BITS:  # else the scalar unit did all of it
            margins.append((base, end, (*sizes[:-1], -end % BLOCK_BITS // bits), strides))
    else:  # each element is a burst of its own
        margins.append((base, address + bits, (*sizes, BLOCK_BITS // bits - 1), (*strides, 1)))
    return margins


def _is_by_scalar(source: View, target: View, start: int, bits: int) -> bool:
    """Whether the library loads with the scalar unit, which pads nothing on the right (`load_gm_to_ubuf_*d_core`)."""
    step, wide = target[3], source[3]
    if not is_dma_like(target, bits) or (start % BLOCK_BITS and step[-1] != 1):
        return True
    if step[-1] == 1:
        return wide[-1] != 1 and source[2][-1] > 1
    turned = len(step) > 1 and (wide[-2] < wide[-1] or step[-2] < step[-1])
    return turned and any(s * bits % BLOCK_BITS for s in step[-2:])


def _store(element: str) -> Handler:
    """source, target, atomic kind (0 none, 1 add, 2 max, 3 min).

    The library drops an atomic store whose source isn't aligned, so that is an error here.
    """
    copy = copying(element)
    if element == "i1":
        return copy
    bits = 8 * STORAGE[element].itemsize

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        kind = int(number_of(x[2])) if len(x) > 2 else 0
        if not kind:
            copy(m, x)
            return
        source, target = view_of(x[0]), view_of(x[1])
        if is_empty(source):
            return
        if kind not in _ATOMIC:
            raise ExecutionError(f"atomic kind {kind} has no meaning in the library", code="execute-atomic")
        if source[1] % BLOCK_BITS or not is_dma_like(source, bits):
            raise ExecutionError(
                "an atomic store from UB that isn't aligned to 32 bytes: the device drops it",
                code="execute-atomic",
                hint="let the tile's rows begin at multiples of 32 bytes, or store without an atomic",
            )
        there = m.array(target, element)
        values = m.array(source, element).reshape(there.shape)
        with np.errstate(all="ignore"):
            there[...] = as_stored(_ATOMIC[kind](widened(there, element), widened(values, element)), element)

    return run


def _to_fractals(element: str) -> Handler:
    """Rows of a matrix to fractals `[columns / c0, rows / 16, 16, c0]`; what a fractal has beyond them stays."""

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        source, target = view_of(x[0]), view_of(x[1])
        if not is_empty(source) and not is_empty(target):
            put_matrix(m.array(target, element), m.array(source, element))

    return run


def put_matrix(fractals: Array, matrix: Array) -> None:
    """Write the upper left corner of a matrix that lies in fractals, and nothing else."""
    across, down, r0, c0 = fractals.shape
    rows, columns = matrix.shape
    if rows > down * r0 or columns > across * c0:
        raise ValueError(f"a matrix of {rows} x {columns} in fractals of {down * r0} x {across * c0}")
    by_rows = fractals.transpose(1, 2, 0, 3)
    whole_rows, more_rows = divmod(rows, r0)
    whole_columns, more_columns = divmod(columns, c0)
    right, bottom = columns - more_columns, rows - more_rows
    inner = matrix[:bottom, :right].reshape(whole_rows, r0, whole_columns, c0)
    by_rows[:whole_rows, :, :whole_columns] = inner
    if more_columns:
        edge = matrix[:bottom, right:].reshape(whole_rows, r0, more_columns)
        by_rows[:whole_rows, :, whole_columns, :more_columns] = edge
    if more_rows:
        below = matrix[bottom:]
        by_rows[whole_rows, :more_rows, :whole_columns] = below[:, :right].reshape(more_rows, whole_columns, c0)
        if more_columns:
            by_rows[whole_rows, :more_rows, whole_columns, :more_columns] = below[:, right:]


def _fill(element: str) -> Handler:
    """value, target: whole blocks of 32 bytes."""
    per_block = 32 // STORAGE[element].itemsize

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        base, address, sizes, strides = view_of(x[1])
        blocks = (*sizes[:-1], -(-sizes[-1] // per_block) * per_block)
        value = as_stored(np.array([number_of(x[0])], np.float64), element)
        m.array((base, address, blocks, strides), element)[...] = value[0]

    return run
