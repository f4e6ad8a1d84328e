"""How many tasks a kernel's launch has, as source over a call's dims."""

from __future__ import annotations

from kgen.ir.nodes import Kernel
from kgen.spec.models import Spec


def task_count(spec: Spec, kernel: Kernel) -> str:
    """`x.chunks_in_all * x.dims["HV"]`: the product over the spaces of the program's `tasks(…)`."""
    factors = []
    for space in kernel.spaces:
        if space.kind == "chunks":
            factors.append("x.chunks_in_all")
        elif space.kind == "parts":
            chunk = next(n for n, d in spec.dims.items() if d.kind.value == "chunk")
            factors.append(f'x.chunks_in_all * (x.dims["{chunk}"] // {space.size})')
        elif space.kind == "tiles":
            factors.append(f'-(-x.dims["{space.over}"] // tiles["B{space.over}"])')
        else:
            factors.append(f'x.dims["{space.over}"]')
    return " * ".join(f"({f})" if f.startswith("-") else f for f in factors)
