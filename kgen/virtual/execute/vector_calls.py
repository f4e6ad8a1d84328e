"""Templates of the vector unit (AscendNPU-IR, lib/Template/include/Vector): elementwise, reductions, broadcasts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kgen.virtual.execute.elements import is_float, stored, widened
from kgen.virtual.execute.memory import Array, CoreMemory
from kgen.virtual.execute.move_calls import Handler, number_of, view_of
from kgen.virtual.hivm.types import MemRef, Scalar, Type
from kgen.virtual.machine.protocol import Operand
from kgen.virtual.templates import Template

_Two = Callable[[Array, Array], Array]
_One = Callable[[Array], Array]

_TWO: Mapping[str, _Two] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "shl": np.left_shift, "shr": np.right_shift,
}  # fmt: skip
_ONE: Mapping[str, _One] = {
    "exp": np.exp, "ln": np.log, "sqrt": np.sqrt, "abs": np.abs, "not": np.invert,
    "rec": lambda x: np.asarray(1, x.dtype) / x, "rsqrt": lambda x: np.asarray(1, x.dtype) / np.sqrt(x),
    "relu": lambda x: np.maximum(x, np.asarray(0, x.dtype)),
}  # fmt: skip
_COMPARE: Mapping[str, _Two] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
_REDUCE: Mapping[str, Any] = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}


def vector_handler(template: Template, types: tuple[Type, ...]) -> Handler | None:
    """The meaning of a template of the vector unit, None for one that isn't known."""
    base = template.base
    kinds = [t.element if isinstance(t, MemRef | Scalar) else "" for t in types]
    if base.startswith("vcast"):
        return _cast(kinds[0], kinds[1], base.endswith("_with_temp"))
    if match := re.fullmatch(r"vcmps?_(\w\w)", base):
        return _compare(match[1], kinds)
    if re.fullmatch(r"vsel_[vs][vs]", base):
        return _select(kinds)
    if match := re.fullmatch(r"v([a-z]+?)(_vs|_sv|_vv)?", base):
        return _elementwise(match[1], kinds, types)
    if base.startswith("broadcast_scalar"):
        return _fill(kinds[0], kinds[1])
    if base.startswith("broadcast"):
        return _spread(kinds[0])
    if match := re.fullmatch(r"(?:enablevcg?_)?reduce_(sum|max|min|prod)_((?:[ra]\d?)+)", base):
        return _reduce(match[1], match[2], kinds[0])
    if base == "arange":
        return _arange(kinds[0])
    if base == "transpose_with_last_axis" and template.rank == 2:
        return _transpose(kinds[0], (1, 0))
    if base == "transpose_without_last_axis" and template.rank == 3:
        return _transpose(kinds[0], (1, 0, 2))
    if match := re.fullmatch(r"(cumsum|cumprod)_(a?)ra?(_reverse)?", base):
        return _running(match[1], len(match[2]), bool(match[3]), kinds[0])
    return None


def read(m: CoreMemory, operand: Operand, element: str) -> Array:
    """An operand as numbers: a view's elements, or a scalar as an array of one in the type to compute with."""
    if isinstance(operand, tuple):
        return m.bits(operand) if element == "i1" else widened(m.array(operand, element), element)
    kind = np.float32 if element == "bf16" else _compute(element)
    return np.asarray(operand).astype(kind)


def write(m: CoreMemory, target: View_, element: str, values: Array, mode: int = 0) -> None:
    """Numbers to a view, rounded to its type."""
    if 0 in target[2]:
        return
    if element == "i1":
        m.put_bits(target, values)
    else:
        there = m.array(target, element)
        if values.shape != there.shape and values.size == there.size:
            values = values.reshape(there.shape)
        there[...] = stored(values, element, mode)


View_ = tuple[Any, int, tuple[int, ...], tuple[int, ...]]


def _compute(element: str) -> Any:
    return {"f16": np.float16, "f32": np.float32, "f64": np.float64, "i1": np.bool_}.get(element) or np.dtype(
        element.replace("ui", "u").replace("i", "int").replace("uint", "uint") if element != "index" else "int64"
    )


def _divide(element: str) -> _Two:
    if is_float(element):
        return np.divide

    def whole(a: Array, b: Array) -> Array:
        """Truncated, as C divides."""
        quotient = np.floor_divide(np.abs(a), np.abs(b))
        return np.where((a < 0) == (b < 0), quotient, -quotient).astype(np.result_type(a, b))

    return whole


def _elementwise(op: str, kinds: list[str], types: tuple[Type, ...]) -> Handler | None:
    """One or two sources (the second may be a scalar), the target, scratch."""
    element = kinds[0] if isinstance(types[0], MemRef) else kinds[1]
    name = op[:-1] if op.endswith("s") and op[:-1] in (*_TWO, "div", "mod") else op
    if op in _ONE:
        one, target = _ONE[op], kinds[1]

        def single(m: CoreMemory, x: Sequence[Operand]) -> None:
            with np.errstate(all="ignore"):
                write(m, view_of(x[1]), target, one(read(m, x[0], element)))

        return single
    two = _divide(element) if name == "div" else np.fmod if name == "mod" else _TWO.get(name)
    if two is None or len(kinds) < 3:
        return None
    binary: _Two = two
    result = kinds[2]

    def double(m: CoreMemory, x: Sequence[Operand]) -> None:
        with np.errstate(all="ignore"):
            write(m, view_of(x[2]), result, binary(read(m, x[0], element), read(m, x[1], element)))

    return double


def _cast(source: str, target: str, scratch: bool) -> Handler:
    """source, target, (scratch,) mode. From a mask: 0 or 1."""

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        mode = int(number_of(x[-1]))
        values = read(m, x[0], source)
        if source == "i1":
            values = values.astype(np.float32 if is_float(target) else np.int32)
        elif is_float(target) and not is_float(source):
            values = values.astype(np.float64)
            values = values.astype(np.float32) if target in ("f32", "bf16") else values
        write(m, view_of(x[1]), target, values, mode)

    return run


def _compare(op: str, kinds: list[str]) -> Handler | None:
    """Two sources, the second may be a scalar; a mask of bits."""
    if op not in _COMPARE:
        return None
    compare, element = _COMPARE[op], kinds[0]
    return lambda m, x: m.put_bits(view_of(x[2]), compare(read(m, x[0], element), read(m, x[1], element)))


def _select(kinds: list[str]) -> Handler:
    """condition, where true, where false, target, scratch. The condition is a mask of bits."""
    element = kinds[3]

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        values = np.where(m.bits(view_of(x[0])), read(m, x[1], kinds[1]), read(m, x[2], kinds[2]))
        write(m, view_of(x[3]), element, values)

    return run


def _fill(source: str, element: str) -> Handler:
    """value, target."""

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        target = view_of(x[1])
        write(m, target, element, np.broadcast_to(read(m, x[0], source), target[2]))

    return run


def _spread(element: str) -> Handler:
    """source with sizes of 1, target."""

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        target = view_of(x[1])
        write(m, target, element, np.broadcast_to(read(m, x[0], element), target[2]).copy())

    return run


def _reduce(op: str, axes: str, element: str) -> Handler:
    """source, target, scratch, initial value. `ra` reduces the first axis of two, and so on.

    Sums are made by halves, as the templates make them.
    """
    over = tuple(i for i, letter in enumerate(re.findall(r"[ra]\d?", axes)) if letter[0] == "r")

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        values = read(m, x[0], element)
        with np.errstate(all="ignore"):
            for axis in reversed(over):
                values = _halved(_REDUCE[op], np.moveaxis(values, axis, 0))
        target = view_of(x[1])
        write(m, target, element, values.reshape(target[2]))

    return run


def _halved(op: Any, values: Array) -> Array:
    """Reduce the first axis: the upper half onto the lower, again and again."""
    while len(values) > 1:
        half = len(values) // 2
        rest = values[2 * half :]
        values = op(values[:half], values[half : 2 * half])
        if len(rest):
            values = np.concatenate([op(values[:1], rest), values[1:]])
    last: Array = values[0]
    return last


def _arange(element: str) -> Handler:
    """target, offset, a step for each axis."""

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        target = view_of(x[0])
        values = np.full(target[2], int(number_of(x[1])), np.int64)
        for axis, step in enumerate(x[2:]):
            shape = [-1 if a == axis else 1 for a in range(len(target[2]))]
            values = values + (np.arange(target[2][axis]) * int(number_of(step))).reshape(shape)
        write(m, target, element, values.astype(np.float32) if is_float(element) else values)

    return run


def _transpose(element: str, order: tuple[int, ...]) -> Handler:
    """source, target."""

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        m.array(view_of(x[1]), element)[...] = m.array(view_of(x[0]), element).transpose(order).copy()

    return run


def _running(op: str, axis: int, reverse: bool, element: str) -> Handler:
    """source, target: one row after another."""
    accumulate = np.add.accumulate if op == "cumsum" else np.multiply.accumulate

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        values = read(m, x[0], element)
        turned = np.flip(values, axis) if reverse else values
        result = accumulate(turned, axis=axis, dtype=values.dtype)
        write(m, view_of(x[1]), element, np.flip(result, axis) if reverse else result)

    return run
