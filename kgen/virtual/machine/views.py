"""A window of memory at run time, and how views are made of it.

A `View` is the plain tuple `(base, address, sizes, strides)`: `base` names the memory (a space of the core, `"ub"`,
`"cbuf"` or `"cc"`; `"ws"` for the workspace in global memory; or the position of a tensor among the launch's
arguments), `address` counts bits from its start, sizes and strides count elements. The element type is static and stays
with the operation. A plain tuple because a launch makes millions of them and they key memo tables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Base = str | int
View = tuple[Base, int, tuple[int, ...], tuple[int, ...]]

WORKSPACE = "ws"


def elements(view: View) -> int:
    """How many elements a view has."""
    return math.prod(view[2])


def collapsed(view: View, groups: Sequence[Sequence[int]]) -> View:
    """`memref.collapse_shape`: each group becomes one dimension, with the stride of its innermost dimension that is
    longer than 1."""
    base, address, sizes, strides = view
    new_sizes, new_strides = [], []
    for group in groups:
        new_sizes.append(math.prod(sizes[axis] for axis in group))
        long = [axis for axis in group if sizes[axis] != 1]
        new_strides.append(strides[(long or group)[-1]] if group else 1)
    return base, address, tuple(new_sizes), tuple(new_strides)


def expanded(view: View, groups: Sequence[Sequence[int]], sizes: Sequence[int]) -> View:
    """`memref.expand_shape`: each dimension becomes the dense group of `sizes`."""
    base, address, _, strides = view
    if not groups:  # of a memref without dimensions
        return base, address, tuple(sizes), (1,) * len(sizes)
    out: list[int] = []
    for axis, group in enumerate(groups):
        step = strides[axis]
        steps = []
        for inner in reversed(group):
            steps.append(step)
            step *= sizes[inner]
        out += reversed(steps)
    return base, address, tuple(sizes), tuple(out)


def subviewed(
    view: View, bits: int, offsets: Sequence[int], sizes: Sequence[int], steps: Sequence[int], kept: Sequence[int]
) -> View:
    """`memref.subview` of elements of `bits` bits; the result has the dimensions `kept`."""
    base, address, _, strides = view
    address += bits * sum(offset * stride for offset, stride in zip(offsets, strides, strict=True))
    return base, address, tuple(sizes[a] for a in kept), tuple(strides[a] * steps[a] for a in kept)


def transposed(view: View, order: Sequence[int]) -> View:
    """`memref.transpose`."""
    base, address, sizes, strides = view
    return base, address, tuple(sizes[a] for a in order), tuple(strides[a] for a in order)
