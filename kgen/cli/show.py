"""`kgen show` and `kgen schema`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from kgen.cli.options import SpecArg
from kgen.errors import KgenError


def show(
    spec: SpecArg,
    kernel: Annotated[str, typer.Argument(help="a kernel of the spec", show_default=False)],
    after: Annotated[str, typer.Option(help="a pass, `parse`, or all")] = "all",
) -> None:
    """Show a kernel's IR after a pass."""
    from kgen.errors import nearest
    from kgen.ir.show import show as text
    from kgen.pipeline import read, stages

    sources = read(spec)
    if kernel not in sources.programs:
        raise KgenError(
            f"no kernel {kernel!r} in {spec}", code="kernel-unknown", hint=nearest(kernel, sources.programs)
        )
    steps = stages(sources, kernel)
    names = [name for name, _ in steps]
    if after != "all" and after not in names:
        raise KgenError(f"no pass {after!r}", code="pass-unknown", hint=nearest(after, names))
    previous = None
    for number, (name, ir) in enumerate(steps):
        if after in ("all", name):
            same = previous is ir
            typer.echo(f"# {number:02d} {name}{' (unchanged)' if same else ''}")
            if not same or after != "all":
                typer.echo(text(ir))
        previous = ir


def schema() -> None:
    """Print the JSON Schema of a spec."""
    from kgen.spec.schema import json_schema

    typer.echo(json.dumps(json_schema(), indent=2))
