"""Emitted statements run over numpy in fp64: enough of `tl` and of the tile helpers to compare with the program.

Unlike Triton's interpreter it has no dtypes to round to, so that a lowered kernel must equal its program to the last
digits. It plays three faults of the hardware: a dot poisons its left operand (K201), memory that no task wrote is NaN,
and every address is checked against its tensor, also where a block isn't bounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from kgen.emit.statements import Line, kernel_lines
from kgen.ir.nodes import Kernel


class Tile(np.ndarray):
    """An array with Triton's `.to`: in fp64 a cast to a float type is the array itself, as it is for fp32 storage."""

    def to(self, dtype: object) -> Tile:
        return self.astype(np.int64).view(Tile) if dtype is int else self


def tile(x: Any) -> Tile:
    return np.array(x, dtype=np.float64).view(Tile)


class Number(int):
    """A scalar integer with `.to`."""

    def to(self, dtype: object) -> int:
        return int(self)


class Pointer:
    """A place in one tensor's memory."""

    def __init__(self, data: np.ndarray, at: int = 0) -> None:
        self.data, self.at = data, at
        self.dtype = type("Dtype", (), {"element_ty": float})

    def __add__(self, offset: int) -> Pointer:
        assert isinstance(offset, (int, np.integer)), f"an address of {type(offset).__name__}"
        return Pointer(self.data, self.at + int(offset))

    def places(self, offsets: np.ndarray, inside: np.ndarray) -> np.ndarray:
        where = (self.at + offsets)[inside]
        assert where.size == 0 or (where.min() >= 0 and where.max() < self.data.size), "an address outside the tensor"
        return where


class tl:
    """The functions of `triton.language` that kernels use."""

    float32, int32, int64 = float, int, int
    PropagateNan = type("PropagateNan", (), {"ALL": None})
    exp, log, abs = (staticmethod(f) for f in (np.exp, np.log, np.abs))
    program = 0

    @staticmethod
    def program_id(axis: int) -> int:
        return tl.program

    range = static_range = staticmethod(range)
    cdiv = staticmethod(lambda a, b: -(-a // b))
    cast = staticmethod(lambda x, dtype: dtype(x))
    rsqrt = staticmethod(lambda x: 1 / np.sqrt(x))
    sigmoid = staticmethod(lambda x: 1 / (1 + np.exp(-x)))
    where = staticmethod(lambda c, a, b: np.where(c, a, b).view(Tile))
    zeros = staticmethod(lambda shape, dtype: tile(np.zeros(shape)))
    full = staticmethod(lambda shape, value, dtype: tile(np.full(shape, value)))
    arange = staticmethod(lambda a, b: tile(np.arange(a, b)))
    trans = staticmethod(lambda x: x.T)

    @staticmethod
    def minimum(a: Any, b: Any, propagate_nan: None = None) -> Any:
        return min(a, b) if isinstance(a, int) and isinstance(b, int) else np.minimum(a, b)

    @staticmethod
    def maximum(a: Any, b: Any, propagate_nan: None = None) -> Any:
        return max(a, b) if isinstance(a, int) and isinstance(b, int) else np.maximum(a, b)

    @staticmethod
    def sum(x: Tile, axis: int | None = None) -> Any:
        return np.sum(x, axis)

    @staticmethod
    def max(x: Tile, axis: int | None = None) -> Any:
        return np.max(x, axis)

    @staticmethod
    def cumsum(x: Tile, axis: int, reverse: bool) -> Tile:
        return np.cumsum(x[::-1])[::-1] if reverse else np.cumsum(x)

    @staticmethod
    def dot(a: Tile, b: Tile, input_precision: str) -> Tile:
        result = tile(np.asarray(a) @ np.asarray(b))
        a[...] = np.nan
        return result

    @staticmethod
    def load(p: Pointer) -> Any:
        value = p.data[p.places(np.array(0), np.array(True))][0]
        return Number(value) if p.data.dtype == np.int64 else float(value)

    @staticmethod
    def store(p: Pointer, x: Any) -> None:
        p.data[p.places(np.array(0), np.array(True))] = x


def _inside(sizes: list[int], strides: list[int], starts: list[int], blocks: list[int], check: bool) -> tuple[Any, Any]:
    """Offsets of a block's elements, and which of them are accessed."""
    axes = np.meshgrid(*(s + np.arange(b) for s, b in zip(starts, blocks, strict=True)), indexing="ij")
    offsets = sum(a * s for a, s in zip(axes, strides, strict=True))
    bounded = np.logical_and.reduce([a < n for a, n in zip(axes, sizes, strict=True)])
    return offsets, bounded if check else np.ones_like(bounded)


def _load(p: Pointer, *block: Any) -> Tile:
    offsets, inside = _inside(*block)
    out = np.zeros(offsets.shape)
    out[inside] = p.data[p.places(offsets, inside)]
    return out.view(Tile)


def _store(p: Pointer, x: Any, *block: Any) -> None:
    offsets, inside = _inside(*block)
    assert np.shape(x) == offsets.shape, f"stores {np.shape(x)} where the block is {offsets.shape}"
    p.data[p.places(offsets, inside)] = x[inside]


def load_tile(
    p: Pointer, r: int, c: int, sr: int, sc: int, i: int, j: int, br: int, bc: int, check: bool, _: bool
) -> Tile:
    return _load(p, [r, c], [sr, sc], [i, j], [br, bc], check)


def store_tile(p: Pointer, x: Tile, r: int, c: int, sr: int, sc: int, i: int, j: int, br: int, bc: int, check: bool,
               _: bool) -> None:  # fmt: skip
    _store(p, x, [r, c], [sr, sc], [i, j], [br, bc], check)


def load_row(p: Pointer, n: int, s: int, i: int, b: int, check: bool, _: bool) -> Tile:
    return _load(p, [n], [s], [i], [b], check)


def store_row(p: Pointer, x: Tile, n: int, s: int, i: int, b: int, check: bool, _: bool) -> None:
    _store(p, x, [n], [s], [i], [b], check)


HELPERS = {f.__name__: f for f in (load_tile, store_tile, load_row, store_row)} | {"tl": tl, "LN2": math.log(2)}


def statements(lines: tuple[Line, ...], indent: str = "    ") -> Iterator[str]:
    """The lines as Python source."""
    for line in lines:
        f = line.fields
        if line.kind == "assign":
            plain = f["op"] == "="  # `x += y` would change in place what another name may still hold
            value = f["value"] if plain else f"{f['target']} {f['op'][:-1]} ({f['value']})"
            yield f"{indent}{f['target']} = {value}"
        elif line.kind == "store":
            yield f"{indent}{f['fn']}({f['args']})"
        else:
            yield (
                f"{indent}if {f['test']}:"
                if line.kind == "if"
                else f"{indent}for {f['var']} in {f['fn']}({f['args']}):"
            )
            yield from statements(line.body, indent + "    ")
            if line.orelse:
                yield f"{indent}else:"
                yield from statements(line.orelse, indent + "    ")


def run(kernel: Kernel, arguments: Mapping[str, Any], programs: int = 2) -> None:
    """Every program of a launch, one after the other."""
    body = "\n".join(statements(kernel_lines(kernel, "p.py", "")))
    names = (*kernel.params, *kernel.scalars, *kernel.runtime, *kernel.constexprs)
    scope: dict[str, Any] = dict(HELPERS)
    exec(f"def kernel({', '.join(names)}):\n{body}\n", scope)
    for program in range(programs):
        tl.program = program
        with np.errstate(all="ignore"):
            scope["kernel"](**{n: arguments[n] for n in names})
