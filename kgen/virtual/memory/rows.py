"""The memory report as plain values, for JSON. Sizes are bytes."""

from __future__ import annotations

from typing import Any

from kgen.virtual.hivm.nodes import Place
from kgen.virtual.memory.buffers import SPACES, Buffer
from kgen.virtual.memory.report import FunctionMemory, MemoryReport, SpaceMemory
from kgen.virtual.memory.unwritten import Unwritten


def memory_rows(report: MemoryReport) -> list[dict[str, Any]]:
    """One entry a device function."""
    return [_function(function) for function in report.functions]


def _function(function: FunctionMemory) -> dict[str, Any]:
    return {
        "function": function.name,
        "core": function.core,
        "spaces": [_space(space) for space in function.spaces],
        "double_buffering": function.double_buffering,
        "one_vector_core": function.one_vector_core if function.core == "aiv" and function.mixed else None,
        "never_touched": [{**_buffer(b), "bytes_never_touched": b.wasted_bytes} for b in function.wasteful],
        "unwritten": [_unwritten(found) for found in function.unwritten],
    }


def _space(space: SpaceMemory) -> dict[str, Any]:
    return {
        "space": SPACES[space.space],
        "capacity_bytes": space.capacity_bytes,
        "reserved_bytes": space.peak_bytes,
        "live_bytes": space.live_bytes,
        "fullest_at": _place(space.live_place),
        "fullest_in": space.live_operation,
        "fullest_with": [_buffer(buffer) for buffer in space.live_buffers],
    }


def _buffer(buffer: Buffer) -> dict[str, Any]:
    return {
        "space": SPACES[buffer.space],
        "type": buffer.type,
        "kind": buffer.kind,
        "addresses": list(buffer.addresses),
        "bytes": buffer.bytes,
        "source": _place(buffer.place),
    }


def _unwritten(found: Unwritten) -> dict[str, Any]:
    return {**_buffer(found.buffer), "read_at": _place(found.place), "read_by": found.reader}


def _place(place: Place | None) -> str | None:
    return f"{place.file}:{place.line}" if place is not None else None
