"""Compiles every variant for the targets that the compiler's verdict decides, and records the outcome.

    python benchmarks/compile_all.py [SPEC] [--jobs 2] [--out benchmarks/results/compile_all.json]

The record holds, for each target and kernel, how many variants there are, their verdicts, and the largest UB, L1 and
L0C bytes; and by name every variant that isn't `fits`. Exits 1 if there is one. Compiles are cached: a second run
takes seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from kgen.pipeline import package, planned, read
from kgen.search.compile_rows import compile_rows
from kgen.search.variants import variants


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts and largest bytes of one kernel on one target."""
    most = {name: max((r[name] or 0 for r in rows), default=0) for name in ("ub_bytes", "l1_bytes", "l0c_bytes")}
    return {"variants": len(rows), "verdicts": dict(sorted(Counter(r["verdict"] for r in rows).items())), **most}


def main() -> int:
    """Compiles, prints and writes the record."""
    parser = argparse.ArgumentParser()
    parser.add_argument("spec", nargs="?", default="specs/gdn.yaml", type=Path)
    parser.add_argument("--jobs", type=int, default=None)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/compile_all.json"))
    args = parser.parse_args()
    sources = read(args.spec)
    kernels, plan = planned(sources)
    files = package(sources, kernels, plan)
    record: dict[str, Any] = {"operator": sources.loaded.spec.name, "targets": {}}
    bad = 0
    for target in (t.name for t in sources.targets if t.confirmed):
        start = time.perf_counter()
        chosen = variants(sources.loaded.spec, kernels, plan, target)
        rows = compile_rows(files, chosen, sources.targets, None, jobs=args.jobs)
        record["toolchain"] = rows[0]["toolchain"]
        wrong = [r for r in rows if r["verdict"] != "fits"]
        bad += len(wrong)
        record["targets"][target] = {
            "variants": len(rows),
            "fits": len(rows) - len(wrong),
            "kernels": {k: summary([r for r in rows if r["kernel"] == k]) for k in kernels},
            "not_fitting": [f"{r['kernel']} {r['variant']}: {r['verdict']} {r['message']}" for r in wrong],
        }
        took = time.perf_counter() - start
        print(f"{target}: {len(rows) - len(wrong)} of {len(rows)} fit, {took:.0f} s", flush=True)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(record, indent=1) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
