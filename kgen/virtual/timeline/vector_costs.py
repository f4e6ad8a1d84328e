"""Cycles of the vector unit for a template.

A vector instruction takes some cycles for each repeat of 256 bytes; a template is one or more instructions. Those that
depend on each other (a reduction's halvings, the doublings of an arange) also pay the time to drain the unit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from kgen.virtual.hivm.types import element_bits
from kgen.virtual.timeline.costs import Costs
from kgen.virtual.timeline.events import Area, Issue

_BLOCKS = 8  # a repeat reads 8 blocks of 32 bytes: elements a block apart come 8 a repeat
_ELEMENTWISE = re.compile(
    r"v(cast|cmps|cmp|sel|not|and|or|xor|adds|subs|muls|maxs|mins|divs|add|sub|mul|div|max|min|exp|ln|sqrt|rsqrt|rec"
    r"|abs|relu|shls|shrs|shl|shr|mods|mod|axpy|fma)(_to_with_mode|_to_with_temp|_to|_vs|_sv|_vv|_eq|_ne|_lt|_le|_gt|_ge)?"
)
_CHEAP = frozenset({"cast", "cmps", "adds", "subs", "muls", "maxs", "mins", "rsqrt", "rec", "abs", "relu"})


def vector_cycles(issue: Issue, costs: Costs) -> float | None:
    """How long the vector unit is busy, or None for a template whose cost isn't known."""
    base = issue.template.base
    areas = [a for a in issue.operands if isinstance(a, Area) and 0 not in a.sizes]
    if not areas:
        return 0.0 if _known(base) else None
    rank = issue.template.rank
    whole = [a for a in areas if rank is None or len(a.sizes) == rank] or areas
    match = _ELEMENTWISE.fullmatch(base)
    if match:
        return _elementwise(match[1], whole, costs)
    rule = _RULES.get(base)
    return rule(whole, costs) if rule is not None else None


def _known(base: str) -> bool:
    return base in _RULES or _ELEMENTWISE.fullmatch(base) is not None


def _elementwise(op: str, areas: Sequence[Area], costs: Costs) -> float:
    """`cycles x repeats`, a start for each further instruction, and the spreading of operands with one column."""
    cycles = _rate(op, costs)
    if op == "cast" and any(a.element == "i1" for a in areas):  # by way of a select
        return costs.vector_cycles * _repeats(areas, costs) + 2 * costs.vector_drain_cycles
    repeats = _repeats(areas, costs)
    total = cycles * repeats + costs.vector_start_cycles * (_instructions(areas, costs) - 1)
    if op == "sel":  # the mask is set up for each repeat
        total += costs.vector_drain_cycles + costs.vector_cheap_cycles * repeats
    largest = max(areas, key=lambda a: math.prod(a.sizes))
    narrow = [a for a in areas if len(a.sizes) > 1 and a.sizes[-1] == 1 and largest.sizes[-1] > 1]
    if narrow:
        total += costs.vector_drain_cycles + max(math.prod(a.sizes) for a in narrow) / _BLOCKS
    return total


def _rate(op: str, costs: Costs) -> float:
    if op in ("div", "divs"):
        return costs.vector_divide_cycles
    if op in ("mod", "mods"):
        return costs.vector_modulo_cycles
    if op == "xor":  # or, and, not
        return 3 * costs.vector_cycles
    return costs.vector_cheap_cycles if op in _CHEAP else costs.vector_cycles


def _bytes(area: Area) -> float:
    return math.prod(area.sizes) * element_bits(area.element) / 8


def _row_repeats(area: Area, costs: Costs) -> int:
    """Repeats of one innermost row."""
    if area.strides[-1:] not in ((), (1,)) and area.sizes[-1] > 1:
        return math.ceil(area.sizes[-1] / _BLOCKS)
    return max(1, math.ceil(area.sizes[-1] * element_bits(area.element) / 8 / costs.vector_bytes)) if area.sizes else 1


def _dense(area: Area) -> bool:
    """Whether the elements follow each other without a gap."""
    step = 1
    for size, stride in zip(reversed(area.sizes), reversed(area.strides), strict=True):
        if size > 1 and stride != step:
            return False
        step *= size
    return True


def _repeats(areas: Sequence[Area], costs: Costs) -> int:
    """Repeats over the widest operand, a mask aside."""
    out = 1
    for a in areas:
        if a.element == "i1" and len(areas) > 1:
            continue
        if len(a.sizes) <= 1 and _dense(a):
            out = max(out, math.ceil(_bytes(a) / costs.vector_bytes))
        else:
            out = max(out, math.prod(a.sizes[:-1]) * _row_repeats(a, costs))
    return out


def _instructions(areas: Sequence[Area], costs: Costs) -> int:
    """A template over rows issues one instruction a row, or one for each part of a row, whichever are fewer."""
    largest = max(areas, key=lambda a: math.prod(a.sizes))
    if len(largest.sizes) < 2:
        return 1
    return min(math.prod(largest.sizes[:-1]), _row_repeats(largest, costs))


def _fill(areas: Sequence[Area], costs: Costs) -> float:
    return _repeats(areas[-1:], costs) * costs.vector_cheap_cycles + costs.vector_start_cycles


def _spread_columns(areas: Sequence[Area], costs: Costs) -> float:
    """Last-axis broadcast: blocks of 8, gathered back to rows."""
    rows = math.prod(areas[0].sizes)
    return (
        _repeats(areas[1:2] or areas, costs) * costs.vector_cheap_cycles
        + 3 * costs.vector_drain_cycles
        + (rows / _BLOCKS)
    )


def _spread_rows(areas: Sequence[Area], costs: Costs) -> float:
    return _repeats(areas[1:2] or areas, costs) * costs.vector_cheap_cycles + costs.vector_start_cycles


def _arange(areas: Sequence[Area], costs: Costs) -> float:
    """Eight elements one by one, then doublings."""
    doublings = math.ceil(math.log2(max(2, math.prod(areas[0].sizes) / _BLOCKS)))
    return _BLOCKS * (costs.vector_start_cycles + costs.vector_element_cycles) + doublings * costs.vector_drain_cycles


def _reduce_rows(areas: Sequence[Area], costs: Costs) -> float:
    """Over an outer axis: rows are added pairwise."""
    source = areas[0]
    halvings = math.ceil(math.log2(max(2, source.sizes[0])))
    return costs.vector_cycles * _repeats([source], costs) + halvings * costs.vector_drain_cycles


def _reduce_columns(areas: Sequence[Area], costs: Costs) -> float:
    """Over the last axis: within repeats, then over what they leave."""
    source = areas[0]
    levels = math.ceil(math.log2(max(2, source.sizes[-1] * element_bits(source.element) / 8 / costs.vector_bytes + 1)))
    return costs.vector_reduce_cycles * _repeats([source], costs) + levels * costs.vector_drain_cycles


def _transpose(areas: Sequence[Area], costs: Costs) -> float:
    return costs.vector_transpose_cycles * _repeats(areas, costs) + 2 * costs.vector_drain_cycles


def _move(areas: Sequence[Area], costs: Costs) -> float:
    """A copy within UB; with gaps inside a row, element by element."""
    source = areas[0]
    if all(a.strides[-1:] in ((), (1,)) for a in areas):
        return costs.vector_start_cycles + _bytes(source) / costs.vector_copy_bytes
    return costs.vector_start_cycles + math.prod(source.sizes) * costs.vector_element_cycles


def _running(areas: Sequence[Area], costs: Costs) -> float:
    """A sum along the first axis: each row waits for the one before."""
    source = areas[0]
    row = costs.vector_cycles * _row_repeats(source, costs) * max(1, math.prod(source.sizes[1:-1]))
    return source.sizes[0] * (row + costs.vector_drain_cycles)


_Rule = Callable[[Sequence[Area], Costs], float]
_RULES: dict[str, _Rule] = {
    "broadcast_scalar_to": _fill, "broadcast_scalar": _fill, "arange": _arange,
    **{f"broadcast_last_axis{how}": _spread_columns for how in ("", "_align", "_unalign")},
    **{f"broadcast_{axis}_axis{how}": _spread_rows
       for axis in ("first", "middle") for how in ("", "_align", "_unalign")},
    **{f"reduce_{op}_{axes}": _reduce_rows for op in ("sum", "max", "min") for axes in ("ra", "ra0a1")},
    **{f"{on}reduce_{op}_{axes}": _reduce_columns
       for on in ("", "enablevc_") for op in ("sum", "max", "min") for axes in ("ar", "r")},
    "transpose_with_last_axis": _transpose, "transpose_without_last_axis": _move,
    "cumsum_ra": _running, "cumsum_ra_reverse": _running,
    "copy_ubuf_to_ubuf": _move, "deinterleave_channel_0_from_n_channels": _move,
}  # fmt: skip
