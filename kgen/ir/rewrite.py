"""Walking and rewriting: bottom-up maps that return the same object where nothing changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from kgen.ir.nodes import (
    Access,
    Assign,
    Binary,
    Call,
    Cast,
    Expand,
    Expr,
    For,
    If,
    IfExp,
    Kernel,
    Load,
    Loop,
    PartAssign,
    Stmt,
    Store,
    StoreTile,
    Transpose,
    Unary,
    children,
)

ExprFn = Callable[[Expr], Expr]
StmtFn = Callable[[Stmt], Stmt | tuple[Stmt, ...]]


def map_expr(node: Expr, fn: ExprFn) -> Expr:
    """`fn` on every sub-expression, innermost first."""
    return fn(map_operands(node, lambda e: map_expr(e, fn)))


def map_operands(node: Expr, go: ExprFn) -> Expr:
    """`go` on each direct operand; the same object when none changes."""
    if isinstance(node, Binary):
        a, b = go(node.a), go(node.b)
        return node if a is node.a and b is node.b else replace(node, a=a, b=b)
    if isinstance(node, (Unary, Transpose, Expand, Cast)):
        x = go(node.x)
        return node if x is node.x else replace(node, x=x)
    if isinstance(node, Call):
        args = tuple(go(a) for a in node.args)
        return node if all(p is q for p, q in zip(args, node.args, strict=True)) else replace(node, args=args)
    if isinstance(node, IfExp):
        test, a, b = go(node.test), go(node.a), go(node.b)
        same = test is node.test and a is node.a and b is node.b
        return node if same else replace(node, test=test, a=a, b=b)
    if isinstance(node, Load):
        access = _map_access(node.access, go)
        return node if access is node.access else replace(node, access=access)
    return node


def _map_access(access: Access, go: ExprFn) -> Access:
    base = go(access.base)
    axes = tuple(
        replace(a, extent=go(a.extent), stride=go(a.stride), offset=go(a.offset), check=a.check and go(a.check))
        for a in access.axes
    )
    return access if base is access.base and axes == access.axes else replace(access, base=base, axes=axes)


def stmt_exprs(stmt: Stmt) -> Iterator[Expr]:
    """The expressions a statement holds itself, not those of its body."""
    if isinstance(stmt, (Assign, PartAssign, Store)):
        yield stmt.value
    elif isinstance(stmt, StoreTile):
        yield stmt.value
        yield from children(Load(stmt.access))
    elif isinstance(stmt, If):
        yield stmt.test
    elif isinstance(stmt, Loop):
        yield from (e for e in (stmt.start, stmt.stop, stmt.step) if e is not None)


def map_stmt_exprs(stmt: Stmt, fn: ExprFn) -> Stmt:
    """`fn` on each whole expression that the statement holds itself (not on sub-expressions, not in bodies)."""
    if isinstance(stmt, (Assign, PartAssign, Store)):
        value = fn(stmt.value)
        return stmt if value is stmt.value else replace(stmt, value=value)
    if isinstance(stmt, StoreTile):
        value, access = fn(stmt.value), _map_access(stmt.access, fn)
        return stmt if value is stmt.value and access is stmt.access else replace(stmt, value=value, access=access)
    if isinstance(stmt, If):
        test = fn(stmt.test)
        return stmt if test is stmt.test else replace(stmt, test=test)
    if isinstance(stmt, Loop):
        start, stop, step = fn(stmt.start), fn(stmt.stop), stmt.step and fn(stmt.step)
        same = start is stmt.start and stop is stmt.stop and step is stmt.step
        return stmt if same else replace(stmt, start=start, stop=stop, step=step)
    return stmt


def bodies(stmt: Stmt) -> tuple[tuple[Stmt, ...], ...]:
    """The blocks nested in a statement."""
    if isinstance(stmt, (For, Loop)):
        return (stmt.body,)
    if isinstance(stmt, If):
        return (stmt.body, stmt.orelse)
    return ()


def with_bodies(stmt: Stmt, blocks: tuple[tuple[Stmt, ...], ...]) -> Stmt:
    """The statement with its nested blocks replaced; the same object when they are the same."""
    if all(p is q for p, q in zip(bodies(stmt), blocks, strict=True)):
        return stmt
    if isinstance(stmt, (For, Loop)):
        return replace(stmt, body=blocks[0])
    assert isinstance(stmt, If)
    return replace(stmt, body=blocks[0], orelse=blocks[1])


def map_block(block: tuple[Stmt, ...], fn: StmtFn) -> tuple[Stmt, ...]:
    """`fn` on every statement, innermost first; a tuple replaces the statement by several or none."""
    out: list[Stmt] = []
    for stmt in block:
        new = fn(with_bodies(stmt, tuple(map_block(b, fn) for b in bodies(stmt))))
        out.extend(new if isinstance(new, tuple) else (new,))
    same = len(out) == len(block) and all(p is q for p, q in zip(out, block, strict=True))
    return block if same else tuple(out)


def map_exprs(block: tuple[Stmt, ...], fn: ExprFn) -> tuple[Stmt, ...]:
    """`fn` on every sub-expression of every statement, innermost first."""
    return map_block(block, lambda s: map_stmt_exprs(s, lambda e: map_expr(e, fn)))


def with_body(kernel: Kernel, body: tuple[Stmt, ...], prologue: tuple[Stmt, ...] | None = None) -> Kernel:
    """The kernel with another body; the same object when nothing changed."""
    before = kernel.prologue if prologue is None else prologue
    if body is kernel.body and before == kernel.prologue:
        return kernel
    return replace(kernel, body=body, prologue=before)


def walk_block(block: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement, outer before inner."""
    for stmt in block:
        yield stmt
        for inner in bodies(stmt):
            yield from walk_block(inner)


def assigned(block: tuple[Stmt, ...]) -> set[str]:
    """The names that a block assigns, those of inner blocks among them."""
    return {s.target for s in walk_block(block) if isinstance(s, Assign)}


def walk_expr(node: Expr) -> Iterator[Expr]:
    """Every sub-expression, outer before inner."""
    yield node
    for child in children(node):
        yield from walk_expr(child)


def exprs(block: tuple[Stmt, ...]) -> Iterator[Expr]:
    """Every sub-expression of every statement."""
    for stmt in walk_block(block):
        for e in stmt_exprs(stmt):
            yield from walk_expr(e)


def names_in(node: Expr) -> set[str]:
    """The local names an expression reads; a slab or slice reads its tile."""
    from kgen.ir.nodes import Name, Part

    out: set[str] = set()
    for e in walk_expr(node):
        if isinstance(e, Name):
            out.add(e.id)
        elif isinstance(e, Part):
            out.add(e.base)
    return out
