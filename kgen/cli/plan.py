"""`kgen plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kgen.cli.options import JobsOption, JsonOption, SpecArg, TargetsOption, ToolchainOption, check_targets
from kgen.cli.output import print_json, progress, short, table


def plan(
    spec: SpecArg,
    explain: Annotated[str | None, typer.Option(help="show the memory model of one kernel; searches nothing")] = None,
    as_json: JsonOption = False,
    target: TargetsOption = None,
    compile_: Annotated[bool, typer.Option("--compile/--no-compile", help="confirm tiles through the compiler")] = True,
    force: Annotated[bool, typer.Option("--force", help="search even if the recorded plan is current")] = False,
    toolchain: ToolchainOption = "auto",
    jobs: JobsOption = None,
) -> None:
    """Choose tiles and record them; the only command that writes plan.json."""
    if explain is not None:
        _explain(spec, explain)
        return
    from kgen.pipeline import default_folder, lowered, package, plan_inputs, read, recorded_plan
    from kgen.plan.report import plan_rows
    from kgen.search.plan import Search, make_plan, record_plan

    sources = read(spec)
    check_targets(target, sources.loaded.spec.targets)
    path = default_folder(spec, sources.loaded.spec.name) / "plan.json"
    kernels = lowered(sources)
    found = None if force else recorded_plan(sources, kernels, path)
    if found is None:
        with progress("planning") as step:
            found = make_plan(
                Search(
                    sources.loaded.spec, kernels, sources.targets, plan_inputs(sources, kernels),
                    lambda plan: package(sources, kernels, plan), toolchain, jobs, step,
                ),
                compile=compile_,
            )  # fmt: skip
        record_plan(found, path)
        typer.echo(f"recorded {short(path)}; now run: kgen build {spec}", err=True)
    rows = [r for r in plan_rows(found) if not target or r["target"] in target]
    if as_json:
        print_json(rows)
    else:
        table(rows, ("kernel", "target", "variant", "tiles", "ub_predicted_bytes", "ub_bytes", "verdict"))


def _explain(spec: Path, kernel: str) -> None:
    from kgen.pipeline import planned, read
    from kgen.plan.choose import placement_of
    from kgen.plan.report import explain_text

    sources = read(spec)
    kernels, found = planned(sources)
    typer.echo(explain_text(kernel, sources.loaded.spec, kernels, found, placement_of(sources.targets)))
