"""Each read of a tensor becomes a named load, once for each tile in scope, and locals take their printed names.

    a += dot(k[t, bk], k[t, bk].T)   -->   b_k = k[t, bk]
                                           b_a = b_a + dot(b_k, b_k.T)

A factor LN2 on a gate goes with its load, so that it multiplies the vector once. A name that only renames a load is
replaced by it up to where it is assigned again; one that keeps an older value of another name is a copy, and stays.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kgen.ir import build
from kgen.ir.nodes import (
    Assign,
    Binary,
    Expand,
    Expr,
    For,
    If,
    Index,
    Kernel,
    Name,
    Read,
    Row,
    Stmt,
    Transpose,
    Type,
)
from kgen.ir.rewrite import assigned, bodies, map_operands, map_stmt_exprs, walk_block, with_bodies, with_body
from kgen.passes.context import Context
from kgen.passes.names import Fresh

Unit = tuple[str, tuple[Index, ...], bool]  # tensor, index, scaled by LN2


@dataclass
class _Names:
    """Names given so far, kernel-wide, so that the same read or local has the same name everywhere."""

    context: Context
    fresh: Fresh
    program: frozenset[str]  # names that the program assigns: tiles, and integers and scalars that it computes
    locals: dict[str, str]  # those, with what they are printed as
    units: dict[Unit, str] = field(default_factory=dict)

    def of(self, unit: Unit) -> str:
        if unit not in self.units:
            tensor, index, _ = unit
            row = next((i.fn for i in index if isinstance(i, Row)), "")
            self.units[unit] = self.fresh.of(f"b_{tensor}" + (f"_{row}" if row else ""))
        return self.units[unit]

    def printed(self, name: str) -> str:
        """`b_x` for a tile x; masks keep their `m_`."""
        if name not in self.locals:
            self.locals[name] = self.fresh.of(f"b_{name}")
        return self.locals[name]


def loads(kernel: Kernel, context: Context) -> Kernel:
    """`x = f(k[t, bk])` --> `b_k = k[t, bk]`, `b_x = f(b_k)`."""
    targets = frozenset(assigned(kernel.body))
    own = {name: name for name in targets if name.startswith(("b_", "m_"))}
    names = _Names(context, Fresh(kernel), targets, own)
    body = _block(kernel.body, frozenset(), {}, names, _assigned_again(kernel.body))
    return kernel if body == kernel.body else with_body(kernel, body)


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
            if isinstance(new.value, Name) and _can_alias(new, block[position + 1 :], names, rebound):
                alias[new.target] = new.value
                continue
            new = replace(new, target=names.printed(new.target))
        elif isinstance(new, (For, If)):
            inner = {k: v for k, v in alias.items() if k not in assigned((new,))}
            dropped = set(alias) - set(inner)
            out.extend(Assign(names.printed(n), alias.pop(n), span=stmt.span) for n in sorted(dropped))
            new = with_bodies(new, tuple(_block(b, loaded, inner, names, rebound) for b in bodies(new)))
        out.append(new)
    return tuple(out)


def _can_alias(stmt: Assign, rest: tuple[Stmt, ...], names: _Names, rebound: set[str]) -> bool:
    """Whether the name can stand for the load: never assigned again, or again only by this block's own statements."""
    if not isinstance(stmt.value, Name) or stmt.value.id not in names.units.values():
        return False
    if stmt.target not in rebound:
        return True
    for later in rest:
        if isinstance(later, Assign) and later.target == stmt.target:
            return True
        if stmt.target in assigned((later,)):
            return False
    return False


def _named(e: Expr, loaded: set[Unit], before: list[Stmt], alias: dict[str, Expr], names: _Names, stmt: Stmt) -> Expr:
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
        if isinstance(x, Name) and x.id in names.program:
            return replace(x, id=names.printed(x.id))
        if isinstance(x, (Expand, Transpose)) and x.type.dtype != x.x.type.dtype:
            return build.expand(x.x, x.axis, x.span) if isinstance(x, Expand) else build.transpose(x.x, x.span)
        return x

    def go(x: Expr) -> Expr:
        if _is_scaled_read(x):
            assert isinstance(x, Binary) and isinstance(x.a, Read)
            return unit(x.a, x)
        return expr(map_operands(x, go))

    return go(e)


def _is_scaled_read(e: Expr) -> bool:
    return isinstance(e, Binary) and e.op == "*" and isinstance(e.a, Read) and isinstance(e.b, Name) and e.b.id == "LN2"
