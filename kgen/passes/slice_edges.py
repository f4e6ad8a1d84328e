"""A slice is void outside its range, and lowered to a whole tile that is zero there: what may be done with it until it
is summed.

    sum(a[i, 0:i] * x, 0)    neutral: the product is zero outside 0:i
    sum(exp(a[i, 0:i]), 0)   refused: exp of zero isn't
    log(a[i, 0:i])           refused: it is infinite there, and infinity survives a mask that multiplies
"""

from __future__ import annotations

from collections.abc import Callable

from kgen.errors import KgenError
from kgen.ir.nodes import Assign, Binary, Call, Expand, Expr, Kernel, Name, Part, Span, Transpose, Type, Unary
from kgen.ir.rewrite import stmt_exprs, walk_block, walk_expr

Refused = Callable[[Span, str, str], KgenError]
INFINITE_AT_ZERO = frozenset({"log", "rsqrt"})


def neutral_edges(kernel: Kernel, refused: Refused) -> None:
    """Raises what `refused` makes for a slice that would be summed, or made infinite, outside its range."""
    values: dict[str, Expr | None] = {}
    for stmt in walk_block(kernel.body):
        if isinstance(stmt, Assign):
            values[stmt.target] = None if stmt.target in values else stmt.value
    for stmt in walk_block(kernel.body):
        for e in (x for own in stmt_exprs(stmt) for x in walk_expr(own)):
            _check(e, values, refused, e.span if e.span.line else stmt.span)


def _sliced(t: Type) -> bool:
    return any("[" in a.name for a in t.axes)


def _check(e: Expr, values: dict[str, Expr | None], refused: Refused, span: Span) -> None:
    infinite = (isinstance(e, Call) and e.fn in INFINITE_AT_ZERO) or (isinstance(e, Binary) and e.op == "/")
    if infinite and _sliced(e.type):
        what = "a quotient" if isinstance(e, Binary) else f"{e.fn}(…)" if isinstance(e, Call) else ""
        raise refused(span, f"{what} of a slice", "compute it for the whole tile, and slice that")
    if not isinstance(e, Call):
        return
    if e.fn in {"sum", "max", "cumsum"}:
        x, axis = e.args[0], e.option("axis")
        over = [a.name for n, a in enumerate(x.type.axes) if (axis is None or n == axis) and "[" in a.name]
        if any(e.fn == "max" or not zero_outside(x, name, values) for name in over):
            hint = "slice products, or multiply by a slice of ones; the rest isn't zero outside the range"
            raise refused(span, f"{e.fn} over a slice of this", hint)
    elif e.fn == "dot":
        name = e.args[0].type.axes[1].name
        if "[" in name and not any(zero_outside(x, name, values) for x in e.args):
            raise refused(span, "a dot over a slice of this", "slice a tile that is read or assigned as it is")


def zero_outside(e: Expr, axis: str, values: dict[str, Expr | None]) -> bool:
    """Whether `e` is zero outside the range of its sliced axis once slices are whole tiles."""
    if isinstance(e, Part):
        return axis in [a.name for a in e.type.axes]
    if isinstance(e, Name):
        value = values.get(e.id)
        return value is not None and zero_outside(value, axis, values)
    if isinstance(e, (Unary, Transpose, Expand)):
        return zero_outside(e.x, axis, values)
    if isinstance(e, Binary) and e.op in {"+", "-", "*"}:
        sides = [zero_outside(x, axis, values) for x in (e.a, e.b)]
        return any(sides) if e.op == "*" else all(sides)
    return False
