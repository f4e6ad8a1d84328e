"""`kgen compile`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kgen.cli.options import CacheOption, JobsOption, JsonOption, SpecArg, TargetsOption, ToolchainOption, check_targets
from kgen.cli.output import print_json, progress, table
from kgen.errors import KgenError


def compile_command(
    spec: SpecArg,
    target: TargetsOption = None,
    kernel: Annotated[str | None, typer.Option(help="only this kernel")] = None,
    everything: Annotated[
        bool,
        typer.Option("--all", help="every variant, for the first two targets; default: a pairwise cover for the first"),
    ] = False,
    as_json: JsonOption = False,
    toolchain: ToolchainOption = "auto",
    jobs: JobsOption = None,
    cache: CacheOption = True,
    model: Annotated[bool, typer.Option("--model/--no-model", help="model each variant's time as well")] = True,
) -> None:
    """Compile kernel variants through the real Ascend compiler; exit 1 unless all of them fit."""
    from kgen.pipeline import package, planned, read
    from kgen.search.compile_report import COLUMNS, REASONS, kernel_rows, reason_rows
    from kgen.search.compile_rows import Models, compile_rows
    from kgen.search.variants import cover, variants

    sources = read(spec)
    known = sources.loaded.spec.targets
    check_targets(target, known)
    kernels, plan = planned(sources)
    chosen = []
    compiled = [t.name for t in sources.targets if t.memory is not None]
    for name in target or compiled[: 2 if everything else 1]:
        if name not in compiled:
            raise KgenError(
                f"{name} has no Ascend compiler", code="target-compile", hint=f"choose: {', '.join(compiled)}"
            )
        every = variants(sources.loaded.spec, kernels, plan, name, kernel)
        chosen += every if everything else cover(every)
    files = package(sources, kernels, plan)
    with progress("compiling") as step:
        models = Models(sources.loaded.spec, kernels) if model else None
        rows = compile_rows(
            files, chosen, sources.targets, models, jobs=jobs, toolchain=toolchain, cache=cache, progress=step
        )
    bad = [r for r in rows if r["verdict"] != "fits" or r["message"]]  # a message on one that fits: it would hang
    if as_json:
        print_json(rows)
    else:
        table(list(kernel_rows(rows, sources.targets)), COLUMNS)
        table(list(reason_rows(rows)), REASONS)
        table([r for r in bad if r["verdict"] != "fits"], ("kernel", "variant", "target", "verdict", "message"))
        _verdict_summary(rows)
    if bad:
        raise typer.Exit(1)


def _verdict_summary(rows: list[dict[str, Any]]) -> None:
    count: dict[tuple[str, str], int] = {}
    for row in rows:
        count[(row["target"], row["verdict"])] = count.get((row["target"], row["verdict"]), 0) + 1
    for (target, verdict), number in sorted(count.items()):
        typer.echo(f"{target}: {number} {verdict}")
