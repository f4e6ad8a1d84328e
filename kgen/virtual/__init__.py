"""The Ascend tool chain without the NPU: find or make it, compile kernels with it, read what the compiler decided.

Sees emitted text only, never passes, so that it is an independent second opinion on them.
"""

from kgen.virtual.compile import Compiler, CompileRequest, LinalgRequest, is_a5
from kgen.virtual.doctor import Check, doctor
from kgen.virtual.environment import create_environment
from kgen.virtual.memory import MemoryReport, read_hivm
from kgen.virtual.result import CompileResult
from kgen.virtual.toolchain import PINNED, Toolchain, find_toolchain
from kgen.virtual.verdict import Verdict

__all__ = [
    "PINNED",
    "Check",
    "CompileRequest",
    "CompileResult",
    "Compiler",
    "LinalgRequest",
    "MemoryReport",
    "Toolchain",
    "Verdict",
    "create_environment",
    "doctor",
    "find_toolchain",
    "is_a5",
    "read_hivm",
]
