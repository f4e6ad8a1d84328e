"""Tile candidates, and the choice among them: those whose bytes fit every memory with a margin, least traffic first."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from kgen.ir.nodes import Kernel as LoweredKernel
from kgen.plan.peak import Trees
from kgen.plan.record import tree_value
from kgen.plan.table import limits
from kgen.plan.traffic import traffic
from kgen.spec.models import Kernel, Spec
from kgen.spec.targets import Target

MARGIN = 0.125  # of each memory, left free where the compiler hasn't confirmed the expression


@dataclass(frozen=True)
class Candidate:
    """Tiles with the bytes that the expressions give for them, and the bytes they move a chunk."""

    tiles: dict[str, int]
    ub: int
    traffic: int
    reason: str = ""

    @property
    def fits(self) -> bool:
        return not self.reason


def keys(spec: Spec, kernel: Kernel) -> Iterator[dict[str, int]]:
    """Every combination of width buckets that a kernel's tiled dims have."""
    dims = list(kernel.tiles)
    for widths in itertools.product(*(spec.buckets[d] for d in dims)):
        yield dict(zip(dims, widths, strict=True))


def sizes(entry: Kernel, whole: tuple[str, ...], widths: dict[str, int]) -> list[dict[str, int]]:
    """Tile candidates at a bucket: no wider than it, and at least as wide where one tile must cover the dim."""
    options = []
    for dim, values in entry.tiles.items():
        fitting = [v for v in values if v <= widths[dim]] or [min(values)]
        if dim in whole:
            fitting = [v for v in values if v >= widths[dim]][:1]
        options.append([(f"B{dim}", v) for v in sorted(fitting, reverse=True)])
    return [dict(row) for row in itertools.product(*options)]


def ranked(
    spec: Spec, kernel: LoweredKernel, found: Trees, target: Target, bits: int, chunk: int, widths: dict[str, int]
) -> list[Candidate]:
    """Candidates that fit, best first, then those that don't, with the reason."""
    limit = limits(target)
    out = []
    for tiles in sizes(spec.kernels[kernel.name], kernel.whole, widths):
        known = {**tiles, spec.chunk: chunk}
        out.append(_judge(found, limit, tiles, known, traffic(kernel, known, widths, bits)))
    return sorted(out, key=lambda c: (not c.fits, c.traffic, -sum(c.tiles.values())))


def used(side_by_side: int, packed: int, capacity: int) -> int:
    """Bytes that a memory is expected to take: the sum where it fits, else the packed peak."""
    return side_by_side if side_by_side <= capacity else packed


def _judge(
    found: Trees, limit: tuple[int, int, int], tiles: dict[str, int], values: dict[str, int], moved: int
) -> Candidate:
    packed, l1, l0c = (tree_value(t, values) for t in (found.ub, found.l1, found.l0c))
    # no reuse while everything fits side by side: then the peak is the sum
    ub = used(tree_value(found.ub_sum, values), packed, limit[0])
    reason = ""
    for name, need, have in (("UB", packed, limit[0]), ("L1", l1, limit[1]), ("L0C", l0c, limit[2])):
        if need > have * (1 - MARGIN):
            reason = f"{name} {need} bytes predicted, {int(have * (1 - MARGIN))} allowed"
            break
    return Candidate(tiles, ub, moved, reason)
