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
JobsOption = Annotated[int | None, typer.Option(help="compilers at once; default: all cores")]
CacheOption = Annotated[bool, typer.Option("--cache/--no-cache", help="reuse earlier results")]
DtypeOption = Annotated[str, typer.Option(help="of the operands: bf16, fp16 or fp32")]


def names(text: str | None) -> tuple[str, ...]:
    return tuple(n for n in (text or "").replace(" ", ",").split(",") if n)


def integers(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    if not all(n.isdigit() for n in names(text)) or not names(text):
        raise KgenError(f"cannot read the lengths {text[:60]!r}", code="lengths", hint="write them as 64,100,7")
    return tuple(int(n) for n in names(text))


def check_targets(wanted: list[str] | None, known: tuple[str, ...]) -> None:
    from kgen.errors import nearest

    for name in wanted or []:
        if name not in known:
            raise KgenError(f"{name!r} isn't a target of the spec", code="target-unknown", hint=nearest(name, known))
