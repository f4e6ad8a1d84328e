"""The values of a device function's parameters at a launch."""

from __future__ import annotations

from kgen.errors import KgenError
from kgen.virtual.hivm import nodes as n
from kgen.virtual.hivm.floats import ROUND, wrap
from kgen.virtual.hivm.types import FLOATS, MemRef, element_bits
from kgen.virtual.launch import Argument, Buffer, Launch
from kgen.virtual.machine.protocol import Operand
from kgen.virtual.machine.views import WORKSPACE, View


def arguments_of(function: n.Function, launch: Launch) -> list[Operand]:
    """The values of a device function's parameters: what the compiler added, the launch's own, then its grid."""
    own = iter(enumerate(launch.arguments))
    tail = list(launch.grid)
    values: list[Operand] = []
    plain = [a for a in function.arguments if not a.role]
    if len(plain) != len(launch.arguments) + len(tail):
        raise KgenError(
            f"{function.name} takes {len(plain) - len(tail)} run-time arguments, the launch has "
            f"{len(launch.arguments)}",
            code="launch-arguments",
            hint="give the arguments in the order of the compiled signature, without constants",
        )
    left = len(launch.arguments)
    for argument in function.arguments:
        if argument.role:
            whole: View = (WORKSPACE if argument.role == "workspace" else argument.role, 0, (1 << 40,), (1,))
            values.append(whole if isinstance(argument.type, MemRef) else 0)
        elif left:
            position, value = next(own)
            left -= 1
            values.append(_fitted(position, value, argument, function.name))
        else:
            values.append(tail.pop(0))
    return values


def _fitted(position: int, value: Argument, argument: n.Argument, function: str) -> Operand:
    """A launch's argument as the function takes it: a tensor for a memref, a number of the type's range else."""
    found = "a tensor" if isinstance(value, Buffer) else repr(value)
    if isinstance(argument.type, MemRef):
        if isinstance(value, Buffer) and _alike(value.element, argument.type.element):
            return position, 0, (value.count,), (1,)
        found = f"a tensor of {value.element}" if isinstance(value, Buffer) else found
        wanted = f"a tensor of {argument.type.element}"
    elif argument.type.is_float:
        if not isinstance(value, Buffer):
            return ROUND.get(argument.type.element, float)(float(value))
        wanted = "a number"
    else:
        bits = argument.type.bits
        if isinstance(value, int) and (value in (0, 1) if bits == 1 else wrap(value, bits) == value):
            return int(value)
        wanted = f"an integer of {argument.type.bits} bits"
    raise KgenError(
        f"argument {position} of {function} is {found}, expected {wanted}",
        code="launch-arguments",
        hint="give the arguments in the order of the compiled signature, without constants",
    )


def _alike(given: str, wanted: str) -> bool:
    """Whether two element types have the same width and kind; a bool is stored as a byte."""
    if given == wanted:
        return True
    same_width = element_bits(given) == max(8, element_bits(wanted))
    return same_width and not {given, wanted} & FLOATS
