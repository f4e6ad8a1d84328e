"""Every on-chip buffer of a function: where it lies, how long it lives, what it is for.

A buffer lives from the first operation that touches it to the last, through all its views, choices and loop-carried
names. What is allocated outside a loop and touched in it lives to the loop's end; a buffer of a pair is allocated where
the loop chooses between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from kgen.spec.targets import Target
from kgen.virtual.hivm import HivmError
from kgen.virtual.hivm.nodes import Call, Place, PointerCast
from kgen.virtual.memory.program import Choice, Loop, Program, Use
from kgen.virtual.memory.waste import touched
from kgen.virtual.templates import template

SPACES: Mapping[str, str] = {"ub": "UB", "cbuf": "L1", "cc": "L0C", "ca": "L0A", "cb": "L0B"}  # in a report's order

_FARTHEST = 1 << 40  # no address or size of a buffer lies beyond

Kind = Literal["loaded", "stored", "operand", "accumulator", "scratch", "temporary"]
_BY_SPACE: Mapping[str, Kind] = {"cbuf": "operand", "ca": "operand", "cb": "operand", "cc": "accumulator"}


@dataclass(frozen=True)
class Limits:
    """Sizes of the on-chip memories, and the blocks in which they are given out, in bytes by space."""

    capacity: Mapping[str, int] = field(default_factory=dict)
    align: Mapping[str, int] = field(default_factory=lambda: {"cc": 512})

    @staticmethod
    def of(target: Target) -> Limits:
        """A target's own."""
        memory = target.memory
        if memory is None:
            return Limits()
        sizes = (memory.ub_bytes, memory.l1_bytes, memory.l0c_bytes, memory.l0a_bytes, memory.l0b_bytes)
        blocks = {"ub": memory.ub_align.value, "cbuf": memory.l1_align.value, "cc": memory.l0c_align.value}
        return Limits({space: size.value for space, size in zip(SPACES, sizes, strict=True)}, blocks)

    def rounded(self, space: str, size: int) -> int:
        """Bytes that a buffer of `size` bytes takes."""
        block = self.align.get(space, 32)
        return -(-size // block) * block


@dataclass(frozen=True)
class Buffer:
    """One allocation. Positions count operations (see program.py); both are None where nothing touches it."""

    name: str  # in the IR
    space: str  # ub, cbuf (L1), cc (L0C), ...
    addresses: tuple[int, ...]  # in bytes; several are copies of it
    bytes: int  # of one copy, rounded up as the allocator does
    shape: tuple[int, ...]
    element: str
    kind: Kind
    line: int  # of the IR's text
    place: Place | None
    first: int | None
    last: int | None
    loop: Loop | None  # the innermost loop that it is allocated in
    wasted_bytes: int  # of one copy: elements that no operation ever touches, see waste.py

    @property
    def end(self) -> int:
        """One past its highest byte."""
        return max(self.addresses) + self.bytes

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """First byte and one past the last, of each copy."""
        return tuple((address, address + self.bytes) for address in self.addresses) if self.bytes else ()

    @property
    def type(self) -> str:
        """Shape and element, `32x64xf32`."""
        return "x".join([*map(str, self.shape), self.element])

    def lives(self, position: int) -> bool:
        """Whether it holds something at a position."""
        return self.first is not None and self.last is not None and self.first <= position <= self.last

    def overlaps(self, other: Buffer) -> bool:
        """Whether two buffers share memory, whenever they live."""
        return self.space == other.space and any(
            begin < end_ and begin_ < end for begin, end in self.ranges for begin_, end_ in other.ranges
        )


def buffers_of(program: Program, limits: Limits, turns: Sequence[Choice]) -> tuple[Buffer, ...]:
    """The buffers in program order. `turns` are the choices by turns: each is where its buffers belong to."""
    chosen = {value: choice.position for choice in turns for value in choice.values}
    return tuple(_buffer(program, cast, position, limits, chosen) for position, cast in program.casts)


def _buffer(program: Program, cast: PointerCast, position: int, limits: Limits, chosen: Mapping[str, int]) -> Buffer:
    space = cast.type.space or ""
    sizes = [_integer(program, name, cast) for name in cast.sizes]
    shape = tuple(sizes.pop(0) if size is None else size for size in cast.type.shape)
    reached = program.reach(cast.result)
    uses = program.uses_of(reached)
    home = next((chosen[value] for value in reached if value in chosen), position)
    bits, span = cast.type.bits, _span(cast, shape)
    untouched = span - touched(program, cast, shape) if span else 0
    size = limits.rounded(space, -(-span * bits // 8))
    return Buffer(
        cast.result,
        space,
        tuple(_integer(program, name, cast) for name in cast.addresses),
        size,
        shape,
        cast.type.element,
        _kind(space, uses),
        cast.line,
        cast.place,
        min((use.position for use in uses), default=None),
        max((_lasting(program, use.position, home) for use in uses), default=None),
        program.loop_at[home],
        untouched * bits // 8,
    )


def _span(cast: PointerCast, shape: tuple[int, ...]) -> int:
    """Elements from the first to one past the last, of a buffer that a memory could hold."""
    try:
        span = cast.type.span(shape)
    except HivmError as error:
        raise error.placed(cast.line) from None
    if not 0 <= span * cast.type.bits < 8 * _FARTHEST:
        raise HivmError("a buffer of a size that no memory has", cast.line)
    return span


def _integer(program: Program, name: str, cast: PointerCast) -> int:
    """The value of a constant."""
    value = program.integers.get(name)
    if value is None:
        raise HivmError(f"{name} is not a constant, so the place of a buffer is unknown", cast.line)
    if not 0 <= value < _FARTHEST:
        raise HivmError(f"{name} is {value}, which is no address or size of a buffer", cast.line)
    return value


def _lasting(program: Program, position: int, home: int) -> int:
    """How far a use at `position` extends the life of what is allocated at `home`."""
    loop = program.loop_at[position]
    while loop is not None and not loop.holds(home):
        position, loop = loop.end, loop.inside
    return position


def _kind(space: str, uses: list[Use]) -> Kind:
    """What a buffer is for. In UB: what DMA or the cube fills, what DMA takes away, what one operation needs."""
    if space in _BY_SPACE:
        return _BY_SPACE[space]
    calls = [use.operation for use in uses if isinstance(use.operation, Call)]
    pipes = {found.pipe for call in calls if (found := template(call.callee)) is not None}
    if pipes & {"MTE2", "FIX"}:
        return "loaded"
    if "MTE3" in pipes:
        return "stored"
    return "scratch" if len(uses) == 1 else "temporary"
