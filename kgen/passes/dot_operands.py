"""Operands of a dot: 16-bit ones go in as loaded, computed fp32 ones take their partner's type (K202).

    dot(b_w, b_S)                 -->   dot(b_w, b_S.to(w))            a loaded operand is never widened first
    for bv: dot(b_m, b_v)         -->   b_m_v = b_m.to(v); for bv: dot(b_m_v, b_v)
    dot(b_n, b_d, exact=True)     -->   both fp32, IEEE

Rounding happens here and in stores, nowhere else. A cast whose source doesn't change in a loop is made before it.
"""

from __future__ import annotations

from dataclasses import replace

from kgen.ir import build
from kgen.ir.nodes import Assign, Call, Cast, Expr, For, Kernel, Name, Stmt, Transpose, Type
from kgen.ir.rewrite import exprs, map_block, map_expr, map_exprs, map_stmt_exprs, walk_block, with_body
from kgen.passes.context import Context


def dot_operands(kernel: Kernel, context: Context) -> Kernel:
    """`dot(a, x)` with x computed --> `dot(a, x.to(a's type))`."""
    fallback = _fallback(kernel, context)

    def expr(e: Expr) -> Expr:
        return _cast_operands(e, fallback) if isinstance(e, Call) and e.fn == "dot" else e

    body = map_exprs(kernel.body, expr)
    return with_body(kernel, map_block(body, _hoist))


def _fallback(kernel: Kernel, context: Context) -> str:
    """The element type for a dot of two computed operands: that of a tensor of the spec's `dot_dtype`."""
    for param in kernel.params:
        if context.tensor(param).dtype == context.spec.dot_dtype and not context.optional(param):
            return f"@{param}"
    return "fp32"


def _cast_operands(dot: Call, fallback: str) -> Expr:
    a, b = dot.args
    if dot.option("exact"):
        want_a = want_b = "fp32"
    else:
        loaded = [x.type.dtype for x in (a, b) if x.type.dtype.startswith("@")]
        want_a = a.type.dtype if a.type.dtype in loaded else (loaded or [fallback])[0]
        want_b = b.type.dtype if b.type.dtype in loaded else (loaded or [fallback])[0]
    x, y = _cast(a, want_a), _cast(b, want_b)
    return dot if x is a and y is b else replace(dot, args=(x, y))


def _cast(e: Expr, dtype: str) -> Expr:
    if isinstance(e, Transpose):
        x = _cast(e.x, dtype)
        return e if x is e.x else Transpose(x, type=Type(e.type.axes, dtype), span=e.span)
    return build.cast(e, dtype)


def _hoist(stmt: Stmt) -> Stmt | tuple[Stmt, ...]:
    """Casts of names that the loop doesn't assign go before the loop."""
    if not (isinstance(stmt, For) and stmt.kind == "tiles"):
        return stmt
    assigned = {s.target for s in walk_block(stmt.body) if isinstance(s, Assign)}
    found: dict[Expr, str] = {}
    for e in exprs(stmt.body):
        if isinstance(e, Cast) and isinstance(e.x, Name) and e.x.id not in assigned and e not in found:
            found[e] = f"{e.x.id}_{e.type.dtype.lstrip('@')}"
    if not found:
        return stmt

    def expr(e: Expr) -> Expr:
        return Name(found[e], type=e.type, span=e.span) if e in found else e

    inside = map_block(stmt.body, lambda s: map_stmt_exprs(s, lambda e: map_expr(e, expr)))
    before = tuple(Assign(name, e, span=stmt.span) for e, name in found.items())
    return (*before, replace(stmt, body=inside))
