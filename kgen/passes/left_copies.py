"""A tile that is read again after being the left operand of a dot is copied first (K201).

    b_o += dot(b_q, b_h)               b_q_left = b_q + 0.0
    b_a += dot(b_q, b_k.T)     -->     b_o += dot(b_q_left, b_h)
                                       b_a += dot(b_q, b_k.T)

The matrix unit may overwrite its left operand where it lies. A tile made outside a loop is read again by the next
iteration. A sum made for the dot alone is nobody else's and needs no copy; a cast may be to the type that the tile
has already, and then is the tile itself, as is a name that only renames another.
"""

from __future__ import annotations

from dataclasses import replace

from kgen.ir import build
from kgen.ir.nodes import Assign, Binary, Call, Cast, Expr, For, If, Kernel, Name, Stmt, Transpose, children
from kgen.ir.rewrite import (
    bodies,
    exprs,
    map_expr,
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


def left_copies(kernel: Kernel, context: Context) -> Kernel:
    """`dot(x, y); … x …` --> `x_left = x + 0.0; dot(x_left, y); … x …`."""
    return with_body(kernel, _Copies(kernel).block(kernel.body, frozenset()))


def _exposed(block: tuple[Stmt, ...]) -> set[str]:
    """Names whose value from before the block it may read."""
    out: set[str] = set()
    made: set[str] = set()
    for stmt in block:
        out |= {n for e in stmt_exprs(stmt) for n in names_in(e)} - made
        for inner in bodies(stmt):
            out |= _exposed(inner) - made
        if isinstance(stmt, Assign):
            made.add(stmt.target)
    return out


class _Copies:
    """Copies the left operands of one kernel where they must be."""

    def __init__(self, kernel: Kernel) -> None:
        self.fresh, self.names = Fresh(kernel), dict[tuple[str, int], str]()
        self.same = _renamed(kernel.body)
        dots = (e for e in exprs(kernel.body) if isinstance(e, Call) and e.fn == "dot")
        lefts = (_bare(e.args[0]) for e in dots)
        self.lefts = {n for e in lefts if isinstance(e, Name) for n in self.same.get(e.id, {e.id})}

    def block(self, block: tuple[Stmt, ...], later: frozenset[str]) -> tuple[Stmt, ...]:
        """`later`: names read after this block, by what follows it or by the next iteration of a loop around it."""
        out: list[Stmt] = []
        for position, stmt in enumerate(block):
            after = _live_after(block[position + 1 :], later)
            copies: list[Stmt] = []
            new = map_stmt_exprs(stmt, lambda e: self.copy_left(e, after, copies, stmt))  # noqa: B023
            if isinstance(new, Assign) and new.target in self.lefts and _is_eye(new.value):
                new = replace(new, value=_sum_with_zero(new.value))
            if isinstance(new, For):
                new = with_bodies(new, (self.block(new.body, frozenset(after | _exposed(new.body))),))
            elif isinstance(new, If):
                new = with_bodies(new, tuple(self.block(b, frozenset(after)) for b in bodies(new)))
            out.extend((*copies, new))
        same = len(out) == len(block) and all(p is q for p, q in zip(out, block, strict=True))
        return block if same else tuple(out)

    def copy_left(self, e: Expr, after: set[str], copies: list[Stmt], stmt: Stmt) -> Expr:
        # left to right inside one expression: what a later operand reads counts as read after
        e = map_operands(e, lambda x: self.copy_left(x, after | _siblings(e, x), copies, stmt))
        if not (isinstance(e, Call) and e.fn == "dot"):
            return e
        left = _bare(e.args[0])
        if _is_eye(left):
            return replace(e, args=(map_expr(e.args[0], lambda x: _sum_with_zero(x) if x is left else x), e.args[1]))
        if not isinstance(left, Name) or not self.same.get(left.id, {left.id}) & after:
            return e
        key = (left.id, sum(isinstance(c, Assign) and c.value == _sum_with_zero(left) for c in copies))
        if key not in self.names:  # each dot of a statement overwrites a copy of its own
            self.names[key] = self.fresh.of(f"{left.id}_left")
        copy = Name(self.names[key], type=left.type, span=left.span)
        note = "K201: the dot may overwrite its left operand"
        copies.append(Assign(copy.id, _sum_with_zero(left), span=stmt.span, note=note))
        return replace(e, args=(map_expr(e.args[0], lambda x: copy if x is left else x), e.args[1]))


def _bare(e: Expr) -> Expr:
    """An operand without what may leave its tile where it is."""
    while isinstance(e, (Transpose, Cast)):
        e = e.x
    return e


def _is_eye(e: Expr) -> bool:
    """The identity will be made once for all tasks, and all of them read it."""
    return isinstance(e, Call) and e.fn == "eye"


def _sum_with_zero(x: Expr) -> Expr:
    return Binary("+", x, build.num(0.0), type=x.type, span=x.span)


def _renamed(block: tuple[Stmt, ...]) -> dict[str, set[str]]:
    """Names that may be one tile, since one was assigned to the other as it is."""
    same: dict[str, set[str]] = {}
    for stmt in walk_block(block):
        if isinstance(stmt, Assign) and isinstance(stmt.value, Name):
            a, b = stmt.target, stmt.value.id
            joined = same.get(a, {a}) | same.get(b, {b})
            same.update(dict.fromkeys(joined, joined))
    return same


def _live_after(rest: tuple[Stmt, ...], later: frozenset[str]) -> set[str]:
    """Names whose present value may still be read: by the rest of the block before it assigns them, or later."""
    assigned = {s.target for s in rest if isinstance(s, Assign)}
    return _exposed(rest) | (set(later) - assigned)


def _siblings(parent: Expr, child: Expr) -> set[str]:
    """Names that the parent's other operands read."""
    return {n for c in children(parent) if c is not child for n in names_in(c)}
