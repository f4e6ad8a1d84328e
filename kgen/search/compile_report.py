"""Rows of a compile for people: one a kernel and target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from kgen.spec.targets import Target
from kgen.virtual.result import COMPILED

REASONS = ("kernel", "target", "variants", "no modelled time")
COLUMNS = ("kernel", "target", "variants", "UB", "L1", "L0C", "modelled us", "flags")
SPACES = {"UB": "ub_bytes", "L1": "l1_bytes", "L0C": "l0c_bytes"}


def kernel_rows(rows: Sequence[dict[str, Any]], targets: Sequence[Target]) -> Iterator[dict[str, Any]]:
    """What the variants of a kernel come to: the most that any takes of each memory, the range of modelled times, and
    how many have something to look at."""
    known = {t.name: t for t in targets}
    for kernel, target in dict.fromkeys((r["kernel"], r["target"]) for r in rows):
        mine = [r for r in rows if (r["kernel"], r["target"]) == (kernel, target)]
        yield {
            "kernel": kernel,
            "target": target,
            "variants": len(mine),
            **{space: _most(mine, field, known[target]) for space, field in SPACES.items()},
            "modelled us": _range([r["modelled_us"] for r in mine if r["modelled_us"] is not None]),
            "flags": _flags(mine),
        }


def _most(rows: Sequence[dict[str, Any]], field: str, target: Target) -> str:
    """`117 KiB, 61%` of what a core has; nothing where no variant uses it."""
    most = max((r[field] or 0 for r in rows), default=0)
    if not most or target.memory is None:
        return ""
    return f"{most / 1024:.1f} KiB, {most / getattr(target.memory, field).value:.0%}"


def _range(times: Sequence[float]) -> str:
    if not times:
        return ""
    low, high = f"{min(times):.1f}", f"{max(times):.1f}"
    return low if low == high else f"{low} to {high}"


def _flags(rows: Sequence[dict[str, Any]]) -> str:
    """How many variants don't fit, lost their double buffers, leave a vector core idle or have no time, and the model's
    warnings by their first words (`sampled`)."""
    counts = Counter(
        {
            "not fitting": sum(r["verdict"] not in COMPILED for r in rows),
            "single-buffered": sum(r["verdict"] == "degraded" for r in rows),
            "idle vector core": sum(bool(r["idle_vector_core"]) for r in rows),
            "without a time": sum(_has_no_time(r) for r in rows),
        }
    )
    for r in rows:
        counts.update({warning.partition(":")[0] for warning in r["modelled_warnings"]})
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def reason_rows(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Why variants that compiled have no time: a row a kernel, target and reason, unknown operations with counts."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for r in rows:
        if _has_no_time(r):
            unknown = ", ".join(f"{name} ({count}x)" for name, count in r["unknown_operations"].items())
            why = r["message"] or f"operations that kgen does not know: {unknown}"
            counts[r["kernel"], r["target"], why] += 1
    for (kernel, target, why), variants in counts.items():
        yield {"kernel": kernel, "target": target, "variants": variants, "no modelled time": why}


def _has_no_time(row: dict[str, Any]) -> bool:
    """Only of what compiled, and not where nobody asked for one."""
    return row["verdict"] in COMPILED and row["modelled_shape"] is not None and row["modelled_us"] is None
