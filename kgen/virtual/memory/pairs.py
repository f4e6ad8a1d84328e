"""Double buffering: which loops alternate between the copies of a buffer, and where it was lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kgen.virtual.hivm import nodes as n
from kgen.virtual.memory.buffers import Buffer
from kgen.virtual.memory.program import Choice, Loop, Program
from kgen.virtual.templates import template

DoubleBuffering = Literal["kept", "lost", "none"]
_MOVERS = frozenset({"MTE2", "MTE3"})


@dataclass(frozen=True)
class LoopBuffers:
    """The buffers through which a loop moves data: the groups it alternates between, and those it has once."""

    loop: Loop
    groups: tuple[tuple[Buffer, ...], ...]
    single: tuple[Buffer, ...]

    def state(self, gave_up: bool) -> DoubleBuffering:
        """`gave_up`: the compiler dropped double buffering to make the kernel fit."""
        if self.groups:
            return "kept"
        return "lost" if gave_up else "none"


def loop_buffers(program: Program, buffers: Sequence[Buffer], turns: Sequence[Choice]) -> tuple[LoopBuffers, ...]:
    """Every loop that moves data through buffers of its own, in program order; `turns` are its choices by turns."""
    by_name = {buffer.name: buffer for buffer in buffers}
    groups: dict[Loop, list[tuple[Buffer, ...]]] = {}
    inner = {value for choice in turns for value in choice.values}
    for choice in turns:
        if choice.result in inner:  # a part of a choice between more than two
            continue
        loop = program.loop_at[choice.position]
        group = tuple(by_name[name] for name in _members(program, choice) if name in by_name)
        if loop is not None and len(group) > 1:
            groups.setdefault(loop, []).append(group)
    grouped = {buffer.name for found in groups.values() for group in found for buffer in group}
    single: dict[Loop, list[Buffer]] = {}
    for buffer in buffers:
        if buffer.loop is not None and buffer.name not in grouped and buffer.bytes and _moved(program, buffer):
            single.setdefault(buffer.loop, []).append(buffer)
    return tuple(
        LoopBuffers(loop, tuple(groups.get(loop, ())), tuple(single.get(loop, ())))
        for loop in program.loops
        if loop in groups or loop in single
    )


def _members(program: Program, choice: Choice) -> list[n.Value]:
    """The buffers that a choice is between: a view or another choice stands for what it was made of."""
    wanted = set(choice.values)
    return [cast.result for _, cast in program.casts if wanted.intersection(program.reach(cast.result))]


def _moved(program: Program, buffer: Buffer) -> bool:
    """Whether DMA touches a buffer."""
    calls = (use.operation for use in program.uses_of(program.reach(buffer.name)))
    found = (template(call.callee) for call in calls if isinstance(call, n.Call))
    return any(t is not None and t.pipe in _MOVERS for t in found)
