"""Templates of the vector unit that reduce or run along an axis (AscendNPU-IR, lib/Template/lib/Vector: Reduction,
Cumulative)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from kgen.virtual.execute.elements import computed, is_float, stored, widened
from kgen.virtual.execute.memory import Array, CoreMemory
from kgen.virtual.execute.operands import Handler, element_names, is_empty, view_of
from kgen.virtual.hivm.types import Type
from kgen.virtual.machine.protocol import Operand
from kgen.virtual.machine.views import View
from kgen.virtual.templates import Template

_OPS: Mapping[str, np.ufunc] = {
    "sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply,
    "andi": np.bitwise_and, "ori": np.bitwise_or, "xori": np.bitwise_xor,
}  # fmt: skip
_REDUCE = re.compile(rf"(?:enablevcg?_)?reduce_({'|'.join(_OPS)})_((?:[ra]\d?)+)")
_WHERE = re.compile(r"reduce_(max|min)_with_index_(left|right)_((?:[ra]\d?)+)")
_RUNNING = re.compile(r"cum(sum|prod)_(a?)ra(_reverse)?")


def reduce_handler(template: Template, types: tuple[Type, ...]) -> Handler | None:
    """The meaning of a reduction or running sum, None for one that isn't known."""
    element = element_names(types)[0]
    if element == "i1":
        return None
    if match := _REDUCE.fullmatch(template.base):
        if match[1].endswith("i") and is_float(element):
            return None
        return _reduce(_OPS[match[1]], _reduced(match[2]), element)
    if match := _WHERE.fullmatch(template.base):
        return _where(match[1], match[2], _reduced(match[3])[0], element)
    if match := _RUNNING.fullmatch(template.base):
        return _running(_OPS[match[1]], len(match[2]), bool(match[3]), element)
    return None


def _reduced(axes: str) -> tuple[int, ...]:
    """The axes that go: `ra` reduces the first of two, `ara` the middle one."""
    return tuple(i for i, letter in enumerate(re.findall(r"[ra]\d?", axes)) if letter[0] == "r")


def _write(m: CoreMemory, target: View, element: str, values: Array) -> None:
    m.array(target, element)[...] = stored(values, element).reshape(target[2])


def _of_source(element: str, work: Callable[[CoreMemory, Sequence[Operand], Array], None]) -> Handler:
    """A handler that is given the values of its first operand, and does nothing where that has none."""

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        source = view_of(x[0])
        if not is_empty(source):
            work(m, x, widened(m.array(source, element), element))

    return run


def _reduce(op: np.ufunc, over: tuple[int, ...], element: str) -> Handler:
    """source, target, scratch, initial value. Made by halves, as the templates make it."""

    def run(m: CoreMemory, x: Sequence[Operand], values: Array) -> None:
        with np.errstate(all="ignore"):
            for axis in reversed(over):
                values = _halved(op, np.moveaxis(values, axis, 0))
        _write(m, view_of(x[1]), element, values)

    return _of_source(element, run)


def _halved(op: np.ufunc, values: Array) -> Array:
    """Reduce the first axis: the upper half onto the lower, again and again."""
    while len(values) > 1:
        half = len(values) // 2
        rest = values[2 * half :]
        values = op(values[:half], values[half : 2 * half])
        if len(rest):
            values[:1] = op(values[:1], rest)
    last: Array = values[0]
    return last


def _where(op: str, tie: str, axis: int, element: str) -> Handler:
    """source, value, its index, scratch: of equal elements the leftmost or the rightmost."""
    find = np.argmax if op == "max" else np.argmin

    def run(m: CoreMemory, x: Sequence[Operand], values: Array) -> None:
        length = values.shape[axis]
        places = find(values, axis) if tie == "left" else length - 1 - find(np.flip(values, axis), axis)
        found = np.take_along_axis(values, np.expand_dims(places, axis), axis)
        _write(m, view_of(x[1]), element, found)
        _write(m, view_of(x[2]), "i32", places)

    return _of_source(element, run)


def _running(op: np.ufunc, axis: int, reverse: bool, element: str) -> Handler:
    """source, target: one row after another, from the first or from the last."""
    kind = computed(element)

    def run(m: CoreMemory, x: Sequence[Operand], values: Array) -> None:
        with np.errstate(all="ignore"):
            result = op.accumulate(np.flip(values, axis) if reverse else values, axis=axis, dtype=kind)
        _write(m, view_of(x[1]), element, np.flip(result, axis) if reverse else result)

    return _of_source(element, run)
