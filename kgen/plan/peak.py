"""Peak bytes of UB, L1 and L0C as sympy expressions of the tile sizes and the chunk, for one width of operands.

S lays every buffer side by side; P is the largest sum of those that live at one point. The compiler reuses nothing
while S fits, so its peak is S there, and lies between P and S where it doesn't (ASCEND.md section 2, "Placement").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import sympy

from kgen.ir.nodes import Kernel
from kgen.plan.liveness import L0C, L1, UB, Buffer, Layout, layout
from kgen.spec.targets import Placement

Size: TypeAlias = Any  # a sympy expression; sympy brings no types


@dataclass(frozen=True)
class Peak:
    """S (`_sum`) and P of each memory, and the buffers behind them."""

    ub_sum: Size
    ub_peak: Size
    l1_sum: Size
    l1: Size
    l0c_sum: Size
    l0c: Size
    layout: Layout


def symbol(size: str | int) -> Size:
    """A tile size as sympy: a constant, or a positive integer symbol."""
    return sympy.Integer(size) if isinstance(size, int) else sympy.Symbol(size, positive=True, integer=True)


def buffer_bytes(b: Buffer, mixed: bool, p: Placement) -> Size:
    """Bytes of a buffer with its copies and scratch."""
    rows, cols = symbol(b.rows), symbol(b.cols)
    width = b.width
    if b.space == L1:
        return rows * cols * width * p.dot_operand_buffers.value
    if b.space == L0C:
        return rows * cols * 4
    if b.split:
        rows = rows / p.vector_cores_per_block.value
    return _scratch(b, rows, cols, p) if b.scratch else rows * cols * width * _copies(b, mixed, p)


def _copies(b: Buffer, mixed: bool, p: Placement) -> int:
    if b.slots:
        return p.workspace_slots.value
    if b.moved and b.looped:
        return p.mixed_buffers.value if mixed else p.loop_buffers.value
    return 1


def _scratch(b: Buffer, rows: Size, cols: Size, p: Placement) -> Size:
    """`rows32`: an inlined column broadcast; `tile`: a reduction over rows; `half`: a long row sum."""
    if b.scratch == "rows32":
        return p.broadcast_row_bytes.value * rows
    return rows * cols * (4 if b.scratch == "tile" else 2)


def peak(kernel: Kernel, placement: Placement, operand_bytes: int) -> Peak:
    """The kernel's expressions under a target's placement rules, for 16-bit (2) or fp32 (4) operands."""
    found = layout(kernel, operand_bytes)
    sizes = [(b, buffer_bytes(b, found.mixed, placement)) for b in found.buffers]

    def total(space: str) -> Size:
        return sympy.Add(*(s * b.times for b, s in sizes if b.space == space))

    ub, l1, l0c = (_largest(sizes, found.points, space) for space in (UB, L1, L0C))
    return Peak(total(UB), ub, total(L1), l1, total(L0C), l0c, found)


def _largest(sizes: list[tuple[Buffer, Size]], points: int, space: str) -> Size:
    """The largest live sum over program points; points with the same live set count once."""
    sums: set[Size] = set()
    mine = [(b, s) for b, s in sizes if b.space == space]
    for point in range(points + 1):
        live = sympy.Add(*(s for b, s in mine if b.start <= point <= b.end))
        if live != 0:
            sums.add(sympy.expand(live))
    return _maximum(sums)


def _maximum(sums: set[Size]) -> Size:
    """Max of polynomials with positive coefficients: one that is no larger in any term is left out."""
    kept: list[Size] = []
    for s in sorted(sums, key=sympy.default_sort_key):
        terms = s.as_coefficients_dict()
        others = [o.as_coefficients_dict() for o in sums if o != s]
        if not any(all(o[t] >= c for t, c in terms.items()) for o in others):
            kept.append(s)
    return sympy.Max(*kept) if kept else sympy.Integer(0)


def tree(e: Size) -> list[object] | int | str:
    """An expression as the plain tree that a plan records."""
    if e.is_Integer:
        return int(e)
    if e.is_Symbol:
        return str(e)
    if e.is_Pow and e.exp.is_Integer and int(e.exp) > 0:
        return ["*", *[tree(e.base)] * int(e.exp)]
    if e.is_Rational:
        raise ValueError(f"{e} isn't a whole number of bytes")
    op = "+" if e.is_Add else "*" if e.is_Mul else "max" if isinstance(e, sympy.Max) else None
    if op is None:
        raise ValueError(f"{type(e).__name__} has no recorded form")
    args = sorted(e.args, key=sympy.default_sort_key)
    if op == "*" and any(a.is_Rational and not a.is_Integer for a in args):
        ratio = next(a for a in args if a.is_Rational and not a.is_Integer)
        rest = [tree(a) for a in args if a is not ratio]
        top = ["*", int(ratio.p), *rest] if ratio.p != 1 else (["*", *rest] if len(rest) > 1 else rest[0])
        return ["ceildiv", top, int(ratio.q)]
    return [op, *(tree(a) for a in args)]


@dataclass(frozen=True)
class Trees:
    """A peak's expressions as plain trees, which are cheap to evaluate for every candidate."""

    ub_sum: object
    ub: object
    l1_sum: object
    l1: object
    l0c_sum: object
    l0c: object


def trees(found: Peak) -> Trees:
    """The expressions of a kernel for one width of operands."""
    names = ("ub_sum", "ub_peak", "l1_sum", "l1", "l0c_sum", "l0c")
    return Trees(*(tree(getattr(found, name)) for name in names))


def live_at_peak(found: Peak, placement: Placement, values: dict[str, int]) -> tuple[int, list[tuple[int, str]]]:
    """The program point where most UB is live at given sizes, and each buffer's bytes and name there, largest first."""
    rows = []
    for b in found.layout.buffers:
        if b.space == UB:
            rows.append((b, evaluate(buffer_bytes(b, found.layout.mixed, placement), values)))
    totals = [sum(n for b, n in rows if b.start <= p <= b.end) for p in range(found.layout.points + 1)]
    point = totals.index(max(totals))
    live = [(n, _label(b)) for b, n in rows if b.start <= point <= b.end]
    return point, sorted(live, key=lambda row: (-row[0], row[1]))


def _label(b: Buffer) -> str:
    marks = [m for m, on in (("split", b.split), ("slots", b.slots), ("moved", b.moved), (b.scratch, b.scratch)) if on]
    how = f" ({', '.join(marks)})" if marks else ""
    return f"{b.name} [{b.rows}, {b.cols}] x {b.width}{how}, program line {b.line}"


def evaluate(e: Size, values: dict[str, int]) -> int:
    """Bytes at given sizes."""
    from kgen.plan.record import tree_value

    return tree_value(tree(e), values)
