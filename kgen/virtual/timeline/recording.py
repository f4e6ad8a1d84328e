"""Records a launch: which blocks do what, without costs, so that it can be priced again with other constants."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from kgen.errors import KgenError
from kgen.virtual.hivm.nodes import Function, Module
from kgen.virtual.launch import Launch
from kgen.virtual.timeline.costs import Costs
from kgen.virtual.timeline.events import Table
from kgen.virtual.timeline.record import Notes, Recorder, Trace

EVENT_BUDGET = 700_000  # events recorded before blocks are sampled
_FEWEST_BLOCKS = 6
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class Recording:
    """`kinds` names the cores of a block, `classes` the distinct traces of blocks, `blocks` each block's class."""

    launch: Launch
    kinds: tuple[str, ...]
    classes: tuple[tuple[Trace, ...], ...]
    blocks: tuple[int, ...]
    recorded: int  # blocks that were recorded; the others are taken to be as their nearest neighbour
    table: Table
    notes: Notes

    @cached_property
    def core_counts(self) -> tuple[tuple[Counter[int], ...], ...]:
        """How often each event occurs, by class and core."""
        return tuple(tuple(Counter(trace.events) for trace in traces) for traces in self.classes)

    @cached_property
    def counts(self) -> tuple[Counter[int], ...]:
        """The same over the cores of a block, by class."""
        return tuple(sum(cores, Counter()) for cores in self.core_counts)


def record(
    module: Module, launch: Launch, costs: Costs, budget: int = EVENT_BUDGET, only: int | None = None
) -> Recording:
    """Record the launch's blocks, or as many, spread over the grid, as the budget of events allows; or `only` one
    block. Constants that are times don't matter."""
    table, notes = Table(), Notes()
    functions = _cores(module)
    made = {f.name: Recorder(f, launch, costs, table, notes) for f in functions}
    recorders = [(made[f.name], sub) for f, sub in _runs(functions)]
    kinds = tuple("aic" if f.core == "aic" else "aiv" for f, _ in _runs(functions))
    numbers: dict[tuple[Trace, ...], int] = {}
    found: dict[int, int] = {}

    def trace(block: int) -> int:
        traces = tuple(recorder.record(block, sub) for recorder, sub in recorders)
        found[block] = numbers.setdefault(traces, len(numbers))
        return sum(len(t.events) for t in traces)

    count = launch.blocks
    if count < 1:
        raise KgenError(f"a grid of {launch.grid}", code="launch-grid", hint="each size must be at least 1")
    events = 0
    for block in _spread(count) if only is None else (only,):
        if events > budget and len(found) >= _FEWEST_BLOCKS:
            break
        events += trace(block)
    recorded = sorted(found)
    order = list(dict.fromkeys(found[block] for block in recorded))  # classes by their first block
    traces_of = list(numbers)
    rank = {class_: number for number, class_ in enumerate(order)}
    renumbered = {block: rank[class_] for block, class_ in found.items()}
    blocks = _nearest(count, recorded, renumbered)
    return Recording(launch, kinds, tuple(traces_of[c] for c in order), blocks, len(found), table, notes)


def _cores(module: Module) -> list[Function]:
    """The device functions, the cube core's first."""
    return sorted(module.device(), key=lambda f: f.core != "aic")


def _runs(functions: list[Function]) -> list[tuple[Function, int]]:
    """Each core of a block: the half of a mixed kernel for vector cores runs on two of them."""
    return [(f, sub) for f in functions for sub in ((0, 1) if f.core == "aiv" and f.mixed else (0,))]


def _spread(count: int) -> Iterator[int]:
    """All blocks once, the first and the last before others, in an order of which each beginning is spread over the
    grid and follows no period of it (multiples of the golden section)."""
    step = max(1, round(count * _GOLDEN))
    while math.gcd(step, count) > 1:
        step += 1
    yield 0
    if count > 1:
        yield count - 1
    yield from (block for i in range(1, count) if (block := i * step % count) != count - 1)


def _nearest(count: int, recorded: list[int], found: dict[int, int]) -> tuple[int, ...]:
    out: list[int] = []
    place = 0
    for block in range(count):
        while place + 1 < len(recorded) and abs(recorded[place + 1] - block) <= abs(recorded[place] - block):
            place += 1
        out.append(found[recorded[place]])
    return tuple(out)
