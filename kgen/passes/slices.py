"""Slices of a tile become full tiles and fp32 masks, so that one source serves chips with and without native slices.

    m[i, 0:i] = sum(a[i, 0:i][:, None] * m[0:i, 0:i], 0)
    -->
    m_at, m_span = onehot(s, i), span(s, 0, i)               # 1 at i; 1 in 0:i
    a_i = sum(a * m_at[:, None], 0) * m_span                 # row i of a, zero outside 0:i
    m_cell = m_at[:, None] * m_span[None, :]
    m = m * (1 - m_cell) + m_cell * sum(a_i[:, None] * m, 0)[None, :]

A slice is void outside its range. A product that is summed over the sliced axis is neutral there when one side is zero, so
only a slice that meets no such side is masked.
"""

from __future__ import annotations

from dataclasses import replace

from kgen.errors import KgenError, Location
from kgen.ir import build
from kgen.ir.nodes import (
    Assign,
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
    Type,
)
from kgen.ir.rewrite import map_block, map_expr, map_stmt_exprs, with_body
from kgen.passes.context import Context

ONE = build.num(1.0)


def slices(kernel: Kernel, context: Context) -> Kernel:
    """`m[i, 0:i] = x` --> `m = m * (1 - m_cell) + m_cell * x`."""

    def statement(stmt: Stmt) -> Stmt | tuple[Stmt, ...]:
        masks = _Masks(stmt)
        new = map_stmt_exprs(stmt, lambda e: map_expr(e, lambda x: _rows_first(x, masks)))
        new = map_stmt_exprs(new, lambda e: map_expr(e, lambda x: _full(x, masks)))
        after = _assign(new, kernel, masks) if isinstance(new, PartAssign) else (new,)
        return (*masks.stmts.values(), *after) if masks.stmts or len(after) > 1 else after[0]

    return with_body(kernel, map_block(kernel.body, statement))


class _Masks:
    """fp32 vectors that pick lanes, named once for each statement that needs them."""

    def __init__(self, stmt: Stmt) -> None:
        self.stmt = stmt
        self.stmts: dict[Expr, Assign] = {}

    def of(self, axis: Axis, index: Fixed | Range) -> Expr:
        """1 where the index takes the lane, 0 elsewhere."""
        ends = (index.value,) if isinstance(index, Fixed) else (index.start, index.stop)
        base = "m_at" if isinstance(index, Fixed) else "m_span"
        fn = "onehot" if isinstance(index, Fixed) else "span"
        value = Call(fn, (IndexRef(_plain(axis)), *ends), type=Type((_plain(axis),), "fp32"))
        if value not in self.stmts:
            count = sum(s.target.startswith(base) for s in self.stmts.values())
            self.stmts[value] = Assign(f"{base}{count + 1 if count else ''}", value, span=self.stmt.span)
        return Name(self.stmts[value].target, type=value.type)


def _plain(axis: Axis) -> Axis:
    return Axis(axis.name.partition("[")[0], axis.size)


def _plain_type(t: Type) -> Type:
    axes = tuple(_plain(a) for a in t.axes)
    return t if axes == t.axes else Type(axes, t.dtype)


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
    tile = Name(right.base, type=_plain_type(right.type), span=right.span)
    masked = _full_part(left.x, masks)
    return build.call("sum", (build.binary("*", build.expand(masked, 1), tile),), {"axis": 0}, e.span)


def _full(e: Expr, masks: _Masks) -> Expr:
    if isinstance(e, Part):
        return _full_part(e, masks)
    if any("[" in a.name for a in e.type.axes):
        return replace(e, type=_plain_type(e.type))
    return e


def _full_part(part: Part, masks: _Masks) -> Expr:
    """`m[i, a:b]` as a masked sum, `m[a:b, c:d]` as a masked tile."""
    base_axes = _base_axes(part)
    x: Expr = Name(part.base, type=Type(base_axes, part.type.dtype), span=part.span)
    fixed = [n for n, i in enumerate(part.index) if isinstance(i, Fixed)]
    for axis in reversed(fixed):
        index = part.index[axis]
        assert isinstance(index, Fixed)
        mask = masks.of(x.type.axes[axis], index)
        if x.type.rank == 2:
            mask = build.expand(mask, 1 - axis)
        x = build.call("sum", (build.binary("*", x, mask),), {"axis": axis}, part.span)
    for axis, index in _ranges(part):
        mask = masks.of(x.type.axes[axis], index)
        if x.type.rank == 2:
            mask = build.expand(mask, 1 - axis)
        x = build.binary("*", x, mask, part.span)
    return x


def _base_axes(part: Part) -> tuple[Axis, ...]:
    """Axes of the sliced tile: sliced parts come from square tiles of one index variable."""
    kept = iter(part.type.axes)
    known = _plain(part.type.axes[0]) if part.type.axes else None
    if known is None:
        raise KgenError(
            "one element of a tile can't be taken yet",
            code="not-implemented",
            location=Location("", part.span.line, part.span.column),
            hint="take a row: m[i, 0:n]",
        )
    return tuple(known if isinstance(i, Fixed) else _plain(next(kept)) for i in part.index)


def _assign(stmt: PartAssign, kernel: Kernel, masks: _Masks) -> tuple[Stmt, ...]:
    """`m[i, 0:i] = x` with x a vector over the sliced axis."""
    row_range = len(stmt.index) == 2 and isinstance(stmt.index[0], Fixed) and isinstance(stmt.index[1], Range)
    if not row_range or stmt.value.type.rank != 1:
        raise KgenError(
            "only a vector can be assigned to a row's range of a tile yet",
            code="not-implemented",
            location=Location(kernel.path, stmt.span.line, stmt.span.column),
            hint="write m[i, a:b] = x",
        )
    assert isinstance(stmt.index[0], Fixed) and isinstance(stmt.index[1], Range)
    axis = _plain(stmt.value.type.axes[0])
    square = Type((axis, axis), "fp32")
    tile, cell = build.name(stmt.target, square, stmt.span), build.name("m_cell", square)
    row, lanes = masks.of(axis, stmt.index[0]), masks.of(axis, stmt.index[1])
    x = build.name(f"{stmt.target}_row", stmt.value.type)
    kept = build.binary("*", tile, build.binary("-", ONE, cell))
    value = build.binary("+", kept, build.binary("*", cell, build.expand(x, 0)), stmt.span)
    return (
        Assign(cell.id, build.binary("*", build.expand(row, 1), build.expand(lanes, 0)), span=stmt.span),
        Assign(x.id, stmt.value, span=stmt.span),
        Assign(stmt.target, value, span=stmt.span),
    )
