"""A function as a line of operations: positions, the loops round them, and which values lie in one another's memory.

A position is an operation's place in program order, from 0; the operations of a region follow the one that holds it.
The 950's compiler hands over blocks and branches in place of loops: there, a branch back to an earlier label is one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kgen.virtual.hivm import HivmError
from kgen.virtual.hivm import nodes as n
from kgen.virtual.hivm.types import MemRef

NAME = re.compile(r"%[\w$.-]+(?:#\d+)?")
_TARGET = re.compile(r"\^(\w+)(?:\(([^:)]*))?")
_ON_CHIP = re.compile(r"address_space<(?:ub|cbuf|cc|ca|cb)>")
LABEL = "block label"  # how the parser names one
# Operations of the 950's IR that only give memory another name.
_RENAMES = frozenset({"builtin.unrealized_conversion_cast", "llvm.extractvalue", "llvm.insertvalue"})


@dataclass(eq=False)
class Loop:
    """The operations from `begin` to `end`, both within it; `inside` is the loop round it."""

    begin: int
    end: int
    line: int  # of the IR's text
    place: n.Place | None
    inside: Loop | None

    def chain(self) -> tuple[Loop, ...]:
        """The loops round it and itself, outermost first."""
        chain = [self]
        while chain[-1].inside is not None:
            chain.append(chain[-1].inside)
        return tuple(reversed(chain))

    def holds(self, position: int) -> bool:
        """Whether an operation is within it."""
        return self.begin <= position <= self.end


class Use(NamedTuple):
    """An operation that reads or writes the memory of a value, or carries it round a loop."""

    position: int
    operation: n.Operation
    value: n.Value


class Choice(NamedTuple):
    """One of two values, chosen at run time."""

    position: int
    result: n.Value
    values: tuple[n.Value, ...]


@dataclass(eq=False)
class Program:
    """What a function's operations do to on-chip memory; values that lie elsewhere aren't followed."""

    operations: list[n.Operation] = field(default_factory=list)
    loop_at: list[Loop | None] = field(default_factory=list)  # by position: the innermost loop
    loops: list[Loop] = field(default_factory=list)  # in the order in which they begin
    casts: list[tuple[int, n.PointerCast]] = field(default_factory=list)  # with their positions
    integers: dict[n.Value, int] = field(default_factory=dict)  # constants
    derived: dict[n.Value, list[n.Value]] = field(default_factory=dict)  # value -> values in its memory
    views: dict[n.Value, n.Operation] = field(default_factory=dict)  # what made a derived value, where one view did
    uses: dict[n.Value, list[Use]] = field(default_factory=dict)
    choices: list[Choice] = field(default_factory=list)

    def turns(self) -> list[Choice]:
        """Choices between buffers that are touched through them alone: copies of one buffer, used by turns.

        A choice that the kernel itself makes is between values that something has written before.
        """
        chosen = {choice.result for choice in self.choices}
        written: set[n.Value] = set()
        for _, cast in self.casts if chosen else ():
            directly = self.reach(cast.result, chosen)
            if any(value in self.uses for value in directly):
                written.update(directly)
        return [choice for choice in self.choices if written.isdisjoint(choice.values)]

    def reach(self, value: n.Value, without: Collection[n.Value] = ()) -> list[n.Value]:
        """A value and every value in its memory, but for those that lie there only through some others."""
        reached, seen = [value], {value, *without}
        for current in reached:
            for result in self.derived.get(current, ()):
                if result not in seen:
                    seen.add(result)
                    reached.append(result)
        return reached

    def uses_of(self, reached: Sequence[n.Value]) -> list[Use]:
        """What is done to some values, in their order."""
        return [use for value in reached for use in self.uses.get(value, ())]


def program_of(function: n.Function) -> Program:
    """Line up a function's operations."""
    line = _Line(function.body)
    line.block(function.body)
    line.find_loops()
    return line.program


class _Line:
    """Walks a function once."""

    def __init__(self, body: n.Block) -> None:
        self.program = Program()
        self._loop: Loop | None = None
        # Blocks, in the 950's form: positions, and arguments, which are passed to before the text defines them.
        self._labels: dict[str, int] = {}
        self._arguments = {_label(o): o.results for o in body if isinstance(o, n.Unknown) and o.name == LABEL}
        self._ends: dict[int, tuple[int, n.Place | None]] = {}  # of loops, by where they begin

    def block(self, block: n.Block) -> None:
        program = self.program
        for operation in block:
            position = len(program.operations)
            program.operations.append(operation)
            program.loop_at.append(self._loop)
            handle = _HANDLERS.get(type(operation))
            if handle is not None:
                handle(self, operation, position)

    # ------------------------------------------------------------ values

    def link(self, source: n.Value, result: n.Value) -> None:
        """`result` lies in the memory of `source`, if that is on chip."""
        derived = self.program.derived
        if source in derived:
            derived[source].append(result)
            derived.setdefault(result, [])

    def links(self, sources: Sequence[n.Value], results: Sequence[n.Value]) -> None:
        for source, result in zip(sources, results, strict=False):
            self.link(source, result)

    def use(self, values: Sequence[n.Value], operation: n.Operation, position: int) -> None:
        program = self.program
        for value in values:
            if value in program.derived:
                program.uses.setdefault(value, []).append(Use(position, operation, value))

    # ------------------------------------------------------------ operations

    def constant(self, operation: n.Constant, _: int) -> None:
        if isinstance(operation.value, int):
            self.program.integers[operation.result] = operation.value

    def cast(self, operation: n.PointerCast, position: int) -> None:
        self.program.casts.append((position, operation))
        self.program.derived.setdefault(operation.result, [])

    def view(self, operation: Any, _: int) -> None:
        if operation.source in self.program.derived:
            self.link(operation.source, operation.result)
            self.program.views[operation.result] = operation

    def metadata(self, operation: n.Metadata, _: int) -> None:
        self.link(operation.source, operation.base)
        self.program.views[operation.base] = operation

    def arith(self, operation: n.Arith, position: int) -> None:
        if operation.name == "select" and isinstance(operation.to, MemRef):
            self._choose(operation.result, operation.operands[1:], position)

    def _choose(self, result: n.Value, values: tuple[n.Value, ...], position: int) -> None:
        for value in values:
            self.link(value, result)
        if any(value in self.program.derived for value in values):
            self.program.choices.append(Choice(position, result, values))

    def call(self, operation: n.Call, position: int) -> None:
        self.use(operation.operands, operation, position)

    def load(self, operation: n.Load, position: int) -> None:
        self.use((operation.source,), operation, position)

    def store(self, operation: n.Store, position: int) -> None:
        self.use((operation.target,), operation, position)

    # ------------------------------------------------------------ regions

    def for_(self, operation: n.For, position: int) -> None:
        names = [name for name, _ in operation.carried]
        values = [value for _, value in operation.carried]
        self.use(values, operation, position)
        self.links(values, names)
        self.links(values, operation.results)
        self._enter(operation, position)
        self.block(operation.body)
        self._carry(operation.body, names, operation.results)
        self._leave()

    def while_(self, operation: n.While, position: int) -> None:
        names = [name for name, _ in operation.carried]
        values = [value for _, value in operation.carried]
        self.use(values, operation, position)
        self.links(values, names)
        self._enter(operation, position)
        self.block(operation.before)
        last = operation.before[-1] if operation.before else None
        if isinstance(last, n.Condition):
            self.use(last.values, last, len(self.program.operations) - 1)
            self.links(last.values, operation.arguments)
            self.links(last.values, operation.results)
        self.block(operation.after)
        self._carry(operation.after, names, ())
        self._leave()

    def if_(self, operation: n.If, _: int) -> None:
        for block in (operation.then, operation.orelse):
            self.block(block)
            if block and isinstance(block[-1], n.Yield):
                self.links(block[-1].values, operation.results)

    def _carry(self, body: n.Block, names: Sequence[n.Value], results: Sequence[n.Value]) -> None:
        """What the end of a loop's body hands to its beginning, and out of it."""
        if body and isinstance(body[-1], n.Yield):
            values = body[-1].values
            self.use(values, body[-1], len(self.program.operations) - 1)
            self.links(values, names)
            self.links(values, results)

    def _enter(self, operation: n.For | n.While, position: int) -> None:
        self._loop = Loop(position + 1, position, operation.line, operation.place, self._loop)
        self.program.loops.append(self._loop)

    def _leave(self) -> None:
        assert self._loop is not None
        self._loop.end = len(self.program.operations) - 1
        self._loop = self._loop.inside

    # ------------------------------------------------------------ the 950's form

    def unknown(self, operation: n.Unknown, position: int) -> None:
        text = operation.text.partition(" = ")[2] if operation.results else operation.text
        if operation.name == LABEL:
            self._labels[_label(operation)] = position
        elif operation.name.startswith("cf."):
            self._branch(operation, position)
        elif operation.name == "llvm.select":
            self._choose(operation.results[0], tuple(NAME.findall(text)[1:3]), position)
        elif operation.name in _RENAMES:
            for value in NAME.findall(text):
                self.link(value, operation.results[0])
        else:
            values = NAME.findall(text)
            self.use(values, operation, position)
            if operation.results and _ON_CHIP.search(text):
                self._aliased(operation, values)

    def _aliased(self, operation: n.Unknown, values: Sequence[n.Value]) -> None:
        """What an unknown operation makes of on-chip memory lies where its operands do, or nobody knows where."""
        if not any(value in self.program.derived for value in values):
            raise HivmError(f"{operation.name} makes on-chip memory in a way that kgen does not know", operation.line)
        for result in operation.results:
            for value in values:
                self.link(value, result)

    def _branch(self, operation: n.Unknown, position: int) -> None:
        """Values passed to a block lie where its arguments do; a branch back is the end of a loop."""
        for label, passed in _TARGET.findall(operation.text):
            values = NAME.findall(passed)
            self.use(values, operation, position)
            self.links(values, self._arguments.get(label, ()))
            begin = self._labels.get(label)
            if begin is not None:
                self._ends[begin] = position, operation.place

    def find_loops(self) -> None:
        """The loops that branches make."""
        program = self.program
        for begin, (end, place) in sorted(self._ends.items()):
            around = [loop for loop in program.loops if loop.begin <= begin and end <= loop.end]
            line = program.operations[begin].line
            program.loops.append(Loop(begin, end, line, place, around[-1] if around else None))
            program.loop_at[begin : end + 1] = [program.loops[-1]] * (end + 1 - begin)


def _label(operation: n.Unknown) -> str:
    """The name of a block."""
    return operation.text.lstrip("^")


_HANDLERS: Mapping[type, Callable[[_Line, Any, int], None]] = {
    n.Constant: _Line.constant,
    n.PointerCast: _Line.cast,
    n.Alias: _Line.view,
    n.Collapse: _Line.view,
    n.Subview: _Line.view,
    n.Expand: _Line.view,
    n.View: _Line.view,
    n.Reinterpret: _Line.view,
    n.Transpose: _Line.view,
    n.Metadata: _Line.metadata,
    n.Arith: _Line.arith,
    n.Call: _Line.call,
    n.Load: _Line.load,
    n.Store: _Line.store,
    n.For: _Line.for_,
    n.While: _Line.while_,
    n.If: _Line.if_,
    n.Unknown: _Line.unknown,
}
