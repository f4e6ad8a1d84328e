"""Each read of a tensor becomes a named load, once for each tile in scope, and locals take their printed names.

    a += dot(k[t, bk], k[t, bk].T)   -->   b_k = k[t, bk]
                                           b_a = b_a + dot(b_k, b_k.T)

A factor LN2 on a gate goes with its load, so that it multiplies the vector once. A name that only renames a load is replaced by
it up to where it is assigned again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kgen.ir.nodes import (
    Assign,
    Binary,
    Expr,
    For,
    If,
    Index,
    Kernel,
    Name,
    Read,
    Row,
    Stmt,
    Type,
)
from kgen.ir.rewrite import map_operands, map_stmt_exprs, walk_block, with_bodies, with_body
from kgen.passes.context import Context

Unit = tuple[str, tuple[Index, ...], bool]  # tensor, index, scaled by LN2


@dataclass
class _Names:
    """Names given so far, kernel-wide, so that the same read has the same name everywhere."""

    context: Context
    units: dict[Unit, str] = field(default_factory=dict)

    def of(self, unit: Unit) -> str:
        if unit not in self.units:
            tensor, index, _ = unit
            row = next((i.fn for i in index if isinstance(i, Row)), "")
            base = f"b_{tensor}" + (f"_{row}" if row else "")
            taken = set(self.units.values())
            count = next(n for n in range(1, 1000) if (base if n == 1 else f"{base}{n}") not in taken)
            self.units[unit] = base if count == 1 else f"{base}{count}"
        return self.units[unit]


def loads(kernel: Kernel, context: Context) -> Kernel:
    """`x = f(k[t, bk])` --> `b_k = k[t, bk]`, `b_x = f(b_k)`."""
    names = _Names(context)
    rebound = _assigned_again(kernel.body)
    return with_body(kernel, _block(kernel.body, frozenset(), {}, names, rebound))


def _assigned_again(body: tuple[Stmt, ...]) -> set[str]:
    seen: set[str] = set()
    twice: set[str] = set()
    for stmt in walk_block(body):
        if isinstance(stmt, Assign):
            (twice if stmt.target in seen else seen).add(stmt.target)
    return twice


def _block(
    block: tuple[Stmt, ...], loaded: frozenset[Unit], alias: dict[str, Expr], names: _Names, rebound: set[str]
) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    alias = dict(alias)
    for position, stmt in enumerate(block):
        before: list[Stmt] = []
        loaded_now = set(loaded)
        new = map_stmt_exprs(stmt, lambda e: _named(e, loaded_now, before, alias, names, stmt))  # noqa: B023
        loaded = frozenset(loaded_now)
        out.extend(before)
        if isinstance(new, Assign):
            alias.pop(new.target, None)
            if isinstance(new.value, Name) and _can_alias(new, block[position + 1 :], rebound):
                alias[new.target] = new.value
                continue
            new = replace(new, target=_printed(new.target))
        elif isinstance(new, (For, If)):
            inner = {k: v for k, v in alias.items() if k not in _targets(new)}
            dropped = set(alias) - set(inner)
            out.extend(Assign(_printed(n), alias.pop(n), span=stmt.span) for n in sorted(dropped))
            new = with_bodies(new, tuple(_block(b, loaded, inner, names, rebound) for b in _blocks(new)))
        out.append(new)
    return tuple(out)


def _blocks(stmt: For | If) -> tuple[tuple[Stmt, ...], ...]:
    return (stmt.body,) if isinstance(stmt, For) else (stmt.body, stmt.orelse)


def _targets(stmt: Stmt) -> set[str]:
    return {s.target for s in walk_block((stmt,)) if isinstance(s, Assign)}


def _can_alias(stmt: Assign, rest: tuple[Stmt, ...], rebound: set[str]) -> bool:
    """Whether the name can stand for the load: never assigned again, or again only by this block's own statements."""
    if stmt.target not in rebound:
        return True
    for later in rest:
        if isinstance(later, Assign) and later.target == stmt.target:
            return True
        if stmt.target in _targets(later):
            return False
    return False


def _named(
    e: Expr, loaded: set[Unit], before: list[Stmt], alias: dict[str, Expr], names: _Names, stmt: Stmt
) -> Expr:
    """The expression with reads replaced by names; new loads go to `before`."""

    def unit(read: Read, scaled: Expr | None) -> Expr:
        key: Unit = (read.tensor, read.index, scaled is not None)
        stored = "fp32" if names.context.always_fp32(read.tensor) else read.type.dtype
        dtype = stored if scaled is None else "fp32"
        id_ = names.of(key)
        typed = replace(read, type=Type(read.type.axes, stored))
        if key not in loaded:
            loaded.add(key)
            value: Expr = typed if scaled is None else replace(scaled, a=typed)  # type: ignore[call-arg]
            before.append(Assign(id_, value, span=stmt.span))
        return Name(id_, type=Type(read.type.axes, dtype), span=read.span)

    def expr(x: Expr) -> Expr:
        if isinstance(x, Read):
            return unit(x, None)
        if isinstance(x, Name) and x.id in alias:
            return alias[x.id]
        if isinstance(x, Name) and _is_local(x, names.context):
            return replace(x, id=_printed(x.id))
        return x

    def go(x: Expr) -> Expr:
        if _is_scaled_read(x):
            assert isinstance(x, Binary) and isinstance(x.a, Read)
            return unit(x.a, x)
        return expr(map_operands(x, go))

    return go(e)


def _printed(name: str) -> str:
    """`b_x` for a tile x; masks keep their `m_`."""
    return name if name.startswith(("b_", "m_")) else f"b_{name}"


def _is_scaled_read(e: Expr) -> bool:
    return isinstance(e, Binary) and e.op == "*" and isinstance(e.a, Read) and isinstance(e.b, Name) and e.b.id == "LN2"


def _is_local(e: Name, context: Context) -> bool:
    spec = context.spec
    constants = {"LN2", *spec.dims, *spec.scalars, *(f.upper() for f in spec.flags)}
    return e.type.dtype not in {"bool", "int32", "int64"} and e.id not in constants


