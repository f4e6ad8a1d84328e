"""Buffers that are read and that nothing writes: what a kernel computes from them is noise, whatever the compiler says.

ascendnpu-ir 1.2.0 loses loads in some kernels where cube and vector cores take turns (rule K204) and reports success.
Every operation that writes a buffer counts, wherever it stands: a buffer that is written in part, or too late, is left
to the executor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kgen.virtual.hivm import nodes as n
from kgen.virtual.memory.buffers import Buffer
from kgen.virtual.memory.program import Program, Use
from kgen.virtual.templates import operand_roles, template

_HANDS_ON = (n.For, n.While, n.Yield, n.Condition, n.If)  # the memory gets another name, followed by itself


@dataclass(frozen=True)
class Unwritten:
    """A buffer with no writer, and the first operation that reads it."""

    buffer: Buffer
    reader: str
    line: int  # of the IR's text
    place: n.Place | None


@dataclass(frozen=True)
class Written:
    """Buffers of one function that something in it writes, and those that it only reads."""

    written: tuple[Buffer, ...]
    missing: tuple[Unwritten, ...]


def writers_of(program: Program, buffers: Sequence[Buffer]) -> Written:
    """Tell a function's buffers apart, in program order. An operation whose operands' roles aren't known counts as a
    writer."""
    written, found = [], []
    for (_, cast), buffer in zip(program.casts, buffers, strict=True):
        if not buffer.bytes:
            continue
        uses = program.uses_of(program.reach(cast.result))
        if any(_writes(use) for use in uses):
            written.append(buffer)
            continue
        reader = min((use for use in uses if _reads(use)), key=lambda use: use.position, default=None)
        if reader is not None:
            operation = reader.operation
            name = operation.callee if isinstance(operation, n.Call) else "memref.load"
            found.append(Unwritten(buffer, name, operation.line, operation.place))
    return Written(tuple(written), tuple(found))


def unwritten(function: Written, others: Sequence[Written]) -> tuple[Unwritten, ...]:
    """The buffers that a function reads and nothing writes. On the 950 the cube core writes into a vector core's UB and
    a vector core into L1, so what another function of the kernel writes at the same place counts."""
    elsewhere = [buffer for other in others for buffer in other.written]
    return tuple(m for m in function.missing if not any(m.buffer.overlaps(buffer) for buffer in elsewhere))


def _writes(use: Use) -> bool:
    operation = use.operation
    if isinstance(operation, n.Call):
        return _has_role(operation, use.value, 1)
    return not isinstance(operation, (n.Load, *_HANDS_ON))


def _reads(use: Use) -> bool:
    operation = use.operation
    return _has_role(operation, use.value, 0) if isinstance(operation, n.Call) else isinstance(operation, n.Load)


def _has_role(call: n.Call, value: n.Value, role: int) -> bool:
    """Whether a value is among a call's sources (role 0) or targets (1); anything where they aren't known."""
    found = template(call.callee)
    roles = operand_roles(found) if found is not None else None
    return roles is None or any(value == call.operands[i] for i in roles[role] if i < len(call.operands))
