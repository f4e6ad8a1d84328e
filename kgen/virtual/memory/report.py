"""What a compiled kernel puts on chip, when and for how long; which units it calls; what it leaves idle or wastes."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kgen.virtual.hivm import HivmError
from kgen.virtual.hivm.nodes import Call, Function, Module, Operation, Place
from kgen.virtual.memory.buffers import SPACES, Buffer, Limits, buffers_of
from kgen.virtual.memory.calls import CALL_CLASSES, count_calls, undivided, unknown_names
from kgen.virtual.memory.pairs import DoubleBuffering, LoopBuffers, loop_buffers
from kgen.virtual.memory.program import Loop, Program, program_of
from kgen.virtual.memory.unwritten import Unwritten, Written, unwritten, writers_of


@dataclass(frozen=True)
class SpaceMemory:
    """One memory of one function, in bytes."""

    space: str  # ub, cbuf (L1), cc (L0C), ...
    capacity_bytes: int | None  # None where the target isn't known
    peak_bytes: int  # the highest end of any buffer: what the compiler reserves
    live_bytes: int  # the most that lives at once, memory that buffers share counted once
    live_position: int | None  # the first operation at which that is so
    live_operation: str  # its name: of a call, the template's
    live_place: Place | None
    live_buffers: tuple[Buffer, ...]  # those that live there, by address
    buffers: tuple[Buffer, ...]  # all, in program order


@dataclass(frozen=True)
class FunctionMemory:
    """One device function."""

    name: str
    core: str  # aic (cube) or aiv (vector)
    mixed: bool  # one half of a kernel that has a cube and a vector function
    spaces: tuple[SpaceMemory, ...]  # those that it uses
    loops: tuple[Loop, ...]
    loop_buffers: tuple[LoopBuffers, ...]  # loops that move data
    calls: Mapping[str, int]  # call sites by class, a call in a loop once
    one_vector_core: bool  # the work is not divided over the two vector cores of a block
    gave_up: bool  # the compiler dropped double buffering to make the kernel fit
    unwritten: tuple[Unwritten, ...]  # buffers that are read and that nothing writes
    unknown: Mapping[str, int]  # operations and callees that nobody knows, with counts
    operations: tuple[Operation, ...]  # by position

    @property
    def peak_bytes(self) -> dict[str, int]:
        """Reserved bytes by space."""
        return {space.space: space.peak_bytes for space in self.spaces}

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """All buffers, space by space."""
        return tuple(buffer for space in self.spaces for buffer in space.buffers)

    @property
    def wasteful(self) -> tuple[Buffer, ...]:
        """Buffers of which a part is never touched, those that waste most first."""
        found = [buffer for buffer in self.buffers if buffer.wasted_bytes]
        return tuple(sorted(found, key=lambda buffer: (-buffer.wasted_bytes, buffer.line)))

    @property
    def double_buffering(self) -> DoubleBuffering:
        """Over its loops: lost where the compiler gave it up and no loop alternates any more."""
        states = {found.state(self.gave_up) for found in self.loop_buffers}
        return "kept" if "kept" in states else "lost" if "lost" in states else "none"

    def space(self, name: str) -> SpaceMemory | None:
        """A memory by the IR's name for it."""
        return next((space for space in self.spaces if space.space == name), None)

    def sharing(self, buffer: Buffer) -> tuple[Buffer, ...]:
        """The other buffers that lie, at some time, in the memory of one."""
        return tuple(other for other in self.buffers if other is not buffer and other.overlaps(buffer))


@dataclass(frozen=True)
class MemoryReport:
    """All device functions of one compiled kernel."""

    functions: tuple[FunctionMemory, ...]
    limits: Limits

    def peak(self, space: str) -> int:
        """Reserved bytes of a space (`ub`, `cbuf` for L1, `cc` for L0C) over the functions."""
        return max((function.peak_bytes.get(space, 0) for function in self.functions), default=0)

    def calls(self) -> dict[str, int]:
        """Call sites by class, summed over the functions; a call in a loop counts once."""
        return {key: sum(function.calls.get(key, 0) for function in self.functions) for key in CALL_CLASSES}

    def idle_vector_core(self) -> bool | None:
        """Whether a mixed kernel leaves one of its two vector cores idle; None where there is no such split."""
        halves = [f for f in self.functions if f.mixed and f.core == "aiv" and any(f.calls.values())]
        return any(f.one_vector_core for f in halves) if halves else None

    def double_buffering(self) -> DoubleBuffering:
        """Lost if any function lost it, else kept if any keeps it."""
        states = {function.double_buffering for function in self.functions}
        return "lost" if "lost" in states else "kept" if "kept" in states else "none"

    def unknown(self) -> dict[str, int]:
        """Operations that nobody knows, by name with counts: what the rest of the report can't take into account."""
        return dict(sorted(sum((Counter(f.unknown) for f in self.functions), Counter()).items()))

    def unwritten(self) -> tuple[Unwritten, ...]:
        """Buffers that are read and that nothing writes: the kernel is miscompiled."""
        return tuple(found for function in self.functions for found in function.unwritten)

    def wasteful(self) -> tuple[Buffer, ...]:
        """Buffers of which a part is never touched, those that waste most first."""
        found = [buffer for function in self.functions for buffer in function.wasteful]
        return tuple(sorted(found, key=lambda buffer: -buffer.wasted_bytes))


def memory_report(module: Module, limits: Limits | None = None, *, degraded: bool = False) -> MemoryReport:
    """Read a kernel's memory from its final IR. `degraded` is the compiler's verdict: it gave up double buffering."""
    limits = limits or Limits()
    vector_functions = frozenset(f.name for f in module.functions if f.vector_function)
    read = [_function(f, vector_functions, limits, degraded) for f in module.device()]
    if not read:
        raise HivmError("the final HIVM IR holds no device function")
    functions = tuple(
        replace(function, unwritten=unwritten(written, [other for _, other in read if other is not written]))
        for function, written in read
    )
    return MemoryReport(functions, limits)


def _function(
    function: Function, vector_functions: frozenset[str], limits: Limits, degraded: bool
) -> tuple[FunctionMemory, Written]:
    """A function's memory, but for what nothing writes, which hangs on the others."""
    program = program_of(function)
    turns = program.turns()
    buffers = buffers_of(program, limits, turns)
    # The vector half of a mixed kernel has one of each buffer anyway: none of 713 such loops was seen to alternate.
    gave_up = degraded and not (function.mixed and function.core == "aiv")
    memory = FunctionMemory(
        function.name,
        function.core or "",
        function.mixed,
        tuple(_spaces(program, buffers, limits)),
        tuple(program.loops),
        loop_buffers(program, buffers, turns),
        count_calls(program.operations, function.core, vector_functions),
        undivided(program.operations),
        gave_up,
        (),
        unknown_names(program.operations, vector_functions),
        tuple(program.operations),
    )
    return memory, writers_of(program, buffers)


def _spaces(program: Program, buffers: Sequence[Buffer], limits: Limits) -> Iterator[SpaceMemory]:
    """The memories that hold a buffer, in the usual order."""
    for space in SPACES:
        found = tuple(buffer for buffer in buffers if buffer.space == space)
        if not found:
            continue
        live, position = live_peak(found)
        operation = program.operations[position] if position is not None else None
        there = [b for b in found if position is not None and b.lives(position) and b.bytes]
        yield SpaceMemory(
            space,
            limits.capacity.get(space),
            max(buffer.end for buffer in found),
            live,
            position,
            operation_name(operation),
            operation.place if operation is not None else None,
            tuple(sorted(there, key=lambda buffer: (buffer.addresses, buffer.line))),
            found,
        )


def operation_name(operation: Operation | None) -> str:
    """What an operation is called: a call by its template."""
    if operation is None:
        return ""
    return operation.callee if isinstance(operation, Call) else type(operation).__name__.lower()


def where(place: Place | None) -> str:
    """A source place before a name, `kernels.py:12 `; nothing where it isn't known."""
    return f"{place.file}:{place.line} " if place is not None else ""


def live_peak(buffers: Sequence[Buffer]) -> tuple[int, int | None]:
    """The most bytes that live at once and the first position where they do; memory that is shared counts once."""
    most, where = 0, None
    for position, size in live_curve(buffers):
        if size > most:
            most, where = size, position
    return most, where


def live_curve(buffers: Sequence[Buffer]) -> Iterator[tuple[int, int]]:
    """Bytes that live from a position on, for each position at which a buffer begins to or has just ceased."""
    born: dict[int, list[Buffer]] = {}
    for buffer in buffers:
        if buffer.first is not None and buffer.last is not None:
            born.setdefault(buffer.first, []).append(buffer)
            born.setdefault(buffer.last + 1, [])
    alive: list[tuple[int, int, int]] = []  # first byte, one past the last, last position; by address
    for position in sorted(born):
        alive = [entry for entry in alive if entry[2] >= position]
        for buffer in born[position]:
            for begin, end in buffer.ranges:
                bisect.insort(alive, (begin, end, buffer.last or 0))
        yield position, _covered(alive)


def _covered(ranges: Sequence[tuple[int, int, int]]) -> int:
    """Bytes in at least one range; they come by address."""
    total = reached = 0
    for begin, end, _ in ranges:
        if end > reached:
            total += end - (begin if begin > reached else reached)
            reached = end
    return total
