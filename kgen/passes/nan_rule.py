"""Elementwise minimum and maximum keep NaN from either side, which is one vector instruction instead of five (K605).

minimum(x, 0)   -->   minimum(x, 0, propagate NaN)
"""

from __future__ import annotations

from dataclasses import replace

from kgen.ir.nodes import Call, Expr, Kernel, Stmt
from kgen.ir.rewrite import map_block, map_expr, map_stmt_exprs, with_body
from kgen.passes.context import Context


def nan_rule(kernel: Kernel, context: Context) -> Kernel:
    """`minimum(a, b)` of tiles --> the form with `propagate_nan`."""

    def expr(e: Expr) -> Expr:
        if isinstance(e, Call) and e.fn in {"minimum", "maximum"} and e.type.rank and not e.option("nan"):
            return replace(e, options=(*e.options, ("nan", True)))
        return e

    def statement(stmt: Stmt) -> Stmt:
        return map_stmt_exprs(stmt, lambda e: map_expr(e, expr))

    prologue = tuple(statement(s) for s in kernel.prologue)
    return with_body(kernel, map_block(kernel.body, statement), prologue)
