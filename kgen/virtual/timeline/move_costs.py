"""Cycles of moves between global and on-chip memory, and the bytes that they move."""

from __future__ import annotations

import math
from typing import NamedTuple

from kgen.virtual.hivm.types import element_bits
from kgen.virtual.timeline.costs import Costs
from kgen.virtual.timeline.events import Area, Issue

_GRANULE = 32  # bytes: the least that a move takes


class Move(NamedTuple):
    """Time on the pipe, time until the data is there, and traffic in global memory."""

    cycles: float
    latency: float
    read: float  # bytes
    written: float
    base: int | str | None
    scalar_cycles: float = 0  # where the template moves element by element through the scalar unit
    small: bool = False  # bursts smaller than a granule


def move_cost(issue: Issue, costs: Costs) -> Move | None:
    """A move's cost, or None for a template that isn't known."""
    base = issue.template.base
    areas = [a for a in issue.operands if isinstance(a, Area)]
    if len(areas) < (1 if base == "set_l1" else 2):
        return None
    if base in ("load_gm_to_ubuf", "copy_gm_to_ubuf"):
        return _plain(areas[0], areas[1], costs, write=False)
    if base in ("store_ubuf_to_gm", "copy_ubuf_to_gm"):
        return _plain(areas[1], areas[0], costs, write=True)
    if base == "nd2nz":
        return _fractals(areas[0], costs)
    if base == "set_l1":
        cycles = costs.dma_issue_cycles + _bytes(areas[0]) / costs.l1_fill
        return Move(cycles, costs.write_latency_cycles, 0, 0, None)
    if base.startswith("fixpipe"):
        return _fixpipe(areas[1], costs)
    return None


def _bytes(area: Area) -> float:
    return math.prod(area.sizes) * element_bits(area.element) / 8


def _plain(area: Area, local: Area, costs: Costs, *, write: bool) -> Move:
    """Between rows of global memory and UB.

    Contiguous runs: trailing dimensions without gaps make one run, each run is a burst, and one instruction covers the
    two innermost levels. The templates (AscendNPU-IR, lib/Template/lib/DMA/Ubuf) have no instruction for elements that
    lie apart in global memory and together in UB: they go through the scalar unit, one by one.
    """
    width = element_bits(area.element) / 8
    axis, run = len(area.sizes) - 1, 1
    while axis >= 0 and (area.sizes[axis] == 1 or area.strides[axis] == run):
        run *= area.sizes[axis]
        axis -= 1
    bursts = math.prod(area.sizes[: axis + 1])
    run_bytes = run * width
    if bursts * run == 0:
        return Move(0, 0, 0, 0, area.base)
    moved = bursts * max(run_bytes, _GRANULE)
    latency = costs.write_latency_cycles if write else costs.read_latency_cycles
    read, written = (0.0, moved) if write else (moved, 0.0)
    if run == 1 and bursts > 1 and _together(local):
        near = costs.scalar_load_cycles if write else costs.scalar_store_cycles
        return Move(0, 0, read, written, area.base, bursts * (near + costs.scalar_gm_cycles))
    instructions = max(1, math.prod(area.sizes[: max(0, axis)])) if axis >= 1 else 1
    factor = _lines(run_bytes, area.strides[axis] * width, costs) if bursts > 1 else 1.0
    bandwidth = costs.ub_to_gm if write else costs.gm_to_ub
    starts = bursts * _burst(run_bytes, costs, write) if bursts > 1 else 0
    cycles = instructions * costs.dma_issue_cycles + max(starts, factor * moved / bandwidth)
    return Move(cycles, latency, read, written, area.base, small=bursts > 1 and run_bytes < _GRANULE)


def _burst(run_bytes: float, costs: Costs, write: bool) -> float:
    """The least time of one contiguous run among several."""
    if run_bytes >= _GRANULE:
        return costs.dma_burst_cycles
    return costs.dma_element_store_cycles if write else costs.dma_element_load_cycles


def _lines(run_bytes: float, pitch: float, costs: Costs) -> float:
    """How many more lines of global memory rows touch than they need, on average over where they begin.

    Rows of 2 KB whose pitch is 32 bytes more than whole lines: 1.23, and 1.28 was measured; rows of 512 bytes brought
    to L1: 1.94, and 1.97 was measured (asc-devkit, data_copy).
    """
    line = int(costs.dma_line_bytes)
    starts = math.gcd(int(pitch), line) or 1
    if run_bytes <= 0 or starts == line:
        return 1.0
    return (1 + max(0.0, run_bytes - starts) / line) / math.ceil(run_bytes / line)


def _together(local: Area) -> bool:
    """Whether the elements of a row follow each other in UB."""
    rows = [stride for stride, size in zip(local.strides, local.sizes, strict=True) if size > 1]
    return bool(rows) and rows[-1] == 1


def _fractals(area: Area, costs: Costs) -> Move:
    """Rows of global memory to fractals in L1."""
    rows, size = math.prod(area.sizes[:-1]), _bytes(area)
    width = element_bits(area.element) / 8
    factor = _lines(area.sizes[-1] * width, area.strides[-2] * width, costs) if rows > 1 else 1.0
    cycles = costs.dma_issue_cycles + factor * max(size / costs.gm_to_l1, rows * costs.dma_row_cycles)
    return Move(cycles, costs.read_latency_cycles, size, 0, area.base)


def _fixpipe(area: Area, costs: Costs) -> Move:
    """L0C to rows of global memory."""
    rows, size = math.prod(area.sizes[:-1]), _bytes(area)
    elements = math.prod(area.sizes)
    moved = max(size / costs.l0c_to_gm, elements / costs.fixpipe_elements)
    cycles = costs.dma_issue_cycles + max(moved, rows * costs.dma_burst_cycles)
    return Move(cycles, costs.fixpipe_latency_cycles, 0, size, area.base)
