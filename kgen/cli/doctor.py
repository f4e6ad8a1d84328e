"""`kgen doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

from kgen.cli.options import JsonOption, ToolchainOption
from kgen.cli.output import print_json


def doctor(
    fix: Annotated[bool, typer.Option("--fix", help="make the tool chain environment if it is missing")] = False,
    peers: Annotated[
        bool, typer.Option("--peers", help="look at the environment of the libraries that benches compare with as well")
    ] = False,
    torch_index: Annotated[
        str | None, typer.Option(help="one more package index, for the torch of the peers' environment")
    ] = None,
    as_json: JsonOption = False,
    toolchain: ToolchainOption = "auto",
) -> None:
    """Look at this machine: Python, tool chain, packages, devices."""
    from dataclasses import asdict

    from kgen.virtual import create_environment
    from kgen.virtual import doctor as checks
    from kgen.virtual.peers import create_peers, peers_check

    if fix:
        made = create_environment(lambda line: typer.echo(line, err=True))
        typer.echo(f"tool chain: {made.python}", err=True)
        if peers:
            python = create_peers(lambda line: typer.echo(line, err=True), torch_index=torch_index)
            typer.echo(f"peers: {python}", err=True)
    rows = [asdict(c) for c in (*checks(toolchain), *([peers_check()] if peers else []))]
    if as_json:
        print_json(rows)
    else:
        for row in rows:
            typer.echo(f"{'ok  ' if row['ok'] else 'FAIL'} {row['name']}: {row['detail']}")
            if not row["ok"] and row["hint"]:
                typer.echo(f"     {row['hint']}")
    if not all(r["ok"] for r in rows):
        raise typer.Exit(1)
