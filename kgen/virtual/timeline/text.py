"""A modelled time as text for people."""

from __future__ import annotations

from collections.abc import Iterator

from kgen.virtual.hivm.nodes import Place
from kgen.virtual.timeline.model import CostLine, Timeline


def timeline_text(timeline: Timeline, top: int = 12) -> Iterator[str]:
    """Lines: the time and what bounds it, each core's pipes, the costliest places, warnings."""
    t = timeline
    if t.us is None:
        if t.unknown:
            listed = ", ".join(f"{name} ({count}x)" for name, count in sorted(t.unknown.items()))
            yield f"no modelled time: operations that kgen does not know: {listed}"
        for what in t.undecided:
            yield f"no modelled time: what is done hangs on an integer ({what}) that isn't known"
        return
    yield (
        f"modelled {t.us:.1f} us (launch {t.launch_us:g} + {t.bound}): cores {t.core_us:.1f}, "
        f"HBM at least {t.hbm_us:.1f}, L2 at least {t.l2_us:.1f}"
    )
    yield (
        f"{t.blocks} blocks on {t.cores} cores; {t.read_bytes / 1e6:.1f} MB read, {t.written_bytes / 1e6:.1f} MB "
        "written"
    )
    for use in t.uses:
        busy = "  ".join(f"{pipe} {share:.0%}" for pipe, share in use.busy.items())
        waits = "  ".join(f"{pipe} {share:.0%}" for pipe, share in use.stalled.items())
        yield f"{use.core:5s} busy   {busy}"
        yield f"      waits  {waits}"
    yield f"costliest of the busiest block ({len(t.costs)} places):"
    for line in t.costs[:top]:
        where = f"{line.pipe:4s} {line.count:7d}x  {place_text(line):28s} {line.label}"
        yield f"  {line.us:9.1f} us {line.share:6.1%}  {where}"
    for warning in t.warnings:
        yield f"warning: {warning}"


def place_text(line: CostLine) -> str:
    """`kernels.py:212 (28)`: the kernel's line, and its helper's; the IR's where the source isn't known."""
    place: Place | None = line.place
    if place is None:
        return f"IR line {line.ir_line}" if line.ir_line else ""
    return f"{place.file}:{place.line}" + (f" ({place.inner})" if place.inner is not None else "")
