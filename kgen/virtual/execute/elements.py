"""Elements as the vector unit computes with them, and casts by rounding mode.

bf16 is kept as its bits in memory and computed with as fp32; other types compute as they are stored. The modes are
those of HIVM's `RoundMode` (AscendNPU-IR, HIVMAttrs.td): 0 rint to even, 1 half away from zero, 2 floor, 3 ceil,
4 trunc, 5 odd, 6 trunc with wrap.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kgen.virtual.execute.errors import ExecutionError
from kgen.virtual.execute.memory import STORAGE, Array

RINT, AWAY, FLOOR, CEIL, TRUNC, ODD, WRAP = range(7)
_FLOATS = ("f16", "bf16", "f32", "f64")


def is_float(element: str) -> bool:
    """Whether an element type is a floating-point one."""
    return element in _FLOATS


def computed(element: str) -> np.dtype[Any]:
    """The type that an element is computed with."""
    return np.dtype(np.float32) if element == "bf16" else np.dtype(np.bool_) if element == "i1" else STORAGE[element]


def widened(array: Array, element: str) -> Array:
    """Stored elements as numbers to compute with: bf16 as fp32, the rest as it is."""
    if element != "bf16":
        return array
    wide = array.astype(np.uint32)
    wide <<= 16
    return wide.view(np.float32)


def stored(values: Array, element: str, mode: int = RINT) -> Array:
    """Numbers as they are stored; what the type can't hold is rounded by `mode`.

    Floats out of range become infinite, or as integers the nearest there is; integers wrap.
    """
    if element == "bf16":
        return to_bf16(np.asarray(values, np.float32), mode)
    kind = STORAGE[element]
    if values.dtype == kind:
        return values
    if kind.kind == "f":
        return to_float(values, kind, mode)
    if values.dtype.kind == "f":
        return to_integer(values, kind, mode)
    return values.astype(kind)


def to_bf16(values: NDArray[np.float32], mode: int = RINT) -> NDArray[np.uint16]:
    """fp32 to the bits of bf16; NaN stays NaN."""
    values = np.ascontiguousarray(values)
    bits = values.view(np.uint32)
    up = bits >> 16
    if mode == RINT:
        up &= 1
        up += 0x7FFF
        up += bits
        up >>= 16
    else:
        up += _goes_up(bits, mode) & ~np.isinf(values)
    rounded = up.astype(np.uint16)
    nan = np.isnan(values)
    if nan.any():
        rounded[nan] = bits[nan] >> 16 | 0x40
    return rounded


def _goes_up(bits: NDArray[np.uint32], mode: int) -> NDArray[np.bool_]:
    """Whether fp32 bits are rounded away from zero when their lower half is cut off."""
    low, negative = bits & 0xFFFF, bits >> 31 == 1
    up: NDArray[np.bool_]
    if mode == AWAY:
        up = low >= 0x8000
    elif mode == FLOOR:
        up = (low != 0) & negative
    elif mode == CEIL:
        up = (low != 0) & ~negative
    elif mode == ODD:
        up = (low != 0) & (bits >> 16 & 1 == 0)
    else:
        up = np.zeros(bits.shape, np.bool_)
    return up


def to_float(values: Array, kind: np.dtype[Any], mode: int = RINT) -> Array:
    """To a narrower float, or from integers: the nearest, then moved a step where the mode says another neighbour."""
    with np.errstate(all="ignore"):
        near = values.astype(kind)
        if mode == RINT:
            return near
        exact = values if values.dtype.kind == "f" else values.astype(np.longdouble)
        back = near.astype(exact.dtype)
        if mode == FLOOR:
            return np.where(back > exact, np.nextafter(near, kind.type(-np.inf)), near)
        if mode == CEIL:
            return np.where(back < exact, np.nextafter(near, kind.type(np.inf)), near)
        inward = np.where(np.abs(back) > np.abs(exact), np.nextafter(near, kind.type(0)), near)
        if mode in (TRUNC, WRAP):
            return inward
        return _between_neighbours(exact, inward, mode)


def _between_neighbours(exact: Array, inward: Array, mode: int) -> Array:
    """The neighbour towards zero or the one beyond: half away from zero, or the odd one."""
    kind = inward.dtype
    outward = np.nextafter(inward, np.copysign(kind.type(np.inf), exact.astype(kind)))
    is_exact = (inward.astype(exact.dtype) == exact) | np.isnan(exact)
    if mode == ODD:
        odd = (np.ascontiguousarray(inward).view(f"u{kind.itemsize}") & 1).astype(np.bool_)
        return np.where(is_exact | odd, inward, outward)
    here = inward.astype(np.float64)
    gap = np.where(np.isinf(outward), here - np.nextafter(inward, kind.type(0)), outward.astype(np.float64) - here)
    return np.where(~is_exact & (np.abs(exact) >= np.abs(here + gap / 2)), outward, inward)


def to_whole(values: Array, mode: int) -> Array:
    """Floats to whole numbers of the same type."""
    if mode == RINT:
        return np.rint(values)
    if mode == AWAY:
        cut = np.trunc(values)
        return np.where(np.abs(values - cut) >= 0.5, cut + np.copysign(values.dtype.type(1), values), cut)
    if mode == FLOOR:
        return np.floor(values)
    if mode == CEIL:
        return np.ceil(values)
    if mode in (TRUNC, WRAP):
        return np.trunc(values)
    raise ExecutionError(f"floats aren't made whole by rounding mode {mode}", code="execute-mode")


def to_integer(values: Array, kind: np.dtype[Any], mode: int = RINT) -> Array:
    """Floats to integers; out of range they saturate (with mode 6 they wrap), NaN becomes 0."""
    with np.errstate(all="ignore"):
        whole = to_whole(values.astype(np.float64), mode)
    whole = np.nan_to_num(whole, nan=0.0, posinf=np.inf, neginf=-np.inf)
    if mode == WRAP:
        span = 2.0 ** (8 * kind.itemsize)
        finite = np.where(np.isfinite(whole), whole, 0.0)
        wrapped: Array = np.mod(finite, span).astype(np.uint64).astype(kind)
        return wrapped
    limits = np.iinfo(kind)
    low, high = whole <= float(limits.min), whole >= float(limits.max)
    inside = np.where(low | high, 0.0, whole).astype(kind)
    limited: Array = np.where(low, limits.min, np.where(high, limits.max, inside)).astype(kind)
    return limited


def saturated(values: Array, kind: np.dtype[Any]) -> Array:
    """Integers to a type that may not hold them: the nearest that it holds."""
    to, given = np.iinfo(kind), np.iinfo(values.dtype)
    return values.clip(max(to.min, given.min), min(to.max, given.max)).astype(kind)
