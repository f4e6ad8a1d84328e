"""Which numbers decide what a kernel does: bounds of loops, conditions, sizes. An address moves the same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kgen.virtual.hivm import nodes as n
from kgen.virtual.hivm.types import MemRef


def decisive_loads(function: n.Function) -> frozenset[n.Value]:
    """Results of loads of single elements on which the events of the function, or their sizes, depend."""
    flows: dict[n.Value, set[n.Value]] = {}  # value -> what it is made from
    wanted: set[n.Value] = set()
    loads: set[n.Value] = set()
    for o in n.walk(function.body):
        wanted.update(x for x in _deciding(o) if isinstance(x, str))
        for target, sources in _made(o):
            flows.setdefault(target, set()).update(x for x in sources if isinstance(x, str))
        if isinstance(o, n.Load):
            loads.add(o.result)
    todo = list(wanted)
    while todo:
        for source in flows.get(todo.pop(), ()):
            if source not in wanted:
                wanted.add(source)
                todo.append(source)
    return frozenset(loads & wanted)


def _deciding(o: n.Operation) -> Iterable[n.Operand]:
    """Operands of an operation that say whether, how often or on how much something is done."""
    if isinstance(o, n.For):
        return (o.lower, o.upper, o.step)
    if isinstance(o, n.If):
        return (o.condition,)
    if isinstance(o, n.Condition):
        return (o.condition,)
    if isinstance(o, n.PointerCast | n.View | n.Expand):
        return o.sizes
    if isinstance(o, n.Reinterpret | n.Subview):
        return (*o.sizes, *o.strides)
    if isinstance(o, n.Call):
        return [x for x, kind in zip(o.operands, o.types, strict=False) if not isinstance(kind, MemRef)]
    if isinstance(o, n.SetFlag | n.WaitFlag):
        return (o.event,)
    if isinstance(o, n.BlockSet | n.BlockWait):
        return (o.flag,)
    if isinstance(o, n.Arith) and o.name == "select" and isinstance(o.type, MemRef):
        return o.operands[:1]
    return ()


def _made(o: n.Operation) -> Iterator[tuple[n.Value, Iterable[n.Operand]]]:
    """Results, and what they are made from. Through memory nothing is followed."""
    if isinstance(o, n.Arith | n.Affine):
        yield o.result, o.operands
    elif isinstance(o, n.Dim):
        yield o.result, (o.source,)
    elif isinstance(o, n.For):
        yield from _handed(o.carried, o.results, o.body)
    elif isinstance(o, n.While):
        yield from _handed(o.carried, (), o.after)
        for condition in o.before:
            if isinstance(condition, n.Condition):
                for targets in (o.results, o.arguments):
                    yield from ((target, (x,)) for target, x in zip(targets, condition.values, strict=False))
    elif isinstance(o, n.If):
        for block in (o.then, o.orelse):
            yield from ((target, (x,)) for target, x in zip(o.results, _yielded(block), strict=False))


def _handed(
    carried: tuple[tuple[n.Value, n.Value], ...], results: tuple[n.Value, ...], body: n.Block
) -> Iterator[tuple[n.Value, Iterable[n.Operand]]]:
    """What a loop carries: from before, from its last turn, and to what follows."""
    for (inner, initial), again in zip(carried, _yielded(body), strict=False):
        yield inner, (initial, again)
    for result, (inner, _) in zip(results, carried, strict=False):
        yield result, (inner,)


def _yielded(block: n.Block) -> tuple[n.Value, ...]:
    return next((o.values for o in block if isinstance(o, n.Yield)), ())
