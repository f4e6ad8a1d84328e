"""The memory report as text for people."""

from __future__ import annotations

from collections.abc import Iterator

from kgen.virtual.memory.buffers import SPACES, Buffer
from kgen.virtual.memory.pairs import LoopBuffers
from kgen.virtual.memory.report import FunctionMemory, MemoryReport, SpaceMemory, where
from kgen.virtual.memory.unwritten import Unwritten

_MOST = 8  # wasteful buffers that are listed
_LARGEST = 4  # buffers that are listed of a memory at its fullest


def memory_text(report: MemoryReport) -> str:
    """A few lines a function: its memories, an idle core, double buffering, waste. Sizes are bytes."""
    lines: list[str] = []
    for function in report.functions:
        lines += [*_function(function), ""]
    return "\n".join(lines)


def _function(function: FunctionMemory) -> Iterator[str]:
    core = {"aic": "cube core", "aiv": "vector core"}.get(function.core, function.core)
    yield f"{function.name} ({core})"
    rows = [("", "reserved", "capacity", "used", "most live", "where"), *map(_space, function.spaces)]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    for row in rows if function.spaces else ():
        cells = [row[0].ljust(widths[0]), *(row[c].rjust(widths[c]) for c in range(1, 5)), row[5]]
        yield ("  " + "  ".join(cells)).rstrip()
    if not function.spaces:
        yield "  nothing on chip"
    for memory in function.spaces:
        if memory.live_bytes:
            yield f"  {SPACES[memory.space]} at its fullest: {_fullest(memory)}"
    if function.mixed and function.core == "aiv" and function.one_vector_core and any(function.calls.values()):
        yield "  one of the two vector cores is idle: the work is not divided"
    if function.double_buffering != "none":
        yield f"  double buffering {function.double_buffering}"
    for lost in function.unwritten:
        yield f"  MISCOMPILED: {unwritten_text(lost)}"
    for found in function.loop_buffers:
        yield from _loop(function, found)
    yield from _waste(function.wasteful)


def unwritten_text(found: Unwritten) -> str:
    """One line on a buffer that nothing writes, for people."""
    buffer = found.buffer
    allocated = where(buffer.place).strip() or f"line {buffer.line} of the IR"
    read = where(found.place).strip() or f"line {found.line} of the IR"
    return f"{_type(buffer)} of {allocated} is read at {read} by {found.reader}, and nothing writes it"


def _fullest(memory: SpaceMemory) -> str:
    """The largest of the buffers that live where most bytes do."""
    largest = sorted(memory.live_buffers, key=lambda buffer: -buffer.bytes * len(buffer.addresses))
    names = [f"{buffer.bytes * len(buffer.addresses):,} {buffer.type} {buffer.kind}" for buffer in largest[:_LARGEST]]
    return ", ".join(names) + (f" and {len(largest) - _LARGEST} more" if len(largest) > _LARGEST else "")


def _space(memory: SpaceMemory) -> tuple[str, ...]:
    capacity = memory.capacity_bytes
    return (
        SPACES[memory.space],
        f"{memory.peak_bytes:,}",
        f"{capacity:,}" if capacity else "unknown",
        f"{memory.peak_bytes / capacity:.0%}" if capacity else "",
        f"{memory.live_bytes:,}",
        f"{where(memory.live_place)}{memory.live_operation}" if memory.live_bytes else "",
    )


def _loop(function: FunctionMemory, found: LoopBuffers) -> Iterator[str]:
    """What a loop moves data through; only loops where double buffering was kept or lost."""
    state = found.state(function.gave_up)
    loop = found.loop
    name = f"loop at {where(loop.place).strip() or f'line {loop.line} of the IR'}"
    if state == "kept":
        single = f", {len(found.single)} with one copy" if found.single else ""
        yield f"    {name}: {', '.join(_group(group) for group in found.groups)}{single}"
    elif state == "lost":
        yield f"    {name}: one copy of {', '.join(_type(buffer) for buffer in found.single)}"


def _group(group: tuple[Buffer, ...]) -> str:
    return f"{len(group)} copies of {_type(group[0])}"


def _type(buffer: Buffer) -> str:
    return f"{SPACES[buffer.space]} {buffer.type}"


def _waste(buffers: tuple[Buffer, ...]) -> Iterator[str]:
    """Buffers of which a part is never touched; those of one place and type in one line."""
    rows: dict[tuple[object, ...], list[Buffer]] = {}
    for buffer in buffers:
        rows.setdefault((buffer.space, buffer.type, buffer.wasted_bytes, buffer.place), []).append(buffer)
    if rows:
        yield "  never touched:"
    for same in list(rows.values())[:_MOST]:
        first = same[0]
        times = f"{len(same)} times " if len(same) > 1 else ""
        size = first.bytes * len(first.addresses)
        yield (
            f"    {times}{first.wasted_bytes * len(first.addresses):,} of {size:,} bytes of {_type(first)}, "
            f"{where(first.place).strip() or f'line {first.line} of the IR'}"
        )
    if len(rows) > _MOST:
        yield f"    and {len(rows) - _MOST} more kinds"
