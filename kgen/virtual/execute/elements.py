"""Elements as the vector unit computes with them, and casts by rounding mode.

bf16 is kept as its bits in memory and computed with as fp32; other types compute as they are stored. The modes are
those of HIVM's `RoundMode` (AscendNPU-IR, HIVMAttrs.td): 0 rint to even, 1 half away from zero, 2 floor, 3 ceil,
4 trunc, 5 odd, 6 trunc with wrap.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kgen.virtual.execute.memory import STORAGE, Array

RINT, AWAY, FLOOR, CEIL, TRUNC, ODD, WRAP = range(7)
_FLOATS = ("f16", "bf16", "f32", "f64")


def is_float(element: str) -> bool:
    """Whether an element type is a floating-point one."""
    return element in _FLOATS


def widened(array: Array, element: str) -> Array:
    """Stored elements as numbers to compute with: bf16 as fp32, the rest as it is."""
    if element != "bf16":
        return array
    return (array.astype(np.uint32) << 16).view(np.float32)


def stored(values: Array, element: str, mode: int = RINT) -> Array:
    """Numbers as they are stored; floats are rounded by `mode` where the type is narrower."""
    if element == "bf16":
        return to_bf16(np.asarray(values, np.float32), mode)
    kind = STORAGE[element]
    if values.dtype == kind:
        return values
    if is_float(element):
        with np.errstate(all="ignore"):
            return _to_half(values, mode) if element == "f16" and mode != RINT else values.astype(kind)
    if values.dtype.kind == "f":
        return to_integer(values, kind, mode)
    return values.astype(kind)


def to_bf16(values: NDArray[np.float32], mode: int = RINT) -> NDArray[np.uint16]:
    """fp32 to the bits of bf16; NaN stays NaN."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    low, high = bits & 0xFFFF, bits >> 16
    negative = (bits >> 31).astype(bool)
    if mode == RINT:
        up = (low > 0x8000) | ((low == 0x8000) & (high & 1).astype(bool))
    elif mode == AWAY:
        up = low >= 0x8000
    elif mode == FLOOR:
        up = (low != 0) & negative
    elif mode == CEIL:
        up = (low != 0) & ~negative
    elif mode == ODD:
        up = (low != 0) & ~(high & 1).astype(bool)
    else:
        up = np.zeros(bits.shape, bool)
    rounded = (high + up).astype(np.uint16)
    special = (bits & 0x7F800000) == 0x7F800000
    kept = np.where(low | (high & 0x7F) != 0, high | 0x40, high).astype(np.uint16)
    return np.where(special, kept, rounded)


def _to_half(values: Array, mode: int) -> Array:
    """To fp16 by a mode other than rint: the nearest, moved one step where it lies on the wrong side."""
    near = values.astype(np.float16)
    back = near.astype(values.dtype)
    if mode == FLOOR:
        wrong, towards = back > values, -np.inf
    elif mode == CEIL:
        wrong, towards = back < values, np.inf
    elif mode in (TRUNC, WRAP):
        wrong, towards = np.abs(back) > np.abs(values), 0.0
    else:
        return _to_half_exactly(values, near, back, mode)
    return np.where(wrong, np.nextafter(near, np.float16(towards)), near)


def _to_half_exactly(values: Array, near: Array, back: Array, mode: int) -> Array:
    """Half away from zero, or to odd: chosen between the two neighbours."""
    inward = np.where(np.abs(back) > np.abs(values), np.nextafter(near, np.float16(0)), near)
    exact = inward.astype(values.dtype) == values
    outward = np.nextafter(inward, np.copysign(np.float16(np.inf), values.astype(np.float16)))
    if mode == ODD:
        odd = (np.ascontiguousarray(inward).view(np.uint16) & 1).astype(bool)
        return np.where(exact | odd, inward, outward)
    middle = (inward.astype(np.float64) + outward.astype(np.float64)) / 2
    return np.where(~exact & (np.abs(values) >= np.abs(middle)), outward, inward)


def to_integer(values: Array, kind: np.dtype[Any], mode: int = RINT) -> Array:
    """Floats to integers; out of range they saturate (with mode 6 they wrap), NaN becomes 0."""
    wide = values.astype(np.float64)
    if mode == RINT:
        whole = np.rint(wide)
    elif mode == AWAY:
        whole = np.copysign(np.floor(np.abs(wide) + 0.5), wide)
    elif mode == FLOOR:
        whole = np.floor(wide)
    elif mode == CEIL:
        whole = np.ceil(wide)
    else:
        whole = np.trunc(wide)
    limits = np.iinfo(kind)
    whole = np.nan_to_num(whole, nan=0.0, posinf=np.inf, neginf=-np.inf)
    if mode == WRAP:
        span = 2.0 ** (8 * kind.itemsize)
        finite = np.where(np.isfinite(whole), whole, 0.0)
        wrapped: Array = np.mod(finite, span).astype(np.uint64).astype(kind)
        return wrapped
    low, high = whole <= float(limits.min), whole >= float(limits.max)
    inside = np.where(low | high, 0.0, whole).astype(kind)
    limited: Array = np.where(low, limits.min, np.where(high, limits.max, inside)).astype(kind)
    return limited
