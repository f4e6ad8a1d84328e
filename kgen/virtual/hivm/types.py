"""Types of the final HIVM IR: memrefs with their memory space, and scalars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kgen.virtual.hivm.errors import HivmError

# Bits an element takes on chip; i1 is packed, one bit an element (seen in vcmp results).
ELEMENT_BITS: Mapping[str, int] = {
    "i1": 1, "i4": 4, "i8": 8, "ui8": 8, "si8": 8, "f8E4M3FN": 8, "f8E5M2": 8, "i16": 16, "ui16": 16, "si16": 16,
    "f16": 16, "bf16": 16, "i32": 32, "ui32": 32, "si32": 32, "f32": 32, "i64": 64, "ui64": 64, "si64": 64, "f64": 64,
    "index": 64,
}  # fmt: skip
FLOATS = frozenset({"f8E4M3FN", "f8E5M2", "f16", "bf16", "f32", "f64"})
SPACES = frozenset({"gm", "ub", "cbuf", "cc", "ca", "cb"})
SPACE_NAMES: Mapping[str, str] = {"gm": "GM", "ub": "UB", "cbuf": "L1", "cc": "L0C", "ca": "L0A", "cb": "L0B"}

Sizes = tuple[int | None, ...]  # None: dynamic


class Scalar(NamedTuple):
    """A type that is no memref: `i32`, `f32`, `index`, ..."""

    element: str

    @property
    def bits(self) -> int:
        """Width in bits."""
        return element_bits(self.element)

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point type."""
        return self.element in FLOATS


class MemRef(NamedTuple):
    """One `memref<...>`; sizes and strides count elements. `strides` None is row-major; `offset` None is dynamic."""

    shape: Sizes
    element: str
    space: str | None
    strides: Sizes | None = None
    offset: int | None = 0

    @property
    def bits(self) -> int:
        """Width of one element in bits."""
        return element_bits(self.element)

    def span(self, shape: tuple[int, ...]) -> int:
        """Elements from the first to one past the last, for a shape with every dimension known."""
        if 0 in shape:
            return 0
        strides = self.strides if self.strides is not None else row_major(shape)
        steps = [(size - 1, step) for size, step in zip(shape, strides, strict=True) if size > 1]
        if any(step is None for _, step in steps):
            raise HivmError(f"an on-chip buffer has a dynamic stride: {self}")
        return 1 + sum(last * step for last, step in steps if step is not None)


Type = Scalar | MemRef


def element_bits(element: str) -> int:
    """Width of an element type in bits."""
    try:
        return ELEMENT_BITS[element]
    except KeyError:
        raise HivmError(f"the element type {element!r}, whose width kgen does not know") from None


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a dense array, in elements."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)
