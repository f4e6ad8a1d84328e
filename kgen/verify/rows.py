"""What `kgen verify` finds: one row for each compared output."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Row:
    """An output against its reference. `kernel` is the kernel, stage or operator that wrote it.

    `rel_rms` and `max_abs` are infinite where nothing could be compared; `problem` then says why.
    """

    kernel: str
    output: str
    case: str
    level: str
    rel_rms: float
    max_abs: float
    tolerance: float
    problem: str = ""
    toolchain: dict[str, str] = field(default_factory=dict)  # versions, where a compiler took part

    @property
    def passed(self) -> bool:
        return not self.problem and self.rel_rms <= self.tolerance

    def as_dict(self) -> dict[str, Any]:
        """The row as JSON, which has no infinity: null there."""
        return {
            "kernel": self.kernel,
            "output": self.output,
            "case": self.case,
            "level": self.level,
            "rel_rms": self.rel_rms if math.isfinite(self.rel_rms) else None,
            "max_abs": self.max_abs if math.isfinite(self.max_abs) else None,
            "tolerance": self.tolerance,
            "passed": self.passed,
            "problem": self.problem,
            "toolchain": self.toolchain,
        }
