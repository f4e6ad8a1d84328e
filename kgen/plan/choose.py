"""A plan from the expressions alone, with no compiler: what a build takes where the record has nothing, and where a
search starts."""

from __future__ import annotations

from dataclasses import asdict

from kgen.errors import KgenError
from kgen.ir.nodes import Kernel
from kgen.plan.peak import Trees, peak, trees
from kgen.plan.record import Bits, Entry, Expressions, Plan, Rejected
from kgen.plan.tiles import MARGIN, Candidate, keys, ranked
from kgen.spec.models import Bound, Spec
from kgen.spec.targets import Placement, Target


def placement_of(targets: list[Target]) -> Placement:
    """The placement rules of the first NPU target; a GPU is planned with them too."""
    for target in targets:
        if target.placement is not None:
            return target.placement
    raise KgenError("no target of the spec has placement rules", code="target-rules", hint="list an Ascend target too")


def predicted_plan(spec: Spec, kernels: dict[str, Kernel], targets: list[Target], inputs: str) -> Plan:
    """Every entry by expression and margin, marked `predicted`."""
    found = memory(kernels, placement_of(targets))
    entries = [
        entry
        for target in targets
        for kernel in kernels.values()
        for entry in entries_of(spec, kernel, found[kernel.name], target)
    ]
    return Plan(
        operator=spec.name,
        inputs=inputs,
        margin=MARGIN,
        expressions=expressions(found),
        entries=tuple(entries),
    )


Memory = dict[str, dict[int, Trees]]  # by kernel and bits of the operands


def memory(kernels: dict[str, Kernel], placement: Placement) -> Memory:
    """Each kernel's memory expressions."""
    return {n: {bits: trees(peak(k, placement, bits // 8)) for bits in (16, 32)} for n, k in kernels.items()}


def expressions(found: Memory) -> dict[str, dict[Bits, Expressions]]:
    """What the record keeps of them."""
    return {
        name: {"16": _recorded(widths[16]), "32": _recorded(widths[32])} for name, widths in found.items()
    }  # fmt: skip


def _recorded(t: Trees) -> Expressions:
    return Expressions.model_validate(asdict(t))


def entries_of(spec: Spec, kernel: Kernel, found: dict[int, Trees], target: Target) -> list[Entry]:
    """A kernel's rows for one target: operand widths, chunks, buckets."""
    out = []
    for bits in (16, 32):
        for chunk in spec.chunks:
            for widths in keys(spec, spec.kernels[kernel.name]):
                rows = ranked(spec, kernel, found[bits], target, bits, chunk, widths)
                # a GPU is an oracle, not what kgen plans for: what it can't hold has no entry, and a call says so
                if rows[0].fits or target.memory is not None:
                    out.append(make_entry(spec, kernel, target, bits, chunk, widths, rows))
    return out


def make_entry(
    spec: Spec, kernel: Kernel, target: Target, bits: int, chunk: int, widths: dict[str, int], rows: list[Candidate]
) -> Entry:
    """The best candidate as a row, the others as rejected."""
    best, *rest = rows
    if not best.fits:
        raise KgenError(
            f"no tile of {kernel.name} fits {target.name} at {widths}, chunk {chunk}, {bits}-bit operands: "
            f"{best.reason}",
            code="plan-impossible-tile",
            hint="add smaller candidates to the kernel's `tiles`",
        )
    cores = "cube cores" if spec.kernels[kernel.name].bound is Bound.CUBE else "vector cores"
    return Entry(
        kernel=kernel.name,
        target=target.name,
        bits=16 if bits == 16 else 32,
        chunk=chunk,
        widths=widths,
        tiles=best.tiles,
        verdict="predicted",
        grid=f"min(task_num, {cores})",
        tail_modes=(0, 2),
        ub_predicted_bytes=best.ub,
        rejected=tuple(
            Rejected(tiles=c.tiles, reason=c.reason or _more(c, best), admitted=c.fits, ub_predicted_bytes=c.ub)
            for c in rest
        ),
    )


def _more(c: Candidate, best: Candidate) -> str:
    if c.traffic > best.traffic:
        return f"moves {c.traffic} bytes a chunk and head, the chosen tiles {best.traffic}"
    return "moves as much with smaller tiles"
