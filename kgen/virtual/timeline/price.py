"""Gives every distinct event its cost: what the engine does for it, in whole ticks."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from kgen.errors import KgenBug
from kgen.virtual.hivm.nodes import PIPES
from kgen.virtual.machine.protocol import Scalars
from kgen.virtual.timeline.costs import Costs
from kgen.virtual.timeline.cube_costs import product_cost
from kgen.virtual.timeline.events import Access, Barrier, CrossFlag, Event, Flag, Issue, Table, Work
from kgen.virtual.timeline.move_costs import move_cost
from kgen.virtual.timeline.vector_costs import vector_cycles

TICKS = 16  # a cycle; whole numbers, so that a state met again is recognised
PIPE = {name: number for number, name in enumerate(PIPES)}
S, V, M, MTE1, MTE2, MTE3, FIX = (PIPE[name] for name in ("S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX"))
ALL = -1

# kinds of step
ISSUE, PRODUCT, FIXPIPE, SET, WAIT, BARRIER, CROSS_SET, CROSS_WAIT, SCALAR, ELEMENTS = range(10)


class Step(NamedTuple):
    """What the engine does for an event. `scalar` ticks pass on the scalar unit first."""

    kind: int
    scalar: int
    pipe: int = 0
    busy: int = 0  # ticks on the pipe
    latency: int = 0  # ticks until the result is there
    target: int = 0  # pipe that a flag goes to
    number: int = 0  # event or flag; L0C address of a product or fixpipe
    product: tuple[int, ...] = ()  # steps, load, multiply, last block, unit flag, halves of L0, exclusive
    waits: tuple[int, ...] = ()
    releases: tuple[int, ...] = ()
    release: int = 0  # ticks from a product's last load to where a move may overwrite its operands


class Traffic(NamedTuple):
    """Bytes of global memory that an event moves, and of which tensor."""

    base: int | str | None
    read: float
    written: float


class Prices:
    """Steps, pipe time and traffic of a table's events, and what has no price."""

    def __init__(self, table: Table, costs: Costs) -> None:
        self.steps: list[Step] = []
        self.traffic: dict[int, Traffic] = {}
        self.gathers: dict[
            int, int
        ] = {}  # events that move element by element through the scalar unit, and their ticks
        self.small: set[int] = set()  # events with bursts smaller than a granule
        self.unknown: Counter[str] = Counter()
        self._costs = costs
        for number, event in enumerate(table.events):
            self.steps.append(self._step(number, event))

    def _step(self, number: int, event: Event) -> Step:
        costs = self._costs
        if isinstance(event, Issue):
            return self._issue(number, event)
        scalar = self._scalars(event.before)
        if isinstance(event, Work):
            return Step(SCALAR, scalar)
        if isinstance(event, Access):
            return Step(SCALAR, scalar + ticks(_access(event, costs)))
        scalar += ticks(costs.scalar_flag_cycles)
        if isinstance(event, Flag):
            kind = SET if event.set else WAIT
            wait = ticks(costs.flag_cycles)
            return Step(kind, scalar, PIPE[event.source], latency=wait, target=PIPE[event.target], number=event.event)
        if isinstance(event, Barrier):
            return Step(BARRIER, scalar, ALL if event.pipe == "ALL" else PIPE[event.pipe])
        if isinstance(event, CrossFlag):
            latency = ticks(costs.cross_core_flag_cycles)
            kind = CROSS_SET if event.set else CROSS_WAIT
            pipe = ALL if event.pipe == "ALL" else PIPE[event.pipe]
            return Step(kind, scalar, pipe, latency=latency, number=event.flag)
        raise KgenBug(f"no price for {event!r}")

    def _issue(self, number: int, event: Issue) -> Step:
        costs, pipe = self._costs, event.template.pipe
        scalar = self._scalars(event.before)
        if pipe == "V":
            cycles = vector_cycles(event, costs)
            scalar += ticks(costs.scalar_vector_call_cycles * (event.template.rank or 1))
            if cycles is not None:
                return Step(ISSUE, scalar, V, ticks(cycles), ticks(costs.vector_drain_cycles))
        elif pipe == "M":
            product = product_cost(event, costs)
            scalar += ticks(costs.scalar_mma_call_cycles)
            if product is not None:
                shape = (
                    product.steps, ticks(product.load_cycles), ticks(product.multiply_cycles),
                    ticks(product.last_cycles), product.unit_flag, product.halves, int(product.exclusive),
                )  # fmt: skip
                return Step(
                    PRODUCT, scalar, M, product.steps * ticks(product.multiply_cycles),
                    ticks(costs.mma_latency_cycles), number=product.accumulator, product=shape,
                    waits=product.waits, releases=product.releases, release=ticks(costs.flag_cycles),
                )  # fmt: skip
        else:
            move = move_cost(event, costs)
            scalar += ticks(costs.scalar_dma_call_cycles)
            if move is not None:
                self.traffic[number] = Traffic(move.base, move.read, move.written)
                if move.scalar_cycles:
                    self.gathers[number] = ticks(move.scalar_cycles)
                    return Step(ELEMENTS, scalar, PIPE[pipe], ticks(move.scalar_cycles))
                if move.small:
                    self.small.add(number)
                step = Step(ISSUE, scalar, PIPE[pipe], ticks(move.cycles), ticks(move.latency))
                return _unit_flagged(step, event) if pipe == "FIX" else step
        self.unknown[event.template.form] += 1
        return Step(SCALAR, scalar)

    def _scalars(self, before: Scalars) -> int:
        costs = self._costs
        return ticks(before.cheap * costs.scalar_cycles + before.slow * costs.scalar_divide_cycles)


def _access(event: Access, costs: Costs) -> float:
    """Cycles of the scalar unit for one element; a store to global memory doesn't wait for it."""
    if event.write:
        return costs.scalar_store_cycles
    if event.space != "gm":
        return costs.scalar_load_cycles
    return costs.scalar_hit_cycles if event.hit else costs.scalar_gm_cycles


def _unit_flagged(step: Step, event: Issue) -> Step:
    """A fixpipe whose last operand, the unit flag, isn't 0 follows the matrix unit block by block."""
    flag = event.operands[-1]
    source = event.operands[0]
    low = getattr(source, "low", 0)
    return step._replace(kind=FIXPIPE, number=low, product=(int(flag) if isinstance(flag, int) else 0,))


def ticks(cycles: float) -> int:
    """Cycles as whole ticks."""
    return round(cycles * TICKS)
