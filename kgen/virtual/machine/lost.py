"""Which values come from an operation that nobody knows: they have no type, no address and no value."""

from __future__ import annotations

from collections.abc import Iterable

from kgen.virtual.hivm import nodes as n
from kgen.virtual.machine.arithmetic import expression

_VIEWS = (n.View, n.Reinterpret, n.Subview, n.Collapse, n.Expand, n.Transpose, n.Alias)


def lost_values(function: n.Function) -> frozenset[n.Value]:
    """Results of unknown operations, views of them, and what branches and loops hand on of them."""
    lost: set[n.Value] = set()
    count = -1
    while len(lost) != count:  # once more where a loop hands something back to its beginning
        count = len(lost)
        _block(function.body, lost)
    return frozenset(lost)


def _block(block: n.Block, lost: set[n.Value]) -> tuple[n.Value, ...]:
    """Go through a block; the values that it yields."""
    yielded: tuple[n.Value, ...] = ()
    for o in block:
        if isinstance(o, n.Unknown):
            lost.update(o.results)
        elif isinstance(o, n.Call) or (isinstance(o, n.Arith) and expression(o, ["0"] * len(o.operands)) is None):
            lost.update(o.results if isinstance(o, n.Call) else (o.result,))
        elif isinstance(o, _VIEWS):
            _hand(((o.result, o.source),), lost)
        elif isinstance(o, n.Arith) and o.name == "select":
            _hand(((o.result, value) for value in o.operands[1:]), lost)
        elif isinstance(o, n.Metadata):
            _hand(((o.base, o.source),), lost)
        elif isinstance(o, n.If):
            for branch in (o.then, o.orelse):
                _hand(zip(o.results, _block(branch, lost), strict=False), lost)
        elif isinstance(o, n.For):
            _hand(o.carried, lost)
            inner = [name for name, _ in o.carried]
            _hand(zip(inner, _block(o.body, lost), strict=False), lost)
            _hand(zip(o.results, inner, strict=False), lost)
        elif isinstance(o, n.While):
            _hand(o.carried, lost)
            _block(o.before, lost)
            for condition in o.before:
                if isinstance(condition, n.Condition):
                    _hand(zip(o.results, condition.values, strict=False), lost)
                    _hand(zip(o.arguments, condition.values, strict=False), lost)
            _hand(zip([name for name, _ in o.carried], _block(o.after, lost), strict=False), lost)
        elif isinstance(o, n.Yield):
            yielded = o.values
    return yielded


def _hand(pairs: Iterable[tuple[n.Value, n.Operand]], lost: set[n.Value]) -> None:
    """What gets a lost value is lost."""
    lost.update(target for target, source in pairs if source in lost)
