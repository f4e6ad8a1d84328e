"""Reads and stores become blocks of memory: an int64 base, int32 block offsets, strides from the storage layout.

    b_k = k[t, bk]   -->   b_k = load(k + (bos * H + i_h) * K, rows (T_cur, H * K, i_t * BT), lanes (K, 1, i_k * BK))

The base is int64 before its first multiply (K101), offsets inside it are int32 (K103). Rows of a head-first gate are
contiguous (K401). A layout that a flag changes is an `if` on that flag, and a tile always lies with its contiguous
axis last: the other way round it is loaded as stored and transposed on chip (K403).
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from kgen.errors import KgenBug
from kgen.ir import build
from kgen.ir.build import i32
from kgen.ir.nodes import (
    I64,
    Access,
    AccessAxis,
    Assign,
    At,
    Axis,
    Call,
    Expr,
    Fixed,
    If,
    Index,
    Kernel,
    Load,
    Name,
    Range,
    Read,
    Row,
    Stmt,
    Store,
    StoreTile,
    Transpose,
    Type,
    Whole,
)
from kgen.ir.rewrite import map_block, map_expr, map_stmt_exprs, with_body
from kgen.passes.context import Context
from kgen.passes.core_grid import head_base, tile_names
from kgen.passes.masks import clamp01
from kgen.spec.models import DimKind

ZERO = build.num(0)


def addresses(kernel: Kernel, context: Context) -> Kernel:
    """`k[t, bk]` --> a load of a block; `o[t, bv] = x` --> a store of a block."""
    where = _Where(kernel, context)

    def statement(stmt: Stmt) -> Stmt:
        stmt = map_stmt_exprs(stmt, lambda e: map_expr(e, where.spell_valid))
        if isinstance(stmt, Assign) and (read := _the_read(stmt.value)):
            return _by_layout(stmt, read.tensor, where, lambda layout: _load(stmt, read, layout, where))
        if isinstance(stmt, Store):
            store = stmt
            return _by_layout(store, store.tensor, where, lambda layout: _store(store, layout, where))
        return stmt

    prologue = tuple(map_stmt_exprs(s, lambda e: map_expr(e, where.spell_valid)) for s in kernel.prologue)
    return with_body(kernel, map_block(kernel.body, statement), prologue)


def _the_read(e: Expr) -> Read | None:
    """The read of a named load: alone, or with a factor on it."""
    if isinstance(e, Read):
        return e
    return e.a if hasattr(e, "a") and isinstance(e.a, Read) else None


def _by_layout(stmt: Stmt, tensor: str, where: _Where, make: object) -> Stmt:
    assert callable(make)
    t = where.context.tensor(tensor)
    result: Stmt = make(t.store or t.dims)
    for flag, layout in t.store_if.items():
        test = Name(flag.upper(), type=Type((), "bool"))
        result = If(test, (make(layout),), (result,), span=stmt.span)
    return result


class _Where:
    """Addresses of one kernel's tiles."""

    def __init__(self, kernel: Kernel, context: Context) -> None:
        self.kernel, self.context = kernel, context
        self.scanned = any(v.kind == "seq" for v in kernel.indices)
        self.tiles = tile_names(kernel, context)

    def access(self, tensor: str, index: tuple[Index, ...], layout: tuple[str, ...]) -> tuple[Access, tuple[int, ...]]:
        """The block, axes outermost first, and for each the program's axis that it is."""
        dims = self.context.program_dims(tensor)
        by_dim = dict(zip(dims, index, strict=True))
        base = self._base(layout, by_dim)
        kept = [d for d in dims if self._is_block(d, by_dim[d])]
        axes, order = [], []
        for position, dim in enumerate(layout):
            if dim in kept:
                axes.append(self._axis(dim, by_dim[dim], _stride(layout[position + 1 :])))
                order.append(kept.index(dim))
        return Access(tensor, base, tuple(axes)), tuple(order)

    def _is_block(self, dim: str, index: Index) -> bool:
        if isinstance(index, (Row, Fixed)):
            return False
        return self.context.kind(dim) not in (DimKind.SEQUENCES, DimKind.CHUNKS)

    def _axis(self, dim: str, index: Index, stride: Expr) -> AccessAxis:
        kind = self.context.kind(dim)
        size: str | int = f"B{dim}"
        if kind is DimKind.ROWS:
            assert isinstance(index, At)
            return AccessAxis(i32("T_cur"), stride, self.offset(index), self._rows_size(index))
        if kind is DimKind.CHUNK:
            if isinstance(index, At) and self.kernel.index_var(index.var).kind == "part":
                part = self.kernel.index_var(index.var)
                return AccessAxis(i32(dim), stride, self._part_offset(part.size), part.size)
            return AccessAxis(i32(dim), stride, ZERO, dim)
        if isinstance(index, Range):
            raise KgenBug(f"a constant range of dim {dim} reached the address pass")
        offset = ZERO if isinstance(index, Whole) else self.offset(index)
        return AccessAxis(i32(dim), stride, offset, size)

    def _rows_size(self, index: At) -> str | int:
        var = self.kernel.index_var(index.var)
        return var.size if var.kind == "part" else self.context.one(DimKind.CHUNK)

    def _part_offset(self, size: int) -> Expr:
        return build.binary("*", i32("i_s"), build.num(size))

    def offset(self, index: Index) -> Expr:
        """First row or lane of a tile, int32 (K103)."""
        assert isinstance(index, At)
        var = self.kernel.index_var(index.var)
        if var.kind == "tile":
            return build.binary("*", i32(self.tiles[var.name]), i32(f"B{var.over}"))
        first = build.binary("*", i32("i_t"), i32(self.context.one(DimKind.CHUNK)))
        return build.binary("+", first, self._part_offset(var.size)) if var.kind == "part" else first

    # ------------------------------------------------------------ base

    def _base(self, layout: tuple[str, ...], by_dim: dict[str, Index]) -> Expr:
        """Horner over the layout: ((first * size + next) * size + …), int64 from the first index on."""
        total: Expr | None = None
        rest = list(layout)
        rows = self.context.one(DimKind.ROWS)
        if rows in layout and layout[0] != rows:  # rows inside heads: the task decoded that start already
            head = layout[0]
            total = Name(head_base(head), type=I64)
            rest = list(layout[layout.index(rows) + 1 :])
            total = self._plus_row(total, by_dim[rows])
        for dim in rest:
            total = total if total is None else build.binary("*", total, i32(dim))
            term = self._scalar(dim, by_dim.get(dim))
            if term is not None:
                total = build.cast(term, "int64") if total is None else build.binary("+", total, term)
        return total if total is not None else ZERO

    def _plus_row(self, total: Expr, index: Index) -> Expr:
        row = self._row(index) if isinstance(index, Row) else None
        return total if row is None else build.binary("+", total, row)

    def _scalar(self, dim: str, index: Index | None) -> Expr | None:
        """The position along a dim that isn't a block axis."""
        kind = self.context.kind(dim)
        if kind is DimKind.HEADS:
            return i32(f"i_{dim.lower()}")
        if kind is DimKind.SEQUENCES:
            return i32("i_n")
        if kind is DimKind.CHUNKS:
            return build.binary("+", Name("boh", type=I64), i32("i_t")) if self.scanned else i32("i_tg")
        if kind is DimKind.ROWS:
            bos = Name("bos", type=I64)
            return build.binary("+", bos, self._row(index)) if isinstance(index, Row) else bos
        return index.value if isinstance(index, Fixed) else None

    def _row(self, row: Row) -> Expr:
        """A row counted from the sequence's start, int32."""
        if row.fn == "start":
            at: Expr = build.num(row.shift)
        elif row.fn == "end":
            at = build.binary("+", i32("T_cur"), build.num(row.shift))
        else:
            size = i32(self.context.one(DimKind.CHUNK))
            past = build.binary("*", build.binary("+", i32("i_t"), build.num(1)), size)
            end = Call("minimum", (past, i32("T_cur")), type=Type((), "int32"))
            at = build.binary("-", end, build.num(1 - row.shift))
        return at

    # ------------------------------------------------------------ valid lanes

    def spell_valid(self, e: Expr) -> Expr:
        """`valid(t)` --> clamp(T_cur - i_t * BT - o_t): fp32, built from the extents that bound the loads."""
        if not (isinstance(e, Call) and e.fn == "valid"):
            return e
        axis = e.type.axes[0]
        extent, offset = self._extent(axis)
        left = build.binary("-", extent, offset) if offset != ZERO else extent
        lanes = Call("lanes", e.args, type=Type((axis,), "fp32"))
        return clamp01(build.binary("-", left, lanes))

    def _extent(self, axis: Axis) -> tuple[Expr, Expr]:
        var = next((v for v in self.kernel.indices if v.name == axis.name), None)
        if var is None:
            return i32(axis.name), ZERO
        return i32(var.over if var.kind == "tile" else "T_cur"), self.offset(At(axis.name))


def _stride(inner: tuple[str, ...]) -> Expr:
    """Elements between neighbours of a dim: the product of the sizes inside it."""
    sizes: list[Expr] = [i32(d) for d in inner]
    return reduce(lambda a, b: build.binary("*", a, b), sizes[1:], sizes[0]) if sizes else build.num(1)


def _load(stmt: Assign, read: Read, layout: tuple[str, ...], where: _Where) -> Stmt:
    access, order = where.access(read.tensor, read.index, layout)
    axes = tuple(read.type.axes[i] for i in order)
    block: Expr = Load(access, type=Type(axes, read.type.dtype), span=read.span)
    if order != tuple(sorted(order)):
        block = Transpose(block, type=read.type, span=read.span)
    value = block if stmt.value is read else replace(stmt.value, a=block)  # type: ignore[call-arg]
    return replace(stmt, value=value)


def _store(stmt: Store, layout: tuple[str, ...], where: _Where) -> Stmt:
    access, order = where.access(stmt.tensor, stmt.index, layout)
    value = stmt.value
    if order != tuple(sorted(order)):
        value = build.transpose(value, value.span)
    return StoreTile(access, value, span=stmt.span, note=stmt.note)
