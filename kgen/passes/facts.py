"""What is known of a tile's void elements, its finiteness and its sign: an analysis, not a pass.

Void elements are rows past the chunk and lanes past a dim. Loads fill them with zero; from there each is zero,
finite or unknown, and a contraction needs one side zero and the other not unknown. For every axis the state speaks
of elements that are void on that axis alone; `corner` speaks of those void on more than one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kgen.ir.nodes import (
    Assign,
    Binary,
    Call,
    Cast,
    Expand,
    Expr,
    For,
    If,
    Name,
    Num,
    Read,
    Row,
    Stmt,
    Transpose,
    Unary,
)
from kgen.passes.context import Context

ZERO, FINITE, UNKNOWN = 0, 1, 2


@dataclass(frozen=True)
class Fact:
    """`axes`: void state on each axis; `finite`: valid elements are; `nonpositive`: all elements are <= 0.

    `gate`: the tensor of a decaying gate, and whether the tile is its `rows` or its `last` row. `bounded`: the axes on
    which the tile is as it was loaded, within bounds.
    """

    axes: tuple[int, ...] = ()
    corner: int = ZERO
    finite: bool = True
    nonpositive: bool = False
    gate: tuple[str, str] | None = None
    bounded: frozenset[int] = frozenset()

    @property
    def worst(self) -> int:
        return max((*self.axes, self.corner))

    @property
    def valid(self) -> int:
        """State of its valid elements."""
        return FINITE if self.finite else UNKNOWN

    @property
    def all_finite(self) -> bool:
        return self.finite and self.worst < UNKNOWN


Env = dict[str, Fact]


def join(a: Fact, b: Fact) -> Fact:
    """What holds of both."""
    if len(a.axes) != len(b.axes):
        longer = a if len(a.axes) > len(b.axes) else b
        return replace(longer, axes=tuple(UNKNOWN for _ in longer.axes), corner=UNKNOWN, finite=False, gate=None)
    axes = tuple(max(p, q) for p, q in zip(a.axes, b.axes, strict=True))
    same = a.gate if a.gate == b.gate else None
    sign = a.nonpositive and b.nonpositive
    return Fact(axes, max(a.corner, b.corner), a.finite and b.finite, sign, same, a.bounded | b.bounded)


def flow(block: tuple[Stmt, ...], env: Env, context: Context) -> Env:
    """Facts after a block, from those before it."""
    for stmt in block:
        env = step(stmt, env, context)
    return env


def step(stmt: Stmt, env: Env, context: Context) -> Env:
    """Facts after one statement; loops run to a fixed point."""
    if isinstance(stmt, Assign):
        return {**env, stmt.target: fact(stmt.value, env, context)}
    if isinstance(stmt, If):
        return _merge(flow(stmt.body, env, context), flow(stmt.orelse, env, context))
    if isinstance(stmt, For):
        return loop_entry(stmt, env, context)
    return env


def loop_entry(stmt: For, env: Env, context: Context) -> Env:
    """Facts that hold at the start of every iteration, and after the loop."""
    while True:
        after = _merge(env, flow(stmt.body, env, context))
        if after == env:
            return env
        env = after


def _merge(a: Env, b: Env) -> Env:
    return {k: join(a[k], b[k]) if k in a and k in b else (a.get(k) or b[k]) for k in {**a, **b}}


def fact(e: Expr, env: Env, context: Context) -> Fact:
    """What is known of an expression's value."""
    if isinstance(e, Num):
        return Fact((), ZERO, abs(e.value) < float("inf"), e.value <= 0)
    if isinstance(e, Name):
        return env.get(e.id, Fact(tuple(UNKNOWN for _ in e.type.axes)))
    if isinstance(e, Read):
        return _read(e, context)
    if isinstance(e, (Cast,)):
        return fact(e.x, env, context)
    if isinstance(e, Transpose):
        x = fact(e.x, env, context)
        return replace(x, axes=x.axes[::-1], bounded=frozenset(1 - axis for axis in x.bounded))
    if isinstance(e, Expand):
        x = fact(e.x, env, context)
        return replace(x, axes=(*x.axes, ZERO) if e.axis == 1 else (ZERO, *x.axes), bounded=frozenset())
    if isinstance(e, Unary):
        return replace(fact(e.x, env, context), nonpositive=False, gate=None, bounded=frozenset())
    if isinstance(e, Binary):
        return _binary(e, fact(e.a, env, context), fact(e.b, env, context))
    assert isinstance(e, Call), e
    return _call(e, env, context)


def _read(e: Read, context: Context) -> Fact:
    decays = context.tensor(e.tensor).decay
    kind = "last" if any(isinstance(i, Row) and i.fn == "last" for i in e.index) else "rows"
    gate = (e.tensor, kind) if decays else None
    return Fact(tuple(ZERO for _ in e.type.axes), ZERO, True, decays, gate, _bounded(e, context))


def _bounded(e: Read, context: Context) -> frozenset[int]:
    """The axes of a loaded tile that may end before the tile does: all but a chunk's own columns."""
    dims = [
        dim
        for place, dim in enumerate(context.program_dims(e.tensor))
        if place >= len(e.index) or not isinstance(e.index[place], Row)
    ]
    if len(dims) != e.type.rank:
        return frozenset(range(e.type.rank))
    return frozenset(axis for axis, dim in enumerate(dims) if context.kind(dim).value != "chunk")


def _stretch(x: Fact, e: Expr, rank: int) -> tuple[int | None, ...]:
    """States along each axis of a wider result; None where the operand is broadcast and so valid everywhere."""
    if len(x.axes) != rank:
        return (None,) * rank
    return tuple(None if a.size == 1 else s for a, s in zip(e.type.axes, x.axes, strict=True))


def _binary(e: Binary, a: Fact, b: Fact) -> Fact:
    if e.op in {"+", "-"} and isinstance(e.b, Num) and e.b.value == 0:
        return a
    rank = e.type.rank
    sa, sb = _stretch(a, e.a, rank), _stretch(b, e.b, rank)
    ends = a.valid, b.valid
    unknown = a.worst == UNKNOWN or b.worst == UNKNOWN
    if e.op == "*":
        axes = tuple(_product(*_known(s, ends)) for s in zip(sa, sb, strict=True))
        corner = _product(*_known((_corner(a, sa), _corner(b, sb)), ends))
    else:
        axes = tuple(max(_known(s, ends)) for s in zip(sa, sb, strict=True))
        corner = max(_known((_corner(a, sa), _corner(b, sb)), ends))
    if e.op == "/" or (unknown and e.op not in "+-*"):
        axes, corner = tuple(UNKNOWN for _ in axes), UNKNOWN
    positive = isinstance(e.b, Name) and e.b.id == "LN2"
    nonpositive, gate = _sign(e, a, b, positive)
    return Fact(axes, corner, a.finite and b.finite and e.op != "/", nonpositive, gate)


def _corner(x: Fact, states: tuple[int | None, ...]) -> int | None:
    """State of elements void on several axes; a vector spread over a tile is void there as on its own axis."""
    own = [s for s in states if s is not None]
    return None if not own else own[0] if len(own) == 1 else x.corner


def _known(states: tuple[int | None, int | None], ends: tuple[int, int]) -> tuple[int, int]:
    """States of two operands where one is broadcast: there it is one of its valid elements."""
    return _or(states[0], ends[0]), _or(states[1], ends[1])


def _product(p: int, q: int) -> int:
    return UNKNOWN if UNKNOWN in (p, q) else ZERO if ZERO in (p, q) else FINITE


def _sign(e: Binary, a: Fact, b: Fact, positive_b: bool) -> tuple[bool, tuple[str, str] | None]:
    if e.op == "*" and positive_b:
        return a.nonpositive, a.gate
    if e.op == "-" and a.gate and b.gate and a.gate[0] == b.gate[0] and (a.gate[1], b.gate[1]) == ("last", "rows"):
        return True, None  # a decaying gate's last row is its least, and void rows are zero
    if e.op == "+":
        return a.nonpositive and b.nonpositive, None
    return False, None


def _call(e: Call, env: Env, context: Context) -> Fact:
    if e.fn == "full":
        value = fact(e.args[0], env, context)
        state = ZERO if isinstance(e.args[0], Num) and e.args[0].value == 0 else FINITE if value.finite else UNKNOWN
        return Fact(tuple(state for _ in e.type.axes), state, value.finite, value.nonpositive)
    if e.fn == "eye":  # ones on the diagonal only: void on one axis means off it
        return Fact((ZERO, ZERO), FINITE)
    if e.fn in {"onehot", "span", "index"}:
        return Fact((FINITE,), FINITE)
    args = [fact(a, env, context) for a in e.args]
    if e.fn == "dot":
        return _dot(args[0], args[1])
    if e.fn == "tril":
        return _triangle(e, args[0]) if e.option("fill") is None else _filled(args[0])
    if e.fn in {"sum", "max"}:
        return _reduced(e, args[0])
    if e.fn in {"minimum", "maximum", "where"}:
        return _choice(e, args)
    return _elementwise(e, args[0])


def _filled(x: Fact) -> Fact:
    return Fact(x.axes, x.corner, False, True)


def _triangle(e: Call, x: Fact) -> Fact:
    """Zero above diagonal k: in a valid row, a void column lies above it."""
    k = e.option("k", 0)
    assert isinstance(k, int)
    axes = (x.axes[0], ZERO) if k <= 0 else x.axes
    return Fact(axes, x.corner, x.finite)


def _dot(a: Fact, b: Fact) -> Fact:
    """A dot's result. Where the right operand was loaded within bounds the compiler tells the matrix unit how many
    columns there are, and it leaves the others of the accumulator as they were (K205)."""
    row = max(_product(a.axes[0], b.valid), _product(a.corner, b.axes[0]))
    col = max(_product(a.valid, b.axes[1]), _product(a.axes[1], b.corner))
    corner = max(_product(a.axes[0], b.axes[1]), _product(a.corner, b.corner))
    if 1 in b.bounded:
        col = corner = UNKNOWN
    return Fact((row, col), corner, a.finite and b.finite)


def neutral(a: Fact, b: Fact) -> bool:
    """Whether void elements of the contracted axis add nothing to a dot's valid elements."""
    return _product(a.axes[1], b.axes[0]) == ZERO


def _reduced(e: Call, x: Fact) -> Fact:
    axis = e.option("axis")
    if axis is None:
        return Fact((), ZERO, x.finite, x.nonpositive)
    assert isinstance(axis, int)
    rest = tuple(max(s, x.corner) for i, s in enumerate(x.axes) if i != axis)
    return Fact(rest, max(rest, default=ZERO), x.finite, x.nonpositive)


def _choice(e: Call, args: list[Fact]) -> Fact:
    rank = e.type.rank
    states = [_stretch(x, a, rank) for x, a in zip(args, e.args, strict=True)]
    axes = tuple(max(_or(s[i], x.valid) for x, s in zip(args, states, strict=True)) for i in range(rank))
    corner = max(_or(_corner(x, s), x.valid) for x, s in zip(args, states, strict=True)) if rank else ZERO
    sign = any(x.nonpositive for x in args) if e.fn == "minimum" else all(x.nonpositive for x in args[-2:])
    return Fact(axes, corner, all(x.finite for x in args), sign)


def _or(state: int | None, valid: int) -> int:
    return valid if state is None else state


def _elementwise(e: Call, x: Fact) -> Fact:
    if e.fn in {"exp", "exp2"}:
        state = FINITE if x.nonpositive else None
        axes = tuple(state if state is not None else (FINITE if s == ZERO else UNKNOWN) for s in x.axes)
        corner = state if state is not None else (FINITE if x.corner == ZERO else UNKNOWN)
        return Fact(axes, corner, x.nonpositive)
    if e.fn in {"tanh", "sigmoid"}:
        return Fact(tuple(FINITE for _ in x.axes), FINITE, True)
    if e.fn == "cumsum":
        return Fact(tuple(max(FINITE, s) for s in x.axes), max(FINITE, x.corner), x.finite, x.nonpositive)
    if e.fn == "abs":
        return replace(x, nonpositive=False, gate=None, bounded=frozenset())
    return Fact(tuple(UNKNOWN for _ in x.axes), UNKNOWN, False)  # log, rsqrt: of zero they aren't finite
