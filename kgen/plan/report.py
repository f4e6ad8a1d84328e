"""What a plan says, for people and programs: one row an entry, and one kernel explained."""

from __future__ import annotations

from typing import Any, Literal

from kgen.errors import KgenError, nearest
from kgen.ir.nodes import Kernel
from kgen.plan.record import Entry, Plan, tree_source
from kgen.spec.models import Spec
from kgen.spec.targets import Placement


def variant_name(e: Entry) -> str:
    """`16bit-c64-K128-V128`: operand bits, chunk, widest head of each tiled dim."""
    return "-".join([f"{e.bits}bit", f"c{e.chunk}", *(f"{d}{w}" for d, w in e.widths.items())])


def plan_rows(plan: Plan) -> list[dict[str, Any]]:
    """Every entry as DESIGN.md section 7 names its fields."""
    return [_row(plan, e) for e in plan.entries]


def _row(plan: Plan, e: Entry) -> dict[str, Any]:
    expressions = plan.expressions.get(e.kernel)
    bits: Literal["16", "32"] = "16" if e.bits == 16 else "32"
    return {
        "kernel": e.kernel,
        "variant": variant_name(e),
        "target": e.target,
        "dtype": "fp32" if e.bits == 32 else "bf16, fp16",
        "tiles": e.tiles,
        "grid": e.grid,
        "tail_modes": list(e.tail_modes),
        "ub_expression": tree_source(expressions[bits].ub) if expressions else "",
        "ub_sum_expression": tree_source(expressions[bits].ub_sum) if expressions else "",
        "ub_predicted_bytes": e.ub_predicted_bytes,
        "ub_bytes": e.ub_bytes,
        "l1_bytes": e.l1_bytes,
        "l0c_bytes": e.l0c_bytes,
        "verdict": e.verdict,
        "rejected": [{"tiles": r.tiles, "reason": r.reason} for r in e.rejected],
    }


def explain_text(name: str, spec: Spec, kernels: dict[str, Kernel], plan: Plan, placement: Placement) -> str:
    """The memory model of one kernel: expressions, the program point of the peak, what lives there, why rivals lost."""
    if name not in kernels:
        raise KgenError(f"no kernel {name!r}", code="kernel-unknown", hint=nearest(name, kernels))
    from kgen.plan.peak import live_at_peak, peak

    found = {bits: peak(kernels[name], placement, bits // 8) for bits in (16, 32)}
    lines = [f"{name}: bytes in tile sizes"]
    for bits, p in found.items():
        lines += [
            f"  {bits}-bit operands",
            f"    UB, all side by side  S = {p.ub_sum}",
            f"    UB, largest live sum  P = {p.ub_peak}",
            f"    L1                    S = {p.l1_sum}, P = {p.l1}",
            f"    L0C                   S = {p.l0c_sum}, P = {p.l0c}",
        ]
    entries = [e for e in plan.entries if e.kernel == name]
    for e in _shown(entries):
        lines += ["", *_entry_lines(e)]
        point, live = live_at_peak(found[e.bits], placement, {**e.tiles, spec.chunk: e.chunk})
        lines.append(f"  live at the peak (program point {point}):")
        lines += [f"    {size:>8}  {text}" for size, text in live]
        for r in e.rejected[:6]:
            lines.append(f"  rejected {_tiles(r.tiles)}: {r.reason}")
        if len(e.rejected) > 6:
            lines.append(f"  and {len(e.rejected) - 6} more (--json has them)")
    return "\n".join(lines)


def _shown(entries: list[Entry]) -> list[Entry]:
    """The widest bucket at the largest chunk, once for each target and operand width."""
    out: dict[tuple[str, int], Entry] = {}
    for e in entries:
        key = (e.target, e.bits)
        best = out.get(key)
        if best is None or (e.chunk, sum(e.widths.values())) >= (best.chunk, sum(best.widths.values())):
            out[key] = e
    return list(out.values())


def _entry_lines(e: Entry) -> list[str]:
    true = "not compiled" if e.ub_bytes is None else f"{e.ub_bytes} by the compiler"
    return [
        f"{e.target} {variant_name(e)}: {_tiles(e.tiles) or 'no tiles to choose'}, {e.verdict}",
        f"  UB {e.ub_predicted_bytes} bytes predicted, {true}; grid {e.grid}; tail modes {list(e.tail_modes)}",
    ]


def _tiles(tiles: dict[str, int]) -> str:
    return " ".join(f"{k}={v}" for k, v in tiles.items())
