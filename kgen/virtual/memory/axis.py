"""How program order and addresses are laid out in a picture of a function's memory."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass

from kgen.virtual.hivm.nodes import Call, Place
from kgen.virtual.memory.report import FunctionMemory, SpaceMemory

_BREAK_BELOW = 0.3  # of the capacity: a peak under it is drawn to a scale of its own
_HEADROOM = 0.12  # of a panel's height, above its highest buffer


@dataclass(frozen=True)
class Steps:
    """Program order: calls, and operations at which a buffer begins or ends; each as wide as any other."""

    positions: tuple[int, ...]
    places: tuple[Place | None, ...]
    left: float
    right: float

    @staticmethod
    def of(function: FunctionMemory, left: float, right: float) -> Steps:
        """The steps of a function, between two edges in pixels."""
        found = {p for b in function.buffers for p in (b.first, b.last) if p is not None}
        found |= {p for p, operation in enumerate(function.operations) if isinstance(operation, Call)}
        positions = tuple(sorted(found))
        return Steps(positions, tuple(function.operations[p].place for p in positions), left, right)

    @property
    def width(self) -> float:
        """Of one step, in pixels."""
        return (self.right - self.left) / max(1, len(self.positions))

    def start(self, position: int) -> float:
        """Where the first step at or after a position begins."""
        return self.left + self.width * bisect.bisect_left(self.positions, position)

    def stop(self, position: int) -> float:
        """Where the last step at or before a position ends."""
        return self.left + self.width * bisect.bisect_right(self.positions, position)

    def lines(self) -> Iterator[tuple[float, int]]:
        """Where the source line changes, and to which."""
        last: int | None = None
        for index, place in enumerate(self.places):
            if place is not None and place.line != last:
                last = place.line
                yield self.left + self.width * index, place.line


@dataclass(frozen=True)
class Addresses:
    """Addresses upwards. Where little of a memory is used, the axis is broken between what is used and the capacity."""

    top: float  # pixels; where the capacity is drawn, if there is one
    bottom: float
    full: int  # bytes that the scale reaches
    broken: bool

    @staticmethod
    def of(memory: SpaceMemory, top: float, height: float) -> Addresses:
        """The axis of a memory, from `top` downwards."""
        reach = memory.capacity_bytes or memory.peak_bytes
        broken = memory.peak_bytes < _BREAK_BELOW * reach
        full = memory.peak_bytes / (1 - _HEADROOM) if broken else max(reach, memory.peak_bytes)
        return Addresses(top, top + height, max(1, round(full)), broken)

    def y(self, address: int) -> float:
        """Where an address lies."""
        return self.bottom - (self.bottom - self.top) * address / self.full

    def ticks(self, peak: int) -> Iterator[int]:
        """Round addresses, at most seven, up to where the axis is whole."""
        reach = peak if self.broken else self.full
        step = 32
        while reach / step > 6:
            step *= 2
        yield from range(0, reach + 1, step)
