"""`kgen bench`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kgen.cli.options import (
    CacheOption,
    DtypeOption,
    JobsOption,
    JsonOption,
    SpecArg,
    TargetOption,
    ToolchainOption,
    check_targets,
)
from kgen.cli.output import print_json, progress, table


def bench(
    spec: SpecArg,
    against: Annotated[str, typer.Option(help="whose kernels to compare with: fla")] = "fla",
    direction: Annotated[str, typer.Option(help="fwd, or fwd+bwd")] = "fwd",
    shape: Annotated[str | None, typer.Option(help="one shape, such as B=1,T=4096,H=16,HV=32,K=128,V=128")] = None,
    lengths: Annotated[str | None, typer.Option(help="with --shape: rows of each packed sequence")] = None,
    dtype: DtypeOption = "bf16",
    target: TargetOption = None,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="halve and double each cost constant; exit 1 if a total's order flips")
    ] = False,
    as_json: JsonOption = False,
    toolchain: ToolchainOption = "auto",
    jobs: JobsOption = None,
    cache: CacheOption = True,
) -> None:
    """Compare modelled times with another library's kernels: a row a stage and a total for each shape."""
    from kgen.pipeline import default_folder, read
    from kgen.search.bench import flips, rows, variations
    from kgen.search.bench_run import BenchRequest, bench_calls, run_bench
    from kgen.virtual.timeline import Costs

    sources = read(spec)
    loaded = sources.loaded.spec
    check_targets([target] if target else None, loaded.targets)
    chosen = next(t for t in sources.targets if t.name == (target or loaded.targets[0]))
    calls = bench_calls(sources.loaded, shape, lengths, dtype)
    request = BenchRequest(against, direction, calls, default_folder(spec, loaded.name))
    costs, changes = variations(Costs.of(chosen)) if sensitivity else ([Costs.of(chosen)], [])
    with progress("comparing") as step:
        compared = run_bench(loaded, chosen, request, costs, jobs=jobs, toolchain=toolchain, cache=cache, progress=step)
    stages = tuple(loaded.stages)
    if sensitivity:
        found = list(flips(compared, stages, changes))
        _sensitivity(found, as_json)
        return
    listed = [row for each in compared for row in rows(each, stages)]
    if as_json:
        print_json(listed)
    else:
        _bench_table(listed)
    if any(r["ratio"] is None for r in listed if r["kernel"] == "total"):
        raise typer.Exit(1)


def _bench_table(rows: list[dict[str, Any]]) -> None:
    shown = []
    for r in rows:
        ratio = "" if r["ratio"] is None else f"{r['ratio']:.2f}" + (" (tie)" if r["tie"] else "")
        times = {side: "" if r[side] is None else f"{r[side]:.1f}" for side in ("ours_us", "theirs_us")}
        launches = f"{r['launches']['ours']} / {r['launches']['theirs']}"
        shown.append({**r, **times, "ratio": ratio, "launches": launches})
    table(shown, ("shape", "direction", "kernel", "ours_us", "theirs_us", "ratio", "launches", "basis"))
    for text in sorted({w for r in rows for w in (*r["problems"], *r["warnings"])}):
        typer.echo(f"note: {text}")
    typer.echo("every time is modelled; differences under 1.15x are ties")


def _sensitivity(found: list[dict[str, Any]], as_json: bool) -> None:
    """Rows whose order a constant flips, and the range of each total; exit 1 if a total's order flips."""
    if as_json:
        print_json(found)
    else:
        flipped = [r for r in found if r["flips"]]
        table(flipped, ("shape", "kernel", "constant", "factor", "change", "ratio", "ratio_changed"))
        for shape in dict.fromkeys(r["shape"] for r in found):
            ratios = [r["ratio_changed"] for r in found if r["shape"] == shape and r["kernel"] == "total"]
            known = [x for x in ratios if x is not None]
            span = f"{min(known):.2f} to {max(known):.2f}" if known else "unknown"
            typer.echo(f"{shape}: total ratio {span} over {len(ratios)} changes, {len(ratios) - len(known)} unknown")
    if any(r["flips"] or r["ratio_changed"] is None for r in found if r["kernel"] == "total"):
        raise typer.Exit(1)
