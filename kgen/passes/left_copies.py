"""A tile that is read again after being the left operand of a dot is copied first (K201).

    b_o += dot(b_q, b_h)               b_q_left = b_q + 0.0
    b_a += dot(b_q, b_k.T)     -->     b_o += dot(b_q_left, b_h)
                                       b_a += dot(b_q, b_k.T)

The matrix unit may overwrite its left operand where it lies. A tile made outside a loop is read again by the next iteration.
A cast or a sum made for the dot alone is nobody else's and needs no copy.
"""

from __future__ import annotations

from dataclasses import replace

from kgen.ir import build
from kgen.ir.nodes import Assign, Binary, Call, Expr, For, If, Kernel, Name, Stmt, Transpose, children
from kgen.ir.rewrite import bodies, map_operands, map_stmt_exprs, names_in, stmt_exprs, with_bodies, with_body
from kgen.passes.context import Context


def left_copies(kernel: Kernel, context: Context) -> Kernel:
    """`dot(x, y); … x …` --> `x_left = x + 0.0; dot(x_left, y); … x …`."""
    return with_body(kernel, _block(kernel.body, frozenset()))


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


def _block(block: tuple[Stmt, ...], later: frozenset[str]) -> tuple[Stmt, ...]:
    """`later`: names read after this block, by what follows it or by the next iteration of a loop around it."""
    out: list[Stmt] = []
    changed = False
    for position, stmt in enumerate(block):
        after = _live_after(block[position + 1 :], later)
        copies: list[Stmt] = []
        new = map_stmt_exprs(stmt, lambda e: _copy_left(e, after, copies, stmt))  # noqa: B023
        if isinstance(new, For):
            new = with_bodies(new, (_block(new.body, frozenset(after | _exposed(new.body))),))
        elif isinstance(new, If):
            new = with_bodies(new, tuple(_block(b, frozenset(after)) for b in bodies(new)))
        changed |= new is not stmt or bool(copies)
        out.extend((*copies, new))
    return tuple(out) if changed else block


def _live_after(rest: tuple[Stmt, ...], later: frozenset[str]) -> set[str]:
    """Names whose present value may still be read: by the rest of the block before it assigns them, or later."""
    assigned = {s.target for s in rest if isinstance(s, Assign)}
    return _exposed(rest) | (set(later) - assigned)


def _copy_left(e: Expr, after: set[str], copies: list[Stmt], stmt: Stmt) -> Expr:
    # left to right inside one expression: what a later operand reads counts as read after
    e = map_operands(e, lambda x: _copy_left(x, after | _siblings(e, x), copies, stmt))
    if not (isinstance(e, Call) and e.fn == "dot"):
        return e
    left = e.args[0].x if isinstance(e.args[0], Transpose) else e.args[0]
    if not isinstance(left, Name) or left.id not in after:
        return e
    copy = Name(f"{left.id}_left", type=left.type, span=left.span)
    if not any(isinstance(c, Assign) and c.target == copy.id for c in copies):
        plus = Binary("+", left, build.num(0.0), type=left.type, span=left.span)
        copies.append(Assign(copy.id, plus, span=stmt.span, note="K201: the dot may overwrite its left operand"))
    operand: Expr = copy if left is e.args[0] else build.transpose(copy)
    return replace(e, args=(operand, e.args[1]))


def _siblings(parent: Expr, child: Expr) -> set[str]:
    """Names that the parent's other operands read."""
    return {n for c in children(parent) if c is not child for n in names_in(c)}
