"""What a translated device function drives: the timeline records what it is told, the executor does it.

`translate` turns a function into Python once for a machine. For each operation that isn't scalar arithmetic the machine
is asked once for a callable (`bind_*`), which the translated code then calls with run-time values each time the
operation is met, in program order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from kgen.virtual.hivm.nodes import (
    Barrier,
    BlockSet,
    BlockWait,
    Call,
    Load,
    Operation,
    Query,
    SetFlag,
    Store,
    WaitFlag,
)
from kgen.virtual.machine.views import View

Number = int | float
Operand = View | Number


class Scalars(NamedTuple):
    """Scalar operations since the last bound operation of a block: cheap ones, and divisions and remainders."""

    cheap: int
    slow: int


class Site(NamedTuple):
    """One bound operation in one function."""

    operation: Operation
    before: Scalars


class Machine(Protocol):
    """Callables for the operations of one core.

    What is known beforehand is given as `fixed` or `event`, and then the callable takes none of it.
    """

    def bind_call(self, site: Site, call: Call, fixed: tuple[Operand, ...] | None) -> Callable[..., None]:
        """Takes the operands in order, or nothing where all of them are `fixed`."""

    def bind_load(self, site: Site, load: Load) -> Callable[[View, tuple[int, ...]], Number]:
        """Takes the view and the indices; gives the element."""

    def bind_store(self, site: Site, store: Store) -> Callable[[Number, View, tuple[int, ...]], None]:
        """Takes the element, the view and the indices."""

    def bind_flag(self, site: Site, flag: SetFlag | WaitFlag, event: int | None) -> Callable[..., None]:
        """Takes the event, or nothing where it is known."""

    def bind_barrier(self, site: Site, barrier: Barrier) -> Callable[[], None]:
        """Takes nothing."""

    def bind_block_set(self, site: Site, flag: BlockSet) -> Callable[[int], None]:
        """Takes the flag."""

    def bind_block_wait(self, site: Site, flag: BlockWait) -> Callable[[int], bool]:
        """Takes the flag; true while the core must wait, and then it is called again later."""

    def bind_query(self, site: Site, query: Query) -> Callable[[], int]:
        """Takes nothing."""

    def bind_unknown(self, site: Site, name: str) -> Callable[..., None]:
        """Takes whatever the operation takes. What follows uses 0 for its results, so whoever gets one must say so."""

    def bind_scalars(self, before: Scalars) -> Callable[[], None] | None:
        """For scalar operations at the end of a block, after its last bound operation; None to ignore them."""

    def bind_iteration(self, depth: int) -> Callable[[], None] | None:
        """Called at the start of each iteration of a loop at this depth (0: not in another); None to ignore it."""


def own_number(machine: Machine, site: Site, query: Query, known: Mapping[str, Callable[[], int]]) -> Callable[[], int]:
    """A query of the core's own numbers, which are `known` by their queries; 0, and counted, for any other."""
    if query.name in known:
        return known[query.name]
    note = machine.bind_unknown(site, f"hivm.hir.{query.name}")

    def unknown() -> int:
        note()
        return 0

    return unknown
