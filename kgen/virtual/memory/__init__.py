"""Memory of a compiled kernel: buffers by address and lifetime, peaks, double buffering, waste; as text and picture."""

from kgen.virtual.hivm import parse_module
from kgen.virtual.memory.buffers import SPACES, Buffer, Limits
from kgen.virtual.memory.calls import CALL_CLASSES
from kgen.virtual.memory.report import FunctionMemory, MemoryReport, SpaceMemory, memory_report

__all__ = [
    "CALL_CLASSES",
    "SPACES",
    "Buffer",
    "FunctionMemory",
    "Limits",
    "MemoryReport",
    "SpaceMemory",
    "memory_report",
    "read_hivm",
]


def read_hivm(text: str, limits: Limits | None = None, *, degraded: bool = False) -> MemoryReport:
    """The memory report of the final IR of one kernel; see `memory_report`."""
    return memory_report(parse_module(text), limits, degraded=degraded)
