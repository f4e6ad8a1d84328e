"""Numbers as the types of the IR hold them."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping

_F32 = struct.Struct("<f")
_F16 = struct.Struct("<e")


def round_f32(x: float) -> float:
    """To the nearest fp32."""
    try:
        return float(_F32.unpack(_F32.pack(x))[0])
    except OverflowError:
        return math.copysign(math.inf, x)


def round_f16(x: float) -> float:
    """To the nearest fp16; past its range, infinity."""
    try:
        return float(_F16.unpack(_F16.pack(x))[0])
    except OverflowError:
        return math.copysign(math.inf, x)


def round_bf16(x: float) -> float:
    """To the nearest bf16, ties to even."""
    x = round_f32(x)
    if math.isnan(x) or math.isinf(x):
        return x
    bits = int.from_bytes(_F32.pack(x), "little")
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return float(_F32.unpack(bits.to_bytes(4, "little"))[0])


ROUND: Mapping[str, Callable[[float], float]] = {"f32": round_f32, "f16": round_f16, "bf16": round_bf16}


def wrap(x: int, bits: int) -> int:
    """An integer in two's complement of `bits` bits; one bit is 0 or 1."""
    if bits == 1:
        return x & 1
    half = 1 << (bits - 1)
    return ((x + half) & ((1 << bits) - 1)) - half
