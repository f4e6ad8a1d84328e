"""Runs a kernel's final IR on the CPU, at the compiler's own addresses. Needs numpy."""

from kgen.virtual.execute.run import Execution, Report, Sizes, prepare

__all__ = ["Execution", "Report", "Sizes", "prepare"]
