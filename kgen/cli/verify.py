"""`kgen verify`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kgen.cli.options import JsonOption, SpecArg, ToolchainOption
from kgen.cli.output import print_json, table

if TYPE_CHECKING:
    from kgen.verify.rows import Row


def verify(
    spec: SpecArg,
    level: Annotated[
        list[str] | None, typer.Option(help="program, interpret, execute; may be repeated; default: the first two")
    ] = None,
    package: Annotated[Path | None, typer.Option(help="the generated package; default: generated/<name>")] = None,
    cases: Annotated[int | None, typer.Option(help="only the first N cases")] = None,
    only: Annotated[str | None, typer.Option(help="only cases or kernels whose name holds this text")] = None,
    as_json: JsonOption = False,
    toolchain: ToolchainOption = "auto",
) -> None:
    """Check an operator's numbers against references."""
    from dataclasses import asdict

    from kgen.pipeline import default_folder, read
    from kgen.verify.run import LEVELS, verify_rows

    folder = package or default_folder(spec, read(spec).loaded.spec.name)
    rows = list(verify_rows(spec, folder, level or LEVELS, cases, only, toolchain))
    failed = [r for r in rows if not r.passed]
    if as_json:
        print_json([row.as_dict() for row in rows])
    else:
        worst: dict[tuple[str, str], Row] = {}
        for row in rows:
            key = (row.level, row.kernel)
            worst[key] = max(worst.get(key, row), row, key=lambda r: r.rel_rms)
        shown = [{**asdict(r), "passed": r.passed} for r in failed or worst.values()]
        columns = ("level", "kernel", "case", "rel_rms", "max_abs", "passed")
        table(shown, (*columns, "problem") if failed else columns)
        typer.echo(f"{len(rows) - len(failed)} of {len(rows)} passed")
    if failed:
        raise typer.Exit(1)
