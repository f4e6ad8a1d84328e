"""Cuts a block's traces into rounds: one iteration of each core's outer loops at a time.

Any cut is right, since the order in which cores are looked at changes no time; a good cut makes rounds alike. Where the
cores' iterations don't correspond there is one round.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from kgen.virtual.timeline.record import CUTS, Trace

Round = tuple[tuple[int, ...], ...]  # a piece of each core's trace
_FEW = 4  # iterations of the outermost loop below which those of the next are rounds as well


def rounds(traces: Sequence[Trace]) -> list[Round]:
    """The rounds of a block, in order."""
    cuts = _cuts(traces)
    count = max((len(c) for c in cuts), default=0) + 1
    pieces = [_pieces(trace.events, core_cuts, count) for trace, core_cuts in zip(traces, cuts, strict=True)]
    return [tuple(piece[i] for piece in pieces) for i in range(count)]


def _cuts(traces: Sequence[Trace]) -> list[list[int]]:
    """Where to cut each trace: as deep as it takes for more than a few rounds, and as the cores agree."""
    best: list[list[int]] = [[] for _ in traces]
    for depth in range(CUTS):
        found = [sorted({place for level in trace.cuts[: depth + 1] for place in level}) for trace in traces]
        counts = {len(places) for places in found if places}
        if len(counts) > 1:
            break
        best = found
        if counts and counts.pop() >= _FEW:
            break
    return best


def _pieces(events: tuple[int, ...], cuts: list[int], count: int) -> list[tuple[int, ...]]:
    """What comes before the first cut, then from each to the next; a core without cuts does it all first."""
    bounds = [0, *cuts, len(events)]
    pieces = [events[a:b] for a, b in itertools.pairwise(bounds)]
    return pieces + [()] * (count - len(pieces))
