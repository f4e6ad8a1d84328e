"""A carried tile that covers a whole dim is kept as one tile.

    for bk in tiles(K):              x -= dot(w[t, :], S)
        x -= dot(w[t, bk], S[bk]) -->
        S[bk] += dot(k[t, bk].T, x)  S += dot(k[t, :].T, x)

The planner must then choose BK >= K; `Kernel.whole` tells it. Loops over other dims stay.
"""

from __future__ import annotations

from dataclasses import replace

from kgen.ir.nodes import (
    Assign,
    At,
    Axis,
    Expr,
    For,
    Index,
    IndexRef,
    Kernel,
    Name,
    Part,
    PartAssign,
    Read,
    Stmt,
    Store,
    Type,
    Whole,
)
from kgen.ir.rewrite import exprs, map_block, map_expr, map_stmt_exprs, walk_block, with_body
from kgen.passes.context import Context


def whole_slabs(kernel: Kernel, context: Context) -> Kernel:
    """`S[bk]` in `for bk in tiles(K)` --> `S` with K whole, where S is carried."""
    tiles = {v.name: v.over for v in kernel.indices if v.kind == "tile"}
    dims = {tiles[i.var] for index in _part_indices(kernel.body) for i in index if isinstance(i, At) and i.var in tiles}
    body = kernel.body
    if dims:
        gone = {v: d for v, d in tiles.items() if d in dims and not _is_task(kernel, v)}
        body = map_block(map_block(body, lambda s: _unroll(s, gone)), lambda s: _rename(s, gone))
    whole = _whole_dims(body, context)
    if whole != kernel.whole:
        kernel = replace(kernel, whole=whole)
    return with_body(kernel, body)


def _part_indices(body: tuple[Stmt, ...]) -> list[tuple[Index, ...]]:
    parts = [e.index for e in exprs(body) if isinstance(e, Part)]
    return parts + [s.index for s in walk_block(body) if isinstance(s, PartAssign)]


def _is_task(kernel: Kernel, var: str) -> bool:
    return any(isinstance(s, For) and s.kind == "tasks" and var in s.vars for s in kernel.body)


def _unroll(stmt: Stmt, gone: dict[str, str]) -> Stmt | tuple[Stmt, ...]:
    if isinstance(stmt, For) and stmt.kind == "tiles" and stmt.vars[0] in gone:
        return stmt.body
    return stmt


def _index(index: tuple[Index, ...], gone: dict[str, str]) -> tuple[Index, ...]:
    return tuple(Whole() if isinstance(i, At) and i.var in gone else i for i in index)


def _type(t: Type, gone: dict[str, str]) -> Type:
    axes = tuple(Axis(gone[a.name], a.size) if a.name in gone else a for a in t.axes)
    return t if axes == t.axes else Type(axes, t.dtype)


def _rename(stmt: Stmt, gone: dict[str, str]) -> Stmt:
    def expr(e: Expr) -> Expr:
        e = replace(e, type=_type(e.type, gone))
        if isinstance(e, Read):
            return replace(e, index=_index(e.index, gone))
        if isinstance(e, IndexRef) and e.axis.name in gone:
            return replace(e, axis=Axis(gone[e.axis.name], e.axis.size))
        if isinstance(e, Part):
            index = _index(e.index, gone)
            whole = all(isinstance(i, Whole) for i in index)
            return Name(e.base, type=e.type, span=e.span) if whole else replace(e, index=index)
        return e

    stmt = map_stmt_exprs(stmt, lambda e: map_expr(e, expr))
    if isinstance(stmt, Store):
        return replace(stmt, index=_index(stmt.index, gone))
    if isinstance(stmt, PartAssign):
        index = _index(stmt.index, gone)
        if all(isinstance(i, Whole) for i in index):
            return Assign(stmt.target, stmt.value, span=stmt.span)
        return replace(stmt, index=index)
    return stmt


def _whole_dims(body: tuple[Stmt, ...], context: Context) -> tuple[str, ...]:
    """Static dims that some tile covers whole."""
    static = {n for n, d in context.spec.dims.items() if d.kind.value == "static"}
    names = {a.name for e in exprs(body) for a in e.type.axes}
    names |= {e.axis.name for e in exprs(body) if isinstance(e, IndexRef)}
    return tuple(sorted(names & static))
