"""Exponents of gate differences stay finite (K601), and exp2 becomes exp with ln 2 folded into the gate.

    a *= exp2(g[t][:, None] - g[t][None, :])   -->   a *= exp(minimum(g'[:, None] - g'[None, :], 0))   # g' = g[t] * LN2
    A[t] = tril(a * …, -1)

Above the diagonal the difference of a decaying gate is positive and may overflow; there the value is thrown away by
a later `tril`, so the exponent may be clipped at 0 exactly where every use is under one. Without the decay fact it
is masked to -inf. The matrix unit's partner has an exp instruction and no exp2: folding ln 2 into the vector saves a
multiply of the whole tile.
"""

from __future__ import annotations

from kgen.ir import build
from kgen.ir.nodes import Assign, Binary, Call, Expand, Expr, Kernel, Name, PartAssign, Read, Stmt, Transpose, Unary
from kgen.ir.rewrite import map_block, map_expr, map_operands, map_stmt_exprs, stmt_exprs, walk_block, with_body
from kgen.passes.context import Context

LN2 = build.name("LN2")
ZERO = build.num(0.0)
PER_ELEMENT = build.ELEMENTWISE | {"maximum", "minimum", "where"}


def clip_exponents(kernel: Kernel, context: Context) -> Kernel:
    """`tril(exp2(g_i - g_j) * x)` --> `tril(exp2(minimum(g_i - g_j, 0)) * x)`."""
    assigned = _single_values(kernel.body)
    full = _fully_used(kernel.body)

    def statement(stmt: Stmt) -> Stmt:
        lower = isinstance(stmt, Assign) and stmt.target not in full
        return map_stmt_exprs(stmt, lambda e: _clip(e, lower, assigned, context))

    return with_body(kernel, map_block(kernel.body, statement))


def exponent_base(kernel: Kernel, context: Context) -> Kernel:
    """`exp2(x - y)` --> `exp(x * LN2 - y * LN2)`, the factor as near to the loads as it goes."""

    def expr(e: Expr) -> Expr:
        if isinstance(e, Call) and e.fn == "exp2":
            return build.call("exp", (_scaled(e.args[0]),), span=e.span)
        return e

    return with_body(kernel, map_block(kernel.body, lambda s: map_stmt_exprs(s, lambda e: map_expr(e, expr))))


def _scaled(e: Expr) -> Expr:
    if isinstance(e, Binary) and e.op in {"+", "-"}:
        return build.binary(e.op, _scaled(e.a), _scaled(e.b), e.span)
    if isinstance(e, Expand):
        return build.expand(_scaled(e.x), e.axis, e.span)
    if isinstance(e, Call) and e.fn == "minimum" and e.args[1] == ZERO:
        return build.call("minimum", (_scaled(e.args[0]), ZERO), span=e.span)
    if isinstance(e, Call) and e.fn == "tril" and e.option("fill") is not None:
        return build.call("tril", (_scaled(e.args[0]),), dict(e.options), e.span)
    return build.binary("*", e, LN2, e.span)


# ---------------------------------------------------------------- who sees what is above the diagonal


def _children_demand(e: Expr, lower: bool) -> list[tuple[Expr, bool]]:
    """Sub-expressions, each with whether only its lower triangle is looked at."""
    if isinstance(e, Call) and e.fn == "tril":
        k = e.option("k", 0)
        return [(e.args[0], lower or (isinstance(k, int) and k <= 0))]
    if isinstance(e, (Binary, Unary)) or (isinstance(e, Call) and e.fn in PER_ELEMENT):
        operands = [e.a, e.b] if isinstance(e, Binary) else [e.x] if isinstance(e, Unary) else list(e.args)
        return [(x, lower and x.type.rank == 2) for x in operands]
    if isinstance(e, Call):
        return [(a, False) for a in e.args]
    if isinstance(e, (Expand, Transpose)):
        return [(e.x, False)]
    return []


def _fully_used(body: tuple[Stmt, ...]) -> set[str]:
    """Local tiles of which some use sees more than the lower triangle."""
    full: set[str] = set()
    while True:
        before = len(full)
        for stmt in walk_block(body):
            lower = isinstance(stmt, Assign) and stmt.target not in full
            for e in stmt_exprs(stmt):
                _mark(e, lower, full)
            if isinstance(stmt, PartAssign):
                full.add(stmt.target)
        if len(full) == before:
            return full


def _mark(e: Expr, lower: bool, full: set[str]) -> None:
    if isinstance(e, Name) and not lower:
        full.add(e.id)
    elif hasattr(e, "base"):  # a slice sees all of its tile
        full.add(e.base)
    for child, low in _children_demand(e, lower):
        _mark(child, low, full)


def _clip(e: Expr, lower: bool, assigned: dict[str, Expr], context: Context) -> Expr:
    """Rewrites exponents whose value above the diagonal nobody looks at."""
    if isinstance(e, Call) and e.fn in {"exp", "exp2"} and lower and _gate_difference(e.args[0], assigned):
        arg = e.args[0]
        if _decays(arg, assigned, context):
            return build.call(e.fn, (build.call("minimum", (arg, ZERO), span=e.span),), span=e.span)
        return build.call(e.fn, (build.call("tril", (arg,), {"k": 0, "fill": "-inf"}, e.span),), span=e.span)
    demands = {id(child): low for child, low in _children_demand(e, lower)}
    return map_operands(e, lambda x: _clip(x, demands.get(id(x), False), assigned, context))


def _single_values(body: tuple[Stmt, ...]) -> dict[str, Expr]:
    """Values of local names that are assigned once."""
    values: dict[str, list[Expr]] = {}
    for stmt in walk_block(body):
        if isinstance(stmt, Assign):
            values.setdefault(stmt.target, []).append(stmt.value)
    return {name: v[0] for name, v in values.items() if len(v) == 1}


def _gate(e: Expr, assigned: dict[str, Expr]) -> Read | None:
    while isinstance(e, Name) and e.id in assigned:
        e = assigned[e.id]
    return e if isinstance(e, Read) else None


def _gate_difference(e: Expr, assigned: dict[str, Expr]) -> bool:
    """Whether `e` is rows[:, None] - rows[None, :] of one vector."""
    if not (isinstance(e, Binary) and e.op == "-" and isinstance(e.a, Expand) and isinstance(e.b, Expand)):
        return False
    a, b = _gate(e.a.x, assigned), _gate(e.b.x, assigned)
    same = a is not None and b is not None and (a.tensor, a.index) == (b.tensor, b.index)
    return e.a.axis == 1 and e.b.axis == 0 and same


def _decays(e: Expr, assigned: dict[str, Expr], context: Context) -> bool:
    assert isinstance(e, Binary) and isinstance(e.a, Expand)
    gate = _gate(e.a.x, assigned)
    return gate is not None and context.tensor(gate.tensor).decay
