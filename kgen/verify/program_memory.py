"""Memory of the reference evaluator: where index variables point, and tensors whose writes are counted."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from kgen.errors import KgenBug, KgenError, Location
from kgen.spec.models import DimKind, Spec, Tensor
from kgen.verify.program_tiles import Array, Mask, Tile, outer


@dataclass(frozen=True)
class Chunk:
    """Rows of one chunk, or a part of one.

    `first` row counts from the sequence's start, `column` is the first of the chunk's own columns, `length` the
    sequence's rows, `number` counts chunks over all sequences.
    """

    sequence: int
    number: int
    first: int
    size: int
    length: int
    column: int = 0

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        return np.arange(self.first, self.first + self.size)

    @property
    def valid(self) -> Mask:
        return self.rows < self.length


@dataclass(frozen=True)
class Lanes:
    """Lanes `first` to `first + size` of a dim that has `extent`."""

    first: int
    size: int
    extent: int

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        return np.arange(self.first, self.first + self.size)

    @property
    def valid(self) -> Mask:
        return self.rows < self.extent


@dataclass(frozen=True)
class Layout:
    """How rows are packed, and how big everything is. `cu_seqlens` in rows; `dims` and `tiles` in elements."""

    cu_seqlens: tuple[int, ...]
    dims: Mapping[str, int]
    tiles: Mapping[str, int]
    chunk: int  # rows of a full chunk

    @property
    def sequences(self) -> range:
        return range(len(self.cu_seqlens) - 1)

    def length(self, n: int) -> int:
        return self.cu_seqlens[n + 1] - self.cu_seqlens[n]

    def chunks(self, n: int) -> list[Chunk]:
        """The chunks of sequence n; none if it is empty."""
        before = sum(-(-self.length(m) // self.chunk) for m in range(n))
        firsts = range(0, self.length(n), self.chunk)
        return [Chunk(n, before + i, first, self.chunk, self.length(n)) for i, first in enumerate(firsts)]

    def all_chunks(self) -> list[Chunk]:
        return [c for n in self.sequences for c in self.chunks(n)]

    def parts(self, size: int) -> list[Chunk]:
        """Every chunk in parts of `size` rows, those past a chunk's end too: their columns are still stored."""
        return [
            Chunk(c.sequence, c.number, c.first + column, size, c.length, column)
            for c in self.all_chunks()
            for column in range(0, self.chunk, size)
        ]

    def lanes(self, dim: str) -> list[Lanes]:
        """A static dim in tiles."""
        extent = self.dims[dim]
        size = self.tiles.get(dim, extent)
        return [Lanes(first, size, extent) for first in range(0, extent, size)]

    def whole(self, dim: str) -> Lanes:
        """A static dim in one piece, rounded up to whole tiles."""
        extent = self.dims[dim]
        size = self.tiles.get(dim, extent)
        return Lanes(0, -(-extent // size) * size, extent)


def layout(
    spec: Spec,
    dims: Mapping[str, int],
    tiles: Mapping[str, int],
    cu_seqlens: Sequence[int] | None,
    batch: int,
) -> Layout:
    """`dims` completed with rows, sequences and chunks, which follow from how rows are packed."""
    names = {d.kind: n for n, d in spec.dims.items()}
    rows, chunk = dims[names[DimKind.ROWS]], dims[names[DimKind.CHUNK]]
    bounds = tuple(int(x) for x in cu_seqlens) if cu_seqlens is not None else ()
    if not bounds:
        if rows % batch:
            raise KgenBug(f"{rows} packed rows aren't {batch} sequences of one length")
        bounds = tuple(rows // batch * i for i in range(batch + 1))
    if bounds[0] != 0 or bounds[-1] != rows or any(a > b for a, b in itertools.pairwise(bounds)):
        raise KgenBug(f"cu_seqlens {bounds} doesn't pack {rows} rows")
    count = sum(-(-(b - a) // chunk) for a, b in itertools.pairwise(bounds))
    sizes = {**dims, names[DimKind.SEQUENCES]: len(bounds) - 1, names[DimKind.CHUNKS]: count}
    return Layout(bounds, sizes, tiles, chunk)


@dataclass(frozen=True)
class Selector:
    """Positions that an index takes on one dim of a tensor.

    `valid`: which are not void; `exists`: which lie inside (others read zero); `kept`: whether the tile has this axis;
    `full`: stored whole, zero where void (the columns of a chunk).
    """

    positions: npt.NDArray[np.int64]
    valid: Mask
    exists: Mask
    kept: bool = True
    full: bool = False


def one(position: int, exists: bool = True) -> Selector:
    """A single position, which leaves no axis."""
    yes = np.ones(1, dtype=np.bool_)
    return Selector(np.asarray([position if exists else 0]), yes, yes & exists, kept=False)


@dataclass
class Memory:
    """One tensor: an input, or an output whose writes are counted."""

    name: str
    tensor: Tensor
    data: npt.NDArray[np.generic]
    output: bool
    writes: npt.NDArray[np.int32] = field(init=False)

    def __post_init__(self) -> None:
        self.writes = np.zeros(self.data.shape if self.output else (), dtype=np.int32)

    def read(self, selectors: Sequence[Selector], place: Location) -> Tile:
        """The selected block: zero where it lies outside, void where its index is."""
        if self.output:
            raise KgenError(
                f"output {self.name!r} is read",
                code="program-output",
                location=place,
                hint="keep the value in a local tile: what other tasks wrote has no order",
            )
        inside = outer(tuple(s.exists for s in selectors))
        size = np.maximum(np.asarray(self.data.shape), 1) - 1
        clipped = [np.clip(s.positions, 0, last) for s, last in zip(selectors, size, strict=True)]
        block = np.where(inside, self.data[np.ix_(*clipped)] if self.data.size else 0.0, 0.0).astype(np.float64)
        dropped = tuple(i for i, s in enumerate(selectors) if not s.kept)
        return Tile(block.squeeze(dropped) if dropped else block, tuple(s.valid for s in selectors if s.kept))

    def write(self, selectors: Sequence[Selector], value: Tile, place: Location) -> None:
        """Store what isn't void; a NaN among it, or a position outside, is the program's mistake."""
        if not self.output:
            raise KgenError(
                f"tensor {self.name!r} is stored to, but isn't an output of this kernel",
                code="program-output",
                location=place,
                hint="list it under `outputs` in the spec",
            )
        kept = [s for s in selectors if s.kept]
        block = value.broadcast(tuple(s.valid for s in kept))
        data = self._without_void(block, kept)
        taken = [s.positions if s.full else s.positions[s.valid] for s in selectors]
        if not all(s.exists[s.valid].all() for s in selectors):
            raise KgenError(f"{self.name!r} is stored outside its sequence", code="program-store", location=place)
        bad = int(np.isnan(data).sum())
        if bad:
            raise KgenError(
                f"{bad} of {data.size} elements stored to {self.name!r} are NaN",
                code="program-nan",
                location=place,
                hint="a void row or lane reached them, or the arithmetic overflowed",
            )
        where = np.ix_(*taken)
        self.data[where] = data.reshape([len(t) for t in taken])
        self.writes[where] += 1

    @staticmethod
    def _without_void(block: Tile, kept: Sequence[Selector]) -> Array:
        """The block less its void rows and lanes; the void columns of a chunk become zero."""
        data = block.data
        for axis, s in enumerate(kept):
            shape = [-1 if i == axis else 1 for i in range(len(kept))]
            data = np.where(s.valid.reshape(shape), data, 0.0) if s.full else data
        for axis, s in enumerate(kept):
            data = data if s.full else np.compress(s.valid, data, axis)
        return data

    def check_writes(self, place: Location) -> None:
        """Every element written exactly once; a tensor that starts as zeros may keep some."""
        twice, never = int((self.writes > 1).sum()), int((self.writes == 0).sum())
        if twice:
            raise KgenError(
                f"{twice} of {self.writes.size} elements of {self.name!r} are written more than once",
                code="program-writes",
                location=place,
                hint="each element of an output belongs to one task, and to one store of it",
            )
        if never and not self.tensor.zeroed:
            raise KgenError(
                f"{never} of {self.writes.size} elements of {self.name!r} are never written",
                code="program-writes",
                location=place,
                hint="store every tile of it, or mark the tensor `zeroed: true` in the spec",
            )
