"""The command line, a module a group of commands. Each command imports what it needs when it runs, so that `kgen build`
starts neither torch nor sympy."""

from __future__ import annotations

import sys
import traceback
import warnings

import typer

from kgen.cli import bench, build, doctor, plan, show, trace, verify
from kgen.cli import compile as compile_
from kgen.collector import relax
from kgen.errors import KgenError, printable

app = typer.Typer(
    name="kgen",
    help="Ascend NPU kernels from an op spec and tile programs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(build.build)
app.command()(show.show)
app.command()(plan.plan)
app.command("compile")(compile_.compile_command)
app.command()(trace.trace)
app.command()(bench.bench)
app.command()(verify.verify)
app.command()(doctor.doctor)
app.command()(show.schema)

BUG = "this is a bug of kgen: please report it with the spec that shows it"


def main() -> None:
    """Runs a command; exit 0, 1 (found something), 2 (could not run), or 130 (interrupted)."""
    relax()
    warnings.formatwarning = lambda message, *_args, **_more: f"warning: {message}\n"
    try:
        app(standalone_mode=True)
    except SystemExit as ended:
        if isinstance(ended.__context__, typer.Abort):  # typer would make it 1, which says that something was found
            sys.exit(130)
        raise
    except KgenError as error:
        typer.echo(error.render(), err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.exit(1)
    except OSError as error:  # a full disk, a name that is too long: the machine's or the user's, never a finding
        where = f"{error.filename}: " if error.filename else ""
        text = f"error[system]: {where}{error.strerror or error}"[:500]
        typer.echo(printable(text), err=True)
        sys.exit(2)
    except Exception:  # a KgenBug or worse: say so, and never with the exit code of a finding
        traceback.print_exc()
        typer.echo(BUG, err=True)
        sys.exit(2)
