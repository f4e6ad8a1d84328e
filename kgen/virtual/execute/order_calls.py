"""Templates of the vector unit that place elements without computing with them: broadcasts, transposes, sequences,
gathers, channels taken apart and put together (AscendNPU-IR, lib/Template/lib/Vector: Broadcast, Transpose, Arange,
Gather, Deinterleave, Interleave)."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from kgen.virtual.execute.elements import computed, stored
from kgen.virtual.execute.memory import STORAGE, Array, CoreMemory
from kgen.virtual.execute.move_calls import copying
from kgen.virtual.execute.operands import Handler, element_names, is_empty, number_of, view_of
from kgen.virtual.hivm.types import Type
from kgen.virtual.machine.protocol import Operand
from kgen.virtual.templates import Template

_TURNS = {
    ("transpose_with_last_axis", 2): (1, 0), ("transpose_with_last_axis", 3): (2, 1, 0),
    ("transpose_without_last_axis", 3): (1, 0, 2),
}  # fmt: skip


def order_handler(template: Template, types: tuple[Type, ...]) -> Handler | None:
    """The meaning of a template that places elements, None for one that isn't known."""
    base = template.base
    kinds = element_names(types)
    if base.startswith("broadcast_scalar"):
        return _fill(kinds[1])
    if base.startswith("broadcast"):
        return _spread(kinds[0])
    if kinds[0] == "i1":
        return None
    if base == "arange":
        return _arange(kinds[0])
    if template.rank is not None and (order := _TURNS.get((base, template.rank))):
        return _transpose(kinds[0], order)
    if base == "deinterleave_channel_0_from_n_channels":
        return _first_channel(kinds[0])
    if match := re.fullmatch(r"deinterleave_channel_([01])_from_2_channels", base):
        return _one_of_two(kinds[0], int(match[1]))
    if base == "interleave":
        return _interleave(kinds[0])
    if base == "flip":
        return _flip(kinds[0])
    if base == "gather":
        return _gather(kinds[0])
    if base == "vgathermask":
        return _compress(kinds[0])
    return None


def _fill(element: str) -> Handler:
    """value, target."""
    kind = computed(element)

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        target = view_of(x[1])
        value = np.array([number_of(x[0])]).astype(kind)
        if element == "i1":
            m.put_bits(target, value)
        else:
            m.array(target, element)[...] = stored(value, element)[0]

    return run


def _spread(element: str) -> Handler:
    """source with sizes of 1, target."""

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        source, target = view_of(x[0]), view_of(x[1])
        if element == "i1":
            m.put_bits(target, m.bits(source))
        elif not is_empty(source):
            m.array(target, element)[...] = m.array(source, element)

    return run


def _arange(element: str) -> Handler:
    """target, offset, a step for each axis.

    A 1-D target with gaps starts at offset times its stride: `arange_1d_uncontinue_core` has it so.
    """

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        target = view_of(x[0])
        if is_empty(target):
            return
        start = int(number_of(x[1])) * (target[3][0] if len(target[3]) == 1 else 1)
        values: Array = np.full(target[2], start, np.int64)
        for axis, step in enumerate(x[2:]):
            shape = [-1 if a == axis else 1 for a in range(len(target[2]))]
            values = values + (np.arange(target[2][axis]) * int(number_of(step))).reshape(shape)
        m.array(target, element)[...] = stored(values, element)

    return run


def _transpose(element: str, order: tuple[int, ...]) -> Handler:
    """source, target, scratch for 64 bits."""

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        source = view_of(x[0])
        if not is_empty(source):
            m.array(view_of(x[1]), element)[...] = m.array(source, element).transpose(order)

    return run


def _first_channel(element: str) -> Handler:
    """source, target: of n channels side by side the first.

    Either the source's view steps over the others, or its rows are n times as long as the target's.
    """
    copy = copying(element)

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        source, target = view_of(x[0]), view_of(x[1])
        if source[2] == target[2]:
            copy(m, x)
        elif not is_empty(source) and not is_empty(target):
            channels = source[2][-1] // target[2][-1]
            m.array(target, element)[...] = m.array(source, element)[..., ::channels]

    return run


def _one_of_two(element: str, channel: int) -> Handler:
    """source, target: every second element."""

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        source = view_of(x[0])
        if not is_empty(source):
            m.array(view_of(x[1]), element)[...] = m.array(source, element)[channel::2]

    return run


def _interleave(element: str) -> Handler:
    """two sources, target, scratch: elements by turns, the first source's first."""

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        if not is_empty(view_of(x[0])):
            pairs = np.stack([m.array(view_of(x[0]), element), m.array(view_of(x[1]), element)], -1)
            m.array(view_of(x[2]), element)[...] = pairs.reshape(-1)

    return run


def _flip(element: str) -> Handler:
    """source, target."""

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        m.array(view_of(x[1]), element)[...] = m.array(view_of(x[0]), element)[::-1]

    return run


def _gather(element: str) -> Handler:
    """source, indices, target, scratch. An index outside the source finds what lies there in UB."""
    width = 8 * STORAGE[element].itemsize

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        base, address, sizes, strides = view_of(x[0])
        target = view_of(x[2])
        if is_empty(target):
            return
        indices = m.array(view_of(x[1]), "i32").astype(np.int64)
        if sizes == (1,):
            indices = np.zeros_like(indices)
        low, high = int(indices.min()), int(indices.max())
        reached = base, address + low * strides[0] * width, (high - low + 1,), strides
        m.array(target, element)[...] = m.array(reached, element)[indices - low]

    return run


def _compress(element: str) -> Handler:
    """source, mask of bits, target, count: the elements whose bit is set, one after another, and how many they are."""

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        source = view_of(x[0])
        if is_empty(source):
            return
        chosen = m.array(source, element)[m.bits(view_of(x[1]))]
        base, address, _, strides = view_of(x[2])
        m.array((base, address, (len(chosen),), strides), element)[...] = chosen
        m.array(view_of(x[3]), "i64")[...] = len(chosen)

    return run
