"""A compile-time choice becomes an `if`, so that the side not taken is never lowered (K302).

    S = h0[n, :, bv] if h0 else zeros(K, bv)   -->   if USE_H0:
                                                         S = h0[n, :, bv]
                                                     else:
                                                         S = zeros(K, bv)

A choice inside a larger expression is named first. Flags nest and are never joined with a run-time condition. Neighbouring
ifs on one flag become one, so that both share what they load.
"""

from __future__ import annotations

from dataclasses import replace

from kgen.ir.nodes import Assign, Expr, If, IfExp, Kernel, Name, Stmt
from kgen.ir.rewrite import bodies, map_block, map_expr, map_stmt_exprs, with_bodies, with_body
from kgen.passes.context import Context


def choices(kernel: Kernel, context: Context) -> Kernel:
    """`x = a if FLAG else b` --> `if FLAG: x = a` / `else: x = b`."""
    count = iter(range(1, 1000))

    def statement(stmt: Stmt) -> Stmt | tuple[Stmt, ...]:
        before: list[Stmt] = []

        def name_it(e: Expr) -> Expr:
            if not isinstance(e, IfExp):
                return e
            temp = Name(f"choice{next(count)}", type=e.type, span=e.span)
            before.append(_split(Assign(temp.id, e, span=stmt.span)))
            return temp

        if isinstance(stmt, Assign) and isinstance(stmt.value, IfExp):
            top = stmt.value
            inner = replace(top, a=map_expr(top.a, name_it), b=map_expr(top.b, name_it))
            return (*before, _split(replace(stmt, value=inner)))
        stmt = map_stmt_exprs(stmt, lambda e: map_expr(e, name_it))
        return (*before, stmt) if before else stmt

    return with_body(kernel, _merged(map_block(kernel.body, statement)))


def _merged(block: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for stmt in block:
        stmt = with_bodies(stmt, tuple(_merged(b) for b in bodies(stmt)))
        last = out[-1] if out else None
        if isinstance(stmt, If) and isinstance(last, If) and stmt.test == last.test:
            out[-1] = replace(last, body=last.body + stmt.body, orelse=last.orelse + stmt.orelse)
        else:
            out.append(stmt)
    same = len(out) == len(block) and all(p is q for p, q in zip(out, block, strict=True))
    return block if same else tuple(out)


def _split(stmt: Assign) -> If:
    choice = stmt.value
    assert isinstance(choice, IfExp)
    return If(
        choice.test,
        (Assign(stmt.target, choice.a, span=stmt.span),),
        (Assign(stmt.target, choice.b, span=stmt.span),),
        span=stmt.span,
    )
