"""Every block says whether it can end past its extent, and is bounded there (K303).

    load(k, rows (T_cur, …, BT), lanes (K, …, BK))   -->   checked where TAIL_MODE != 0 or K % BK != 0

TAIL_MODE is a constexpr: 0 all chunks are full, 2 the end of a sequence may lie inside a chunk. A run-time choice
between bounded and unbounded access would keep both alive in UB (K301). Blocks are never loaded transposed: a bound
on one axis of a block with swapped order is applied to the other one (K304).
"""

from __future__ import annotations

from dataclasses import replace

from kgen.ir import build
from kgen.ir.nodes import Access, AccessAxis, Expr, Kernel, Load, Name, Stmt, StoreTile, Type
from kgen.ir.rewrite import map_block, map_expr, map_stmt_exprs, with_body
from kgen.passes.context import Context
from kgen.spec.models import DimKind

TAIL = build.binary("!=", Name("TAIL_MODE", type=Type((), "int32")), build.num(0))


def tails(kernel: Kernel, context: Context) -> Kernel:
    """A block --> the same block with its bound."""

    def expr(e: Expr) -> Expr:
        if not isinstance(e, Load):
            return e
        access = _bounded(e.access, context)
        return e if access is e.access else replace(e, access=access)

    def statement(stmt: Stmt) -> Stmt:
        stmt = map_stmt_exprs(stmt, lambda e: map_expr(e, expr))
        if not isinstance(stmt, StoreTile):
            return stmt
        access = _bounded(stmt.access, context)
        return stmt if access is stmt.access else replace(stmt, access=access)

    return with_body(kernel, map_block(kernel.body, statement))


def _bounded(access: Access, context: Context) -> Access:
    axes = tuple(replace(a, check=_check(a, context)) for a in access.axes)
    return access if axes == access.axes else replace(access, axes=axes)


def _check(axis: AccessAxis, context: Context) -> Expr:
    """A compile-time condition: can this axis end past its extent?"""
    assert isinstance(axis.extent, Name)
    dim = context.spec.dims.get(axis.extent.id)
    if dim is None:  # T_cur: rows of a sequence
        return TAIL
    if dim.kind is DimKind.CHUNK:
        return build.num(False)
    rest = build.binary("%", axis.extent, build.i32(str(axis.size)))
    return build.binary("!=", rest, build.num(0))
