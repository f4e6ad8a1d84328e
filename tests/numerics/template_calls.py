"""Calls a template of the executor, and holds it to the roles that its operands are said to have."""

from __future__ import annotations

from typing import Any

from kgen.virtual.execute.calls import handler
from kgen.virtual.execute.memory import CoreMemory
from kgen.virtual.hivm.types import MemRef, Type
from kgen.virtual.templates import operand_roles, template

BLOCK = 32  # bytes; a move may fill up the blocks that it begins and ends in


def call(m: CoreMemory, name: str, *pairs: tuple[Any, Type]) -> None:
    """Run it; it must be known, and write nothing but what it is said to write."""
    types = tuple(t for _, t in pairs)
    found, parts = handler(name, types), template(name)
    assert found is not None and parts is not None, name
    roles = operand_roles(parts)
    assert roles is not None, f"{name}: nobody knows what it reads and writes"
    before = {base: memory.copy() for base, memory in m._memories.items()}
    found(m, tuple(v for v, _ in pairs))
    only_read = set(roles[0]) - set(roles[1])
    for base, memory in m._memories.items():
        changed = memory != before[base]
        for place, (view, kind) in enumerate(pairs):
            if place not in only_read and isinstance(kind, MemRef) and view[0] == base:
                changed[_span(view, kind)] = False
        assert not changed.any(), f"{name} writes what its roles {roles} don't say, in {base}"


def _span(view: Any, kind: MemRef) -> slice:
    """Bytes from the block of a view's first element to the end of the block of its last."""
    _, address, sizes, strides = view
    last = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True)) + 1
    begin, end = address // (8 * BLOCK), -(-(address + last * kind.bits) // (8 * BLOCK))
    return slice(begin * BLOCK, end * BLOCK if 0 not in sizes else begin * BLOCK)
