"""Slices of a tile become full tiles and fp32 masks, so that one source serves chips with and without native slices.

    m[i, 0:i] = sum(a[i, 0:i][:, None] * m[0:i, 0:i], 0)
    -->
    m_at, m_span = onehot(s, i), span(s, 0, i)               # 1 at i; 1 in 0:i
    a_i = sum(a * m_at[:, None], 0) * m_span                 # row i of a, zero outside 0:i
    m_cell = m_at[:, None] * m_span[None, :]
    m = m * (1 - m_cell) + m_cell * sum(a_i[:, None] * m, 0)[None, :]

A slice is void outside its range. A product that is summed over the sliced axis is neutral there when one side is
zero, so only a slice that meets no such side is masked.
"""

from __future__ import annotations

from dataclasses import replace

from kgen.ir import build
from kgen.ir.nodes import (
    Assign,
    At,
    Axis,
    Binary,
    Call,
    Expand,
    Expr,
    Fixed,
    IndexRef,
    Kernel,
    Name,
    Part,
    PartAssign,
    Range,
    Stmt,
    Transpose,
    Type,
)
from kgen.ir.rewrite import map_block, map_expr, map_stmt_exprs, with_body
from kgen.passes.context import Context
from kgen.passes.names import Fresh
from kgen.passes.refuse import local_axes, not_yet

ONE = build.num(1.0)


def slices(kernel: Kernel, context: Context) -> Kernel:
    """`m[i, 0:i] = x` --> `m = m * (1 - m_cell) + m_cell * x`."""
    names = _Names(kernel)

    def statement(stmt: Stmt) -> Stmt | tuple[Stmt, ...]:
        masks = _Masks(stmt, kernel, names)
        new = map_stmt_exprs(stmt, lambda e: map_expr(e, lambda x: _rows_first(x, masks)))
        new = map_stmt_exprs(new, lambda e: map_expr(e, lambda x: _full(x, masks)))
        after = _assign(new, masks) if isinstance(new, PartAssign) else (new,)
        return (*masks.stmts.values(), *after) if masks.stmts or len(after) > 1 else after[0]

    return with_body(kernel, map_block(kernel.body, statement))


class _Names:
    """One name for a mask's role, number and axis in the whole kernel, so that it never changes its shape."""

    def __init__(self, kernel: Kernel) -> None:
        self.fresh = Fresh(kernel)
        self.given: dict[tuple[str, int, Axis], str] = {}

    def of(self, base: str, axis: Axis, count: int = 1) -> str:
        key = (base, count, axis)
        if key not in self.given:
            self.given[key] = self.fresh.of(base)
        return self.given[key]


class _Masks:
    """fp32 vectors that pick lanes, named once for each statement that needs them."""

    def __init__(self, stmt: Stmt, kernel: Kernel, names: _Names) -> None:
        self.stmt, self.kernel, self.names = stmt, kernel, names
        self.stmts: dict[Expr, Assign] = {}

    def of(self, axis: Axis, index: Fixed | Range) -> Expr:
        """1 where the index takes the lane, 0 elsewhere."""
        ends = (index.value,) if isinstance(index, Fixed) else (index.start, index.stop)
        base, fn = ("m_at", "onehot") if isinstance(index, Fixed) else ("m_span", "span")
        value = Call(fn, (IndexRef(axis), *ends), type=Type((axis,), "fp32"))
        if value not in self.stmts:
            same = [v for v in self.stmts if isinstance(v, Call) and v.fn == fn and v.type == value.type]
            self.stmts[value] = Assign(self.names.of(base, axis, len(same) + 1), value, span=self.stmt.span)
        return Name(self.stmts[value].target, type=value.type)

    def wide(self, x: Expr, axis: int, index: Fixed | Range) -> Expr:
        """The mask of one axis of x, as wide as x."""
        mask = self.of(x.type.axes[axis], index)
        return build.expand(mask, 1 - axis) if x.type.rank == 2 else mask


def _plain(axis: Axis) -> Axis:
    return Axis(axis.name.partition("[")[0], axis.size)


def _ranges(part: Part) -> list[tuple[int, Range]]:
    """Sliced axes of the result, with their ranges."""
    kept = [i for i in part.index if not isinstance(i, Fixed)]
    return [(n, i) for n, i in enumerate(kept) if isinstance(i, Range)]


def _rows_first(e: Expr, masks: _Masks) -> Expr:
    """In `sum(x[:, None] * m[0:i, 0:i], 0)` the slice of m needs no mask on the summed axis: x is zero there."""
    if not (isinstance(e, Call) and e.fn == "sum" and isinstance(e.args[0], Binary) and e.args[0].op == "*"):
        return e
    product = e.args[0]
    left, right = product.a, product.b
    if not (isinstance(left, Expand) and isinstance(left.x, Part) and isinstance(right, Part)):
        return e
    summed = {n for n, _ in _ranges(right)} == {0, 1} and e.option("axis") == 0 and left.axis == 1
    if not summed or [r for _, r in _ranges(left.x)] != [_ranges(right)[0][1]]:
        return e
    # the other axis is void outside its range: whoever takes the result drops it
    tile = local_axes(masks.kernel, right.base, right.span)
    masked = _full_part(left.x, masks)
    return build.call("sum", (build.binary("*", build.expand(masked, 1), tile),), {"axis": 0}, e.span)


def _full(e: Expr, masks: _Masks) -> Expr:
    """The expression with its slices whole; what is made of them follows in its type."""
    if isinstance(e, Part):
        return _full_part(e, masks)
    if isinstance(e, (Expand, Transpose)) and e.x.type.dtype != e.type.dtype:
        return build.expand(e.x, e.axis, e.span) if isinstance(e, Expand) else build.transpose(e.x, e.span)
    if any("[" in a.name for a in e.type.axes):
        return replace(e, type=Type(tuple(_plain(a) for a in e.type.axes), e.type.dtype))
    return e


def _full_part(part: Part, masks: _Masks) -> Expr:
    """`m[i, a:b]` as a masked sum, `m[a:b, c:d]` as a masked tile."""
    if all(isinstance(i, Fixed) for i in part.index):
        raise not_yet(masks.kernel, part.span, "one element of a tile", "take a row: m[i, 0:n]")
    x = local_axes(masks.kernel, part.base, part.span)
    for axis in reversed([n for n, i in enumerate(part.index) if isinstance(i, Fixed)]):
        index = part.index[axis]
        assert isinstance(index, Fixed)
        x = build.call("sum", (build.binary("*", x, masks.wide(x, axis, index)),), {"axis": axis}, part.span)
    for axis, index in _ranges(part):
        x = build.binary("*", x, masks.wide(x, axis, index), part.span)
    return x


def _assign(stmt: PartAssign, masks: _Masks) -> tuple[Stmt, ...]:
    """`m[i, 0:i] = x` with x a vector over the sliced axis, or a scalar."""
    tile = local_axes(masks.kernel, stmt.target, stmt.span)
    if not (len(stmt.index) == 2 and isinstance(stmt.index[0], Fixed) and not isinstance(stmt.index[1], (Fixed, At))):
        raise not_yet(masks.kernel, stmt.span, "assigning to anything but a row of a tile", "write m[i, a:b] = x")
    rows, lanes = tile.type.axes
    before: list[Stmt] = []
    cell: Expr = build.expand(masks.of(rows, stmt.index[0]), 1)
    if isinstance(stmt.index[1], Range):
        picked = build.binary("*", cell, build.expand(masks.of(lanes, stmt.index[1]), 0))
        cell = build.name(masks.names.of("m_cell", lanes), picked.type)
        before.append(Assign(cell.id, picked, span=stmt.span))
    x = stmt.value
    if x.type.rank:
        row = build.name(masks.names.of(f"{stmt.target}_row", lanes), x.type)
        before.append(Assign(row.id, x, span=stmt.span))
        x = build.expand(row, 0)
    kept = build.binary("*", tile, build.binary("-", ONE, cell))
    value = build.binary("+", kept, build.binary("*", cell, x), stmt.span)
    return (*before, Assign(stmt.target, value, span=stmt.span))
