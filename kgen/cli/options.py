"""Options that several commands have, and how their text is read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kgen.errors import KgenError

SpecArg = Annotated[Path, typer.Argument(help="the operator's YAML, such as specs/gdn.yaml", show_default=False)]
JsonOption = Annotated[bool, typer.Option("--json", help="rows as JSON for programs")]
TargetsOption = Annotated[list[str] | None, typer.Option("--target", help="a target of the spec; may be repeated")]
TargetOption = Annotated[str | None, typer.Option("--target", help="a target of the spec; default: its first")]
ToolchainOption = Annotated[str, typer.Option(help="auto, cann, or the path of an environment")]
JobsOption = Annotated[int | None, typer.Option(min=1, help="compilers at once; default: all cores")]
CacheOption = Annotated[bool, typer.Option("--cache/--no-cache", help="reuse earlier results")]
DtypeOption = Annotated[str, typer.Option(help="of the operands: bf16, fp16 or fp32")]


def check_targets(wanted: list[str] | None, known: tuple[str, ...]) -> None:
    from kgen.errors import nearest

    for name in wanted or []:
        if name not in known:
            raise KgenError(f"{name!r} isn't a target of the spec", code="target-unknown", hint=nearest(name, known))
