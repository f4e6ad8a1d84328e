"""Tasks run as a loop on every core of a one-dimensional grid; each task decodes its own indices (K501, K502).

    for t in tasks(chunks(T), heads(HV)):   -->   for i_task in range(i_c, task_num, num_core):
        …                                             i_hv = i_task % HV
                                                      i_tg = i_task // HV
                                                      if IS_VARLEN: i_n, i_t, bos, T_cur from tables
                                                      else: from i_tg, NT and T
                                                      …

One launch has as many programs as cores, so no grid exceeds a chip's cap. Nothing survives from one task to the
next: bases are made anew. Sequence starts are int64 before any multiply (K101); counts within a sequence are int32
(K104).
"""

from __future__ import annotations

from kgen.ir import build
from kgen.ir.build import i32
from kgen.ir.nodes import (
    I64,
    Access,
    Assign,
    Call,
    Expr,
    For,
    If,
    Kernel,
    Load,
    Loop,
    Name,
    Read,
    Space,
    Stmt,
    Store,
    Type,
)
from kgen.ir.rewrite import exprs, map_block, walk_block, with_body
from kgen.passes.context import Context
from kgen.spec.models import DimKind

VARLEN = Name("IS_VARLEN", type=Type((), "bool"))
OWN_COUNTERS = frozenset({"i_c", "i_task", "i_tg", "i_t", "i_n", "i_s"})
SPEED = ("tiles", "heads", "parts", "chunks", "seqs")  # what changes fastest from task to task comes first


def core_grid(kernel: Kernel, context: Context) -> Kernel:
    """`for … in tasks(…)` --> a task loop with its decode; `scan`, `tiles` and `range` --> counted loops."""
    tasks = kernel.body[0]
    if not isinstance(tasks, For):
        return kernel
    spaces = _by_kind(tasks)
    decode = (*_task_indices(spaces, kernel, context), *_sequence(kernel, spaces, context))
    body = map_block(tasks.body, lambda s: _loop(s, kernel, context) if isinstance(s, For) else s)
    start, stop, step = i32("i_c"), i32("task_num"), i32("num_core")
    loop = Loop("i_task", start, stop, step, (*decode, *body), span=tasks.span)
    first = Assign("i_c", Call("program_id", (), type=Type((), "int32")))
    return with_body(kernel, (loop,), (first, *kernel.prologue))


def tile_names(kernel: Kernel, context: Context) -> dict[str, str]:
    """What counts the tiles of each tile variable: `i_v` for tiles of V, `i_v2` for a second variable over them."""
    heads = {f"i_{n.lower()}" for n, d in context.spec.dims.items() if d.kind is DimKind.HEADS}
    taken = OWN_COUNTERS | heads
    names: dict[str, str] = {}
    for var in (v for v in kernel.indices if v.kind == "tile"):
        base = name = f"i_{var.over.lower()}"
        count = 1
        while name in taken:
            count += 1
            name = f"{base}{count}"
        taken |= {name}
        names[var.name] = name
    return names


def _by_kind(tasks: For) -> dict[str, list[tuple[str | None, Space]]]:
    variables = iter(tasks.vars)
    out: dict[str, list[tuple[str | None, Space]]] = {}
    for space in tasks.spaces:
        out.setdefault(space.kind, []).append((None if space.kind == "heads" else next(variables), space))
    return out


def _count(space: Space, context: Context) -> Expr:
    """How many tasks a space has, for the spaces that aren't the outermost."""
    if space.kind == "tiles":
        return cdiv(i32(space.over), i32(f"B{space.over}"))
    if space.kind == "heads":
        return i32(space.over)
    return build.binary("//", i32(context.one(DimKind.CHUNK)), build.num(space.size))


def cdiv(a: Expr, b: Expr) -> Expr:
    return Call("cdiv", (a, b), type=Type((), "int32"))


def _task_indices(
    spaces: dict[str, list[tuple[str | None, Space]]], kernel: Kernel, context: Context
) -> tuple[Stmt, ...]:
    """Peels `i_task` from its fastest index to its slowest."""
    tiles = tile_names(kernel, context)
    order = [(var, s) for kind in SPEED for var, s in spaces.get(kind, [])]
    outer = {"chunks": "i_tg", "parts": "i_tg", "seqs": "i_n"}.get(order[-1][1].kind)
    inner = order[:-1] if outer and order[-1][1].kind != "parts" else order
    out: list[Stmt] = []
    rest: Expr = i32("i_task")
    for var, space in inner:
        name = "i_s" if space.kind == "parts" else tiles.get(var or "", f"i_{space.over.lower()}")
        count = _count(space, context)
        out.append(Assign(name, build.binary("%", rest, count)))
        rest = build.binary("//", rest, count)
    if outer:
        out.append(Assign(outer, rest))
    return tuple(out)


# ---------------------------------------------------------------- where the task's rows lie


def table(name: str, at: Expr, dtype: str) -> Load:
    """One entry of a host-made table."""
    return Load(Access(name, at, ()), type=Type((), dtype))


def _tensors(kernel: Kernel) -> set[str]:
    """Tensors that the body touches."""
    reads = {e.tensor for e in exprs(kernel.body) if isinstance(e, Read)}
    return reads | {s.tensor for s in walk_block(kernel.body) if isinstance(s, Store)}


def _head_first(kernel: Kernel, context: Context) -> list[str]:
    """Head dims of tensors whose rows lie within a head (`store: [HV, T]`)."""
    out = set()
    for name in _tensors(kernel):
        store = context.tensor(name).store
        if store and context.kind(store[0]) is DimKind.HEADS:
            out.add(store[0])
    return sorted(out)


def head_base(head: str) -> str:
    """The int64 start of a task's rows in a head-first tensor: `bos_hv`."""
    return f"bos_{head.lower()}"


def _sequence(kernel: Kernel, spaces: dict[str, list[tuple[str | None, Space]]], context: Context) -> tuple[Stmt, ...]:
    tasks = kernel.body[0]
    assert isinstance(tasks, For)
    out: list[Stmt] = list(_key_head(kernel, tasks, context))
    if "chunks" in spaces or "parts" in spaces:
        varlen, fixed = _chunk_rows()
    elif "seqs" in spaces:
        varlen, fixed = _seq_rows(kernel, context)
    else:
        return tuple(out)
    rows = i32(context.one(DimKind.ROWS))
    for head in _head_first(kernel, context):
        lane, name = i32(f"i_{head.lower()}"), head_base(head)
        inside = build.binary("*", build.cast(lane, "int64"), rows)
        varlen.append(Assign(name, build.binary("+", inside, Name("bos", type=I64))))
        flat = build.binary("+", build.binary("*", build.cast(i32("i_n"), "int64"), i32(head)), lane)
        fixed.append(Assign(name, build.binary("*", flat, rows), note="K401: head-first gates, stride 1 along T"))
    out.append(If(VARLEN, tuple(varlen), tuple(fixed)))
    return tuple(out)


def _key_head(kernel: Kernel, tasks: For, context: Context) -> list[Stmt]:
    """The key head of a value head, where some tensor has key heads."""
    over = next((s.over for s in tasks.spaces if s.kind == "heads"), None)
    group = context.dim(over).group_of if over else None
    if over is None or group is None or not any(group in context.tensor(t).dims for t in _tensors(kernel)):
        return []
    ratio = build.binary("//", i32(over), i32(group))
    return [Assign(f"i_{group.lower()}", build.binary("//", i32(f"i_{over.lower()}"), ratio))]


def _bounds() -> list[Stmt]:
    """`bos` and `T_cur` of sequence `i_n` from `cu_seqlens`: int64 start, int32 length."""
    at = i32("i_n")
    start, end = table("cu_seqlens", at, "int64"), table("cu_seqlens", build.binary("+", at, build.num(1)), "int64")
    length = build.cast(build.binary("-", end, Name("bos", type=I64)), "int32")
    return [Assign("bos", start, note="K101: int64 before the first multiply"), Assign("T_cur", length)]


def _fixed_bounds() -> list[Stmt]:
    bos = build.binary("*", build.cast(i32("i_n"), "int64"), i32("T"))
    return [Assign("bos", bos, note="K101: int64 before the first multiply"), Assign("T_cur", i32("T"))]


def _chunk_rows() -> tuple[list[Stmt], list[Stmt]]:
    """Sequence and chunk of global chunk `i_tg`: from the table, or by division."""
    pair = build.binary("*", i32("i_tg"), build.num(2))
    varlen: list[Stmt] = [
        Assign("i_n", table("chunk_indices", pair, "int32")),
        Assign("i_t", table("chunk_indices", build.binary("+", pair, build.num(1)), "int32")),
        *_bounds(),
    ]
    fixed: list[Stmt] = [
        Assign("i_n", build.binary("//", i32("i_tg"), i32("NT"))),
        Assign("i_t", build.binary("%", i32("i_tg"), i32("NT"))),
        *_fixed_bounds(),
    ]
    return varlen, fixed


def _seq_rows(kernel: Kernel, context: Context) -> tuple[list[Stmt], list[Stmt]]:
    varlen, fixed = _bounds(), _fixed_bounds()
    if any(context.one(DimKind.CHUNKS) in context.tensor(t).dims for t in _tensors(kernel)):
        varlen.append(Assign("boh", table("chunk_offsets", i32("i_n"), "int64")))
        fixed.append(Assign("boh", build.binary("*", build.cast(i32("i_n"), "int64"), i32("NT"))))
    return varlen, fixed


# ---------------------------------------------------------------- inner loops


def _loop(stmt: For, kernel: Kernel, context: Context) -> Stmt:
    zero, space = build.num(0), stmt.spaces[0]
    if stmt.kind == "range":
        return Loop(stmt.vars[0], build.num(space.start), build.num(space.size), None, stmt.body, True, span=stmt.span)
    if stmt.kind == "tiles":
        stop = cdiv(i32(space.over), i32(f"B{space.over}"))
        return Loop(tile_names(kernel, context)[stmt.vars[0]], zero, stop, None, stmt.body, span=stmt.span)
    assert stmt.kind == "scan", stmt.kind
    count = cdiv(i32("T_cur"), i32(context.one(DimKind.CHUNK)))
    if not stmt.reverse:
        return Loop("i_t", zero, count, None, stmt.body, span=stmt.span)
    back = build.binary("-", build.binary("-", count, build.num(1)), i32("j_t"))
    return Loop("j_t", zero, count, None, (Assign("i_t", back), *stmt.body), span=stmt.span)
