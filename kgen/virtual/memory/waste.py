"""What of a buffer is ever touched: a strided or padded buffer takes more bytes than it holds data.

The elements that each operation reads or writes are found through all views. Where an offset or a size is known only at
run time, everything that it could reach counts as touched, so waste is never overstated. A fill brings no data.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from kgen.virtual.hivm import nodes as n
from kgen.virtual.hivm.types import MemRef, row_major
from kgen.virtual.memory.program import Program

_FILLS = ("broadcast_scalar", "set_l1")
_CARRIES = (n.For, n.While, n.Yield, n.Condition)
_LARGEST = 1 << 23  # elements: a megabyte of bits, more than any on-chip memory has
Dim = tuple[int, int]  # size and stride, in elements of the allocation


class Layout(NamedTuple):
    """Elements of an allocation that a view has; `hidden` are the steps that a dynamic offset may have taken."""

    offset: int
    dims: tuple[Dim, ...]
    hidden: tuple[Dim, ...] = ()


def touched(program: Program, cast: n.PointerCast, shape: tuple[int, ...]) -> int:
    """Elements of a buffer that are ever read or written, fills aside; its whole span where that can't be told."""
    span = cast.type.span(shape)
    covered = 0
    layouts: dict[n.Value, Layout] = {cast.result: _whole(cast.type, shape)}
    waiting = [cast.result]
    for value in waiting:
        layout = layouts[value]
        if any(_brings_data(use.operation) for use in program.uses.get(value, ())):
            if _is_whole(layout, span) or not _lies_within(layout, span):
                return span
            covered |= _cover(layout)
        for result in program.derived.get(value, ()):
            found = _through(program.views.get(result), layout)
            if found is None or layouts.get(result, found) != found:
                return span
            if result not in layouts:
                layouts[result] = found
                waiting.append(result)
    return covered.bit_count() or span


def _brings_data(operation: n.Operation) -> bool:
    """Whether an operation touches the memory of its operands for more than a fill."""
    if isinstance(operation, n.Call):
        return not operation.callee.startswith(_FILLS)
    return not isinstance(operation, _CARRIES)


def _whole(kind: MemRef, shape: tuple[int, ...]) -> Layout:
    """All elements of an allocation."""
    strides = kind.strides if kind.strides is not None else row_major(shape)
    return Layout(0, tuple(zip(shape, (step or 0 for step in strides), strict=True)))


def _is_whole(layout: Layout, span: int) -> bool:
    return not layout.hidden and math.prod(size for size, _ in layout.dims) >= span


def _lies_within(layout: Layout, span: int) -> bool:
    """Whether a layout is one that a buffer can have: what a wrong IR says isn't followed."""
    dims = (*layout.dims, *layout.hidden)
    if layout.offset < 0 or span > _LARGEST or any(size < 1 or stride < 0 for size, stride in dims):
        return False
    return layout.offset + sum((size - 1) * stride for size, stride in dims) < span


@functools.lru_cache(maxsize=1024)
def _cover(layout: Layout) -> int:
    """The elements of a layout as bits."""
    bits = 1
    for size, stride in sorted((*layout.dims, *layout.hidden), key=lambda dim: dim[1]):
        done = 1
        while done < size:
            step = min(done, size - done)
            bits |= bits << step * stride
            done += step
    return bits << layout.offset


def _through(view: n.Operation | None, layout: Layout) -> Layout | None:
    """The layout of what a view gives; None where it isn't known, or can't be a view of such a layout. Other names of
    the same value keep theirs."""
    if not _fits(view, layout):
        return None
    if isinstance(view, n.Subview):
        return _subview(view, layout)
    if isinstance(view, n.Collapse):
        return _collapse(view, layout)
    if isinstance(view, n.Expand):
        return _expand(view, layout)
    if isinstance(view, n.Transpose):
        return layout._replace(dims=tuple(layout.dims[axis] for axis in view.order))
    if isinstance(view, n.Reinterpret):
        return _reinterpret(view)
    return None if isinstance(view, n.View) else layout


def _fits(view: n.Operation | None, layout: Layout) -> bool:
    """Whether a view is of as many dimensions as a layout has."""
    if isinstance(view, n.Subview):
        return len(view.offsets) == len(layout.dims)
    if isinstance(view, n.Transpose):
        return len(view.order) == len(layout.dims)
    if isinstance(view, n.Collapse):
        return sum(map(len, view.groups)) == len(layout.dims) or not view.groups
    if isinstance(view, n.Expand):
        return len(view.groups) == len(layout.dims)
    return True


def _subview(view: n.Subview, layout: Layout) -> Layout | None:
    offset, dims, hidden = layout.offset, [], list(layout.hidden)
    for (size, stride), begin, count, step in zip(layout.dims, view.offsets, view.sizes, view.strides, strict=True):
        if not isinstance(step, int) or step < 1:
            return None
        if isinstance(begin, int):
            offset += begin * stride
            count = count if isinstance(count, int) else -(-(size - begin) // step)
        elif isinstance(count, int):
            hidden.append((size - (count - 1) * step, stride))
        elif step == 1:
            count = size
        else:
            return None
        dims.append((count, stride * step))
    return Layout(offset, tuple(dims[axis] for axis in view.kept), tuple(hidden))


def _collapse(view: n.Collapse, layout: Layout) -> Layout | None:
    dims: list[Dim] = []
    for group in view.groups:
        parts = [layout.dims[axis] for axis in group if layout.dims[axis][0] != 1]
        for (_, outer), (size, inner) in itertools.pairwise(parts):
            if outer != size * inner:
                return None
        dims.append((math.prod(size for size, _ in parts), parts[-1][1] if parts else layout.dims[group[-1]][1]))
    return layout._replace(dims=tuple(dims))


def _expand(view: n.Expand, layout: Layout) -> Layout | None:
    dims: list[Dim] = [] if view.groups else [(1, 1)] * len(view.sizes)
    for group, (_, stride) in zip(view.groups, layout.dims, strict=True):
        sizes = _known([view.sizes[axis] for axis in group])
        if sizes is None:
            return None
        dims += [(size, stride * step) for size, step in zip(sizes, row_major(sizes), strict=True)]
    return layout._replace(dims=tuple(dims))


def _reinterpret(view: n.Reinterpret) -> Layout | None:
    found = _known([view.offset, *view.sizes, *view.strides])
    if found is None:
        return None
    rank = len(view.sizes)
    return Layout(found[0], tuple(zip(found[1 : rank + 1], found[rank + 1 :], strict=True)))


def _known(operands: Sequence[n.Operand]) -> tuple[int, ...] | None:
    """The integers, if all of them stand in the text."""
    found = tuple(o for o in operands if isinstance(o, int))
    return found if len(found) == len(operands) else None
