"""From a lowered kernel to the buffers it needs on chip: where each tile lies, how big it is, from when to when it lives.

Placement follows ASCEND.md section 2. A tile that only dots use goes from global memory to L1; a dot's result lies in L0C and
in UB when vector code reads it; everything else lies in UB. In a kernel with dots the two vector cores of a block share the
rows. Nothing here is symbolic algebra: sizes are products that `peak.py` turns into sympy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from kgen.ir.nodes import (
    Assign,
    Binary,
    Call,
    Cast,
    Expand,
    Expr,
    If,
    Kernel,
    Load,
    Loop,
    Name,
    Num,
    Stmt,
    StoreTile,
    Transpose,
    Type,
    Unary,
)
from kgen.ir.rewrite import bodies, stmt_exprs, walk_block, walk_expr

UB, L1, L0C = "ub", "l1", "l0c"


@dataclass
class Buffer:
    """One tile on chip. `rows`, `cols`: sizes as tile symbols or constants; `width`: bytes an element, or "w".

    `start` and `end` are program points; `split`: its rows are shared by the vector cores; `slots`: it is made before a dot
    and read after it; `moved`: a load or store touches it; `scratch`: bytes a row that an operation needs beside its result.
    """

    name: str
    space: str
    rows: str | int
    cols: str | int
    width: int | str
    start: int
    end: int
    split: bool = False
    slots: bool = False
    moved: bool = False
    looped: bool = False
    scratch: str = ""
    line: int = 0


@dataclass
class Layout:
    """All buffers of a kernel, and whether it has dots."""

    buffers: list[Buffer] = field(default_factory=list)
    mixed: bool = False
    points: int = 0


@dataclass
class _Value:
    """A tile value: its buffer in UB, if it has one yet, and how it came to be."""

    type: Type
    buffer: Buffer | None = None
    kind: str = "vector"  # load, dot, vector, scalar


def layout(kernel: Kernel) -> Layout:
    """Buffers of the kernel with every optional part present."""
    return _Walk(kernel).run()


class _Walk:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.out = Layout()
        body = (*kernel.prologue, *kernel.body)
        every = [x for s in walk_block(body) for e in stmt_exprs(s) for x in walk_expr(e)]
        self.out.mixed = any(isinstance(e, Call) and e.fn == "dot" for e in every)
        self.env: dict[str, _Value] = {}
        self.loops = 0
        self.now = 0
        self.dots: list[int] = []
        self.vector_uses = _vector_uses(body)
        self.carried = _carried(body)
        self.last: dict[int, int] = {}

    def run(self) -> Layout:
        self.block(self.kernel.prologue)
        hoisted = list(self.out.buffers)
        self.block(self.kernel.body)
        self.out.points = self.now + 1
        for buffer in hoisted:
            buffer.end = self.now  # made once a core, read by every task
        self._slots()
        return self.out

    # ------------------------------------------------------------ statements

    def block(self, block: tuple[Stmt, ...]) -> None:
        for stmt in block:
            self.statement(stmt)

    def statement(self, stmt: Stmt) -> None:
        self.now += 1
        if isinstance(stmt, Assign):
            self.assign(stmt)
        elif isinstance(stmt, StoreTile):
            value = self.value(stmt.value, stmt.span.line)
            if value.kind == "dot" and value.buffer is None:
                return  # L0C to global memory, past UB
            narrow = self.materialise(value, stmt.span.line)
            if narrow is not None:
                out = self._new(value.type, "w", stmt.span.line)
                out.moved, out.end = True, self.now
                narrow.end = max(narrow.end, self.now)
        elif isinstance(stmt, (Loop, If)):
            entry = self.now
            before = dict(self.env)
            self.loops += isinstance(stmt, Loop)
            for inner in bodies(stmt):
                self.block(inner)
            self.loops -= isinstance(stmt, Loop)
            if isinstance(stmt, Loop):
                self._extend(before, stmt, entry)

    def _extend(self, before: dict[str, _Value], loop: Loop, entry: int) -> None:
        """What a loop reads from outside lives to its end."""
        read = {n.id for s in walk_block(loop.body) for e in stmt_exprs(s) for n in walk_expr(e) if isinstance(n, Name)}
        for name in read & set(before):
            buffer = before[name].buffer
            if buffer is not None and buffer.start <= entry:
                buffer.end = max(buffer.end, self.now)

    def assign(self, stmt: Assign) -> None:
        old = self.env.get(stmt.target)
        value = self.value(stmt.value, stmt.span.line)
        if old is not None and old.buffer is not None and stmt.target in self.carried:
            made = self.materialise(value, stmt.span.line)
            if made is not None:
                made.end = self.now
            old.buffer.end = self.now
            return  # a carried tile keeps its place
        if value.buffer is not None:
            value.buffer.name = stmt.target
        if stmt.target in self.carried and value.kind != "scalar" and stmt.target in self.vector_uses:
            self.materialise(value, stmt.span.line)
        self.env[stmt.target] = value

    # ------------------------------------------------------------ expressions

    def value(self, e: Expr, line: int) -> _Value:
        if isinstance(e, Name):
            found = self.env.get(e.id)
            if found is None:
                return _Value(e.type, kind="scalar" if not e.type.rank else "vector")
            if found.buffer is not None:
                found.buffer.end = max(found.buffer.end, self.now)
            return found
        if not e.type.rank:
            for child in _operands(e):
                self.read(child, line)
            return _Value(e.type, kind="scalar")
        if isinstance(e, (Expand, Transpose)):
            inner = self.value(e.x, line)
            return _Value(e.type, inner.buffer, inner.kind)
        if isinstance(e, Load):
            return _Value(e.type, kind="load")
        if isinstance(e, Binary) and e.op == "+" and isinstance(e.b, Num) and e.b.value == 0:
            return self.value(e.a, line)  # a left-operand copy: the compiler drops it
        if isinstance(e, Call) and e.fn == "dot":
            return self.dot(e, line)
        if isinstance(e, Call) and e.fn == "full":
            return _Value(e.type, kind="dot" if self.out.mixed else "vector")
        return self.elementwise(e, line)

    def dot(self, e: Call, line: int) -> _Value:
        for operand in e.args:
            self.operand(operand, line)
        self.now += 1
        self.dots.append(self.now)
        rows, cols = (a.size for a in e.type.axes)
        self.out.buffers.append(Buffer("dot", L0C, rows, cols, 4, self.now, self.now, line=line))
        return _Value(e.type, kind="dot")

    def operand(self, e: Expr, line: int) -> None:
        """A dot's operand in L1, two buffers; a computed one passes UB and global memory first."""
        value = self.value(e, line)
        rows, cols = (a.size for a in e.type.axes)
        wide = 4 if value.type.dtype == "fp32" and not isinstance(e, Cast) else "w"
        l1 = Buffer("operand", L1, rows, cols, wide, self.now, self.now, line=line)
        l1.moved = True
        self.out.buffers.append(l1)
        if value.kind == "vector" or value.buffer is not None:
            made = self.materialise(value, line)
            if made is not None:
                made.end = max(made.end, self.now)

    def read(self, e: Expr, line: int) -> Buffer | None:
        """The UB buffer of a value that vector code reads."""
        value = self.value(e, line)
        buffer = self.materialise(value, line)
        if buffer is not None:
            buffer.end = max(buffer.end, self.now)
        return buffer

    def materialise(self, value: _Value, line: int) -> Buffer | None:
        if value.kind == "scalar" or not value.type.rank:
            return None
        if value.buffer is None:
            width: int | str = "w" if value.kind == "load" and value.type.dtype.startswith("@") else 4
            value.buffer = self._new(value.type, width, line)
            value.buffer.moved = value.kind in ("load", "dot")
        return value.buffer

    def elementwise(self, e: Expr, line: int) -> _Value:
        inputs = [b for b in (self.read(c, line) for c in _operands(e)) if b is not None]
        scratch = _scratch(e)
        reuse = None if isinstance(e, Cast) and e.x.type.dtype.startswith("@") else self._dying(e, inputs)
        if reuse is not None and not scratch:
            reuse.end = self.now
            return _Value(e.type, reuse)
        self.now += 1
        for b in inputs:
            b.end = max(b.end, self.now)
        out = self._new(e.type, 4, line)
        out.scratch = scratch
        return _Value(e.type, out)

    def _dying(self, e: Expr, inputs: list[Buffer]) -> Buffer | None:
        """A temporary of the same size, made by this very expression, whose place the result takes."""
        named = {id(v.buffer) for v in self.env.values() if v.buffer is not None}
        shape = _shape(e.type)
        for b in inputs:
            if id(b) not in named and (b.rows, b.cols) == shape and b.width == 4:
                return b
        return None

    def _new(self, t: Type, width: int | str, line: int) -> Buffer:
        rows, cols = _shape(t)
        split = self.out.mixed and t.rank == 2 and rows != 1
        b = Buffer("tile", UB, rows, cols, width, self.now, self.now, split=split, looped=self.loops > 0, line=line)
        self.out.buffers.append(b)
        return b

    def _slots(self) -> None:
        """Computed tiles that live across a dot have a copy for each workspace slot; carried and hoisted ones don't."""
        if not self.out.mixed:
            return
        kept = {id(self.env[n].buffer) for n in self.carried if n in self.env}
        for b in self.out.buffers:
            across = any(b.start < d < b.end for d in self.dots)
            b.slots = b.space == UB and across and not b.moved and b.looped and id(b) not in kept and b.end < inf


def _operands(e: Expr) -> list[Expr]:
    if isinstance(e, Binary):
        return [e.a, e.b]
    if isinstance(e, (Unary, Cast, Expand, Transpose)):
        return [e.x]
    if isinstance(e, Call):
        return [a for a in e.args if a.type.rank or not isinstance(a, Num)]
    return []


def _shape(t: Type) -> tuple[str | int, str | int]:
    sizes: list[str | int] = [a.size for a in t.axes]
    return (1, sizes[0]) if len(sizes) == 1 else (sizes[0], sizes[1])


def _scratch(e: Expr) -> str:
    """Extra UB of an operation: `rows32` an inlined column broadcast, `tile` a reduction over rows, `half` a long row sum."""
    if isinstance(e, Binary) and any(isinstance(x, Expand) and x.axis == 1 for x in (e.a, e.b)):
        return "rows32"
    if isinstance(e, Call) and e.fn in {"sum", "max"} and e.args[0].type.rank == 2:
        return "tile" if e.option("axis") == 0 else "half"
    return ""


def _vector_uses(body: tuple[Stmt, ...]) -> set[str]:
    """Names that vector code reads (not only dots and accumulation into a dot)."""
    out: set[str] = set()
    for stmt in walk_block(body):
        for e in stmt_exprs(stmt):
            target = stmt.target if isinstance(stmt, Assign) else ""
            _collect(e, target, out)
    return out


def _collect(e: Expr, target: str, out: set[str]) -> None:
    if isinstance(e, Call) and e.fn == "dot":
        return
    if isinstance(e, Binary) and isinstance(e.a, Name) and e.a.id == target and _is_dot(e.b):
        return
    if isinstance(e, Name):
        out.add(e.id)
    for child in _operands(e):
        _collect(child, target, out)


def _is_dot(e: Expr) -> bool:
    return isinstance(e, Call) and e.fn == "dot"


def _carried(body: tuple[Stmt, ...]) -> set[str]:
    """Names assigned before a loop and again inside it."""
    out: set[str] = set()
    for stmt in walk_block(body):
        if isinstance(stmt, Loop):
            inside = {s.target for s in walk_block(stmt.body) if isinstance(s, Assign)}
            made_first = {s.target for s in stmt.body if isinstance(s, Assign) and s.target not in _reads_self(s)}
            out |= inside - made_first
    return out


def _reads_self(stmt: Assign) -> set[str]:
    return {n.id for n in walk_expr(stmt.value) if isinstance(n, Name)}


__all__ = ["L0C", "L1", "UB", "Buffer", "Layout", "layout"]
