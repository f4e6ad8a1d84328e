"""Templates of the vector unit, element by element (AscendNPU-IR, lib/Template/lib/Vector: Elementwise, CmpSel, Cast).

Sizes of 1 are spread. Arithmetic is made in the element's own type, bf16's in fp32 and then rounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kgen.virtual.execute.elements import WRAP, computed, is_float, saturated, stored, to_whole, widened
from kgen.virtual.execute.errors import ExecutionError
from kgen.virtual.execute.memory import STORAGE, Array, CoreMemory
from kgen.virtual.execute.operands import Handler, element_names, is_vector_like, number_of, view_of
from kgen.virtual.hivm.types import MemRef, Type
from kgen.virtual.machine.protocol import Operand
from kgen.virtual.machine.views import View
from kgen.virtual.templates import Template

_Two = Callable[[Array, Array], Array]
_One = Callable[[Array], Array]

_BITS_TWO: Mapping[str, _Two] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
_TWO: Mapping[str, _Two] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
    "shl": np.left_shift, "shr": np.right_shift,
}  # fmt: skip
_ONE: Mapping[str, _One] = {
    "exp": np.exp, "ln": np.log, "sqrt": np.sqrt, "abs": np.abs,
    "rec": lambda x: np.asarray(1, x.dtype) / x, "rsqrt": lambda x: np.asarray(1, x.dtype) / np.sqrt(x),
    "relu": lambda x: np.maximum(x, np.asarray(0, x.dtype)),
}  # fmt: skip
_COMPARE: Mapping[str, _Two] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
_AS_BITS: Mapping[str, str] = {"f32": "ui32", "f16": "ui16", "bf16": "ui16"}


def vector_handler(template: Template, types: tuple[Type, ...]) -> Handler | None:
    """The meaning of a template of the vector unit, None for one that isn't known."""
    base = template.base
    kinds = element_names(types)
    if match := re.fullmatch(r"vcast_to_with_(mode|temp|overflow(?:_no_size_align)?)", base):
        return _cast(kinds[0], kinds[1], match[1])
    if match := re.fullmatch(r"vcmps?_(\w\w)", base):
        return _compare(match[1], kinds)
    if re.fullmatch(r"vsel_[vs][vs]", base):
        return _select(kinds)
    if match := re.fullmatch(r"v([a-z]+?)(_vs|_sv|_vv)?", base):
        return _elementwise(match[1], kinds, types)
    return None


def _reader(element: str, operand: Type) -> Callable[[CoreMemory, Operand], Any]:
    """How an operand becomes numbers: a view's elements, or a scalar in the type to compute with."""
    if not isinstance(operand, MemRef):
        kind = computed(element)
        return lambda m, x: np.asarray(x).astype(kind)
    if element == "i1":
        return lambda m, x: m.bits(view_of(x))
    if element == "bf16":
        return lambda m, x: widened(m.array(view_of(x), element), element)
    return lambda m, x: m.array(view_of(x), element)


def write(m: CoreMemory, target: View, element: str, values: Array) -> None:
    """Numbers to a view, rounded to its type."""
    if element == "i1":
        m.put_bits(target, values)
    else:
        m.array(target, element)[...] = stored(values, element)


def _elementwise(op: str, kinds: list[str], types: tuple[Type, ...]) -> Handler | None:
    """One or two sources (the second may be a scalar), the target, scratch."""
    element = kinds[0] if isinstance(types[0], MemRef) else kinds[1]
    if op == "not" or op in _BITS_TWO:
        element = _AS_BITS.get(element, element)
    if op == "not" or op in _ONE:
        return _single(np.invert if op == "not" else _ONE[op], element, types[0])
    name = op[:-1] if op.endswith("s") and op[:-1] in _TWO else op
    two = _BITS_TWO.get(name) or _TWO.get(name) or _division(name, element)
    if two is None or len(types) < 3:
        return None
    return _double(two, element, types)


def _single(one: _One, element: str, source: Type) -> Handler:
    read = _reader(element, source)

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        with np.errstate(all="ignore"):
            write(m, view_of(x[1]), element, one(read(m, x[0])))

    return run


def _double(two: _Two, element: str, types: tuple[Type, ...]) -> Handler:
    first, second = _reader(element, types[0]), _reader(element, types[1])

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        with np.errstate(all="ignore"):
            write(m, view_of(x[2]), element, two(first(m, x[0]), second(m, x[1])))

    return run


def _division(name: str, element: str) -> _Two | None:
    if name == "mod":
        return np.fmod
    if name != "div":
        return None
    if is_float(element):
        return np.divide

    def whole(a: Array, b: Array) -> Array:
        """Truncated, as C divides."""
        quotient = np.floor_divide(np.abs(a), np.abs(b))
        return np.where((a < 0) == (b < 0), quotient, -quotient).astype(np.result_type(a, b))

    return whole


def _cast(source: str, target: str, form: str) -> Handler | None:
    """source, target, (scratch,) mode. From a mask: 0 or 1. The forms `_with_overflow` wrap, the others saturate.

    The library has no scalar path for bf16, nor from fp32 to fp16: it leaves the target as it was, or traps, where an
    operand isn't aligned. Here that is an error.
    """
    if (form == "temp") != (source == "i1") or target == "i1":
        return None
    convert = _conversion(source, target, wraps=form.startswith("overflow"))
    fast_only = "bf16" in (source, target) or (source, target) == ("f32", "f16")
    bits = [1 if e == "i1" else 8 * STORAGE[e].itemsize for e in (source, target)]

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        views = view_of(x[0]), view_of(x[1])
        if 0 in views[0][2]:
            return
        if fast_only and not all(is_vector_like(v, b) for v, b in zip(views, bits, strict=True)):
            raise ExecutionError(
                "a cast of operands that aren't aligned to 32 bytes: the device's library doesn't make it",
                code="execute-cast",
                hint="let the tile's rows begin at multiples of 32 bytes",
            )
        values = m.bits(views[0]) if source == "i1" else m.array(views[0], source)
        written = m.array(views[1], target)
        written[...] = convert(values, int(number_of(x[-1]))).reshape(written.shape)

    return run


def _conversion(source: str, target: str, *, wraps: bool) -> Callable[[Array, int], Array]:
    """Stored elements to stored elements by a mode."""
    kind = STORAGE[target]
    if source == "i1":
        numbers = np.dtype(np.float32) if is_float(target) else kind
        return lambda values, mode: stored(values.astype(numbers), target)
    if is_float(source) and source == target:
        return lambda values, mode: stored(to_whole(widened(values, source), mode), target)
    if is_float(source) or is_float(target):
        return lambda values, mode: stored(widened(values, source), target, mode)
    return lambda values, mode: values.astype(kind) if wraps or mode == WRAP else saturated(values, kind)


def _compare(op: str, kinds: list[str]) -> Handler | None:
    """Two sources, the second may be a scalar; a mask of bits."""
    element = kinds[0]
    if op not in _COMPARE or element == "i1" or kinds[2] != "i1":
        return None
    compare = _COMPARE[op]
    kind = computed(element)

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        first, second = (
            widened(m.array(o, element), element) if isinstance(o, tuple) else np.asarray(o).astype(kind) for o in x[:2]
        )
        m.put_bits(view_of(x[2]), compare(first, second))

    return run


def _select(kinds: list[str]) -> Handler | None:
    """condition, where true, where false, target, scratch. The condition is a mask of bits, typed i1 or i8."""
    element = kinds[3]
    if element == "i1" or kinds[0] not in ("i1", "i8"):
        return None
    packed = kinds[0] == "i8"
    kind = computed(element)

    def run(m: CoreMemory, x: Sequence[Operand]) -> None:
        condition, target = view_of(x[0]), view_of(x[3])
        if packed:
            condition = condition[0], condition[1], target[2], (1,)
        first, second = (
            m.array(o, element) if isinstance(o, tuple) else stored(np.asarray(o).astype(kind), element) for o in x[1:3]
        )
        m.array(target, element)[...] = np.where(m.bits(condition), first, second)

    return run
