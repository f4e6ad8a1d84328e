"""How much of a kernel the virtual machine understands: distinct (operation, rank, dtype) forms of template calls, and
which of them have a meaning for the executor and a cost for the timeline.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from kgen.virtual.hivm.nodes import Call, Module, Unknown, walk
from kgen.virtual.hivm.types import MemRef, Type
from kgen.virtual.machine.protocol import Scalars
from kgen.virtual.templates import template
from kgen.virtual.timeline.costs import Costs
from kgen.virtual.timeline.events import Area, Issue, Table
from kgen.virtual.timeline.price import Prices

_SIZE = 16  # of every dimension of a trial operand


@dataclass(frozen=True)
class Form:
    """A form, how often it stands in the text, and whether each side knows it."""

    name: str
    count: int
    executable: bool
    priced: bool


def forms(modules: list[Module], costs: Costs) -> list[Form]:
    """Every distinct form of the modules' device functions, sorted by name."""
    from kgen.virtual.execute.calls import handler  # needs numpy, which building kgen's packages doesn't

    calls: dict[str, set[tuple[str, tuple[Type, ...]]]] = {}  # of a form: all that are called by it
    counts: Counter[str] = Counter()
    for module in modules:
        for function in module.device():
            for operation in walk(function.body):
                if isinstance(operation, Call):
                    found = template(operation.callee)
                    name = found.form if found is not None else f"@{operation.callee}"
                    calls.setdefault(name, set()).add((operation.callee, operation.types))
                    counts[name] += 1
                elif isinstance(operation, Unknown):
                    counts[operation.name] += 1
    return [
        Form(
            name, counts[name], name in calls and all(handler(*call) is not None for call in calls[name]),
            name in calls and all(priced(*call, costs) for call in calls[name]),
        )
        for name in sorted(counts)
    ]  # fmt: skip


def priced(callee: str, types: tuple[Type, ...], costs: Costs) -> bool:
    """Whether a call has a cost."""
    found = template(callee)
    if found is None:
        return False
    operands = tuple(_operand(t) for t in types)
    table = Table()
    table.number(Issue(Scalars(0, 0), 0, found, operands))
    return not Prices(table, costs).unknown


def _operand(kind: Type) -> Area | int:
    if not isinstance(kind, MemRef):
        return _SIZE
    sizes = (_SIZE,) * len(kind.shape)
    strides = tuple(_SIZE ** (len(sizes) - 1 - i) for i in range(len(sizes)))
    return Area(kind.space or "gm", kind.element, sizes, strides, 0, 0)
