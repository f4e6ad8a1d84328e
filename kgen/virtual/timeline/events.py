"""What a core does, as the timeline sees it: events without costs, so that other constants need no new recording.

A trace is a list of event numbers; events that are alike share a number.
"""

from __future__ import annotations

from typing import NamedTuple

from kgen.virtual.hivm.nodes import Place
from kgen.virtual.machine.protocol import Scalars
from kgen.virtual.machine.views import Base
from kgen.virtual.templates import Template


class Area(NamedTuple):
    """A memref operand: what its cost depends on. `low` is its address in bits: all of it in
    L0C, elsewhere modulo 32 bytes."""

    space: str
    element: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    low: int
    base: Base | None  # of global memory: which tensor, so that its traffic is counted


class Issue(NamedTuple):
    """A template given to a pipe."""

    before: Scalars
    site: int
    template: Template
    operands: tuple[Area | int | float, ...]


class Flag(NamedTuple):
    """`set` or `wait` between two pipes of the core."""

    before: Scalars
    site: int
    set: bool
    source: str
    target: str
    event: int


class Barrier(NamedTuple):
    """A pipe waits for itself; `ALL`: every pipe for every other."""

    before: Scalars
    site: int
    pipe: str


class CrossFlag(NamedTuple):
    """`set` or `wait` between the cube core and its vector cores."""

    before: Scalars
    site: int
    set: bool
    pipe: str
    flag: int


class Access(NamedTuple):
    """The scalar unit reads or writes one element; `hit`: of global memory, and its line is in the data cache."""

    before: Scalars
    site: int
    space: str
    write: bool
    hit: bool = False


class Work(NamedTuple):
    """Scalar operations alone."""

    before: Scalars


Event = Issue | Flag | Barrier | CrossFlag | Access | Work


class Source(NamedTuple):
    """Where an event comes from: its place in the kernel's source and its line in the IR."""

    label: str  # the template's name, or what the operation is
    place: Place | None
    line: int


class Table:
    """The distinct events and sites of a kernel."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.sources: list[Source] = []
        self._numbers: dict[Event, int] = {}

    def number(self, event: Event) -> int:
        """The number of an event, new or not."""
        found = self._numbers.get(event)
        if found is None:
            found = self._numbers[event] = len(self.events)
            self.events.append(event)
        return found

    def site(self, source: Source) -> int:
        """A number for a place that events come from."""
        self.sources.append(source)
        return len(self.sources) - 1
