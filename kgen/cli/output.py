"""What commands print: tables, JSON, progress."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer


def short(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def print_json(rows: list[dict[str, Any]]) -> None:
    typer.echo(json.dumps(rows, indent=1))


def table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    if not rows:
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(_cell(row.get(c)) for c in columns))
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    console.print(table)


def _cell(value: object) -> str:
    from rich.markup import escape

    if isinstance(value, dict):
        return escape(" ".join(f"{k}={v}" for k, v in value.items()))
    if isinstance(value, float):
        return f"{value:.2e}"
    return escape("" if value is None else str(value))


@contextmanager
def progress(what: str) -> Iterator[Callable[..., None]]:
    """A progress bar on a terminal, nothing elsewhere; `with progress("…") as step`, then `step(done, total)`."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn

    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total, *_: bar.update(task, completed=done, total=total)
