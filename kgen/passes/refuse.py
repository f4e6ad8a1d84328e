"""What the tile language has and no pass lowers yet: an error at its place, with what to write instead.

The passes may then take for granted what is refused here. Shapes that one pass alone can't handle are refused in
that pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kgen.errors import KgenError, Location
from kgen.ir.nodes import (
    NOWHERE,
    Assign,
    At,
    Call,
    Expr,
    For,
    Index,
    Kernel,
    Name,
    Part,
    PartAssign,
    Read,
    Row,
    Span,
    Stmt,
    Store,
    Whole,
)
from kgen.ir.rewrite import bodies, stmt_exprs, walk_block, walk_expr
from kgen.passes.context import Context
from kgen.passes.slice_edges import neutral_edges
from kgen.spec.models import DimKind

OWN_NAMES = frozenset({"T_cur", "bos", "boh", "task_num", "num_core", "LN2", "IS_VARLEN", "TAIL_MODE", "BLOCK_PTR"})
OWN_PREFIXES = ("i_", "j_", "b_", "m_", "o_", "bos_")  # of what the passes name
CALLS = {
    "index": ("index(…)", "masks come from tril, and void rows and lanes need none"),
    "tanh": ("tanh(…)", "2.0 * sigmoid(2.0 * x) - 1.0 is the same"),
}


def not_yet(kernel: Kernel, span: Span, what: str, hint: str) -> KgenError:
    """The error for a construct that is of the language but not lowered."""
    where = Location(kernel.path, span.line, span.column, span.end_column or None)
    return KgenError(f"{what} isn't lowered yet", code="not-implemented", location=where, hint=hint)


def refuse(kernel: Kernel, context: Context) -> None:
    """Raises KgenError for the first thing in a parsed kernel that no pass lowers."""
    _layouts(kernel, context)
    _spaces(kernel)
    for stmt, loops in _with_loops(kernel.body, ()):
        if isinstance(stmt, For):
            _loop(stmt, loops, kernel)
        elif isinstance(stmt, Store):
            _store(stmt, loops, kernel, context)
        elif isinstance(stmt, PartAssign):
            _slab(stmt.index, loops, kernel, stmt.span)
        for e in (x for own in stmt_exprs(stmt) for x in walk_expr(own)):
            _expr(e, stmt, loops, kernel, context)
    neutral_edges(kernel, lambda span, what, hint: not_yet(kernel, span, what, hint))


def _with_loops(block: tuple[Stmt, ...], loops: tuple[For, ...]) -> Iterator[tuple[Stmt, tuple[For, ...]]]:
    """Every statement, with the loops around it."""
    for stmt in block:
        yield stmt, loops
        inner = (*loops, stmt) if isinstance(stmt, For) else loops
        for body in bodies(stmt):
            yield from _with_loops(body, inner)


# ---------------------------------------------------------------- loops


def _spaces(kernel: Kernel) -> None:
    """Tasks are decoded from one number: rows or sequences once, and each dim's tiles once."""
    span = kernel.body[0].span
    rows = [s.kind for s in kernel.spaces if s.kind in ("chunks", "parts", "seqs")]
    if len(rows) > 1:
        what = f"tasks over {rows[0]} and {rows[1]} at once"
        raise not_yet(kernel, span, what, "range over chunks, parts or seqs, once; scan the chunks of a sequence")
    tiled = [s.over for s in kernel.spaces if s.kind == "tiles"]
    if twice := next((d for d in tiled if tiled.count(d) > 1), None):
        raise not_yet(kernel, span, f"tasks over {twice} by {twice}", f"loop over the other with tiles({twice})")


def _loop(stmt: For, loops: tuple[For, ...], kernel: Kernel) -> None:
    if stmt.kind == "group":
        over = stmt.spaces[0].over
        hint = f"range over heads({over}) in tasks(…); rows of key heads are read for each value head"
        raise not_yet(kernel, stmt.span, f"group({over})", hint)
    outer = {name for loop in loops for name in loop.vars}
    if again := next((v for v in stmt.vars if v in outer), None):
        raise not_yet(kernel, stmt.span, f"a loop over {again!r} inside another", "choose another loop variable")
    if stmt.kind == "scan" and any(loop.kind == "scan" for loop in loops):
        raise not_yet(kernel, stmt.span, "a scan inside a scan", "scan the chunks once")
    if stmt.kind == "range" and (stmt.vars[0] in OWN_NAMES or stmt.vars[0].startswith(OWN_PREFIXES)):
        hint = "choose another: names of this form are given to what kgen inserts"
        raise not_yet(kernel, stmt.span, f"a loop variable called {stmt.vars[0]!r}", hint)


# ---------------------------------------------------------------- tensors


def _layouts(kernel: Kernel, context: Context) -> None:
    """Storage orders whose addresses the passes can make."""
    for kind, name in ((DimKind.ROWS, "T"), (DimKind.CHUNKS, "NT")):
        found = next((n for n, d in context.spec.dims.items() if d.kind is kind), name)
        if found != name:
            raise not_yet(kernel, NOWHERE, f"a {kind.value} dim called {found!r}", f"call it {name} in the spec")
    for param in kernel.params:
        tensor = context.tensor(param)
        for layout in (tensor.store or tensor.dims, *tensor.store_if.values()):
            kinds = [context.kind(d) for d in layout]
            inside = kinds.index(DimKind.ROWS) if DimKind.ROWS in kinds else 0
            if inside > 1 or (inside == 1 and kinds[0] is not DimKind.HEADS):
                hint = "store rows first, or right inside the head"
                raise not_yet(kernel, NOWHERE, f"{param} stored [{', '.join(layout)}]", hint)


def _is_block(index: Index, dim: str, context: Context) -> bool:
    """Whether an index takes a whole axis of a tile from a dim."""
    return isinstance(index, (At, Whole)) and context.kind(dim) not in (DimKind.SEQUENCES, DimKind.CHUNKS)


def _store(stmt: Store, loops: tuple[For, ...], kernel: Kernel, context: Context) -> None:
    _rows(stmt.index, loops, kernel, stmt.span)
    dims = zip(stmt.index, context.program_dims(stmt.tensor), strict=True)
    if not stmt.value.type.rank and any(_is_block(i, d, context) for i, d in dims):
        raise not_yet(kernel, stmt.span, "a scalar stored to a tile", "store full(x, t), of the tile's index variables")


def _rows(index: tuple[Index, ...], loops: tuple[For, ...], kernel: Kernel, span: Span) -> None:
    scanned = any(loop.kind == "scan" for loop in loops)
    for row in (i for i in index if isinstance(i, Row)):
        if row.fn == "end":
            hint = "it lies past the sequence; scan to the last chunk and take last(t)"
            raise not_yet(kernel, span, f"the row end({row.var})", hint)
        if row.fn == "start" and not scanned:
            hint = "an empty sequence has none; read it in scan(chunks(n))"
            raise not_yet(kernel, span, f"the row start({row.var}) outside a scan", hint)


def _slab(index: tuple[Index, ...], loops: tuple[For, ...], kernel: Kernel, span: Span) -> None:
    """`S[bk]` with bk of a loop over the tiles of K: the loop goes, and S is taken whole. A task's index stays."""
    tasks = {v for loop in loops if loop.kind == "tasks" for v in loop.vars}
    if var := next((i.var for i in index if isinstance(i, At) and i.var in tasks), None):
        hint = f"make the tile for {var} alone, or loop over the tiles inside the task"
        raise not_yet(kernel, span, f"a slab that the task's {var} picks", hint)


def _expr(e: Expr, stmt: Stmt, loops: tuple[For, ...], kernel: Kernel, context: Context) -> None:
    span = e.span if e.span.line else stmt.span
    if isinstance(e, Read):
        _rows(e.index, loops, kernel, span)
        if any(t.startswith("int") for t in context.dtypes(e.tensor)):
            raise not_yet(kernel, span, f"reading {e.tensor}, a tensor of integers,", "keep integers on the host")
    elif isinstance(e, Part):
        _slab(e.index, loops, kernel, span)
    elif isinstance(e, Call) and e.fn in CALLS:
        raise not_yet(kernel, span, *CALLS[e.fn])
    elif isinstance(e, Call) and e.fn in {"sum", "max"} and not e.args[0].type.rank:
        raise not_yet(kernel, span, f"{e.fn} of a scalar", "it is the scalar itself")


def local_axes(kernel: Kernel, name: str, span: Span, refused: Callable[..., KgenError] = not_yet) -> Expr:
    """A value of the local tile `name`; its assignments must agree on the axes."""
    values = [s.value for s in walk_block(kernel.body) if isinstance(s, Assign) and s.target == name]
    if any(v.type.axes != values[0].type.axes for v in values):
        raise refused(kernel, span, f"a slice of {name!r}, which has other axes elsewhere,", "use two names")
    return Name(name, type=values[0].type, span=span)
