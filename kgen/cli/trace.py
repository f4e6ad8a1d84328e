"""`kgen trace`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kgen.cli.options import (
    CacheOption,
    DtypeOption,
    JsonOption,
    SpecArg,
    TargetOption,
    ToolchainOption,
    check_targets,
)
from kgen.cli.output import print_json


def trace(
    spec: SpecArg,
    kernel: Annotated[str, typer.Argument(help="a kernel of the spec", show_default=False)],
    shape: Annotated[str | None, typer.Option(help="sizes such as B=1,T=4096,H=16,HV=32,K=128,V=128,BT=64")] = None,
    lengths: Annotated[str | None, typer.Option(help="rows of each packed sequence, such as 64,100,7")] = None,
    dtype: DtypeOption = "bf16",
    without: Annotated[str | None, typer.Option(help="optional tensors that are absent, such as g,h0")] = None,
    with_: Annotated[str | None, typer.Option("--with", help="flags that are on, such as state_v_first")] = None,
    target: TargetOption = None,
    out: Annotated[
        Path | None, typer.Option(help="write the trace of a block, for Perfetto or chrome://tracing")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="write a picture of on-chip memory over the program, SVG")
    ] = None,
    block: Annotated[int, typer.Option(help="the block that --out shows")] = 0,
    top: Annotated[int, typer.Option(min=0, help="how many of the costliest places to list")] = 12,
    as_json: JsonOption = False,
    toolchain: ToolchainOption = "auto",
    cache: CacheOption = True,
) -> None:
    """Model a kernel's time at a shape: what each pipe does, what costs most, and where. Exit 1 if it doesn't fit."""
    from kgen.pipeline import package, planned, read
    from kgen.search.call import parse_lengths, parse_names, parse_sizes
    from kgen.search.output import check_outputs
    from kgen.search.trace import TraceRequest, trace_kernel
    from kgen.search.trace_report import trace_row, trace_text, write_files

    check_outputs(out=out, picture=picture)
    sources = read(spec)
    known = sources.loaded.spec.targets
    check_targets([target] if target else None, known)
    kernels, plan = planned(sources)
    absent, on = parse_names(without, "--without"), parse_names(with_, "--with")
    request = TraceRequest(
        kernel, target or known[0], parse_sizes(shape or ""), parse_lengths(lengths), dtype, absent, on
    )
    chosen = next(t for t in sources.targets if t.name == request.target)
    files = package(sources, kernels, plan)
    traced = trace_kernel(
        sources.loaded.spec, kernels, plan, chosen, files, request, block=block, toolchain=toolchain, cache=cache
    )
    written = write_files(traced, chosen, out, picture, block)
    if as_json:
        print_json([trace_row(traced, chosen)])
    else:
        for line in (*trace_text(traced, chosen, top), *written):
            typer.echo(line)
    if traced.result.verdict != "fits" or traced.timeline is None or traced.timeline.us is None:
        raise typer.Exit(1)
