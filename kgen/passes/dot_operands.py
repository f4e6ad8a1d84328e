"""Operands of a dot: 16-bit ones go in as loaded, computed fp32 ones take their partner's type (K202).

    dot(b_w, b_S)                 -->   dot(b_w, b_S.to(w))            a loaded operand is never widened first
    for bv: dot(b_m, b_v)         -->   b_m_v = b_m.to(v); for bv: dot(b_m_v, b_v)
    dot(b_n, b_d, exact=True)     -->   both fp32, IEEE

Rounding happens here and in stores, nowhere else. A cast whose source doesn't change in a loop is made before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from kgen.ir import build
from kgen.ir.nodes import Assign, Call, Cast, Expr, For, Kernel, Name, Stmt, Transpose, Type
from kgen.ir.rewrite import (
    assigned,
    map_block,
    map_expr,
    map_exprs,
    map_stmt_exprs,
    stmt_exprs,
    walk_expr,
    with_body,
)
from kgen.passes.context import Context
from kgen.passes.names import Fresh


def dot_operands(kernel: Kernel, context: Context) -> Kernel:
    """`dot(a, x)` with x computed --> `dot(a, x.to(a's type))`."""
    fallback, hoist = _fallback(kernel, context), _Hoist(Fresh(kernel))

    def expr(e: Expr) -> Expr:
        return _cast_operands(e, fallback, context) if isinstance(e, Call) and e.fn == "dot" else e

    body = map_exprs(kernel.body, expr)
    return with_body(kernel, map_block(body, hoist.statement))


def _fallback(kernel: Kernel, context: Context) -> str:
    """The element type for a dot of two computed operands: that of a tensor of the spec's `dot_dtype`."""
    for param in kernel.params:
        if context.tensor(param).dtype == context.spec.dot_dtype and not context.optional(param):
            return f"@{param}"
    return "fp32"


def _cast_operands(dot: Call, fallback: str, context: Context) -> Expr:
    a, b = dot.args
    if dot.option("exact"):
        want_a = want_b = "fp32"
    else:
        loaded = [x.type.dtype for x in (a, b) if x.type.dtype.startswith("@")]
        partner = (loaded or [fallback])[0]
        if len({context.tensor(t[1:]).dtype for t in loaded}) > 1:  # stored in types that may differ: one gives way
            partner = next((t for t in loaded if context.tensor(t[1:]).dtype == context.spec.dot_dtype), partner)
            loaded = [partner]
        want_a = a.type.dtype if a.type.dtype in loaded else partner
        want_b = b.type.dtype if b.type.dtype in loaded else partner
    x, y = _cast(a, want_a), _cast(b, want_b)
    return dot if x is a and y is b else replace(dot, args=(x, y))


def _cast(e: Expr, dtype: str) -> Expr:
    if isinstance(e, Transpose):
        x = _cast(e.x, dtype)
        return e if x is e.x else Transpose(x, type=Type(e.type.axes, dtype), span=e.span)
    return build.cast(e, dtype)


@dataclass
class _Hoist:
    """Casts of names that a loop doesn't assign go before the loop, under the name that they have everywhere."""

    fresh: Fresh
    names: dict[tuple[str, str], str] = field(default_factory=dict)

    def statement(self, stmt: Stmt) -> Stmt | tuple[Stmt, ...]:
        if not (isinstance(stmt, For) and stmt.kind == "tiles"):
            return stmt
        made = assigned(stmt.body)
        found: dict[Expr, str] = {}
        for e in _unconditional(stmt.body):
            if isinstance(e, Cast) and isinstance(e.x, Name) and e.x.id not in made and e not in found:
                found[e] = self.name(e.x.id, e.type.dtype.lstrip("@"))
        if not found:
            return stmt

        def expr(e: Expr) -> Expr:
            return Name(found[e], type=e.type, span=e.span) if e in found else e

        def inner(s: Stmt) -> Stmt | tuple[Stmt, ...]:
            again = isinstance(s, Assign) and found.get(s.value) == s.target  # a loop inside hoisted it this far
            return () if again else map_stmt_exprs(s, lambda e: map_expr(e, expr))

        inside = map_block(stmt.body, inner)
        before = tuple(Assign(name, e, span=stmt.span) for e, name in found.items())
        return (*before, replace(stmt, body=inside))

    def name(self, source: str, dtype: str) -> str:
        key = (source, dtype)
        if key not in self.names:
            self.names[key] = self.fresh.of(f"{source}_{dtype}")
        return self.names[key]


def _unconditional(block: tuple[Stmt, ...]) -> Iterator[Expr]:
    """Sub-expressions outside every `if`: a name read in one may not exist where its flag is off."""
    for stmt in block:
        for e in stmt_exprs(stmt):
            yield from walk_expr(e)
        if isinstance(stmt, For):
            yield from _unconditional(stmt.body)
