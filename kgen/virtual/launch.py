"""One launch of a compiled kernel: its grid and the values of its run-time arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Buffer:
    """A tensor in global memory, dense from its first element.

    `data` is what the executor reads and writes (a writable buffer of `count` elements, bf16 as their 16-bit patterns);
    the timeline needs only `count`, and `values` of tables of integers that loops and addresses depend on.
    """

    name: str
    element: str  # HIVM's name: bf16, f16, f32, i32, i64, i8, ...
    count: int
    values: Sequence[int] | None = None
    data: Any = None


Argument = Buffer | int | float


@dataclass(frozen=True)
class Launch:
    """`arguments` are the kernel's run-time parameters in order, without those that the compiler adds."""

    grid: tuple[int, int, int]
    arguments: tuple[Argument, ...]

    @property
    def blocks(self) -> int:
        """Blocks of the launch."""
        x, y, z = self.grid
        return x * y * z
