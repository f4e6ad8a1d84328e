"""A plan as the tables that a generated package carries; needs no sympy."""

from __future__ import annotations

from kgen.ir.tables import TileTable
from kgen.plan.record import Plan, tree_source
from kgen.spec.models import DimKind, Spec
from kgen.spec.targets import AccessMode, Target

CUDA_REGISTER_BYTES = 65_536  # accumulators of one block that stay in registers, with room for operands


def limits(target: Target) -> tuple[int, int, int]:
    """Bytes of UB, L1 and L0C; a GPU's shared memory stands for L1 (it holds one copy of what L1 holds two of), registers for the rest."""
    if target.memory is not None:
        m = target.memory
        return m.ub_bytes.value, m.l1_bytes.value, m.l0c_bytes.value
    assert target.shared_bytes is not None
    return CUDA_REGISTER_BYTES, 2 * target.shared_bytes.value, CUDA_REGISTER_BYTES


def tile_table(spec: Spec, plan: Plan, targets: list[Target]) -> TileTable:
    """Tables for the spec's targets, in its order."""
    table: dict[str, dict[str, dict[tuple[int, ...], dict[str, int]]]] = {t.name: {} for t in targets}
    for e in plan.entries:
        if e.tiles and e.target in table:
            table[e.target].setdefault(e.kernel, {})[(e.bits, e.chunk, *e.widths.values())] = e.tiles
    chips = [t for t in targets if t.cores is not None]
    return TileTable(
        default_target=chips[0].name,
        cores={t.name: {"cube": t.cores.cube.value, "vector": t.cores.vector.value} for t in chips if t.cores},
        capacities={t.name: limits(t) for t in targets},
        pointer_targets=tuple(t.name for t in targets if t.access_mode.value is AccessMode.POINTER),
        margin=plan.margin,
        table=table,
        expressions=_expressions(spec, plan),
    )


def _expressions(spec: Spec, plan: Plan) -> dict[str, tuple[tuple[str, ...], tuple[str, str, str]]]:
    chunk = next(n for n, d in spec.dims.items() if d.kind is DimKind.CHUNK)
    out = {}
    for name, e in plan.expressions.items():
        entry = spec.kernels.get(name)
        if entry is not None and entry.tiles:
            arguments = ("w", chunk, *(f"B{d}" for d in entry.tiles))
            out[name] = (arguments, (tree_source(e.ub), tree_source(e.l1), tree_source(e.l0c)))
    return out
