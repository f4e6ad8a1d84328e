"""The final HIVM IR: tokens, types and typed nodes."""

from kgen.virtual.hivm.errors import HivmError
from kgen.virtual.hivm.nodes import Module
from kgen.virtual.hivm.parse import parse_module

__all__ = ["HivmError", "Module", "parse_module"]
