"""The values of a device function's parameters at a launch."""

from __future__ import annotations

from kgen.errors import KgenError
from kgen.virtual.hivm import nodes as n
from kgen.virtual.hivm.types import MemRef
from kgen.virtual.launch import Buffer, Launch
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
            if isinstance(argument.type, MemRef) != isinstance(value, Buffer):
                raise KgenError(
                    f"argument {position} of {function.name} is {'a tensor' if isinstance(value, Buffer) else value!r}",
                    code="launch-arguments",
                    hint="give the arguments in the order of the compiled signature, without constants",
                )
            values.append((position, 0, (value.count,), (1,)) if isinstance(value, Buffer) else value)
        else:
            values.append(tail.pop(0))
    return values
