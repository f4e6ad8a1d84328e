"""What the finished kernel takes: tensors, tables, scalars, run-time counts, then constexprs; nothing that it doesn't
use."""

from __future__ import annotations

from dataclasses import replace

from kgen.ir.nodes import Expr, Kernel, Load, Name, Stmt, StoreTile
from kgen.ir.rewrite import stmt_exprs, walk_block, walk_expr
from kgen.passes.context import Context
from kgen.spec.models import DimKind, flag_of

TABLES = ("cu_seqlens", "chunk_indices", "chunk_offsets")
RUNTIME = ("T", "NT", "task_num", "num_core")


def signature(kernel: Kernel, context: Context) -> Kernel:
    """Fills `scalars`, `runtime` and `constexprs`, in the order in which they are printed."""
    used, touched = _used(kernel), _touched(kernel)
    static = [n for n, d in context.spec.dims.items() if d.kind in (DimKind.HEADS, DimKind.STATIC, DimKind.CHUNK)]
    tiles = [f"B{n}" for n, d in context.spec.dims.items() if d.kind is DimKind.STATIC]
    flags = [flag_of(p) for p in kernel.params if context.optional(p)]
    flags += [f.upper() for f in context.spec.flags]
    modes = ["IS_VARLEN", "TAIL_MODE"]
    constexprs = tuple(n for n in (*static, *tiles, *flags, *modes) if n in used)
    new = replace(
        kernel,
        wide=tuple(p for p in kernel.params if context.always_fp32(p)),
        scalars=tuple(n for n in context.spec.scalars if n in used),
        runtime=(*(t for t in TABLES if t in touched), *(n for n in RUNTIME if n in used)),
        constexprs=(*constexprs, "BLOCK_PTR"),
    )
    return kernel if new == kernel else new


def _all_exprs(kernel: Kernel) -> list[Expr]:
    body: tuple[Stmt, ...] = (*kernel.prologue, *kernel.body)
    return [x for s in walk_block(body) for e in stmt_exprs(s) for x in walk_expr(e)]


def _used(kernel: Kernel) -> set[str]:
    out = {e.id for e in _all_exprs(kernel) if isinstance(e, Name)}
    for e in _all_exprs(kernel):
        out |= {str(a.size) for a in e.type.axes}
        out |= {v for _, v in getattr(e, "options", ()) if isinstance(v, str)}
        if isinstance(e, Load):
            out |= {str(a.size) for a in e.access.axes}
    return out


def _touched(kernel: Kernel) -> set[str]:
    body: tuple[Stmt, ...] = (*kernel.prologue, *kernel.body)
    loads = {e.access.tensor for e in _all_exprs(kernel) if isinstance(e, Load)}
    return loads | {s.access.tensor for s in walk_block(body) if isinstance(s, StoreTile)}
