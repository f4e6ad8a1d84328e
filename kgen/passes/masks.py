"""Masks: triangles hoisted as fp32 tiles, and void elements blanked only where a contraction needs it (K601, K604).

    A[t] = tril(b_a, -1)   -->   m_strict = clamp(o_t[:, None] - o_t[None, :], 0, 1)   # once a core, before the tasks
                                 A[t] = b_a * m_strict
    sum(exp(b_x), 1)       -->   sum(where(valid(bk) > 0, exp(b_x), 0), 1)                # void lanes hold exp(0)

A triangle of a tile that may hold inf or NaN above the diagonal is a select, since inf * 0 is NaN. Index masks are
fp32 arithmetic on lane numbers: integer compares other than i32 == and != run as scalar loops. What is loaded is taken
to be finite: NaN in an input spreads over its chunk, as it does through the zeros of any dot.
"""

from __future__ import annotations

from dataclasses import replace

from kgen.ir import build
from kgen.ir.nodes import Assign, Axis, Call, Cast, Expr, For, If, IndexRef, Kernel, Name, Num, Stmt, Store, Type
from kgen.ir.rewrite import map_operands, map_stmt_exprs, with_bodies, with_body
from kgen.passes.context import Context
from kgen.passes.facts import UNKNOWN, ZERO, Env, Fact, fact, flow, loop_entry, neutral, step
from kgen.passes.names import Fresh

FZERO, FONE = build.num(0.0), build.num(1.0)


class _Prologue:
    """Statements before the task loop: lane numbers and masks, each once."""

    def __init__(self, kernel: Kernel) -> None:
        self.fresh, self.names = Fresh(kernel), dict[str, str]()
        self.stmts: dict[str, Assign] = {}

    def lanes(self, axis: Axis) -> Name:
        """fp32 lane numbers 0, 1, … of an axis."""
        return self._named(f"o_{axis.name}", Call("lanes", (IndexRef(axis),), type=Type((axis,), "fp32")))

    def triangle(self, axis: Axis, k: int) -> Name:
        """1 on and below diagonal k, 0 above."""
        o = self.lanes(axis)
        distance = build.binary("-", build.expand(o, 1), build.expand(o, 0))
        if k != -1:
            distance = build.binary("+", distance, build.num(float(k + 1)))
        named = {0: "m_lower", -1: "m_strict"}.get(k, f"m_tril_{k}".replace("-", "m"))
        return self._named(named if axis.name == "t" else f"{named}_{axis.name}", clamp01(distance))

    def eye(self, axis: Axis) -> Name:
        """The identity."""
        o = self.lanes(axis)
        distance = build.call("abs", (build.binary("-", build.expand(o, 1), build.expand(o, 0)),))
        value = build.binary("-", FONE, build.call("minimum", (distance, FONE)))
        return self._named("m_eye" if axis.name == "t" else f"m_eye_{axis.name}", value)

    def _named(self, name: str, value: Expr) -> Name:
        if name not in self.names:
            self.names[name] = self.fresh.of(name)
            self.stmts[name] = Assign(self.names[name], value)
        return Name(self.names[name], type=value.type)


def clamp01(x: Expr) -> Expr:
    """x limited to 0 … 1."""
    return build.call("minimum", (build.call("maximum", (x, FZERO)), FONE))


def masks(kernel: Kernel, context: Context) -> Kernel:
    """`tril(x)` --> `x * m_lower`; void operands of contractions --> masked."""
    prologue = _Prologue(kernel)
    env: Env = {s.id: Fact() for s in (build.name(n) for n in (*context.spec.scalars, "LN2"))}
    body = _block(kernel.body, env, context, prologue)
    return with_body(kernel, body, (*kernel.prologue, *prologue.stmts.values()))


def _block(block: tuple[Stmt, ...], env: Env, context: Context, prologue: _Prologue) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for stmt in block:
        if isinstance(stmt, For):
            env = loop_entry(stmt, env, context)
            new = with_bodies(stmt, (_block(stmt.body, env, context, prologue),))
        elif isinstance(stmt, If):
            blocks = tuple(_block(b, env, context, prologue) for b in (stmt.body, stmt.orelse))
            new = with_bodies(stmt, blocks)
        else:
            here = env
            new = map_stmt_exprs(stmt, lambda e: _visit(e, here, context, prologue))  # noqa: B023
            new = _stored_columns(new, stmt, env, context) if isinstance(new, Store) else new
        out.append(new)
        env = flow((stmt,), env, context) if isinstance(stmt, For) else step(stmt, env, context)
    same = all(p is q for p, q in zip(out, block, strict=True))
    return block if same else tuple(out)


def _visit(e: Expr, env: Env, context: Context, prologue: _Prologue) -> Expr:
    if isinstance(e, Call) and e.fn == "tril":
        return _triangle(e, env, context, prologue)
    if isinstance(e, Call) and e.fn == "eye":
        return prologue.eye(e.type.axes[0])
    if isinstance(e, Call) and e.fn in {"onehot", "span"}:
        return _lane_mask(e, prologue)
    if isinstance(e, Call) and e.fn == "dot":
        e = _neutral_dot(e, env, context)
    elif isinstance(e, Call) and e.fn in {"sum", "max", "cumsum"}:
        e = _neutral_reduction(e, env, context)
    return map_operands(e, lambda x: _visit(x, env, context, prologue))


def _triangle(e: Call, env: Env, context: Context, prologue: _Prologue) -> Expr:
    k, x = e.option("k", 0), e.args[0]
    assert isinstance(k, int)
    mask = prologue.triangle(e.type.axes[0], k)
    inner = _visit(x, env, context, prologue)
    if e.option("fill") == "-inf":
        keep = build.binary(">", mask, FZERO)
        return build.call("where", (keep, inner, build.num(float("-inf"))), span=e.span)
    if fact(x, env, context).all_finite:
        return build.binary("*", inner, mask, e.span)
    return build.call("where", (build.binary(">", mask, FZERO), inner, FZERO), span=e.span)


def _lane_mask(e: Call, prologue: _Prologue) -> Expr:
    """`onehot(s, i)`: 1 - min(|o - i|, 1); `span(s, a, b)`: clamp(b - o) and, unless a is 0, clamp(o - a + 1)."""
    o = prologue.lanes(e.type.axes[0])
    if e.fn == "onehot":
        away = build.call("abs", (build.binary("-", o, e.args[1]),))
        return build.binary("-", FONE, build.call("minimum", (away, FONE)))
    start, stop = e.args[1], e.args[2]
    below = clamp01(build.binary("-", stop, o))
    if isinstance(start, Num) and start.value == 0:
        return below
    return build.binary("*", below, clamp01(build.binary("+", build.binary("-", o, start), FONE)))


# ---------------------------------------------------------------- void elements


def valid(axis: Axis) -> Expr:
    """fp32 vector, 1 at valid rows or lanes; the pass that knows extents spells it out."""
    return Call("valid", (IndexRef(axis),), type=Type((axis,), "fp32"))


def _blank(x: Expr, axis: int, fill: float, state: int) -> Expr:
    mask = valid(x.type.axes[axis])
    wide = build.expand(mask, 1 - axis) if x.type.rank == 2 else mask
    if state < UNKNOWN and fill == 0:
        return build.binary("*", x, wide, x.span)
    return build.call("where", (build.binary(">", wide, FZERO), x, build.num(fill)), span=x.span)


def _neutral_dot(e: Call, env: Env, context: Context) -> Call:
    a, b = fact(e.args[0], env, context), fact(e.args[1], env, context)
    if neutral(a, b):
        return e
    left, right = e.args
    if b.axes[0] != ZERO:
        right = _blank_operand(right, 0, b.axes[0])
    if a.axes[1] == UNKNOWN:
        left = _blank_operand(left, 1, UNKNOWN)
    return replace(e, args=(left, right))


def _blank_operand(x: Expr, axis: int, state: int) -> Expr:
    """Blanked in fp32, before the cast to the operand's type."""
    wide = x.x if isinstance(x, Cast) else build.cast(x, "fp32")
    return build.cast(_blank(wide, axis, 0.0, state), x.type.dtype)


def _neutral_reduction(e: Call, env: Env, context: Context) -> Call:
    x, axis = fact(e.args[0], env, context), e.option("axis")
    over = range(len(x.axes)) if axis is None else [axis]
    fill = float("-inf") if e.fn == "max" else 0.0
    value = e.args[0]
    for i in over:
        assert isinstance(i, int)
        if x.axes[i] != ZERO or e.fn == "max":
            value = _blank(value, i, fill, max(x.axes[i], x.corner))
    return e if value is e.args[0] else replace(e, args=(value, *e.args[1:]))


def _stored_columns(new: Store, stmt: Stmt, env: Env, context: Context) -> Stmt:
    """A chunk's own columns are stored in full: those past its end must be zero."""
    assert isinstance(stmt, Store)
    chunk = any(context.kind(d).value == "chunk" for d in context.program_dims(stmt.tensor))
    if not chunk or stmt.value.type.rank < 2:
        return new
    state = fact(stmt.value, env, context).axes[-1]
    return new if state == ZERO else replace(new, value=_blank(new.value, new.value.type.rank - 1, 0.0, state))
