"""Writes views as Python: what is static is folded to one tuple beforehand, the rest becomes a tuple expression.

Each view's type is known twice: as declared, which is the same on every path that leads to a value, and at best, which
a cast to dynamic sizes doesn't forget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kgen.errors import KgenBug
from kgen.virtual.hivm import nodes as n
from kgen.virtual.hivm.errors import HivmError
from kgen.virtual.hivm.types import MemRef, row_major
from kgen.virtual.machine.protocol import Operand
from kgen.virtual.machine.views import View, collapsed, expanded, subviewed, transposed


class ViewCode:
    """Views of one function. `names` and `namespace` are the translator's."""

    def __init__(self, names: dict[n.Value, str], namespace: dict[str, object]) -> None:
        self._names = names
        self._namespace = namespace
        self._static: dict[n.Value, Operand] = {}
        self._declared: dict[n.Value, MemRef] = {}
        self._best: dict[n.Value, MemRef] = {}
        self._parents: dict[n.Value, n.Value] = {}
        self._kept: dict[View, str] = {}

    # ------------------------------------------------------------ what is known

    def constant(self, value: n.Value, number: float) -> None:
        """A value that is this number."""
        self._static[value] = number

    def fixed(self, value: n.Operand) -> Operand | None:
        """A number or view that is known beforehand."""
        return value if isinstance(value, int) else self._static.get(value)

    def know(self, value: n.Value, kind: MemRef) -> None:
        """A view of this type."""
        self._declared[value] = self._best[value] = kind

    def same(self, value: n.Value, other: n.Value) -> None:
        """`value` is `other` on some path: their declared types agree."""
        if other in self._declared:
            self.know(value, self._declared[other])

    def origin(self, value: n.Value) -> str:
        """The address, in bits, of the allocation that a view lies in."""
        kind = self._declared[value]
        name = self._names[value]
        if kind.offset is not None:
            return f"({name}[1] - {kind.offset * kind.bits})" if kind.offset else f"{name}[1]"
        best = self._best[value]
        if best.offset is not None:
            return f"({name}[1] - {best.offset * best.bits})" if best.offset else f"{name}[1]"
        if value in self._parents:
            return self.origin(self._parents[value])
        raise HivmError(f"the allocation of {value} isn't known")

    # ------------------------------------------------------------ writing

    def write(self, o: n.Operation) -> tuple[n.Value, str] | None:
        """The result of a view operation and its expression; None where it is known beforehand or another's name."""
        if isinstance(o, n.Alias):
            self._alias(o)
            return None
        if not isinstance(o, n.PointerCast | n.View | n.Reinterpret | n.Subview | n.Collapse | n.Expand | n.Transpose):
            raise KgenBug(f"{type(o).__name__} makes no view")
        self.know(o.result, o.type)
        if not isinstance(o, n.PointerCast | n.View):
            self._parents[o.result] = o.source
        view = self._fold(o)
        if view is not None:
            self._static[o.result] = view
            self._names[o.result] = self._keep(view)
            return None
        return o.result, self._expression(o)

    def _alias(self, o: n.Alias) -> None:
        self._names[o.result] = self._names[o.source]
        self._declared[o.result] = o.type
        source = self._best.get(o.source)
        self._best[o.result] = source if source is not None and len(source.shape) == len(o.type.shape) else o.type
        self._parents[o.result] = o.source
        if o.source in self._static:
            self._static[o.result] = self._static[o.source]

    def _keep(self, view: View) -> str:
        if view not in self._kept:
            self._kept[view] = f"k{len(self._namespace)}"
            self._namespace[self._kept[view]] = view
        return self._kept[view]

    # ------------------------------------------------------------ known beforehand

    def _fold(self, o: n.Operation) -> View | None:
        """The view itself, where all that it depends on is known."""
        if isinstance(o, n.PointerCast):
            address, sizes = self.fixed(o.addresses[0]), self._shape(o.type, o.sizes)
            if isinstance(address, int) and sizes is not None:
                return _space(o), 8 * address, sizes, _strides_of(o.type, sizes)
            return None
        if isinstance(o, n.View):
            return None  # of global memory only, whose place depends on the block
        if not isinstance(o, n.Reinterpret | n.Subview | n.Collapse | n.Expand | n.Transpose):
            return None
        source = self._static.get(o.source)
        if not isinstance(source, tuple):
            return None
        if isinstance(o, n.Collapse):
            return collapsed(source, o.groups)
        if isinstance(o, n.Transpose):
            return transposed(source, o.order)
        if isinstance(o, n.Expand):
            sizes = self._integers(o.sizes)
            return expanded(source, o.groups, sizes) if sizes is not None else None
        if isinstance(o, n.Subview):
            lists = [self._integers(x) for x in (o.offsets, o.sizes, o.strides)]
            if lists[0] is None or lists[1] is None or lists[2] is None:
                return None
            return subviewed(source, o.type.bits, lists[0], lists[1], lists[2], o.kept)
        return None

    def _shape(self, kind: MemRef, dynamic: Sequence[n.Value]) -> tuple[int, ...] | None:
        """A type's sizes with the dynamic ones filled in."""
        rest = iter(dynamic)
        sizes = [self.fixed(next(rest)) if size is None else size for size in kind.shape]
        return tuple(s for s in sizes if isinstance(s, int)) if all(isinstance(s, int) for s in sizes) else None

    def _integers(self, operands: Sequence[n.Operand]) -> tuple[int, ...] | None:
        values = [self.fixed(x) for x in operands]
        return tuple(v for v in values if isinstance(v, int)) if all(isinstance(v, int) for v in values) else None

    # ------------------------------------------------------------ known at run time

    def _expression(self, o: n.Operation) -> str:
        if isinstance(o, n.PointerCast):
            sizes = self._filled(o.type, o.sizes)
            strides = _stride_texts(o.type, sizes)
            return f"({_space(o)!r}, {_product(8, self._text(o.addresses[0]))}, {_tuple(sizes)}, {_tuple(strides)})"
        if isinstance(o, n.View):
            source = self._names[o.source]
            sizes = self._filled(o.type, o.sizes)
            address = f"{source}[1] + {_product(8, self._text(o.shift))}"
            return f"({source}[0], {address}, {_tuple(sizes)}, {_tuple(_row_major_texts(sizes))})"
        if isinstance(o, n.Reinterpret):
            source = self._names[o.source]
            address = f"{self.origin(o.source)} + {_product(o.type.bits, self._text(o.offset))}"
            sizes, strides = self._texts(o.sizes), self._texts(o.strides)
            return f"({source}[0], {address}, {_tuple(sizes)}, {_tuple(strides)})"
        if isinstance(o, n.Subview):
            return self._subview(o)
        if isinstance(o, n.Collapse):
            return self._collapse(o)
        if isinstance(o, n.Expand):
            return f"_expanded({self._names[o.source]}, {o.groups!r}, {_tuple(self._texts(o.sizes))})"
        if isinstance(o, n.Transpose):
            return f"_transposed({self._names[o.source]}, {o.order!r})"
        raise KgenBug(f"{type(o).__name__} makes no view")

    def _subview(self, o: n.Subview) -> str:
        source = self._names[o.source]
        steps = [
            str(step) if step is not None else f"{source}[3][{axis}]"
            for axis, step in enumerate(_static_strides(self._best[o.source]))
        ]
        terms = [_product(step, self._text(x)) for x, step in zip(o.offsets, steps, strict=True)]
        moved = " + ".join(term for term in terms if term != "0")
        address = f"{source}[1] + {_product(o.type.bits, f'({moved})')}" if moved else f"{source}[1]"
        sizes = [self._text(o.sizes[axis]) for axis in o.kept]
        strides = [_product(steps[axis], self._text(o.strides[axis])) for axis in o.kept]
        return f"({source}[0], {address}, {_tuple(sizes)}, {_tuple(strides)})"

    def _collapse(self, o: n.Collapse) -> str:
        """As `collapsed` does it, with what the type tells."""
        source, best = self._names[o.source], self._best[o.source]
        size = [str(s) if s is not None else f"{source}[2][{axis}]" for axis, s in enumerate(best.shape)]
        step = [str(s) if s is not None else f"{source}[3][{axis}]" for axis, s in enumerate(_static_strides(best))]
        sizes, strides = [], []
        for group in o.groups:
            length, stride = "1", step[group[-1]] if group else "1"
            for axis in group:
                length = _product(length, size[axis])
                if best.shape[axis] is None:
                    stride = f"({step[axis]} if {size[axis]} != 1 else {stride})"
                elif best.shape[axis] != 1:
                    stride = step[axis]
            sizes.append(length)
            strides.append(stride)
        return f"({source}[0], {source}[1], {_tuple(sizes)}, {_tuple(strides)})"

    def _filled(self, kind: MemRef, dynamic: Sequence[n.Value]) -> list[str]:
        rest = iter(dynamic)
        return [self._text(next(rest)) if size is None else str(size) for size in kind.shape]

    def _text(self, operand: n.Operand) -> str:
        return str(operand) if isinstance(operand, int) else self._names[operand]

    def _texts(self, operands: Sequence[n.Operand]) -> list[str]:
        return [self._text(operand) for operand in operands]


def _space(o: n.PointerCast) -> str:
    if o.type.space is None:
        raise HivmError("a buffer without a memory space", o.line)
    return o.type.space


def _strides_of(kind: MemRef, sizes: tuple[int, ...]) -> tuple[int, ...]:
    if kind.strides is None:
        return row_major(sizes)
    if None in kind.strides:
        raise HivmError(f"an on-chip buffer has a dynamic stride: {kind}")
    return tuple(step for step in kind.strides if step is not None)


def _static_strides(kind: MemRef) -> tuple[int | None, ...]:
    """Strides as far as the type tells them."""
    if kind.strides is not None:
        return kind.strides
    out: list[int | None] = []
    step: int | None = 1
    for size in reversed(kind.shape):
        out.append(step)
        step = step * size if step is not None and size is not None else None
    return tuple(reversed(out))


def _stride_texts(kind: MemRef, sizes: list[str]) -> list[str]:
    if kind.strides is None:
        return _row_major_texts(sizes)
    return [str(step) for step in _strides_of(kind, ())]


def _row_major_texts(sizes: list[str]) -> list[str]:
    out: list[str] = []
    step = "1"
    for size in reversed(sizes):
        out.append(step)
        step = _product(step, size)
    return out[::-1]


def _product(a: str | int, b: str) -> str:
    """`a * b`, folded where both are numbers."""
    numbers = [str(x) for x in (a, b) if str(x).lstrip("-").isdigit()]
    if len(numbers) == 2:
        return str(math.prod(int(x) for x in numbers))
    if "0" in numbers:
        return "0"
    if "1" in numbers:
        return b if str(a) == "1" else str(a)
    return f"{a} * {b}"


def _tuple(texts: Sequence[str]) -> str:
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
