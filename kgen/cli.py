"""The command line. Each command imports what it needs when it runs, so that `kgen build` starts neither torch nor
sympy."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kgen.errors import KgenError, printable

if TYPE_CHECKING:
    from rich.progress import Progress

    from kgen.verify.rows import Row

app = typer.Typer(
    name="kgen",
    help="Ascend NPU kernels from an op spec and tile programs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

SpecArg = Annotated[Path, typer.Argument(help="the operator's YAML, such as specs/gdn.yaml", show_default=False)]
OutOption = Annotated[Path | None, typer.Option(help="folder of the package; default: generated/<name>")]
JsonOption = Annotated[bool, typer.Option("--json", help="rows as JSON for programs")]
TargetOption = Annotated[list[str] | None, typer.Option("--target", help="a target of the spec; may be repeated")]
ToolchainOption = Annotated[str, typer.Option(help="auto, cann, or the path of an environment")]


@app.command()
def build(
    spec: SpecArg,
    out: OutOption = None,
    check: Annotated[
        bool, typer.Option("--check", help="write nothing; exit 1 if the package isn't what the spec gives")
    ] = False,
) -> None:
    """Generate the package of an operator."""
    from kgen import stamp

    if not check and (folder := stamp.unchanged(spec, out)) is not None:
        typer.echo(f"{_short(folder)}: unchanged")
        return
    from kgen.emit.write import differences, write_package
    from kgen.pipeline import build as make
    from kgen.pipeline import files_read, read

    sources = read(spec)
    folder, files, plan = make(sources, out)
    if out is None and folder.parent.is_symlink():  # a stranger's change could have put it there
        raise KgenError(
            f"{_short(folder.parent)} is a link, so the package would land elsewhere",
            code="output-link",
            hint="remove the link, or name the folder with --out",
        )
    predicted = sum(e.verdict == "predicted" and bool(e.tiles) for e in plan.entries)
    if check:
        changed = differences(folder, files)
        for diff in changed.values():
            typer.echo(diff, nl=False)
        if changed:
            typer.echo(f"{_short(folder)} isn't what {spec} gives: {', '.join(changed)}", err=True)
            typer.echo(f"repair it with: kgen build {spec}", err=True)
            raise typer.Exit(1)
        typer.echo(f"{_short(folder)}: as generated")
        return
    written = write_package(folder, files)
    stamp.remember(spec, out, folder, files_read(sources), files)
    note = f", {predicted} tile choices predicted by expression" if predicted else ""
    typer.echo(f"{_short(folder)}: {'written' if written else 'unchanged'}, {len(files)} files{note}")


@app.command()
def show(
    spec: SpecArg,
    kernel: Annotated[str, typer.Argument(help="a kernel of the spec", show_default=False)],
    after: Annotated[str, typer.Option(help="a pass, `parse`, or all")] = "all",
) -> None:
    """Show a kernel's IR after a pass."""
    from kgen.errors import nearest
    from kgen.ir.show import show as text
    from kgen.pipeline import read, stages

    sources = read(spec)
    if kernel not in sources.programs:
        raise KgenError(
            f"no kernel {kernel!r} in {spec}", code="kernel-unknown", hint=nearest(kernel, sources.programs)
        )
    steps = stages(sources, kernel)
    names = [name for name, _ in steps]
    if after != "all" and after not in names:
        raise KgenError(f"no pass {after!r}", code="pass-unknown", hint=nearest(after, names))
    previous = None
    for number, (name, ir) in enumerate(steps):
        if after in ("all", name):
            same = previous is ir
            typer.echo(f"# {number:02d} {name}{' (unchanged)' if same else ''}")
            if not same or after != "all":
                typer.echo(text(ir))
        previous = ir


@app.command()
def plan(
    spec: SpecArg,
    explain: Annotated[str | None, typer.Option(help="show the memory model of one kernel; searches nothing")] = None,
    as_json: JsonOption = False,
    target: TargetOption = None,
    compile_: Annotated[bool, typer.Option("--compile/--no-compile", help="confirm tiles through the compiler")] = True,
    force: Annotated[bool, typer.Option("--force", help="search even if the recorded plan is current")] = False,
    toolchain: ToolchainOption = "auto",
    jobs: Annotated[int | None, typer.Option(help="compilers at once; default: all cores")] = None,
) -> None:
    """Choose tiles and record them; the only command that writes plan.json."""
    if explain is not None:
        _explain(spec, explain)
        return
    from kgen.pipeline import default_folder, lowered, package, plan_inputs, read, recorded_plan
    from kgen.plan.report import plan_rows
    from kgen.search.plan import Search, make_plan, record_plan

    sources = read(spec)
    _check_targets(target, sources.loaded.spec.targets)
    path = default_folder(spec, sources.loaded.spec.name) / "plan.json"
    kernels = lowered(sources)
    found = None if force else recorded_plan(sources, kernels, path)
    if found is None:
        with _progress("planning") as step:
            found = make_plan(
                Search(
                    sources.loaded.spec, kernels, sources.targets, plan_inputs(sources, kernels),
                    lambda plan: package(sources, kernels, plan), toolchain, jobs, step,
                ),
                compile=compile_,
            )  # fmt: skip
        record_plan(found, path)
        typer.echo(f"recorded {_short(path)}; now run: kgen build {spec}", err=True)
    rows = [r for r in plan_rows(found) if not target or r["target"] in target]
    if as_json:
        _print_json(rows)
    else:
        _table(rows, ("kernel", "target", "variant", "tiles", "ub_predicted_bytes", "ub_bytes", "verdict"))


def _explain(spec: Path, kernel: str) -> None:
    from kgen.pipeline import planned, read
    from kgen.plan.choose import placement_of
    from kgen.plan.report import explain_text

    sources = read(spec)
    kernels, found = planned(sources)
    typer.echo(explain_text(kernel, sources.loaded.spec, kernels, found, placement_of(sources.targets)))


@app.command("compile")
def compile_command(
    spec: SpecArg,
    target: TargetOption = None,
    kernel: Annotated[str | None, typer.Option(help="only this kernel")] = None,
    everything: Annotated[
        bool,
        typer.Option("--all", help="every variant, for the first two targets; default: a pairwise cover for the first"),
    ] = False,
    as_json: JsonOption = False,
    toolchain: ToolchainOption = "auto",
    jobs: Annotated[int | None, typer.Option(help="compilers at once; default: all cores")] = None,
    cache: Annotated[bool, typer.Option("--cache/--no-cache", help="reuse earlier results")] = True,
    model: Annotated[bool, typer.Option("--model/--no-model", help="model each variant's time as well")] = True,
) -> None:
    """Compile kernel variants through the real Ascend compiler; exit 1 unless all of them fit."""
    from kgen.pipeline import package, planned, read
    from kgen.search.compile_rows import Models, compile_rows
    from kgen.search.variants import cover, variants

    sources = read(spec)
    known = sources.loaded.spec.targets
    _check_targets(target, known)
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
    with _progress("compiling") as step:
        models = Models(sources.loaded.spec, kernels, sources.targets) if model else None
        rows = compile_rows(files, chosen, models, jobs=jobs, toolchain=toolchain, cache=cache, progress=step)
    bad = [r for r in rows if r["verdict"] != "fits"]
    if as_json:
        _print_json(rows)
    else:
        _table(bad or rows[:0], ("kernel", "variant", "target", "verdict", "message"))
        _verdict_summary(rows)
    if bad:
        raise typer.Exit(1)


@app.command()
def trace(
    spec: SpecArg,
    kernel: Annotated[str, typer.Argument(help="a kernel of the spec", show_default=False)],
    shape: Annotated[str | None, typer.Option(help="sizes such as B=1,T=4096,H=16,HV=32,K=128,V=128,BT=64")] = None,
    lengths: Annotated[str | None, typer.Option(help="rows of each packed sequence, such as 64,100,7")] = None,
    dtype: Annotated[str, typer.Option(help="of the operands: bf16, fp16 or fp32")] = "bf16",
    without: Annotated[str | None, typer.Option(help="optional tensors that are absent, such as g,h0")] = None,
    with_: Annotated[str | None, typer.Option("--with", help="flags that are on, such as state_v_first")] = None,
    target: Annotated[str | None, typer.Option(help="a target of the spec; default: its first")] = None,
    out: Annotated[
        Path | None, typer.Option(help="write the trace of a block, for Perfetto or chrome://tracing")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="write a picture of on-chip memory over the program, SVG")
    ] = None,
    block: Annotated[int, typer.Option(help="the block that --out shows")] = 0,
    top: Annotated[int, typer.Option(help="how many of the costliest places to list")] = 12,
    as_json: JsonOption = False,
    toolchain: ToolchainOption = "auto",
    cache: Annotated[bool, typer.Option("--cache/--no-cache", help="reuse earlier results")] = True,
) -> None:
    """Model a kernel's time at a shape: what each pipe does, what costs most, and where. Exit 1 if it doesn't fit."""
    from kgen.pipeline import package, planned, read
    from kgen.search.trace import TraceRequest, parse_sizes, trace_kernel
    from kgen.search.trace_report import trace_row, trace_text, write_files

    sources = read(spec)
    known = sources.loaded.spec.targets
    _check_targets([target] if target else None, known)
    kernels, plan = planned(sources)
    request = TraceRequest(
        kernel, target or known[0], parse_sizes(shape or ""), _integers(lengths), dtype, _names(without), _names(with_)
    )
    chosen = next(t for t in sources.targets if t.name == request.target)
    files = package(sources, kernels, plan)
    traced = trace_kernel(sources.loaded.spec, kernels, plan, chosen, files, request, toolchain=toolchain, cache=cache)
    written = write_files(traced, chosen, out, picture, block)
    if as_json:
        _print_json([trace_row(traced, chosen)])
    else:
        for line in (*trace_text(traced, chosen, top), *written):
            typer.echo(line)
    if traced.timeline is None or traced.timeline.us is None:
        raise typer.Exit(1)


@app.command()
def bench(
    spec: SpecArg,
    against: Annotated[str, typer.Option(help="whose kernels to compare with: fla")] = "fla",
    direction: Annotated[str, typer.Option(help="fwd, or fwd+bwd")] = "fwd",
    shape: Annotated[str | None, typer.Option(help="one shape, such as B=1,T=4096,H=16,HV=32,K=128,V=128")] = None,
    lengths: Annotated[str | None, typer.Option(help="with --shape: rows of each packed sequence")] = None,
    dtype: Annotated[str, typer.Option(help="of the operands: bf16, fp16 or fp32")] = "bf16",
    target: Annotated[str | None, typer.Option(help="a target of the spec; default: its first")] = None,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="halve and double each cost constant; exit 1 if a total's order flips")
    ] = False,
    as_json: JsonOption = False,
    toolchain: ToolchainOption = "auto",
    jobs: Annotated[int | None, typer.Option(help="compilers at once; default: all cores")] = None,
    cache: Annotated[bool, typer.Option("--cache/--no-cache", help="reuse earlier results")] = True,
) -> None:
    """Compare modelled times with another library's kernels: a row a stage and a total for each shape."""
    from kgen.pipeline import default_folder, read
    from kgen.search.bench import flips, rows, variations
    from kgen.search.bench_run import BenchRequest, run_bench
    from kgen.search.trace import parse_sizes
    from kgen.spec.models import BenchShape
    from kgen.virtual.timeline import Costs

    sources = read(spec)
    loaded = sources.loaded.spec
    _check_targets([target] if target else None, loaded.targets)
    chosen = next(t for t in sources.targets if t.name == (target or loaded.targets[0]))
    shapes = loaded.bench_shapes
    if shape is not None:
        shapes = (BenchShape(sizes=parse_sizes(shape), lengths=_integers(lengths) or ()),)
    request = BenchRequest(against, direction, shapes, dtype, default_folder(spec, loaded.name))
    costs, changes = variations(Costs.of(chosen)) if sensitivity else ([Costs.of(chosen)], [])
    with _progress("comparing") as step:
        compared = run_bench(loaded, chosen, request, costs, jobs=jobs, toolchain=toolchain, cache=cache, progress=step)
    stages = tuple(loaded.stages)
    if sensitivity:
        found = list(flips(compared, stages, changes))
        _sensitivity(found, as_json)
        return
    listed = [row for each in compared for row in rows(each, stages)]
    if as_json:
        _print_json(listed)
    else:
        _bench_table(listed)
    if any(r["ratio"] is None for r in listed if r["kernel"] == "total"):
        raise typer.Exit(1)


@app.command()
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
        _print_json([row.as_dict() for row in rows])
    else:
        worst: dict[tuple[str, str], Row] = {}
        for row in rows:
            key = (row.level, row.kernel)
            worst[key] = max(worst.get(key, row), row, key=lambda r: r.rel_rms)
        shown = [{**asdict(r), "passed": r.passed} for r in failed or worst.values()]
        columns = ("level", "kernel", "case", "rel_rms", "max_abs", "passed")
        _table(shown, (*columns, "problem") if failed else columns)
        typer.echo(f"{len(rows) - len(failed)} of {len(rows)} passed")
    if failed:
        raise typer.Exit(1)


@app.command()
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
        _print_json(rows)
    else:
        for row in rows:
            typer.echo(f"{'ok  ' if row['ok'] else 'FAIL'} {row['name']}: {row['detail']}")
            if not row["ok"] and row["hint"]:
                typer.echo(f"     {row['hint']}")
    if not all(r["ok"] for r in rows):
        raise typer.Exit(1)


@app.command()
def schema() -> None:
    """Print the JSON Schema of a spec."""
    from kgen.spec.schema import json_schema

    typer.echo(json.dumps(json_schema(), indent=2))


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(n for n in (text or "").replace(" ", ",").split(",") if n)


def _integers(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    if not all(n.isdigit() for n in _names(text)) or not _names(text):
        raise KgenError(f"cannot read the lengths {text[:60]!r}", code="lengths", hint="write them as 64,100,7")
    return tuple(int(n) for n in _names(text))


def _check_targets(wanted: list[str] | None, known: tuple[str, ...]) -> None:
    from kgen.errors import nearest

    for name in wanted or []:
        if name not in known:
            raise KgenError(f"{name!r} isn't a target of the spec", code="target-unknown", hint=nearest(name, known))


# ---------------------------------------------------------------- output


def _short(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _print_json(rows: list[dict[str, Any]]) -> None:
    typer.echo(json.dumps(rows, indent=1))


def _table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
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


def _bench_table(rows: list[dict[str, Any]]) -> None:
    shown = []
    for r in rows:
        ratio = "" if r["ratio"] is None else f"{r['ratio']:.2f}" + (" (tie)" if r["tie"] else "")
        times = {side: "" if r[side] is None else f"{r[side]:.1f}" for side in ("ours_us", "theirs_us")}
        launches = f"{r['launches']['ours']} / {r['launches']['theirs']}"
        shown.append({**r, **times, "ratio": ratio, "launches": launches})
    _table(shown, ("shape", "direction", "kernel", "ours_us", "theirs_us", "ratio", "launches", "basis"))
    for text in sorted({w for r in rows for w in (*r["problems"], *r["warnings"])}):
        typer.echo(f"note: {text}")
    typer.echo("every time is modelled; differences under 1.15x are ties")


def _sensitivity(found: list[dict[str, Any]], as_json: bool) -> None:
    """Rows whose order a constant flips, and the range of each total; exit 1 if a total's order flips."""
    if as_json:
        _print_json(found)
    else:
        flipped = [r for r in found if r["flips"]]
        _table(flipped, ("shape", "kernel", "constant", "factor", "ratio", "ratio_changed"))
        for shape in dict.fromkeys(r["shape"] for r in found):
            ratios = [r["ratio_changed"] for r in found if r["shape"] == shape and r["kernel"] == "total"]
            known = [x for x in ratios if x is not None]
            span = f"{min(known):.2f} to {max(known):.2f}" if known else "unknown"
            typer.echo(f"{shape}: total ratio {span} over {len(ratios)} changes, {len(ratios) - len(known)} unknown")
    if any(r["flips"] or r["ratio_changed"] is None for r in found if r["kernel"] == "total"):
        raise typer.Exit(1)


def _cell(value: object) -> str:
    from rich.markup import escape

    if isinstance(value, dict):
        return escape(" ".join(f"{k}={v}" for k, v in value.items()))
    if isinstance(value, float):
        return f"{value:.2e}"
    return escape("" if value is None else str(value))


def _verdict_summary(rows: list[dict[str, Any]]) -> None:
    count: dict[tuple[str, str], int] = {}
    for row in rows:
        count[(row["target"], row["verdict"])] = count.get((row["target"], row["verdict"]), 0) + 1
    for (target, verdict), number in sorted(count.items()):
        typer.echo(f"{target}: {number} {verdict}")


class _progress:
    """A progress bar on a terminal, nothing elsewhere; used as `with _progress("…") as step`."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.bar: Progress | None = None

    def __enter__(self) -> Callable[..., None]:
        if not sys.stderr.isatty():
            return lambda *_: None
        from rich.console import Console
        from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn

        self.bar = Progress(
            *Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeElapsedColumn(), console=Console(stderr=True)
        )
        self.bar.start()
        task = self.bar.add_task(self.what, total=None)

        def step(done: int, total: int, *_: object) -> None:
            assert self.bar is not None
            self.bar.update(task, completed=done, total=total)

        return step

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.stop()


BUG = "this is a bug of kgen: please report it with the spec that shows it"


def main() -> None:
    """Runs a command; exit 0, 1 (found something) or 2 (could not run)."""
    try:
        app(standalone_mode=True)
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


if __name__ == "__main__":
    main()
