"""Finds the meaning of a template."""

from __future__ import annotations

from kgen.virtual.execute.cube_calls import cube_handler
from kgen.virtual.execute.move_calls import Handler, move_handler
from kgen.virtual.execute.vector_calls import vector_handler
from kgen.virtual.hivm.types import Type
from kgen.virtual.templates import template

__all__ = ["Handler", "handler"]


def handler(callee: str, types: tuple[Type, ...]) -> Handler | None:
    """What a call does, for a name and the types of its operands; None where it isn't known."""
    found = template(callee)
    if found is None:
        return None
    if found.pipe in ("M", "FIX"):
        return cube_handler(found, types)
    return move_handler(found, types) or (vector_handler(found, types) if found.pipe == "V" else None)
