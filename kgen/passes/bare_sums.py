"""A dot is not added to a tile that no vector code has touched since it was carried or summed (K203).

    if g:                                        if USE_G:
        S *= exp(g_last)                             S = S * exp(g_last)
    S += dot(k_t.T, x)                 -->           S = S + dot(k_t.T, x)
                                                 else:
                                                     S = S - dot(k_t.T, -x)

ascendnpu-ir 1.2.0 folds such a sum into the matrix unit's accumulator. For a tile that other code in the loop reads too
it then crashes; for one that a loop has summed it fails with "Unsupported copy from cc to cc". A difference isn't
folded, and negating an operand rounds nothing. A sum that only its own loop builds up stays: that one belongs in L0C.
The evidence is with the target's facts, under `rules`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kgen.ir import build
from kgen.ir.nodes import (
    Assign,
    Binary,
    Call,
    Cast,
    Expr,
    For,
    If,
    Kernel,
    Name,
    Stmt,
    Store,
    Transpose,
    Type,
    children,
)
from kgen.ir.rewrite import (
    assigned,
    map_operands,
    map_stmt_exprs,
    names_in,
    stmt_exprs,
    walk_block,
    with_bodies,
    with_body,
)
from kgen.passes.context import Context
from kgen.passes.names import Fresh

NOTE = "K203: a sum the compiler would fold into the matrix unit, where it can't be"


@dataclass(frozen=True)
class _Loop:
    """A loop around a statement: what it carries, and how often each name is read in it."""

    carried: set[str]
    reads: dict[str, int]


@dataclass(frozen=True)
class _Place:
    """What is known where a statement stands: statements before it, the loop around it, flags that are set."""

    earlier: tuple[Stmt, ...] = ()
    loop: _Loop | None = None
    flags: tuple[Expr, ...] = ()

    def after(self, done: tuple[Stmt, ...]) -> _Place:
        return replace(self, earlier=self.earlier + done)


def bare_sums(kernel: Kernel, context: Context) -> Kernel:
    """`x + dot(a, b)` with x untouched by vector code --> `x - dot(a, -b)`."""
    return with_body(kernel, _block(kernel.body, _Place(), Fresh(kernel)))


def _block(block: tuple[Stmt, ...], place: _Place, fresh: Fresh) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for position, stmt in enumerate(block):
        here = place.after(block[:position])
        if isinstance(stmt, For):
            outer = place.loop.carried if place.loop else set()
            loop = _Loop(assigned(stmt.body) & (assigned(here.earlier) | outer), _counts(stmt.body))
            out.append(with_bodies(stmt, (_block(stmt.body, _Place((), loop, here.flags), fresh),)))
        elif isinstance(stmt, If):
            yes, no = replace(here, flags=(*here.flags, stmt.test)), here
            out.append(with_bodies(stmt, (_block(stmt.body, yes, fresh), _block(stmt.orelse, no, fresh))))
        else:
            out.extend(_statement(stmt, here, fresh))
    same = len(out) == len(block) and all(p is q for p, q in zip(out, block, strict=True))
    return block if same else tuple(out)


def _counts(block: tuple[Stmt, ...]) -> dict[str, int]:
    out: dict[str, int] = {}
    for stmt in walk_block(block):
        for e in stmt_exprs(stmt):
            for name in names_in(e):
                out[name] = out.get(name, 0) + 1
    return out


def _statement(stmt: Stmt, place: _Place, fresh: Fresh) -> tuple[Stmt, ...]:
    """The statement, or a choice between it and its other form on the flag that decides; a store's value is named."""
    for e in (s for root in stmt_exprs(stmt) for s in _sums(root)):
        touched = _touched(e.a.id, place) if isinstance(e.a, Name) else True
        if touched is True:
            continue
        after: tuple[Stmt, ...] = ()
        if isinstance(stmt, Store):
            name = build.name(fresh.of(f"b_{stmt.tensor}"), stmt.value.type, stmt.span)
            after = (replace(stmt, value=name),)
            stmt = Assign(name.id, stmt.value, span=stmt.span)
        new = replace(map_stmt_exprs(stmt, lambda x, e=e: _rewrite(x, e)), note=NOTE)  # type: ignore[misc]
        return (new if touched is False else If(touched, (stmt,), (new,), span=stmt.span), *after)
    return (stmt,)


def _sums(e: Expr) -> list[Binary]:
    """Every `name + dot(…)` in an expression."""
    found = [x for c in children(e) for x in _sums(c)]
    return [*found, e] if isinstance(e, Binary) and e.op == "+" and isinstance(e.a, Name) and _is_dot(e.b) else found


def _is_dot(e: Expr) -> bool:
    return isinstance(e, Call) and e.fn == "dot"


def _touched(name: str, place: _Place) -> bool | Expr:
    """Whether a dot may be added to the tile as it is: yes, no, or only where a flag is set."""
    for position in range(len(place.earlier) - 1, -1, -1):
        stmt = place.earlier[position]
        if isinstance(stmt, Assign) and stmt.target == name:
            return True  # a dot before a dot, with no loop between them, is one sum in L0C and may be
        if name not in assigned((stmt,)):
            continue
        if isinstance(stmt, For):
            return False
        if isinstance(stmt, If) and not stmt.orelse and stmt.test not in place.flags:
            rest = _touched(name, replace(place, earlier=place.earlier[:position]))
            return stmt.test if rest is False else rest
        return True
    if place.loop is None or name not in place.loop.carried:
        return True
    return place.loop.reads.get(name, 0) <= 1  # read by its own sum alone: that sum stays in L0C


def _rewrite(e: Expr, target: Binary) -> Expr:
    if e is target:
        assert isinstance(e, Binary) and isinstance(e.b, Call)
        return build.binary("-", e.a, _negated(e.b), e.span)
    return map_operands(e, lambda x: _rewrite(x, target))


def _negated(dot: Call) -> Call:
    """The dot with one operand negated: a computed one, in fp32 and before it is rounded, where there is one."""
    left, right = dot.args
    if _computed(left) and not _computed(right):
        return replace(dot, args=(_minus(left), right))
    return replace(dot, args=(left, _minus(right)))


def _computed(e: Expr) -> bool:
    return e.type.dtype == "fp32" or isinstance(e, Cast)


def _minus(e: Expr) -> Expr:
    if isinstance(e, Transpose):
        return Transpose(_minus(e.x), type=e.type, span=e.span)
    if isinstance(e, Cast):
        return replace(e, x=build.unary("-", build.cast(e.x, "fp32"), e.span))
    if e.type.dtype == "fp32":
        return build.unary("-", e, e.span)
    wide = build.unary("-", build.cast(e, "fp32"), e.span)
    return Cast(wide, type=Type(e.type.axes, e.type.dtype), span=e.span)
