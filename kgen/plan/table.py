"""A plan as the tables that a generated package carries; needs no sympy."""

from __future__ import annotations

from kgen.ir.nodes import Kernel
from kgen.ir.tables import TileTable
from kgen.plan.record import Plan, tree_source
from kgen.spec.models import Spec
from kgen.spec.targets import AccessMode, Target

CUDA_REGISTER_BYTES = 262_144  # of one multiprocessor: 65536 registers of 4 bytes


def limits(target: Target) -> tuple[int, int, int]:
    """Bytes of UB, L1 and L0C that a plan may use.

    On a GPU shared memory stands for L1 and registers for the others. Triton's default pipeline holds three copies of
    a loop's operands where L1 holds two, and copies for layout changes beside them: half of shared memory is left for
    those.
    """
    if target.memory is not None:
        m = target.memory
        return m.ub_bytes.value, m.l1_bytes.value, m.l0c_bytes.value
    assert target.shared_bytes is not None
    return CUDA_REGISTER_BYTES, target.shared_bytes.value // 2, CUDA_REGISTER_BYTES


def tile_table(spec: Spec, kernels: dict[str, Kernel], plan: Plan, targets: list[Target]) -> TileTable:
    """Tables for the spec's targets, in its order."""
    table: dict[str, dict[str, dict[tuple[int, ...], dict[str, int]]]] = {t.name: {} for t in targets}
    for e in plan.entries:
        if e.tiles and e.target in table:
            key = (e.bits, e.chunk, *e.widths.values())
            table[e.target].setdefault(e.kernel, {})[key] = e.tiles
    chips = [t for t in targets if t.cores is not None]
    return TileTable(
        default_target=chips[0].name,
        cores={t.name: {"cube": t.cores.cube.value, "vector": t.cores.vector.value} for t in chips if t.cores},
        capacities={t.name: limits(t) for t in targets},
        pointer_targets=tuple(t.name for t in targets if t.access_mode.value is AccessMode.POINTER),
        margin=plan.margin,
        whole={n: k.whole for n, k in kernels.items() if k.whole and spec.kernels[n].tiles},
        table=table,
        expressions=_expressions(spec, plan),
    )


def _expressions(spec: Spec, plan: Plan) -> dict[str, tuple[tuple[str, ...], dict[str, tuple[str, str, str]]]]:
    """UB, L1 and L0C of each tiled kernel as source, by bits of the operands."""
    out: dict[str, tuple[tuple[str, ...], dict[str, tuple[str, str, str]]]] = {}
    for name, widths in plan.expressions.items():
        entry = spec.kernels.get(name)
        if entry is not None and entry.tiles:
            arguments = ("bits", spec.chunk, *(f"B{d}" for d in entry.tiles))
            sources: dict[str, tuple[str, str, str]] = {}
            for bits, e in widths.items():
                sources[bits] = (tree_source(e.ub), tree_source(e.l1), tree_source(e.l0c))
            out[name] = (arguments, sources)
    return out
