"""A compile-time choice becomes an `if`, so that the side not taken is never lowered (K302).

    S = h0[n, :, bv] if h0 else zeros(K, bv)   -->   if USE_H0:
                                                         S = h0[n, :, bv]
                                                     else:
                                                         S = zeros(K, bv)

A choice inside a larger expression is named first, and one inside a side of another stays in that side. Flags nest
and are never joined with a run-time condition. Neighbouring ifs on one flag become one, so that both share what they
load.
"""

from __future__ import annotations

from dataclasses import replace

from kgen.ir.nodes import Assign, Call, Expr, If, IfExp, IndexRef, Kernel, Name, PartAssign, Stmt, Store, Type
from kgen.ir.rewrite import bodies, map_block, map_operands, map_stmt_exprs, with_bodies, with_body
from kgen.passes.context import Context
from kgen.passes.names import Fresh
from kgen.passes.refuse import not_yet


def choices(kernel: Kernel, context: Context) -> Kernel:
    """`x = a if FLAG else b` --> `if FLAG: x = a` / `else: x = b`."""
    split = _Split(kernel)
    return with_body(kernel, _merged(map_block(kernel.body, split.statement)))


class _Split:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.fresh = kernel, Fresh(kernel)

    def statement(self, stmt: Stmt) -> Stmt | tuple[Stmt, ...]:
        if isinstance(stmt, Assign) and isinstance(stmt.value, IfExp):
            return self.choose(stmt, stmt.value)
        if not isinstance(stmt, (Assign, PartAssign, Store)):
            return stmt
        before: list[Stmt] = []
        new = map_stmt_exprs(stmt, lambda e: self.named(e, stmt, before))
        return (*before, new) if before else new

    def choose(self, stmt: Assign, choice: IfExp) -> If:
        """Both sides assigned to the statement's name, each with what its own inner choices need."""
        sides = (self.side(replace(stmt, value=self.spread(x, choice))) for x in (choice.a, choice.b))
        body, orelse = sides
        return If(choice.test, body, orelse, span=stmt.span)

    def side(self, stmt: Assign) -> tuple[Stmt, ...]:
        new = self.statement(stmt)
        return new if isinstance(new, tuple) else (new,)

    def named(self, e: Expr, stmt: Stmt, before: list[Stmt]) -> Expr:
        """The expression with each outermost choice replaced by a name, which `before` assigns."""
        if not isinstance(e, IfExp):
            return map_operands(e, lambda x: self.named(x, stmt, before))
        temp = Name(self.fresh.of("choice"), type=e.type, span=e.span)
        before.append(self.choose(Assign(temp.id, e, span=stmt.span), e))
        return temp

    def spread(self, side: Expr, choice: IfExp) -> Expr:
        """A side with the choice's axes: a scalar fills a tile of them."""
        axes = choice.type.axes
        if side.type.axes == axes:
            return side
        if side.type.axes:
            hint = "make both sides as wide, with zeros(…) + x"
            raise not_yet(self.kernel, side.span, "a choice between tiles of which one stretches", hint)
        return Call("full", (side, *(IndexRef(a) for a in axes)), type=Type(axes, "fp32"), span=side.span)


def _merged(block: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for stmt in block:
        stmt = with_bodies(stmt, tuple(_merged(b) for b in bodies(stmt)))
        last = out[-1] if out else None
        if isinstance(stmt, If) and isinstance(last, If) and stmt.test == last.test:
            both = _merged(last.body + stmt.body), _merged(last.orelse + stmt.orelse)
            out[-1] = replace(last, body=both[0], orelse=both[1])
        else:
            out.append(stmt)
    same = len(out) == len(block) and all(p is q for p, q in zip(out, block, strict=True))
    return block if same else tuple(out)
