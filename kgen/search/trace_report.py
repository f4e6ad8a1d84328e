"""A traced kernel as a row, as text, and as files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from kgen.search.compile_rows import compile_fields
from kgen.search.output import write_output
from kgen.search.trace import Traced
from kgen.spec.targets import Target
from kgen.virtual.memory import Limits, MemoryReport, memory_report
from kgen.virtual.memory.picture import picture as draw
from kgen.virtual.memory.rows import memory_rows
from kgen.virtual.memory.text import memory_text
from kgen.virtual.timeline import Costs, Timeline, record
from kgen.virtual.timeline.text import timeline_text
from kgen.virtual.timeline.trace_file import trace_events


def trace_row(traced: Traced, target: Target) -> dict[str, Any]:
    """The compile's fields, the timeline, and what the memory report says of each function."""
    v, t = traced.variant, traced.timeline
    return {
        **compile_fields(v, traced.result, t.us if t else None, t.unknown if t else None),
        "shape": {**dict(v.heads), **dict(v.widths), "BT": v.chunk, "B": traced.shape.batch, "T": traced.shape.rows},
        "lengths": list(traced.shape.lengths) if traced.shape.lengths is not None else None,
        "grid": list(traced.launch.grid),
        "timeline": _timeline_row(t) if t else None,
        "memory": memory_rows(report) if (report := _memory(traced, target)) else None,
    }


def _timeline_row(timeline: Timeline) -> dict[str, Any]:
    """All of it; places as `file:line`, as everywhere in rows."""
    places = [None if c.place is None else f"{c.place.file}:{c.place.line}" for c in timeline.costs]
    costs = [{**asdict(c), "place": place} for c, place in zip(timeline.costs, places, strict=True)]
    return {**asdict(replace(timeline, costs=())), "costs": costs}


def trace_text(traced: Traced, target: Target, top: int) -> Iterator[str]:
    """Lines for people."""
    v, r = traced.variant, traced.result
    yield f"{v.kernel} {v.name} on {v.target}, {traced.shape.text}: {r.verdict}"
    if r.message:
        yield r.message
    if report := _memory(traced, target):
        yield from memory_text(report).splitlines()
    if traced.timeline is not None:
        yield from timeline_text(traced.timeline, top)


def write_files(traced: Traced, target: Target, out: Path | None, picture: Path | None, block: int) -> list[str]:
    """Write what was asked for; a line for each file."""
    lines = []
    if out is not None and traced.module is not None and traced.timeline is not None:
        costs = Costs.of(target)
        alone = record(traced.module, traced.launch, costs, only=block)  # a sampled launch may not have recorded it
        events = trace_events(alone, costs, f"{traced.variant.kernel} {traced.variant.name}", block)
        write_output(out, json.dumps(events, separators=(",", ":")))
        lines.append(f"{out}: {len(events['traceEvents'])} events; open it in ui.perfetto.dev or chrome://tracing")
        if left_out := events["otherData"]["left_out_intervals"]:
            lines.append(f"{out}: {left_out} intervals left out, from {events['otherData']['complete_until_us']} us on")
    if picture is not None and (report := _memory(traced, target)):
        write_output(picture, draw(report, f"{traced.variant.kernel} {traced.variant.name}"))
        lines.append(f"{picture}: on-chip memory over the program")
    return lines


def _memory(traced: Traced, target: Target) -> MemoryReport | None:
    if traced.module is None:
        return None
    return memory_report(traced.module, Limits.of(target), degraded=traced.result.verdict == "degraded")
