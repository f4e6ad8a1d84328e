"""`kgen build`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kgen.cli.options import SpecArg
from kgen.cli.output import short
from kgen.errors import KgenError


def build(
    spec: SpecArg,
    out: Annotated[Path | None, typer.Option(help="folder of the package; default: generated/<name>")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="write nothing; exit 1 if the package isn't what the spec gives")
    ] = False,
) -> None:
    """Generate the package of an operator."""
    from kgen import stamp

    if not check and (folder := stamp.unchanged(spec, out)) is not None:
        typer.echo(f"{short(folder)}: unchanged")
        return
    from kgen.emit.write import differences, write_package
    from kgen.pipeline import build as make
    from kgen.pipeline import files_read, read

    sources = read(spec)
    folder, files, plan = make(sources, out)
    if out is None and folder.parent.is_symlink():  # a stranger's change could have put it there
        raise KgenError(
            f"{short(folder.parent)} is a link, so the package would land elsewhere",
            code="output-link",
            hint="remove the link, or name the folder with --out",
        )
    predicted = sum(e.verdict == "predicted" and bool(e.tiles) for e in plan.entries)
    if check:
        changed = differences(folder, files)
        for diff in changed.values():
            typer.echo(diff, nl=False)
        if changed:
            typer.echo(f"{short(folder)} isn't what {spec} gives: {', '.join(changed)}", err=True)
            typer.echo(f"repair it with: kgen build {spec}", err=True)
            raise typer.Exit(1)
        typer.echo(f"{short(folder)}: as generated")
        return
    written = write_package(folder, files)
    stamp.remember(spec, out, folder, files_read(sources), files)
    note = f", {predicted} tile choices predicted by expression" if predicted else ""
    typer.echo(f"{short(folder)}: {'written' if written else 'unchanged'}, {len(files)} files{note}")
