"""Cycles of a matrix product: loads from L1 to L0A and L0B, and the matrix unit itself, in steps that fit in L0."""

from __future__ import annotations

from typing import NamedTuple

from kgen.virtual.hivm.types import element_bits
from kgen.virtual.timeline.costs import Costs
from kgen.virtual.timeline.events import Area, Issue

_FRACTAL = 16
_FRACTAL_BYTES = 32


class Product(NamedTuple):
    """A product in `steps` along k: each loads its operands (MTE1) and multiplies (M)."""

    steps: int
    load_cycles: float  # of one step
    multiply_cycles: float  # of one step
    waits: tuple[int, ...]  # events MTE2 -> MTE1 before the first load; -1 for none
    releases: tuple[int, ...]  # events MTE1 -> MTE2 after the last load
    accumulator: int  # address in L0C
    unit_flag: int  # 0: none; else the matrix unit and fixpipe hand L0C over block by block
    last_cycles: float  # of the last block that the matrix unit writes
    halves: int  # parts of k that L0 holds at once
    exclusive: bool  # the next product's loads wait for this one: it hands no event of the matrix unit on


def product_cost(issue: Issue, costs: Costs) -> Product | None:
    """`mma_tile(a, b, initialise, m, k, n, c, events…, unit flag)`; None for another form."""
    areas = [x for x in issue.operands if isinstance(x, Area)]
    numbers = [int(x) for x in issue.operands if not isinstance(x, Area)]
    if issue.template.base.startswith("batch") or len(areas) < 3 or len(numbers) < 9:
        return None
    _, m, k, n = numbers[:4]
    events = numbers[4:-1]
    if not m or not k or not n:  # only its flags
        return Product(0, 0, 0, tuple(events[:2]), tuple(events[2:4]), areas[2].low, 0, 0, 1, exclusive=False)
    width = element_bits(areas[0].element) / 8
    depth = int(_FRACTAL_BYTES / width)
    rows, columns = _whole(m, _FRACTAL), _whole(n, _FRACTAL)
    part, halves = _part(max(rows, columns), width, costs)
    steps = max(1, -(-k // part))
    rate = costs.mma_fp32_cycles if areas[0].element == "f32" else costs.mma_cycles
    fractals = (rows // _FRACTAL) * (columns // _FRACTAL)
    passes = -(-_whole(k, depth) // depth) * rate / steps  # of one block of the result, in one step
    left, right = rows * k * width, columns * k * width
    load = 2 * costs.l0_start_cycles + (left / costs.l1_to_l0a + right / costs.l1_to_l0b) / steps
    return Product(
        steps, load, costs.mma_start_cycles + fractals * passes, tuple(events[:2]), tuple(events[2:4]), areas[2].low,
        numbers[-1], passes, halves, exclusive=len(events) < 7 or events[5] < 0,
    )  # fmt: skip


def _part(size: int, width: float, costs: Costs) -> tuple[int, int]:
    """How much of k is loaded at once, and how many such parts L0 holds: halves of L0 take turns where a part fits in
    one, as `LocalMmad` of the device library cuts it."""
    unit = max(_FRACTAL, int(_FRACTAL_BYTES / width))
    for halves in (2, 1):
        part = int(min(costs.l0a_bytes, costs.l0b_bytes) / halves / width / max(size, unit)) // unit * unit
        if part:
            return part, halves
    return unit, 1


def _whole(size: int, of: int) -> int:
    """A size rounded up to whole fractals."""
    return max(1, -(-size // of)) * of
