"""Typed construction: each function makes one node and infers its type, or says why it can't.

The same functions serve the parser, where an error is the user's and gets a place, and the passes, where none can
happen.
"""

from __future__ import annotations

from kgen.errors import KgenError
from kgen.ir.nodes import (
    F32,
    I32,
    NOWHERE,
    ONE,
    Axis,
    Binary,
    Call,
    Cast,
    Expand,
    Expr,
    Fixed,
    Index,
    Name,
    Num,
    Part,
    Range,
    Span,
    Transpose,
    Type,
    Unary,
)

COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})
ELEMENTWISE = frozenset({"exp", "exp2", "log", "tanh", "sigmoid", "rsqrt", "abs"})
ARITY = {
    "dot": 2, "sum": 2, "max": 2, "cumsum": 2, "maximum": 2, "minimum": 2, "where": 3, "tril": 2, "index": 1,
    **dict.fromkeys(ELEMENTWISE, 1),
}  # fmt: skip


def type_error(message: str, hint: str = "") -> KgenError:
    return KgenError(message, code="program-type", hint=hint)


def num(value: float | int | bool, span: Span = NOWHERE) -> Num:
    kind = "bool" if isinstance(value, bool) else "int32" if isinstance(value, int) else "fp32"
    return Num(value, type=Type((), kind), span=span)


def name(id_: str, type_: Type = F32, span: Span = NOWHERE) -> Name:
    return Name(id_, type=type_, span=span)


def i32(id_: str) -> Name:
    return Name(id_, type=I32)


def _is_int(t: Type) -> bool:
    return t.dtype in {"int32", "int64"}


def join_axes(a: Type, b: Type, what: str) -> tuple[Axis, ...]:
    """Axes of an elementwise result; scalars go with anything, axes of size 1 stretch, nothing else does."""
    if not a.axes or not b.axes:
        return a.axes or b.axes
    if len(a.axes) != len(b.axes):
        raise type_error(
            f"{what} of {a} and {b}: a vector and a tile", "say which axis is missing: x[:, None] or x[None, :]"
        )
    out = []
    for p, q in zip(a.axes, b.axes, strict=True):
        if p != q and ONE not in (p, q):
            raise type_error(f"{what} of {a} and {b}: axis {p.name} against {q.name}", "transpose one side with .T")
        out.append(q if p == ONE else p)
    return tuple(out)


def binary(op: str, a: Expr, b: Expr, span: Span = NOWHERE) -> Binary:
    """`a op b` elementwise. Integers stay integers, everything else is fp32, comparisons are bool."""
    axes = join_axes(a.type, b.type, repr(op))
    ints = _is_int(a.type) and _is_int(b.type)
    if op in COMPARISONS or op in {"and", "or", "&"}:
        dtype = "bool"
    elif ints and op != "/":
        dtype = "int64" if "int64" in (a.type.dtype, b.type.dtype) else "int32"
    elif op in {"//", "%"}:
        raise type_error(f"{op!r} needs integers, got {a.type} and {b.type}")
    else:
        dtype = "fp32"
    return Binary(op, a, b, type=Type(axes, dtype), span=span)


def unary(op: str, x: Expr, span: Span = NOWHERE) -> Expr:
    if isinstance(x, Num) and op == "-":
        return num(-x.value, span)
    return Unary(op, x, type=Type(x.type.axes, x.type.dtype if _is_int(x.type) else "fp32"), span=span)


def transpose(x: Expr, span: Span = NOWHERE) -> Expr:
    if x.type.rank != 2:
        raise type_error(f".T of {x.type}: only a tile of two axes can be transposed")
    if isinstance(x, Transpose):
        return x.x
    return Transpose(x, type=Type(x.type.axes[::-1], x.type.dtype), span=span)


def expand(x: Expr, axis: int, span: Span = NOWHERE) -> Expand:
    if x.type.rank != 1:
        raise type_error(f"[:, None] of {x.type}: only a vector can be expanded")
    axes = (x.type.axes[0], ONE) if axis == 1 else (ONE, x.type.axes[0])
    return Expand(x, axis, type=Type(axes, x.type.dtype), span=span)


def cast(x: Expr, dtype: str) -> Expr:
    """`x` as `dtype`, or x itself where it is already that."""
    return x if x.type.dtype == dtype else Cast(x, type=Type(x.type.axes, dtype), span=x.span)


def sliced_axis(axis: Axis, index: Range) -> Axis:
    """The axis that `x[a:b]` has: full size, void outside the range, and named so that ranges must agree."""
    return Axis(f"{axis.name.partition('[')[0]}[{text(index.start)}:{text(index.stop)}]", axis.size)


def text(e: Expr) -> str:
    """A short form of an integer expression, for axis names and messages."""
    if isinstance(e, Num):
        return str(e.value)
    if isinstance(e, Name):
        return e.id
    if isinstance(e, Binary):
        a, b = (f"({text(x)})" if isinstance(x, Binary) else text(x) for x in (e.a, e.b))
        return f"{a}{e.op}{b}"
    raise type_error("the ends of a slice are constants, unrolled integers, and sums of them")


def part(base: Expr, id_: str, index: tuple[Index, ...], axes: tuple[Axis | None, ...], span: Span = NOWHERE) -> Part:
    """A slab or slice of tile `id_`; `axes` gives the axis each index leaves, None where it takes one position."""
    if len(index) != base.type.rank:
        raise type_error(f"{len(index)} indices on {id_}, which is {base.type}")
    return Part(id_, index, type=Type(tuple(a for a in axes if a), base.type.dtype), span=span)


def call(fn: str, args: tuple[Expr, ...], options: dict[str, object] | None = None, span: Span = NOWHERE) -> Call:
    """A built-in with its result type."""
    opts = tuple(sorted((options or {}).items()))
    return Call(fn, args, opts, type=_call_type(fn, args, options or {}), span=span)


def _call_type(fn: str, args: tuple[Expr, ...], options: dict[str, object]) -> Type:
    if fn in ELEMENTWISE:
        return Type(args[0].type.axes, "fp32")
    if fn in {"maximum", "minimum"}:
        ints = all(_is_int(a.type) for a in args)
        return Type(join_axes(args[0].type, args[1].type, fn), args[0].type.dtype if ints else "fp32")
    if fn == "dot":
        return _dot_type(args[0].type, args[1].type)
    if fn in {"sum", "max"}:
        return _reduced(fn, args[0].type, options.get("axis"))
    if fn == "cumsum":
        if args[0].type.rank != 1:
            raise type_error(f"cumsum of {args[0].type}: only of a vector", "one row or column at a time")
        if options.get("axis", 0) != 0:
            raise type_error(f"cumsum over axis {options['axis']} of a vector", "its only axis is 0")
        return Type(args[0].type.axes, "fp32")
    if fn == "tril":
        square = args[0].type.rank == 2 and args[0].type.axes[0] == args[0].type.axes[1]
        return Type(args[0].type.axes, "fp32") if square else _bad_tril(args[0].type)
    if fn == "where":
        if args[0].type.dtype != "bool":
            raise type_error(f"where chooses by {args[0].type}", "its first operand is a comparison, == or !=")
        return Type(join_axes(args[0].type, Type(join_axes(args[1].type, args[2].type, fn)), fn), "fp32")
    raise type_error(f"unknown built-in {fn!r}")


def _bad_tril(t: Type) -> Type:
    raise type_error(f"tril of {t}: needs a square tile of rows by the same rows")


def _dot_type(a: Type, b: Type) -> Type:
    if a.rank != 2 or b.rank != 2:
        raise type_error(f"dot of {a} and {b}: both operands need two axes")
    if a.axes[1] != b.axes[0]:
        raise type_error(
            f"dot of {a} and {b} contracts axis {a.axes[1].name!r} with {b.axes[0].name!r}",
            "transpose the operand whose inner axis is wrong with .T",
        )
    return Type((a.axes[0], b.axes[1]), "fp32")


def _reduced(fn: str, t: Type, axis: object) -> Type:
    if axis is None:
        return F32
    if not isinstance(axis, int) or not 0 <= axis < t.rank:
        raise type_error(f"{fn} over axis {axis} of {t}", f"axes count from 0 to {t.rank - 1}")
    return Type(t.axes[:axis] + t.axes[axis + 1 :], "fp32")


def fixed(value: int) -> Fixed:
    return Fixed(num(value))
