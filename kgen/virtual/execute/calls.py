"""Finds the meaning of a template."""

from __future__ import annotations

from collections.abc import Sequence

from kgen.virtual.execute.cube_calls import cube_handler
from kgen.virtual.execute.errors import ExecutionError
from kgen.virtual.execute.memory import STORAGE, CoreMemory
from kgen.virtual.execute.move_calls import move_handler
from kgen.virtual.execute.operands import Handler, element_names
from kgen.virtual.execute.order_calls import order_handler
from kgen.virtual.execute.reduce_calls import reduce_handler
from kgen.virtual.execute.vector_calls import vector_handler
from kgen.virtual.hivm.types import Type
from kgen.virtual.machine.protocol import Operand
from kgen.virtual.templates import Template, template

__all__ = ["Handler", "handler"]


def handler(callee: str, types: tuple[Type, ...]) -> Handler | None:
    """What a call does, for a name and the types of its operands; None where it isn't known.

    Whatever it meets at run time is an `ExecutionError` that names the template.
    """
    found = template(callee)
    if found is None or not all(e in STORAGE or e == "i1" for e in element_names(types)):
        return None
    try:
        run = _meaning(found, types)
    except IndexError:  # fewer operands than the template takes
        return None
    return None if run is None else _named(callee, run)


def _meaning(found: Template, types: tuple[Type, ...]) -> Handler | None:
    if found.pipe in ("M", "FIX"):
        return cube_handler(found, types)
    if found.pipe != "V":
        return move_handler(found, types)
    return (
        move_handler(found, types)
        or order_handler(found, types)
        or reduce_handler(found, types)
        or vector_handler(found, types)
    )


def _named(callee: str, run: Handler) -> Handler:
    def named(core: CoreMemory, operands: Sequence[Operand]) -> None:
        try:
            run(core, operands)
        except ExecutionError as error:
            raise error.during(callee) from None
        except (ValueError, IndexError) as error:
            raise ExecutionError(
                f"@{callee}: operands don't fit each other: {error}",
                code="execute-operands",
                hint="compare the call in the compiled IR with the template's meaning in kgen/virtual/execute/",
            ) from error

    return named
