"""The `program` level: a tile program evaluated as it is written, in fp64, before anything is lowered.

The evaluator walks the parsed nodes, never the program's text. Tiles have full size; what doesn't exist in them is
poisoned, so a result proves that void rows and lanes don't matter. Tasks are unordered: each output element is written
by exactly one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from kgen.errors import KgenBug, KgenError, Location
from kgen.ir.nodes import (
    Assign,
    Binary,
    Call,
    Expand,
    Expr,
    Fixed,
    For,
    If,
    IfExp,
    Index,
    Kernel,
    Name,
    Num,
    Part,
    PartAssign,
    Range,
    Read,
    Stmt,
    Store,
    Transpose,
    Unary,
)
from kgen.spec.models import Spec, flag_of
from kgen.verify import program_tiles as tiles_
from kgen.verify.program_indices import Indices
from kgen.verify.program_memory import Layout, Memory, layout
from kgen.verify.program_tiles import Mask, Tile, scalar


def evaluate(
    kernel: Kernel,
    spec: Spec,
    tensors: Mapping[str, npt.NDArray[Any] | None],
    *,
    dims: Mapping[str, int],
    tiles: Mapping[str, int],
    scalars: Mapping[str, float] | None = None,
    flags: Mapping[str, bool] | None = None,
    cu_seqlens: Sequence[int] | None = None,
    batch: int = 1,
) -> None:
    """Run a parsed program; outputs are written in place.

    `tensors`, by the program's parameter names, have the program's dims in order, rows of all sequences packed:
    `[T, H, K]`, `[N, HV, K, V]`, `[NT, HV, K, V]`. Outputs hold NaN, or zeros when `zeroed`; absent optional ones are
    None. `dims` gives rows (all of them), heads, static dims and the chunk's rows, in elements; sequences and chunks
    follow from `cu_seqlens`, or from `batch` sequences of one length. `tiles` gives a static dim's tile, else all.
    """
    place = Location(kernel.path)
    where = layout(spec, dims, tiles, cu_seqlens, batch)
    memories = {p: _memory(kernel, spec, p, tensors.get(p), where) for p in kernel.params}
    present = {flag_of(p): m is not None for p, m in memories.items()}
    named = {f: bool((flags or {}).get(f, False)) for f in spec.flags}
    values = {**dict(scalars or {}), **{d: float(v) for d, v in where.dims.items()}}
    machine = Evaluator(
        kernel, Indices(spec, where), {p: m for p, m in memories.items() if m is not None}, values,
        {**present, **{f.upper(): v for f, v in named.items()}},
    )  # fmt: skip
    machine.block(kernel.prologue)
    machine.block(kernel.body)
    for memory in machine.memories.values():
        if memory.output:
            memory.check_writes(place)


def _memory(kernel: Kernel, spec: Spec, name: str, data: npt.NDArray[Any] | None, where: Layout) -> Memory | None:
    entry = spec.kernels[kernel.name]
    tensor = spec.tensors[entry.bind.get(name, name)]
    if data is None:
        if not tensor.optional or name in entry.given:
            raise KgenBug(f"tensor {name!r} of {kernel.name} must be given")
        return None
    shape = tuple(where.dims[d] for d in tensor.dims)
    if data.shape != shape:
        raise KgenBug(f"tensor {name!r} of {kernel.name} has shape {data.shape}, its dims are {shape}")
    return Memory(name, tensor, data, name in entry.outputs)


@dataclass
class Evaluator:
    """State of one run: what names and index variables mean now."""

    kernel: Kernel
    indices: Indices
    memories: dict[str, Memory]
    values: dict[str, float]  # scalars and dims
    flags: dict[str, bool]  # by constexpr: USE_G, REVERSE
    locals: dict[str, Tile] = field(default_factory=dict)

    def place(self, node: Expr | Stmt) -> Location:
        span = node.span
        return Location(self.kernel.path, span.line, span.column, span.end_column or None)

    # ------------------------------------------------------------ statements

    def block(self, statements: tuple[Stmt, ...]) -> None:
        for stmt in statements:
            rule = STATEMENTS.get(type(stmt))
            if rule is None:
                raise KgenBug(f"{type(stmt).__name__} isn't a statement of the tile language")
            rule(self, stmt)

    def assign(self, stmt: Assign) -> None:
        self.locals[stmt.target] = self.value(stmt.value)

    def part_assign(self, stmt: PartAssign) -> None:
        base, value = self.local(stmt.target, stmt), self.value(stmt.value)
        where, valid, inside = self.part_index(stmt.index, base, stmt)
        data = base.data.copy()
        data[where] = np.where(inside, value.broadcast(valid).data, data[where])
        self.locals[stmt.target] = Tile(data, base.valid)

    def store(self, stmt: Store) -> None:
        value = self.value(stmt.value)
        memory = self.memories[stmt.tensor]
        memory.write(self.indices.selectors(memory, stmt.index, self.integer), value, self.place(stmt))

    def branch(self, stmt: If) -> None:
        self.block(stmt.body if self.test(stmt.test) else stmt.orelse)

    def loop(self, stmt: For) -> None:
        for step in self.indices.steps(stmt):
            outer = len(self.indices.heads)
            for head in step.heads:
                self.indices.heads.append(head)
            self.indices.bound.update(zip(stmt.vars, step.bound, strict=False))
            if stmt.kind == "tasks":
                self.locals.clear()  # a task shares nothing with another
            self.block(stmt.body)
            del self.indices.heads[outer:]

    # ------------------------------------------------------------ expressions

    def value(self, node: Expr) -> Tile:
        rule = EXPRESSIONS.get(type(node))
        if rule is None:
            raise KgenBug(f"{type(node).__name__} isn't an expression of the tile language")
        return rule(self, node)

    def local(self, name: str, node: Expr | Stmt) -> Tile:
        if name not in self.locals:
            raise KgenError(
                f"{name!r} has no value here", code="program-name", location=self.place(node),
                hint="assign it on every path that leads here",
            )  # fmt: skip
        return self.locals[name]

    def num(self, node: Num) -> Tile:
        return scalar(float(node.value))

    def name(self, node: Name) -> Tile:
        if node.id in self.locals:
            return self.locals[node.id]
        if node.id in self.indices.bound:
            bound = self.indices.bound[node.id]
            if isinstance(bound, int):
                return scalar(bound)
        if node.id in self.flags:
            return scalar(float(self.flags[node.id]))
        if node.id in self.values:
            return scalar(self.values[node.id])
        return self.local(node.id, node)

    def read(self, node: Read) -> Tile:
        memory = self.memories[node.tensor]
        return memory.read(self.indices.selectors(memory, node.index, self.integer), self.place(node))

    def part(self, node: Part) -> Tile:
        base = self.local(node.base, node)
        where, valid, inside = self.part_index(node.index, base, node)
        data = np.where(inside, base.data[where], np.nan)
        ranges = [m for m in self.range_masks(node.index, base) if m is not None]
        return Tile(data, tuple(v & m for v, m in zip(valid, ranges, strict=True)))

    def unary(self, node: Unary) -> Tile:
        if node.op != "-":
            raise KgenBug(f"unary {node.op!r} isn't of the tile language")
        return tiles_.elementwise(np.negative, self.value(node.x))

    def binary(self, node: Binary) -> Tile:
        if node.op not in tiles_.BINARY:
            raise KgenBug(f"{node.op!r} isn't of the tile language")
        return tiles_.elementwise(tiles_.BINARY[node.op], self.value(node.a), self.value(node.b))

    def if_exp(self, node: IfExp) -> Tile:
        chosen = self.value(node.a if self.test(node.test) else node.b)
        return chosen.broadcast(tuple(self.indices.axis(a) for a in node.type.axes))

    def transpose(self, node: Transpose) -> Tile:
        return tiles_.transpose(self.value(node.x))

    def expand(self, node: Expand) -> Tile:
        return tiles_.expand(self.value(node.x), node.axis)

    def call(self, node: Call) -> Tile:
        if node.fn in {"full", "eye", "index"}:
            return self.made(node)
        args = [self.value(a) for a in node.args]
        if node.fn in tiles_.FUNCTIONS:
            return tiles_.elementwise(tiles_.FUNCTIONS[node.fn], *args)
        if node.fn == "dot":
            return tiles_.dot(*args)
        if node.fn in {"sum", "max"}:
            axis = node.option("axis")
            return tiles_.reduced(node.fn, args[0], axis if isinstance(axis, int) else None)
        if node.fn == "cumsum":
            return tiles_.cumsum(args[0], bool(self.option(node, "reverse", False)))
        if node.fn == "tril":
            return tiles_.tril(args[0], int(self.option(node, "k", 0)))
        raise KgenBug(f"built-in {node.fn!r} has no reference meaning")

    def option(self, node: Call, key: str, default: int) -> int:
        """An option's value; a flag is named by its constexpr."""
        value = node.option(key, default)
        return self.flags[value] if isinstance(value, str) else int(value)  # type: ignore[call-overload]

    def made(self, node: Call) -> Tile:
        """`full` and `zeros`, `eye`, `index`: tiles made from index variables and dims."""
        valid = tuple(self.indices.axis(a) for a in node.type.axes)
        shape = [m.size for m in valid]
        if node.fn == "full":
            return Tile(np.full(shape, float(self.value(node.args[0]).data)), valid)
        if node.fn == "eye":
            return Tile(np.eye(shape[0], shape[1]), valid)
        name = node.type.axes[0].name
        bound = self.indices.bound.get(name) or self.indices.layout.whole(name)
        if isinstance(bound, int):
            raise KgenBug(f"index({name})")
        return Tile(bound.rows.astype(np.float64), valid)

    def test(self, node: Expr) -> bool:
        return bool(self.value(node).data != 0)

    def integer(self, node: Expr) -> int:
        return int(self.value(node).data)

    # ------------------------------------------------------------ slabs and slices

    def range_masks(self, index: tuple[Index, ...], base: Tile) -> list[Mask | None]:
        """For each axis, which of its indexed positions a slice holds; None where the index takes one position."""
        out: list[Mask | None] = []
        for i, valid in zip(index, base.valid, strict=True):
            lanes = np.arange(valid.size)
            if isinstance(i, Fixed):
                out.append(None)
            elif isinstance(i, Range):
                out.append((lanes >= self.integer(i.start)) & (lanes < self.integer(i.stop)))
            else:
                out.append(np.ones(valid[self.indices.local_slice(i)].size, dtype=np.bool_))
        return out

    def part_index(
        self, index: tuple[Index, ...], base: Tile, node: Expr | Stmt
    ) -> tuple[tuple[slice | int, ...], tuple[Mask, ...], Mask]:
        """Where a slab or slice lies in its tile, which of its positions exist, and which the slices hold."""
        where: list[slice | int] = []
        valid: list[Mask] = []
        for i, mask in zip(index, base.valid, strict=True):
            if not isinstance(i, Fixed):
                where.append(self.indices.local_slice(i))
                valid.append(mask[self.indices.local_slice(i)])
                continue
            position = self.integer(i.value)
            if not 0 <= position < mask.size:
                raise KgenError(
                    f"position {position} of an axis of {mask.size}", code="program-index", location=self.place(node)
                )
            where.append(position)
        masks = tuple(m for m in self.range_masks(index, base) if m is not None)
        return tuple(where), tuple(valid), tiles_.outer(masks)


EXPRESSIONS: dict[type[Expr], Callable[[Evaluator, Any], Tile]] = {
    Num: Evaluator.num, Name: Evaluator.name, Read: Evaluator.read, Part: Evaluator.part, Unary: Evaluator.unary,
    Binary: Evaluator.binary, IfExp: Evaluator.if_exp, Transpose: Evaluator.transpose, Expand: Evaluator.expand,
    Call: Evaluator.call,
}  # fmt: skip

STATEMENTS: dict[type[Stmt], Callable[[Evaluator, Any], None]] = {
    For: Evaluator.loop, If: Evaluator.branch, Assign: Evaluator.assign, PartAssign: Evaluator.part_assign,
    Store: Evaluator.store,
}  # fmt: skip
