"""The planner's memory expressions against the compiler, over every tile candidate of an operator.

    python benchmarks/memory_model.py [SPEC] [--target Ascend910B2] [--jobs 2]

For each kernel: how far the predicted UB bytes are from the compiler's where nothing is reused (the sum S fits), how
often the class is right (S fits; only P fits; neither), L1 and L0C, and whether anything that the margin admits fails
to compile as it is.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

from kgen.pipeline import package, planned, read
from kgen.plan.choose import memory, placement_of
from kgen.plan.record import tree_value
from kgen.plan.table import limits
from kgen.search.compile_rows import compile_variants
from kgen.search.variants import Variant, flags_of, probe


def candidates(sources, kernels, plan, target) -> list[Variant]:  # type: ignore[no-untyped-def]
    """Every tile of every entry, chosen or rejected, with everything optional given, varlen."""
    spec, out = sources.loaded.spec, {}
    for e in plan.entries:
        if e.target != target:
            continue
        kernel = kernels[e.kernel]
        for tiles in [e.tiles, *(r.tiles for r in e.rejected)]:
            entry = e.model_copy(update={"tiles": tiles})
            v = probe(spec, kernel, entry, dict.fromkeys(flags_of(spec, kernel), False))
            out.setdefault((v.kernel, v.dtype, v.chunk, v.tiles), v)
    return list(out.values())


def main() -> int:
    """Prints the table; exit 1 when an admitted tile overflows or degrades."""
    parser = argparse.ArgumentParser()
    parser.add_argument("spec", nargs="?", default="specs/gdn.yaml", type=Path)
    parser.add_argument("--target", default="Ascend910B2")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--all", action="store_true", help="print every point")
    args = parser.parse_args()
    sources = read(args.spec)
    kernels, plan = planned(sources)
    found = memory(kernels, placement_of(sources.targets))
    limit = limits(next(t for t in sources.targets if t.name == args.target))
    points = candidates(sources, kernels, plan, args.target)
    results = compile_variants(package(sources, kernels, plan), points, sources.targets, jobs=args.jobs)
    errors: dict[str, list[float]] = {}
    classes: dict[str, list[bool]] = {}
    admitted_bad = rejected_good = 0
    for v, r in zip(points, results, strict=True):
        values = {**dict(v.tiles), sources.loaded.spec.chunk: v.chunk}
        t = found[v.kernel][32 if v.dtype == "fp32" else 16]
        s, p, l1, l0c = (tree_value(x, values) for x in (t.ub_sum, t.ub, t.l1, t.l0c))
        inside = all(n <= m * (1 - plan.margin) for n, m in zip((p, l1, l0c), limit, strict=True))
        fits = r.verdict == "fits"
        admitted_bad += inside and not fits
        rejected_good += fits and not inside
        classes.setdefault(v.kernel, []).append((p <= limit[0]) == fits)
        if fits and s <= limit[0] and r.ub_bytes:
            errors.setdefault(v.kernel, []).append(s / r.ub_bytes - 1)
        if args.all or (inside and not fits):
            print(
                f"{v.kernel} {v.name}: {r.verdict} S {s} P {p} true {r.ub_bytes} L1 {l1}/{r.l1_bytes} "
                f"L0C {l0c}/{r.l0c_bytes}"
            )
    print(f"{'kernel':24} points  no-reuse points: median |error|, worst   fits-or-not right")
    for kernel, right in classes.items():
        rows = [abs(x) for x in errors.get(kernel, [])]
        table = f"{statistics.median(rows):8.1%} {max(rows):8.1%}" if rows else "       -        -"
        print(f"{kernel:24} {len(right):5}  {len(rows):5} {table}   {sum(right) / len(right):.0%}")
    print(f"{len(points)} points; admitted but not fitting: {admitted_bad}; fitting but not admitted: {rejected_good}")
    return 1 if admitted_bad else 0


if __name__ == "__main__":
    sys.exit(main())
