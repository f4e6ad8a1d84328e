"""bfloat16 in numpy, which has no such type: conversions to and from `uint16` bit patterns, of any shape.

A bfloat16 is the upper half of an IEEE 754 binary32, so widening is a shift and narrowing is a rounding of the lower
16 bits; see Intel, "BFLOAT16 - Hardware Numerics Definition" (2018). Rounding is to nearest, ties to even, as torch and
the hardware do. Subnormals, infinities and overflow to infinity follow from the integer arithmetic; NaN is kept apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint16]
Float32 = npt.NDArray[np.float32]

_NAN_ABOVE = np.uint32(0x7F800000)  # |x| bits of infinity: anything larger is a NaN
_MAGNITUDE = np.uint32(0x7FFFFFFF)
_QUIET = np.uint32(0x00400000)  # the quiet bit keeps a NaN a NaN once its lower payload is cut off


def to_float32(bits: Bits) -> Float32:
    """Bit patterns (uint16) to fp32, exact."""
    widened: Float32 = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return widened


def from_float32(values: Float32) -> Bits:
    """fp32 to bit patterns, nearest even; a NaN keeps its sign and upper payload and becomes quiet."""
    raw = np.ascontiguousarray(values).view(np.uint32)
    rounded = raw + np.uint32(0x7FFF) + ((raw >> np.uint32(16)) & np.uint32(1))
    is_nan = (raw & _MAGNITUDE) > _NAN_ABOVE
    if is_nan.any():
        rounded = np.where(is_nan, raw | _QUIET, rounded)
    return _upper_half(rounded, values.shape)


def from_float32_toward_zero(values: Float32) -> Bits:
    """fp32 to bit patterns, truncated (Triton's `fp_downcast_rounding="rtz"`); NaN as in `from_float32`."""
    raw = np.ascontiguousarray(values).view(np.uint32)
    is_nan = (raw & _MAGNITUDE) > _NAN_ABOVE
    return _upper_half(np.where(is_nan, raw | _QUIET, raw), values.shape)


def _upper_half(raw: npt.NDArray[np.uint32], shape: tuple[int, ...]) -> Bits:
    bits: Bits = (raw >> np.uint32(16)).astype(np.uint16).reshape(shape)
    return bits


def from_float64(values: npt.NDArray[np.float64]) -> Bits:
    """fp64 to bit patterns, nearest even, rounded once.

    Going through fp32 would round twice; rounding *to odd* on the way makes the second rounding the right one (Boldo
    and Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008).
    """
    with np.errstate(over="ignore"):
        nearest = values.astype(np.float32)
    past = np.abs(nearest.astype(np.float64)) > np.abs(values)
    toward_zero = np.where(past, np.nextafter(nearest, np.float32(0)), nearest)
    inexact = toward_zero.astype(np.float64) != values
    odd = np.where(inexact & ~np.isnan(values), toward_zero.view(np.uint32) | np.uint32(1), toward_zero.view(np.uint32))
    return from_float32(odd.astype(np.uint32).view(np.float32))


def round_to_tf32(values: Float32) -> Float32:
    """fp32 rounded to the 10 stored mantissa bits of TF32, ties away from zero (PTX `cvt.rna.tf32.f32`)."""
    raw = np.ascontiguousarray(values).view(np.uint32)
    finite = (raw & _MAGNITUDE) < _NAN_ABOVE
    rounded = np.where(finite, (raw + np.uint32(0x1000)) & np.uint32(0xFFFFE000), raw)
    return rounded.view(np.float32).reshape(values.shape)


def widen(data: npt.NDArray[Any]) -> Float32:
    """Bit patterns (uint16) or fp16 / fp32 values to fp32, exact: what a dot does with its operands."""
    return to_float32(data) if data.dtype == np.uint16 else data.astype(np.float32, copy=False)
