"""A trace file of one block that Perfetto and chrome://tracing open: a process a core, a thread a pipe.

The format is Chrome's trace event format (JSON object with `traceEvents`), times in modelled microseconds.
"""

from __future__ import annotations

from typing import Any

from kgen.virtual.hivm.nodes import PIPES
from kgen.virtual.timeline.costs import Costs
from kgen.virtual.timeline.engine import Block, DeadlockError, deadlock
from kgen.virtual.timeline.events import Work
from kgen.virtual.timeline.model import core_names
from kgen.virtual.timeline.price import TICKS, Prices
from kgen.virtual.timeline.recording import Recording

LIMIT = 400_000  # intervals in one file; of more, the earliest


def trace_events(recording: Recording, costs: Costs, title: str, block: int = 0) -> dict[str, Any]:
    """Everything that the pipes of one block do, run from its beginning, as a JSON object."""
    prices = Prices(recording.table, costs)
    traces = recording.classes[recording.blocks[block]]
    ran = Block(recording.kinds, prices.steps, costs.queue_depth)
    for core in ran.cores:
        core.log = []
    try:
        ran.run([trace.events for trace in traces])
    except DeadlockError:
        raise deadlock() from None
    to_us = 1 / (TICKS * costs.clock_ghz * 1e3)
    events: list[dict[str, Any]] = []
    intervals: list[tuple[int, int, int, int, int]] = []  # start, core, pipe, event, end
    for number, (name, core) in enumerate(zip(core_names(recording.kinds), ran.cores, strict=True)):
        events.append(_metadata("process_name", number, 0, f"{name} (modelled)"))
        for pipe, label in enumerate(PIPES):
            events.append(_metadata("thread_name", number, pipe, label))
        intervals += [(start, number, pipe, event, end) for pipe, event, start, end in core.log or () if end > start]
    notes: dict[str, Any] = {
        "what": f"{title}, block {block}, modelled", "left_out_intervals": max(0, len(intervals) - LIMIT)
    }  # fmt: skip
    intervals.sort()
    if len(intervals) > LIMIT:
        notes["complete_until_us"] = round(intervals[LIMIT][0] * to_us, 4)
    events += [
        _interval(recording, number, pipe, event, start * to_us, (end - start) * to_us)
        for start, number, pipe, event, end in intervals[:LIMIT]
    ]
    return {"displayTimeUnit": "ns", "otherData": notes, "traceEvents": events}


def _metadata(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _interval(
    recording: Recording, process: int, pipe: int, event: int, start: float, duration: float
) -> dict[str, Any]:
    source = recording.table.events[event]
    args: dict[str, Any] = {}
    name = "scalar"
    if not isinstance(source, Work):
        site = recording.table.sources[source.site]
        name = site.label
        args["ir_line"] = site.line
        if site.place is not None:
            args["source"] = f"{site.place.file}:{site.place.line}"
    return {
        "ph": "X", "name": name, "pid": process, "tid": pipe, "ts": round(start, 4), "dur": round(duration, 4),
        "args": args,
    }  # fmt: skip
