"""Elementwise arithmetic, accumulators and carries are fp32: 16-bit tiles are widened where vector code meets them.

    b_x = b_u - dot(b_w, b_S)   -->   b_x = fp32(b_u) - dot(b_w, b_S)

A dot's operands, the value of a store and data movement stay as they are. A name that is fp32 anywhere is fp32
everywhere.
"""

from __future__ import annotations

from dataclasses import replace

from kgen.ir import build
from kgen.ir.nodes import Assign, Binary, Call, Expand, Expr, Kernel, Name, Stmt, Transpose, Type, Unary
from kgen.ir.rewrite import map_block, map_operands, map_stmt_exprs, walk_block, with_body
from kgen.passes.context import Context

ARITHMETIC = build.ELEMENTWISE | {"sum", "max", "cumsum", "maximum", "minimum", "where", "tril"}


def widen(kernel: Kernel, context: Context) -> Kernel:
    """`x + k_t` --> `x + fp32(k_t)`."""
    types = _settled(kernel.body)

    def statement(stmt: Stmt) -> Stmt:
        stmt = map_stmt_exprs(stmt, lambda e: _visit(e, types))
        if isinstance(stmt, Assign) and types.get(stmt.target) == "fp32" and stmt.value.type.dtype.startswith("@"):
            return replace(stmt, value=_fp32(stmt.value))
        return stmt

    return with_body(kernel, map_block(kernel.body, statement))


def _settled(body: tuple[Stmt, ...]) -> dict[str, str]:
    """Each local's element type: fp32 when any of its values is."""
    types: dict[str, str] = {}
    for stmt in walk_block(body):
        if isinstance(stmt, Assign):
            dtype = stmt.value.type.dtype
            types[stmt.target] = "fp32" if types.get(stmt.target, dtype) != dtype else dtype
    return types


def _visit(e: Expr, types: dict[str, str]) -> Expr:
    e = map_operands(e, lambda x: _visit(x, types))
    if isinstance(e, Name) and types.get(e.id) == "fp32" and e.type.dtype != "fp32":
        return replace(e, type=Type(e.type.axes, "fp32"))
    if isinstance(e, (Transpose, Expand)) and e.type.dtype != e.x.type.dtype:
        return replace(e, type=Type(e.type.axes, e.x.type.dtype))
    if isinstance(e, (Binary, Unary)) or (isinstance(e, Call) and e.fn in ARITHMETIC):
        return map_operands(e, _fp32)
    return e


def _fp32(e: Expr) -> Expr:
    if not e.type.dtype.startswith("@"):
        return e
    if isinstance(e, Expand):
        return build.expand(_fp32(e.x), e.axis, e.span)
    return build.cast(e, "fp32")
