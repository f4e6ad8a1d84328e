"""The search: tiles in the order the expressions give, confirmed by the compiler; what it refuses loses, with its
reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kgen.errors import KgenError, Location
from kgen.ir.nodes import Kernel
from kgen.plan.choose import predicted_plan
from kgen.plan.record import Entry, Plan, Rejected, Verdict, dump_plan
from kgen.search.compile_rows import Progress, compile_variants
from kgen.search.variants import Variant, flags_of, probe
from kgen.spec.models import Spec
from kgen.spec.targets import Target
from kgen.storage import replace_file
from kgen.virtual import CompileResult

Emit = Callable[[Plan], dict[str, str]]


@dataclass(frozen=True)
class Search:
    """What a search works on: the spec, its lowered kernels, the emitter, and how to compile."""

    spec: Spec
    kernels: dict[str, Kernel]
    targets: list[Target]
    inputs: str
    emit: Emit
    toolchain: str = "auto"
    jobs: int | None = None
    progress: Progress | None = None


def make_plan(search: Search, *, compile: bool = True) -> Plan:
    """The plan for every target. Deterministic: the same inputs and compiler give the same plan."""
    plan = predicted_plan(search.spec, search.kernels, search.targets, search.inputs)
    return _confirmed(search, plan) if compile else plan


def _confirmed(search: Search, plan: Plan) -> Plan:
    """Compiles each choice; one that doesn't fit gives way to the next candidate, until all fit."""
    confirmed = {t.name for t in search.targets if t.confirmed}
    entries = list(plan.entries)
    open_ = [i for i, e in enumerate(entries) if e.target in confirmed]
    versions: dict[str, str] = {}
    while open_:
        groups = [_probes(search.spec, search.kernels[entries[i].kernel], entries[i]) for i in open_]
        files = search.emit(plan.model_copy(update={"entries": tuple(entries)}))
        results = iter(
            compile_variants(
                files,
                [v for group in groups for v in group],
                search.targets,
                jobs=search.jobs,
                toolchain=search.toolchain,
                progress=search.progress,
            )
        )
        failed: list[int] = []
        for i, group in zip(open_, groups, strict=True):
            mine = [next(results) for _ in group]
            versions.update(mine[0].toolchain)
            entries[i] = _judged(entries[i], mine)
            if entries[i].verdict != "fits":
                entries[i] = _next(entries[i], next(r for r in mine if r.verdict != "fits"))
                failed.append(i)
        open_ = failed
    names = {k.replace("-", "_"): v for k, v in sorted(versions.items())}
    return plan.model_copy(update={"entries": tuple(entries), "toolchain": names})


def _probes(spec: Spec, kernel: Kernel, e: Entry) -> list[Variant]:
    """The variants that decide an entry: everything optional given, varlen, in one dtype and each layout."""
    flags = flags_of(spec, kernel)
    return [probe(spec, kernel, e, dict.fromkeys(flags, on)) for on in ((False, True) if flags else (False,))]


def _judged(e: Entry, results: list[CompileResult]) -> Entry:
    """The entry with the worst verdict and the largest bytes of its probes."""
    worst: Verdict = next((r.verdict for r in results if r.verdict != "fits"), "fits")

    def most(name: str) -> int | None:
        return max((v for r in results if (v := getattr(r, name)) is not None), default=None)

    return e.model_copy(
        update={
            "verdict": worst,
            "ub_bytes": most("ub_bytes"),
            "l1_bytes": most("l1_bytes"),
            "l0c_bytes": most("l0c_bytes"),
        }
    )


def _next(e: Entry, why: CompileResult) -> Entry:
    """The next candidate that the expressions admit, with the refused one among the rejected."""
    refused = Rejected(tiles=e.tiles, reason=f"the compiler: {why.verdict}: {why.message}"[:300])
    for position, r in enumerate(e.rejected):
        if r.admitted:
            rest = (*e.rejected[:position], *e.rejected[position + 1 :])
            return e.model_copy(
                update={
                    "tiles": r.tiles, "verdict": "predicted", "ub_predicted_bytes": r.ub_predicted_bytes,
                    "rejected": (refused, *rest),
                }
            )  # fmt: skip
    raise KgenError(
        f"no tile of {e.kernel} fits {e.target} at {e.widths}, chunk {e.chunk}, {e.bits}-bit operands: {why.message}",
        code="plan-impossible-tile",
        hint="add smaller candidates to the kernel's `tiles`",
    )


def record_plan(plan: Plan, path: Path) -> None:
    """Writes plan.json in one step."""
    try:
        replace_file(path, dump_plan(plan), mode=0o644)
    except OSError as error:
        raise KgenError(
            f"the plan can't be written: {error.strerror}",
            code="output-unwritable",
            location=Location(str(path)),
            hint="make the folder writable",
        ) from None
