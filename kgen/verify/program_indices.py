"""Index variables of the reference evaluator: what loops bind them to, and the positions that an index selects."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from kgen.errors import KgenBug
from kgen.ir.nodes import ONE, At, Axis, Expr, Fixed, For, Index, Range, Row, Space, Whole
from kgen.spec.models import DimKind, Spec
from kgen.verify.program_memory import Chunk, Lanes, Layout, Memory, Selector, one
from kgen.verify.program_tiles import Mask

Bound = Chunk | Lanes | int  # what an index variable is bound to; an int is a sequence or an unrolled integer


@dataclass(frozen=True)
class Step:
    """One iteration of a loop: what its variables are bound to, and the head it is for."""

    bound: tuple[Bound, ...]
    heads: tuple[tuple[str, int], ...]


@dataclass
class Indices:
    """What index variables mean now, and the heads of the enclosing loops, innermost last."""

    spec: Spec
    layout: Layout
    bound: dict[str, Bound] = field(default_factory=dict)
    heads: list[tuple[str, int]] = field(default_factory=list)

    def steps(self, stmt: For) -> Iterator[Step]:
        """Every combination of a loop's spaces, the last one fastest."""
        for combination in itertools.product(*(self.space(s, stmt) for s in stmt.spaces)):
            heads = tuple(x for x in combination if isinstance(x, tuple))
            yield Step(tuple(x for x in combination if not isinstance(x, tuple)), heads)

    def space(self, space: Space, stmt: For) -> Sequence[Bound | tuple[str, int]]:
        if stmt.kind == "scan":
            sequence = self.bound[space.over]
            if not isinstance(sequence, int) or space.kind != "chunks":
                raise KgenBug(f"scan over {space.kind}({space.over})")
            chunks = self.layout.chunks(sequence)
            return chunks[::-1] if stmt.reverse else chunks
        if space.kind == "group":
            head, ratio = self.heads[-1][1], self.group_size(space.over)
            return [(space.over, i) for i in range(head * ratio, (head + 1) * ratio)]
        rules: dict[str, Callable[[], Sequence[Bound | tuple[str, int]]]] = {
            "chunks": self.layout.all_chunks,
            "seqs": lambda: self.layout.sequences,
            "parts": lambda: self.layout.parts(space.size),
            "tiles": lambda: self.layout.lanes(space.over),
            "heads": lambda: [(space.over, i) for i in range(self.layout.dims[space.over])],
            "range": lambda: range(space.start, space.size),
        }
        if space.kind not in rules:
            raise KgenBug(f"unknown loop space {space.kind!r}")
        return rules[space.kind]()

    def group_size(self, dim: str) -> int:
        """Value heads of each key head."""
        over = self.spec.dims[dim].group_of
        return self.layout.dims[dim] // self.layout.dims[over] if over else 1

    def axis(self, axis: Axis) -> Mask:
        """Which positions of a tile's axis exist now. Of a sliced axis, those of the whole one."""
        if axis == ONE:
            return np.ones(1, dtype=np.bool_)
        name = axis.name.partition("[")[0]
        bound = self.bound.get(name)
        if bound is None:
            return self.layout.whole(name).valid
        if isinstance(bound, int):
            raise KgenBug(f"{name!r} isn't an axis")
        return bound.valid

    def local_slice(self, index: Index) -> slice:
        if isinstance(index, (Whole, Range)):
            return slice(None)
        bound = self.bound[index.var] if isinstance(index, At) else None
        if not isinstance(bound, Lanes):
            raise KgenBug(f"{index} on a local tile")
        return slice(bound.first, bound.first + bound.size)

    # ------------------------------------------------------------ tensors

    def selectors(self, memory: Memory, index: tuple[Index, ...], integer: Callable[[Expr], int]) -> list[Selector]:
        """One selector a dim of the tensor, heads included."""
        rest = list(index)
        return [
            one(self.head(dim))
            if self.spec.dims[dim].kind is DimKind.HEADS
            else self.selector(dim, rest, index, integer)
            for dim in memory.tensor.dims
        ]

    def head(self, dim: str) -> int:
        """The position on a heads dim: the loop's own head, or the key head of its value head."""
        over, head = self.heads[-1]
        if over == dim:
            return head
        if self.spec.dims[over].group_of != dim:
            raise KgenBug(f"heads of {over} on dim {dim}")
        return head // self.group_size(over)

    def selector(
        self, dim: str, rest: list[Index], every: tuple[Index, ...], integer: Callable[[Expr], int]
    ) -> Selector:
        index = rest.pop(0)
        kind = self.spec.dims[dim].kind
        if isinstance(index, Row):
            return self.row(index)
        if isinstance(index, Fixed):
            return one(integer(index.value))
        if isinstance(index, Range):
            raise KgenBug("a range of a tensor's dim isn't of the tile language yet")
        if kind is DimKind.CHUNK:
            return self.columns(index, every)
        if isinstance(index, Whole):
            lanes = self.layout.whole(dim)
            return Selector(lanes.rows, lanes.valid, np.ones(lanes.size, dtype=np.bool_))
        bound = self.bound[index.var]
        if isinstance(bound, int):
            return one(bound)
        if isinstance(bound, Lanes):
            return Selector(bound.rows, bound.valid, np.ones(bound.size, dtype=np.bool_))
        if kind is DimKind.CHUNKS:
            return one(bound.number)
        rows = bound.rows + index.shift
        return Selector(rows + self.layout.cu_seqlens[bound.sequence], bound.valid, (rows >= 0) & (rows < bound.length))

    def row(self, index: Row) -> Selector:
        """One row, counted from its sequence's start; outside the sequence it reads zero."""
        bound = self.bound[index.var]
        n = bound.sequence if isinstance(bound, Chunk) else bound
        if not isinstance(n, int):
            raise KgenBug(f"{index.fn}({index.var})")
        length = self.layout.length(n)
        last = min(bound.first + bound.size, length) - 1 if isinstance(bound, Chunk) else 0
        row = {"last": last, "start": 0, "end": length}[index.fn] + index.shift
        return one(self.layout.cu_seqlens[n] + row, 0 <= row < length)

    def columns(self, index: Index, every: tuple[Index, ...]) -> Selector:
        """A chunk's own columns: those of the index variable, or of the rows' chunk where the dim is taken whole."""
        rows = [i.var for i in every if isinstance(i, At) and isinstance(self.bound[i.var], Chunk)]
        bound = self.bound[index.var if isinstance(index, At) else rows[0]]
        if not isinstance(bound, Chunk):
            raise KgenBug("columns of a chunk without a chunk")
        positions = np.arange(bound.column, bound.column + bound.size)
        return Selector(positions, bound.valid, np.ones(bound.size, dtype=np.bool_), full=True)
