"""Expressions of the device dialect as Triton source, with as few parentheses as precedence allows."""

from __future__ import annotations

import math

from kgen.errors import KgenBug
from kgen.ir.nodes import (
    Access,
    Binary,
    Call,
    Cast,
    Expand,
    Expr,
    Load,
    Name,
    Num,
    Transpose,
    Unary,
)

COMPARE, UNARY, ATOM = 4, 8, 10
PRECEDENCE = {
    "or": 1, "and": 2, "==": COMPARE, "!=": COMPARE, "<": COMPARE, "<=": COMPARE, ">": COMPARE, ">=": COMPARE, "&": 5,
    "+": 6, "-": 6, "*": 7, "/": 7, "//": 7, "%": 7,
}  # fmt: skip
DTYPES = {"fp32": "tl.float32", "int32": "tl.int32", "int64": "tl.int64"}
SAME_NAME = {"exp", "exp2", "log", "rsqrt", "sigmoid", "abs", "where", "cdiv"}
NAN = "propagate_nan=tl.PropagateNan.ALL"


def source(e: Expr) -> str:
    """The expression as one line of Triton source."""
    return _print(e)[0]


def _print(e: Expr) -> tuple[str, int]:
    """Text and how tightly it binds."""
    if isinstance(e, Num):
        return _number(e), ATOM if isinstance(e.value, bool) or e.value >= 0 else UNARY
    if isinstance(e, Name):
        return e.id, ATOM
    if isinstance(e, Binary):
        return _binary(e)
    if isinstance(e, Unary):
        return f"-{_at_least(e.x, UNARY)}", UNARY
    if isinstance(e, Expand):
        return f"{_at_least(e.x, ATOM)}[{':, None' if e.axis == 1 else 'None, :'}]", ATOM
    if isinstance(e, Transpose):
        return f"tl.trans({source(e.x)})", ATOM
    if isinstance(e, Cast):
        return _cast(e), ATOM
    if isinstance(e, Load):
        return _load(e), ATOM
    if isinstance(e, Call):
        return _call(e), ATOM
    raise KgenBug(f"{type(e).__name__} has no device form")


def _at_least(e: Expr, level: int) -> str:
    text, binds = _print(e)
    return text if binds >= level else f"({text})"


def _number(e: Num) -> str:
    if math.isnan(e.value):
        raise KgenBug("NaN has no literal in a kernel")
    if isinstance(e.value, float) and math.isinf(e.value):
        return 'float("inf")' if e.value > 0 else '-float("inf")'
    return repr(e.value)


def _binary(e: Binary) -> tuple[str, int]:
    level = PRECEDENCE[e.op]
    left = _at_least(e.a, level + (level == COMPARE))  # a == b == c would compare b with both
    # a - (b - c) and a / (b * c) need theirs; so does a * (b * c), whose rounding would change
    right = _at_least(e.b, level + 1)
    return f"{left} {e.op} {right}", level


def dtype(name: str) -> str:
    """A Triton element type: of a tensor's storage (`@k`), or a fixed one."""
    return f"{name[1:]}.dtype.element_ty" if name.startswith("@") else DTYPES[name]


def _cast(e: Cast) -> str:
    if e.type.rank:
        return f"{_at_least(e.x, ATOM)}.to({dtype(e.type.dtype)})"
    return f"tl.cast({source(e.x)}, {dtype(e.type.dtype)})"  # K102: `.to` doesn't exist on a folded constant


def pointer(access: Access) -> str:
    """`k + (bos * H + i_h) * K`."""
    if access.base == Num(0, type=access.base.type):
        return access.tensor
    return f"{access.tensor} + {_at_least(access.base, PRECEDENCE['+'])}"


def block_arguments(access: Access) -> list[str]:
    """Extents, strides, offsets and sizes, then whether the block is bounded."""
    axes = access.axes
    parts = [[source(getattr(a, f)) for a in axes] for f in ("extent", "stride", "offset")]
    sizes = [str(a.size) for a in axes]
    return [*parts[0], *parts[1], *parts[2], *sizes, bounded(access), "BLOCK_PTR"]


def bounded(access: Access) -> str:
    """The compile-time condition under which some axis is checked; both axes are then (K304)."""
    checks = [a.check for a in access.axes if a.check is not None and a.check != Num(False, type=a.check.type)]
    texts = list(dict.fromkeys(source(c) for c in checks))
    return " or ".join(texts) if texts else "False"


def _load(e: Load) -> str:
    access = e.access
    if not access.axes:
        loaded = f"tl.load({pointer(access)})"
        return loaded if e.type.dtype not in {"int32", "int64"} else f"{loaded}.to({DTYPES[e.type.dtype]})"
    fn = {1: "load_row", 2: "load_tile"}[len(access.axes)]
    return f"{fn}({', '.join([pointer(access), *block_arguments(access)])})"


def _call(e: Call) -> str:
    args = [source(a) for a in e.args if not _is_shape(a)]
    if e.fn in SAME_NAME:
        name = {"cdiv": "tl.cdiv"}.get(e.fn, f"tl.{e.fn}")
        return f"{name}({', '.join(args)})"
    if e.fn in {"minimum", "maximum"}:
        return f"tl.{e.fn}({', '.join([*args, NAN] if e.option('nan') else args)})"
    if e.fn == "dot":
        return f'tl.dot({", ".join(args)}, input_precision="ieee")'
    if e.fn in {"sum", "max"}:
        axis = e.option("axis")
        return f"tl.{e.fn}({args[0]}{'' if axis is None else f', {axis}'})"
    if e.fn == "cumsum":
        return f"tl.cumsum({args[0]}, {e.option('axis', 0)}, reverse={e.option('reverse', False)})"
    if e.fn == "lanes":
        return f"tl.arange(0, {e.type.axes[0].size}).to(tl.float32)"
    if e.fn == "full":
        shape = f"[{', '.join(str(a.size) for a in e.type.axes)}]"
        zero = args[0] == "0.0"
        return f"tl.zeros({shape}, dtype=tl.float32)" if zero else f"tl.full({shape}, {args[0]}, dtype=tl.float32)"
    if e.fn == "program_id":
        return "tl.program_id(0)"
    raise KgenBug(f"built-in {e.fn!r} has no device form")


def _is_shape(e: Expr) -> bool:
    return type(e).__name__ == "IndexRef"
