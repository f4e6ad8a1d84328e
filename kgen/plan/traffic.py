"""Bytes that a kernel moves through global memory, by counting its loads and stores: the first form of a plan's cost.

Counted for one head and one chunk of rows, at given widths: a tile loop runs ceil(width / tile) times, and tiles among
the tasks repeat everything inside. Padding counts, since a block is moved whole or not at all.
"""

from __future__ import annotations

from kgen.ir.nodes import Access, Assign, If, Kernel, Load, Loop, Stmt, StoreTile
from kgen.ir.rewrite import stmt_exprs, walk_expr


def traffic(kernel: Kernel, sizes: dict[str, int], widths: dict[str, int], bits: int) -> int:
    """Bytes for one chunk of one head. `sizes` of tiles and the chunk by symbol (`BK`, `BT`), `widths` by dim (`K`)."""
    trips = {f"i_{dim.lower()}": -(-widths[dim] // sizes[f"B{dim}"]) for dim in widths if f"B{dim}" in sizes}
    in_tasks = 1
    for stmt in kernel.body[0].body if isinstance(kernel.body[0], Loop) else ():
        if isinstance(stmt, Assign) and stmt.target in trips:
            in_tasks *= trips[stmt.target]
    return in_tasks * _block(kernel.body, sizes, trips, bits // 8)


def _block(block: tuple[Stmt, ...], sizes: dict[str, int], trips: dict[str, int], width: int) -> int:
    total = 0
    for stmt in block:
        for e in stmt_exprs(stmt):
            total += sum(_bytes(x.access, sizes, width) for x in walk_expr(e) if isinstance(x, Load) and x.access.axes)
        if isinstance(stmt, StoreTile):
            total += _bytes(stmt.access, sizes, width)
        if isinstance(stmt, Loop):
            total += trips.get(stmt.var, 1) * _block(stmt.body, sizes, trips, width)
        elif isinstance(stmt, If):
            total += max(_block(b, sizes, trips, width) for b in (stmt.body, stmt.orelse))
    return total


def _bytes(access: Access, sizes: dict[str, int], width: int) -> int:
    count = 1
    for axis in access.axes:
        count *= axis.size if isinstance(axis.size, int) else sizes[axis.size]
    return count * width
