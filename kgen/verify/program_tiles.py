"""Tiles of the reference evaluator: fp64 values with, for each axis, which positions exist.

A position that doesn't exist is *void*; it holds NaN after every operation, so that a program which lets it reach a
result is seen. Contractions and sums skip void positions, everything elementwise spreads them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Elementwise: TypeAlias = Callable[..., Any]


def outer(masks: tuple[Mask, ...]) -> Mask:
    """The product of per-axis masks, one axis each."""
    rank = len(masks)
    shaped = (m.reshape([-1 if i == axis else 1 for i in range(rank)]) for axis, m in enumerate(masks))
    return reduce(np.logical_and, shaped, np.ones((1,) * rank, dtype=np.bool_))


@dataclass(frozen=True)
class Tile:
    """`data` in fp64; `valid[i]` says which positions of axis i exist. A scalar has no axes and always exists."""

    data: Array
    valid: tuple[Mask, ...] = ()

    def __post_init__(self) -> None:
        if not all(m.all() for m in self.valid):
            poisoned = np.where(outer(self.valid), self.data, np.nan)
            object.__setattr__(self, "data", poisoned)

    def filled(self, value: float) -> Array:
        """The data with void positions replaced: what a reduction starts from."""
        return np.where(outer(self.valid), self.data, value) if self.valid else self.data

    def broadcast(self, valid: tuple[Mask, ...]) -> Tile:
        """A scalar as a tile of the given axes; a tile that has axes already stays."""
        if self.valid or not valid:
            return self
        return Tile(np.broadcast_to(self.data, [m.size for m in valid]), valid)


def scalar(value: float) -> Tile:
    return Tile(np.asarray(value, dtype=np.float64))


def _joined(tiles: tuple[Tile, ...]) -> tuple[Mask, ...]:
    """Validity of an elementwise result: a position exists where it does in every operand; size 1 stretches."""
    ranked = [t.valid for t in tiles if t.valid]
    return tuple(reduce(np.logical_and, masks) for masks in zip(*ranked, strict=True))


def elementwise(fn: Elementwise, *tiles: Tile) -> Tile:
    """`fn` on every position; overflow and division by zero give inf and NaN, as on the device."""
    with np.errstate(all="ignore"):
        data = np.asarray(fn(*(t.data for t in tiles)), dtype=np.float64)
    return Tile(data, _joined(tiles))


def _compared(fn: Elementwise) -> Elementwise:
    """A comparison as 0 or 1, and NaN where an operand is: poison isn't laundered into a truth value."""
    return lambda a, b: np.where(np.isnan(a) | np.isnan(b), np.nan, fn(a, b))


def _where(c: Array, a: Array, b: Array) -> Array:
    return np.where(np.isnan(c), np.nan, np.where(c != 0, a, b))


BINARY: Mapping[str, Elementwise] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide,
    "==": _compared(np.equal), "!=": _compared(np.not_equal),
}  # fmt: skip

FUNCTIONS: Mapping[str, Elementwise] = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "tanh": np.tanh, "abs": np.abs,
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "maximum": np.maximum, "minimum": np.minimum, "where": _where,
}  # fmt: skip


def transpose(x: Tile) -> Tile:
    return Tile(x.data.T, x.valid[::-1])


def expand(x: Tile, axis: int) -> Tile:
    """`x[:, None]` (axis 1) or `x[None, :]` (axis 0)."""
    one = np.ones(1, dtype=np.bool_)
    return Tile(np.expand_dims(x.data, axis), (x.valid[0], one) if axis == 1 else (one, x.valid[0]))


def dot(a: Tile, b: Tile) -> Tile:
    """The product of `[I, J]` and `[J, L]` over the j that exist."""
    with np.errstate(all="ignore"):
        data = a.filled(0.0) @ b.filled(0.0)
    return Tile(data, (a.valid[0], b.valid[1]))


def reduced(fn: str, x: Tile, axis: int | None) -> Tile:
    """`sum` or `max` over an axis, or over all, of what exists; -inf is the maximum of nothing."""
    data = x.filled(0.0).sum(axis) if fn == "sum" else x.filled(-np.inf).max(axis, initial=-np.inf)
    valid = () if axis is None else x.valid[:axis] + x.valid[axis + 1 :]
    return Tile(np.asarray(data, dtype=np.float64), valid)


def cumsum(x: Tile, reverse: bool) -> Tile:
    """Running sums of a vector, from its first row or from its last."""
    data = x.filled(0.0)
    return Tile(data[::-1].cumsum()[::-1] if reverse else data.cumsum(), x.valid)


def tril(x: Tile, k: int) -> Tile:
    """Zero above diagonal k whatever x holds there, inf and NaN included."""
    kept = np.tri(x.data.shape[0], x.data.shape[1], k=k, dtype=np.bool_)
    return Tile(np.where(kept, x.data, 0.0), x.valid)
