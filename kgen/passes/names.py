"""Names that a pass makes: as it would like them, with a number where the kernel has that name already."""

from __future__ import annotations

from kgen.ir.nodes import Assign, For, Kernel, Loop, Stmt
from kgen.ir.rewrite import walk_block


class Fresh:
    """Hands out names that nothing else in a kernel has."""

    def __init__(self, kernel: Kernel) -> None:
        self.taken = set(kernel.params) | {v.name for v in kernel.indices} | assigned(kernel.prologue + kernel.body)

    def of(self, wanted: str) -> str:
        """`wanted`, or `wanted2` …"""
        name = wanted
        for count in range(2, len(self.taken) + 3):
            if name not in self.taken:
                break
            name = f"{wanted}{count}"
        self.taken.add(name)
        return name


def assigned(block: tuple[Stmt, ...]) -> set[str]:
    """Every name that a block assigns or counts with."""
    out: set[str] = set()
    for stmt in walk_block(block):
        if isinstance(stmt, Assign):
            out.add(stmt.target)
        elif isinstance(stmt, Loop):
            out.add(stmt.var)
        elif isinstance(stmt, For):
            out.update(stmt.vars)
    return out
