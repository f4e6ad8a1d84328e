"""Which unit runs each call, and whether a vector function divides its work over the two vector cores of a block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from kgen.virtual.hivm import HivmError
from kgen.virtual.hivm import nodes as n
from kgen.virtual.memory.program import LABEL, NAME
from kgen.virtual.templates import template

CALL_CLASSES = ("vector", "mte2", "mte3", "nd2nz", "mma", "fixpipe", "barrier", "sync")

_BY_PIPE: Mapping[str, str] = {"V": "vector", "MTE2": "mte2", "MTE3": "mte3", "M": "mma", "FIX": "fixpipe"}
_SYNCS = (n.SetFlag, n.WaitFlag, n.BlockSet, n.BlockWait)
# The rest of what a core's number may go through and still be that number.
_CASTS = frozenset({"index_cast", "trunci", "extsi", "extui"})
_LLVM_CASTS = frozenset({"llvm.trunc", "llvm.sext", "llvm.zext", "builtin.unrealized_conversion_cast"})

# Fields that hold the values which an operation reads.
_OPERANDS: Mapping[type, Callable[[Any], Any]] = {
    kind: attrgetter(*fields, *fields[:1])  # at least two, so that the result is always a tuple
    for kind, fields in {
        n.Arith: ("operands",),
        n.Affine: ("operands",),
        n.PointerCast: ("addresses", "sizes"),
        n.View: ("source", "shift", "sizes"),
        n.Reinterpret: ("source", "offset", "sizes", "strides"),
        n.Subview: ("source", "offsets", "sizes", "strides"),
        n.Collapse: ("source",),
        n.Expand: ("source", "sizes"),
        n.Transpose: ("source",),
        n.Alias: ("source",),
        n.Load: ("source", "indices"),
        n.Store: ("value", "target", "indices"),
        n.Dim: ("source", "axis"),
        n.Metadata: ("source",),
        n.For: ("lower", "upper", "step", "carried"),
        n.While: ("carried",),
        n.Condition: ("condition", "values"),
        n.If: ("condition",),
        n.Yield: ("values",),
        n.Call: ("operands",),
        n.SetFlag: ("event",),
        n.WaitFlag: ("event",),
        n.BlockSet: ("flag",),
        n.BlockWait: ("flag",),
        n.Return: ("values",),
    }.items()
}


def count_calls(
    operations: Sequence[n.Operation], core: str | None, vector_functions: frozenset[str]
) -> dict[str, int]:
    """Call sites by class; a call in a loop counts once."""
    counts: dict[str, int] = {}
    for operation in operations:
        kind = call_class(operation, core, vector_functions)
        if kind is not None:
            counts[kind] = counts.get(kind, 0) + 1
    return counts


def call_class(operation: n.Operation, core: str | None, vector_functions: frozenset[str]) -> str | None:
    """The class of a call or of a synchronisation; None for anything else."""
    if isinstance(operation, n.Call):
        return _template_class(operation, core, vector_functions)
    if isinstance(operation, _SYNCS):
        return "sync"
    if isinstance(operation, n.Barrier):
        return "barrier"
    if isinstance(operation, n.Unknown) and operation.name.startswith("hivm.hir."):
        if operation.name == "hivm.hir.sync_block":
            return "sync"
        if "memref<" in operation.text:
            raise HivmError(f"{operation.name} moves memory and kgen does not know which unit runs it", operation.line)
    return None


def _template_class(call: n.Call, core: str | None, vector_functions: frozenset[str]) -> str:
    if call.callee in vector_functions:
        return "vector"
    found = template(call.callee)
    if found is not None and (core == "aiv" or found.pipe != "V"):
        return "nd2nz" if found.base.startswith("nd2nz") else _BY_PIPE[found.pipe]
    if core == "aiv":
        return "vector"
    raise HivmError(f"the cube core calls {call.callee!r} and kgen does not know which unit runs it", call.line)


def unknown_names(operations: Sequence[n.Operation], vector_functions: frozenset[str]) -> dict[str, int]:
    """Operations, and calls of what is neither a template nor a function of the module, by name with counts."""
    names: Counter[str] = Counter()
    for operation in operations:
        if isinstance(operation, n.Unknown) and operation.name != LABEL:
            names[operation.name] += 1
        elif isinstance(operation, n.Call) and _is_unknown(operation.callee, vector_functions):
            names[f"@{operation.callee}"] += 1
    return dict(names)


def _is_unknown(callee: str, vector_functions: frozenset[str]) -> bool:
    return callee not in vector_functions and template(callee) is None


def undivided(operations: Sequence[n.Operation]) -> bool:
    """Whether a vector function never uses its core's number (0 or 1) to choose a part of the work.

    Where the split is lost, the number is absent or only compared with zero: a guard round the stores (the compiler for
    the 950) or round everything (the one for A2 and A3).
    """
    numbers: set[n.Value] = set()
    for operation in operations:
        if isinstance(operation, n.Query):
            if operation.name == "get_sub_block_idx":
                numbers.add(operation.result)
        elif numbers and not numbers.isdisjoint(values_read(operation)):
            passed_on = _passed_on(operation)
            if passed_on is None:
                return False
            numbers.update(passed_on)
    return True


def _passed_on(operation: n.Operation) -> tuple[n.Value, ...] | None:
    """The values that still are a core's number after an operation on it; None where it chooses a part of the work."""
    if isinstance(operation, n.Arith):
        if operation.name in _CASTS:
            return (operation.result,)
        return () if operation.name == "cmpi" and operation.predicate == "eq" else None
    if isinstance(operation, n.Unknown):
        if operation.name in _LLVM_CASTS:
            return operation.results
        return () if 'llvm.icmp "eq"' in operation.text else None
    return None


def values_read(operation: n.Operation) -> Iterator[n.Value]:
    """The values that an operation reads itself, those in its regions aside; for a loop, carried names as well."""
    if isinstance(operation, n.Unknown):
        yield from NAME.findall(operation.text)
        return
    read = _OPERANDS.get(type(operation))
    if read is not None:
        yield from _names(read(operation))


def _names(found: Any) -> Iterator[n.Value]:
    for item in found:
        if isinstance(item, str):
            yield item
        elif isinstance(item, tuple):
            yield from _names(item)
