"""Runs a block's scalar programs and records what each core does. No time passes here.

Scalars never depend on another core or on time, so each core's trace can be recorded alone. What they may depend on is
data: integers in global memory are read from the launch's tables, anything else is unknown; an unknown float is taken
as 0, an unknown integer too and is noted, since loops and addresses may hang on it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from kgen.errors import KgenError
from kgen.virtual.hivm import nodes as n
from kgen.virtual.hivm.types import FLOATS, MemRef
from kgen.virtual.launch import Buffer, Launch
from kgen.virtual.machine.arguments import arguments_of
from kgen.virtual.machine.decisive import decisive_loads
from kgen.virtual.machine.protocol import Number, Operand, Scalars, Site, own_number
from kgen.virtual.machine.translate import Program, translate
from kgen.virtual.machine.views import Base, View
from kgen.virtual.templates import template
from kgen.virtual.timeline.costs import Costs
from kgen.virtual.timeline.events import Access, Area, Barrier, CrossFlag, Flag, Issue, Source, Table, Work
from kgen.virtual.timeline.memo import memo

_LOW_BITS = 32 * 8 - 1  # addresses matter modulo the granule of moves, 32 bytes
_MMA_COUNTER = 11  # operand of mma_tile that counts iterations, which chooses halves of L0 and costs nothing
CUTS = 2  # loops whose iterations are told apart: the outermost and those in it


@dataclass(frozen=True)
class Trace:
    """One core's events, and where iterations of its loops begin, by depth."""

    events: tuple[int, ...]
    cuts: tuple[tuple[int, ...], ...]


@dataclass
class Notes:
    """What a recording met that its numbers can't be trusted for: with anything but `data`, there is no time."""

    unknown: Counter[str] = field(default_factory=Counter)  # operations that nobody knows
    data: set[str] = field(default_factory=set)  # integers read from memory whose content isn't known
    undecided: set[str] = field(default_factory=set)  # those among them that loops, branches or sizes hang on


class Recorder:
    """The machine of one device function. It is used again for every block and vector core. Of the costs it takes the
    size of the scalar unit's data cache only."""

    def __init__(self, function: n.Function, launch: Launch, costs: Costs, table: Table, notes: Notes) -> None:
        self._launch = launch
        self._line_bits, self._most_lines = 8 * costs.scalar_line_bytes, costs.scalar_cache_lines
        self._table = table
        self._notes = notes
        self._events: list[int] = []
        self._cuts: list[list[int]] = [[] for _ in range(CUTS)]
        self._lines: OrderedDict[tuple[Base, int], None] = OrderedDict()
        self._core = function.core or "aiv"
        self._decisive = decisive_loads(function)
        self._subs = 2 if function.mixed else 1
        self.block = 0
        self.sub = 0
        self._arguments = arguments_of(function, launch)
        self._program: Program = translate(function, self)

    def record(self, block: int, sub: int) -> Trace:
        """The trace of one core of one block."""
        self.block, self.sub = block, sub
        self._events.clear()
        self._lines.clear()
        for cuts in self._cuts:
            cuts.clear()
        try:
            for _ in self._program.start(*self._arguments):
                raise KgenError("a recording waited", code="timeline-wait")  # bind_block_wait never asks for it
        except ZeroDivisionError:
            raise KgenError(
                "the kernel divides by zero, or counts by it, with these arguments",
                code="launch-arguments",
                hint="check the grid and the sizes of the launch",
            ) from None
        return Trace(tuple(self._events), tuple(tuple(cuts) for cuts in self._cuts))

    # ------------------------------------------------------------ bindings

    def bind_call(self, site: Site, call: n.Call, fixed: tuple[Operand, ...] | None) -> Callable[..., None]:
        """Each distinct shape of a call is one event."""
        found = template(call.callee)
        if found is None:
            return self.bind_unknown(site, f"@{call.callee}")
        number = self._site(call, call.callee)
        kinds = [t if isinstance(t, MemRef) else None for t in call.types]
        append = self._events.append
        counter = _MMA_COUNTER if found.pipe == "M" and len(kinds) > _MMA_COUNTER else None

        def event(values: tuple[Operand, ...]) -> int:
            operands = [_operand(v, k) for v, k in zip(values, kinds, strict=True)]
            if counter is not None:
                operands[counter] = 0
            return self._table.number(Issue(site.before, number, found, tuple(operands)))

        if fixed is not None:
            only = event(fixed)
            return lambda: append(only)
        return memo(kinds, [_mask(kind) for kind in kinds], counter, event, append)

    def bind_load(self, site: Site, load: n.Load) -> Callable[[View, tuple[int, ...]], Number]:
        """Tables of the launch give their integers."""
        number = self._site(load, "memref.load")
        space = load.type.space or "gm"
        miss = self._table.number(Access(site.before, number, space, False))
        hit = self._table.number(Access(site.before, number, space, False, hit=True))
        append, element, cached = self._events.append, load.type.element, self._cached
        bits, arguments = load.type.bits, self._launch.arguments
        doubtful = self._notes.undecided if load.result in self._decisive else self._notes.data
        where = f"{load.type.element} read from {'global memory' if space == 'gm' else space.upper()}"

        def read(view: View, indices: tuple[int, ...]) -> Number:
            base = view[0]
            address = view[1] + bits * sum([i * s for i, s in zip(indices, view[3], strict=True)])
            append(hit if space == "gm" and cached(base, address) else miss)
            if isinstance(base, int):
                buffer = arguments[base]
                if isinstance(buffer, Buffer) and buffer.values is not None:
                    place = address // bits
                    if 0 <= place < len(buffer.values):
                        return buffer.values[place]
            if element not in FLOATS:
                doubtful.add(where)
            return 0

        return read

    def _cached(self, base: Base, address: int) -> bool:
        """Whether a line of global memory is in the scalar unit's data cache; it is from now on."""
        lines, line = self._lines, (base, address // self._line_bits)
        found = line in lines
        if found:
            lines.move_to_end(line)
        else:
            lines[line] = None
            if len(lines) > self._most_lines:
                lines.popitem(last=False)
        return found

    def bind_store(self, site: Site, store: n.Store) -> Callable[[Number, View, tuple[int, ...]], None]:
        """One element."""
        number = self._site(store, "memref.store")
        event = self._table.number(Access(site.before, number, store.type.space or "gm", True))
        append = self._events.append
        return lambda _value, _view, _indices: append(event)

    def bind_flag(self, site: Site, flag: n.SetFlag | n.WaitFlag, event: int | None) -> Callable[..., None]:
        """One event for each flag."""
        number = self._site(flag, "flag")
        append, is_set = self._events.append, isinstance(flag, n.SetFlag)

        def numbered(value: int) -> int:
            return self._table.number(Flag(site.before, number, is_set, flag.source, flag.target, value))

        if event is not None:
            only = numbered(event)
            return lambda: append(only)
        known: dict[int, int] = {}

        def dynamic(value: int) -> None:
            seen = known.get(value)
            if seen is None:
                seen = known[value] = numbered(value)
            append(seen)

        return dynamic

    def bind_barrier(self, site: Site, barrier: n.Barrier) -> Callable[[], None]:
        """One event."""
        event = self._table.number(Barrier(site.before, self._site(barrier, "barrier"), barrier.pipe))
        append = self._events.append
        return lambda: append(event)

    def bind_block_set(self, site: Site, flag: n.BlockSet) -> Callable[[int], None]:
        """One event for each flag."""
        return self._cross(site, flag, True)

    def bind_block_wait(self, site: Site, flag: n.BlockWait) -> Callable[[int], bool]:
        """A recording waits for nobody."""
        handle = self._cross(site, flag, False)

        def wait(value: int) -> bool:
            handle(value)
            return False

        return wait

    def _cross(self, site: Site, flag: n.BlockSet | n.BlockWait, is_set: bool) -> Callable[[int], None]:
        number = self._site(flag, "cross-core flag")
        known: dict[int, int] = {}
        append = self._events.append

        def handle(value: int) -> None:
            seen = known.get(value)
            if seen is None:
                seen = known[value] = self._table.number(CrossFlag(site.before, number, is_set, flag.pipe, value))
            append(seen)

        return handle

    def bind_query(self, site: Site, query: n.Query) -> Callable[[], int]:
        """The core's own numbers."""
        known: dict[str, Callable[[], int]] = {
            "get_block_idx": lambda: self.block,
            "get_sub_block_idx": lambda: self.sub,
            "get_block_num": lambda: self._launch.blocks,
            "get_sub_block_num": lambda: self._subs,
        }
        return own_number(self, site, query, known)

    def bind_unknown(self, site: Site, name: str) -> Callable[..., None]:
        """Counted when it is met."""

        def met(*_operands: object) -> None:
            self._notes.unknown[name] += 1

        return met

    def bind_scalars(self, before: Scalars) -> Callable[[], None] | None:
        """Scalar operations alone."""
        event = self._table.number(Work(before))
        append = self._events.append
        return lambda: append(event)

    def bind_iteration(self, depth: int) -> Callable[[], None] | None:
        """Marks where the iterations of outer loops begin."""
        if depth >= CUTS:
            return None
        cut, events = self._cuts[depth].append, self._events
        return lambda: cut(len(events))

    def _site(self, operation: n.Operation, label: str) -> int:
        return self._table.site(Source(label, operation.place, operation.line))


def _mask(kind: MemRef | None) -> int:
    """Which bits of an operand's address its cost depends on: all in L0C, where they tell buffers apart."""
    return -1 if kind is not None and kind.space == "cc" else _LOW_BITS


def _operand(value: Operand, kind: MemRef | None) -> Area | Number:
    if not isinstance(value, tuple) or kind is None:
        assert not isinstance(value, tuple)
        return value
    base, address, sizes, strides = value
    space = kind.space or "gm"
    return Area(space, kind.element, sizes, strides, address & _mask(kind), base if space == "gm" else None)
