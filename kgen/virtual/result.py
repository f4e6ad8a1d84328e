"""What a compile gives: the compiler's verdict, and what the final IR says of sizes, calls and faults.

Results are kept (see cache.py). The verdict is the compiler's and stays good; what was read from the IR is good only
for the code that read it, so it is read again from the stored IR when that code has changed.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from kgen.virtual.cache import code_hash, from_fields
from kgen.virtual.hivm import HivmError, parse_module
from kgen.virtual.hivm.nodes import Call, Load, Store
from kgen.virtual.memory import FunctionMemory, MemoryReport, memory_report
from kgen.virtual.memory.text import unwritten_text
from kgen.virtual.verdict import Verdict

Count = Annotated[int, Field(strict=True, ge=0)]
Seconds = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Text = Annotated[str, Field(strict=True)]
COMPILED: tuple[Verdict, ...] = ("fits", "degraded")  # verdicts on which there is a kernel

_HERE = Path(__file__).parent
READERS = (*(_HERE / "hivm").glob("*.py"), *(_HERE / "memory").glob("*.py"), _HERE / "templates.py", Path(__file__))


@dataclass(frozen=True)
class CompileResult:
    """What the compiler made of a request. Sizes are peak bytes of one core; None where it did not get that far."""

    verdict: Verdict
    message: Text  # one line for people; empty when it fits
    detail: Text = ""  # what the front end or compiler printed, bounded
    ub_bytes: Count | None = None
    l1_bytes: Count | None = None
    l0c_bytes: Count | None = None
    required_bytes: Count | None = None  # bytes the compiler asked for in the space that overflowed
    calls: dict[Text, Count] = field(default_factory=dict)  # call sites by class, see memory.CALL_CLASSES
    idle_vector_core: Annotated[bool, Field(strict=True)] | None = None  # None without cube and vector halves
    unknown: dict[Text, Count] = field(default_factory=dict)  # operations in the IR that nobody knows, with counts
    unwritten: tuple[Text, ...] = ()  # buffers that are read and that nothing writes: a miscompiled kernel
    seconds: Seconds = 0.0  # of the compile itself, also from the cache
    final_ir: str | None = None  # only where it was asked for
    toolchain: dict[Text, Text] = field(default_factory=dict)
    readers: Text = ""  # the code that read the IR, see `readers_hash`

    @property
    def usable(self) -> bool:
        """Whether there is a kernel, and one that does what its source says as far as its IR tells."""
        return self.verdict in COMPILED


def restored(stored: dict[str, Any] | None) -> CompileResult | None:
    """A result as it was stored, unless a field is missing, or isn't of its type and range, or a kernel has no sizes.
    An IR among the fields is none of ours: it lies beside them."""
    result = from_fields(CompileResult, stored)
    if result is None or result.final_ir is not None:
        return None
    sizes = (result.ub_bytes, result.l1_bytes, result.l0c_bytes)
    return None if result.usable and None in sizes else result


@functools.cache
def readers_hash() -> str:
    """A hash of the code that reads a final IR."""
    return code_hash(READERS)


def with_report(result: CompileResult, text: str) -> CompileResult:
    """A result with what its final IR says. Raises `HivmError` where that can't be read."""
    report = _report(text, result.verdict == "degraded")
    return replace(
        result,
        ub_bytes=report.peak("ub"),
        l1_bytes=report.peak("cbuf"),
        l0c_bytes=report.peak("cc"),
        calls=report.calls(),
        idle_vector_core=report.idle_vector_core(),
        unknown=report.unknown(),
        unwritten=tuple(unwritten_text(found) for found in report.unwritten()),
        final_ir=text,
        readers=readers_hash(),
    )


def _report(text: str, degraded: bool) -> MemoryReport:
    """The memory report of an IR that says something of its kernel."""
    try:
        report = memory_report(parse_module(text), degraded=degraded)
    except (RecursionError, MemoryError) as error:
        raise HivmError(f"it takes more room to read than there is: {type(error).__name__}") from None
    if report.unknown() and not any(f.buffers or _works(f) for f in report.functions):
        unknown = ", ".join(f"{name} ({count}x)" for name, count in report.unknown().items())
        raise HivmError(f"it has no buffer and no call, and operations that kgen does not know: {unknown}")
    return report


def _works(function: FunctionMemory) -> bool:
    """Whether a function is seen to do anything."""
    return any(isinstance(operation, (Call, Load, Store)) for operation in function.operations)


def judged(result: CompileResult) -> CompileResult:
    """A kernel that reads what nothing has written is none, whatever the compiler says."""
    if not result.usable or not result.unwritten:
        return result
    return replace(result, verdict="error", message=f"miscompiled: {'; '.join(result.unwritten)}")


def unreadable(result: CompileResult, error: HivmError) -> CompileResult:
    """The result of a compile whose final IR isn't what kgen reads."""
    return replace(result, verdict="error", message=f"the final IR can't be read: {error.message}")
