"""From a lowered kernel to the buffers it needs on chip: where each tile lies, how big it is, from when to when it
lives.

Placement follows ASCEND.md section 2. A tile that only dots use goes from global memory to L1; a dot's result lies in
L0C and in UB when vector code reads it; everything else lies in UB. In a kernel with dots the two vector cores of a
block share the rows. Nothing here is symbolic algebra: sizes are products that `peak.py` turns into sympy.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

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
from kgen.ir.rewrite import assigned, bodies, stmt_exprs, walk_block, walk_expr

UB, L1, L0C = "ub", "l1", "l0c"


@dataclass
class Buffer:
    """One tile on chip. `rows`, `cols`: sizes as tile symbols or constants; `width`: bytes an element.

    `start` and `end` are program points; `split`: its rows are shared by the vector cores; `slots`: it is made before
    a dot and read after it; `moved`: a load or store touches it; `scratch`: it is an operation's own, of a
    size that the operation decides; `times`: how often an unrolled loop makes it.
    """

    name: str
    space: str
    rows: str | int
    cols: str | int
    width: int
    start: int
    end: int
    split: bool = False
    slots: bool = False
    moved: bool = False
    looped: bool = False
    scratch: str = ""
    times: int = 1
    line: int = 0


@dataclass
class Layout:
    """All buffers of a kernel, and whether it has dots."""

    buffers: list[Buffer] = field(default_factory=list)
    mixed: bool = False
    points: int = 0


@dataclass
class _Value:
    """A tile value: its buffer in UB, if it has one yet, and how it came to be: load, dot, vector or scalar."""

    type: Type
    buffer: Buffer | None = None
    kind: str = "vector"


def layout(kernel: Kernel, operand_bytes: int) -> Layout:
    """Buffers of the kernel with every optional part present, for 16-bit (2) or fp32 (4) operands, which need no
    casts."""
    return _Walk(kernel, operand_bytes).run()


class _Walk:
    def __init__(self, kernel: Kernel, operand_bytes: int) -> None:
        self.kernel, self.w = kernel, operand_bytes
        self.out = Layout()
        body = (*kernel.prologue, *kernel.body)
        every = [x for s in walk_block(body) for e in stmt_exprs(s) for x in walk_expr(e)]
        self.out.mixed = any(_is_dot(e) for e in every)
        self.env: dict[str, _Value] = {}
        self.narrowed: dict[int, Buffer] = {}  # 16-bit copy of a tile, by the tile's buffer: made once
        self.carried: list[set[str]] = []  # of each loop around
        self.ever_carried: list[Buffer] = []
        self.times = 1
        self.now = 0
        self.dots: list[int] = []
        self.rewritten: list[tuple[Buffer, int]] = []  # results that took a dying operand's place
        self.cube_reads: list[int] = []  # points at which vector code takes a dot's result
        self.kept: list[_Value] = []  # so that their ids stay theirs
        self.operands: dict[tuple[int, int], Buffer] = {}  # L1 tiles by value and width
        self.live: dict[int, frozenset[str]] = {}
        self.here: Stmt = body[0]
        live_after(body, frozenset(), self.live)

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
            self.now += 1
            self.here = stmt
            if isinstance(stmt, Assign):
                self.assign(stmt)
            elif isinstance(stmt, StoreTile):
                self.store(stmt)
            elif isinstance(stmt, Loop):
                self.loop(stmt)
            elif isinstance(stmt, If):
                self.branches(stmt)

    def branches(self, stmt: If) -> None:
        """One side: with every optional part present, and of two layouts the one that the flag asks for.

        A variant has one side only, and both sides of a choice of layout have the same tiles.
        """
        self.block(stmt.body)

    def store(self, stmt: StoreTile) -> None:
        """A dot's result goes from L0C to global memory, past UB; anything else is narrowed to the tensor's type
        first."""
        value = self.value(stmt.value, stmt.span.line)
        if value.kind == "dot" and value.buffer is None:
            return
        source = self.materialise(value, stmt.span.line)
        if source is None:
            return
        source.end = max(source.end, self.now)
        if self.w == 4 or stmt.access.tensor in self.kernel.wide or value.type.dtype.startswith("@"):
            source.moved = True
        else:
            self.narrow(source, value.type, stmt.span.line).moved = True

    def narrow(self, source: Buffer, t: Type, line: int) -> Buffer:
        """The tile in the operands' type: in the same place when it dies here, made once otherwise."""
        if self._dies(source):
            return source
        made = self.narrowed.get(id(source))
        if made is None or made.end < source.start:
            made = self.narrowed[id(source)] = self._new(t, self.w, line)
        made.end = max(made.end, self.now)
        return made

    def loop(self, stmt: Loop) -> None:
        entry, before = self.now, dict(self.env)
        unrolled = stmt.static and isinstance(stmt.start, Num) and isinstance(stmt.stop, Num)
        trips = int(stmt.stop.value) - int(stmt.start.value) if unrolled else 1  # type: ignore[attr-defined]
        inside = assigned(stmt.body)
        self.carried.append(inside & set(before))
        self.times *= trips
        self.block(stmt.body)
        self.times //= trips
        self.carried.pop()
        for name in _reads(stmt.body) & set(before):  # read from outside: lives to the loop's end
            buffer = before[name].buffer
            if buffer is not None and buffer.start <= entry:
                buffer.end = max(buffer.end, self.now)

    def assign(self, stmt: Assign) -> None:
        old = self.env.get(stmt.target)
        value = self.value(stmt.value, stmt.span.line)
        if old is not None and any(stmt.target in names for names in self.carried):
            if old.kind == "dot" and value.kind == "dot" and old.buffer is None:
                return  # a sum that stays in L0C
            own = self.materialise(old, stmt.span.line)
            made = self.materialise(value, stmt.span.line)
            if own is not None and made is not None:
                made.end = own.end = self.now
                self.narrowed.pop(id(own), None)
                self.ever_carried.append(own)
            return  # a carried tile keeps its place
        if value.buffer is not None:
            value.buffer.name = stmt.target
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
            return _Value(e.type, inner.buffer, inner.kind) if inner.buffer is not None else inner
        if isinstance(e, Load):
            return _Value(e.type, kind="load")
        if isinstance(e, Binary) and e.op == "+" and isinstance(e.b, Num) and e.b.value == 0:
            return self.value(e.a, line)  # a left-operand copy: the compiler drops it
        if isinstance(e, Call) and e.fn == "dot":
            return self.dot(e, line)
        if isinstance(e, Call) and e.fn == "full":
            return _Value(e.type, kind="dot" if self.out.mixed else "vector")
        if isinstance(e, Binary) and e.op == "+" and _is_dot(e.b) and self._sum_in_l0c(e.a):
            return self.value(e.b, line)
        return self.elementwise(e, line)

    def _sum_in_l0c(self, e: Expr) -> bool:
        """Whether a tile that a dot is added to has not left L0C."""
        found = self.env.get(e.id) if isinstance(e, Name) else None
        return found is not None and found.kind == "dot" and found.buffer is None

    def dot(self, e: Call, line: int) -> _Value:
        for operand in e.args:
            self.operand(operand, line)
        self.now += 1
        self.dots.append(self.now)
        rows, cols = (a.size for a in e.type.axes)
        self.out.buffers.append(Buffer("dot", L0C, rows, cols, 4, self.now, self.now, line=line))
        return _Value(e.type, kind="dot")

    def operand(self, e: Expr, line: int) -> None:
        """A dot's operand in L1; a computed one passes UB and global memory first."""
        inner = e.x if isinstance(e, Transpose) else e
        cast = isinstance(inner, Cast) and inner.type.dtype.startswith("@")
        value = self.value(inner.x if cast and isinstance(inner, Cast) else inner, line)
        rows, cols = (a.size for a in e.type.axes)
        wide = 4 if value.type.dtype == "fp32" and not cast else self.w
        tile = self.operands.get((id(value), wide))
        if tile is None:
            tile = Buffer("operand", L1, rows, cols, wide, self.now, self.now, moved=True, line=line)
            self.operands[(id(value), wide)] = tile
            self.kept.append(value)
            self.out.buffers.append(tile)
        tile.end = max(tile.end, self.now)
        if value.kind != "load" or value.buffer is not None:
            source = self.materialise(value, line)
            if source is not None:
                source.end = max(source.end, self.now)
                if cast and self.w < 4:
                    self.narrow(source, value.type, line).moved = True

    def read(self, e: Expr, line: int) -> Buffer | None:
        """The UB buffer of a value that vector code reads."""
        buffer = self.materialise(self.value(e, line), line)
        if buffer is not None:
            buffer.end = max(buffer.end, self.now)
        return buffer

    def materialise(self, value: _Value, line: int) -> Buffer | None:
        if value.kind == "scalar" or not value.type.rank:
            return None
        if value.buffer is None:
            width = self.w if value.kind == "load" and value.type.dtype.startswith("@") else 4
            value.buffer = self._new(value.type, width, line)
            value.buffer.moved = value.kind in ("load", "dot")
            if value.kind == "dot":
                self.cube_reads.append(self.now)
        return value.buffer

    def elementwise(self, e: Expr, line: int) -> _Value:
        if isinstance(e, Cast) and self.w == 4:
            return self.value(e.x, line)
        inputs = [b for b in (self.read(c, line) for c in _operands(e)) if b is not None]
        scratch = _scratch(e)
        widening = isinstance(e, Cast) and e.x.type.dtype.startswith("@")
        narrowing = isinstance(e, Cast) and e.type.dtype.startswith("@")
        self.now += 1
        for b in inputs:
            b.end = max(b.end, self.now)
        shape, width = _shape(e.type), self.w if narrowing else 4
        moves = isinstance(e, Call) and e.fn in {"cumsum", "sum", "max", "where"}  # never in an operand's place
        dying = [b for b in inputs if (b.rows, b.cols) == shape and b.width == 4 and self._dies(b) and not moves]
        if scratch:
            self._new(e.args[0].type if isinstance(e, Call) else e.type, 4, line).scratch = scratch
        if dying and not widening:
            self.rewritten.append((dying[0], self.now))
            return _Value(e.type, dying[0])
        out = self._new(e.type, width, line)
        out.moved = widening  # made from its load wherever it is needed: never kept across a dot
        return _Value(e.type, out)

    def _dies(self, b: Buffer) -> bool:
        """Whether nothing reads the buffer after this statement: no live name has it, no loop carries it."""
        names = {n for n, v in self.env.items() if v.buffer is b}
        replaced = {self.here.target} if isinstance(self.here, Assign) else set()
        return not names & ((self.live[id(self.here)] - replaced) | set().union(*self.carried))

    def _new(self, t: Type, width: int, line: int) -> Buffer:
        rows, cols = _shape(t)
        split = self.out.mixed and t.rank == 2 and rows != 1
        b = Buffer("tile", UB, rows, cols, width, self.now, self.now, split=split, looped=bool(self.carried), line=line)
        b.times = self.times
        self.out.buffers.append(b)
        return b

    def _slots(self) -> None:
        """Computed tiles that live across a dot whose result vector code takes have a copy for each workspace slot.

        Carried and hoisted ones don't: they are there before the pipeline starts.
        """
        if not self.out.mixed:
            return
        kept = {id(b) for b in self.ever_carried}
        for b, point in self.rewritten:  # a result that crosses a dot can't lie where a load or a dot put its operand
            if b.moved and self._crosses(point, b.end):
                self.out.buffers.append(replace(b, start=point, moved=False))
                b.end = point
        for b in self.out.buffers:
            crosses = b.space == UB and self._crosses(b.start, b.end)
            b.slots = crosses and not b.moved and b.looped and id(b) not in kept

    def _crosses(self, start: int, end: int) -> bool:
        """Whether a dot stands between two points, and vector code takes its result or a later one before the
        second."""
        return any(start < d < end and any(d <= c <= end for c in self.cube_reads) for d in self.dots)


def live_after(block: tuple[Stmt, ...], later: frozenset[str], out: dict[int, frozenset[str]]) -> frozenset[str]:
    """Fills `out` with the names that may be read after each statement; returns those read at the block's start."""
    live = set(later)
    for stmt in reversed(block):
        out[id(stmt)] = frozenset(live)
        if isinstance(stmt, Assign):
            live.discard(stmt.target)
        elif isinstance(stmt, Loop):
            live |= live_after(stmt.body, frozenset(live), out)
            live |= live_after(
                stmt.body, frozenset(live), out
            )  # what an iteration reads first, the one before must keep
        elif isinstance(stmt, If):
            live |= frozenset().union(*(live_after(b, frozenset(live), out) for b in bodies(stmt)))
        live |= {n.id for e in stmt_exprs(stmt) for n in walk_expr(e) if isinstance(n, Name)}
    return frozenset(live)


def _reads(block: tuple[Stmt, ...]) -> set[str]:
    return {n.id for s in walk_block(block) for e in stmt_exprs(s) for n in walk_expr(e) if isinstance(n, Name)}


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
    """Extra UB of an operation: `rows32` an inlined column broadcast, `tile` a reduction over rows, `half` a long row
    sum."""
    if isinstance(e, Binary) and any(isinstance(x, Expand) and x.axis == 1 for x in (e.a, e.b)):
        return "rows32"
    if isinstance(e, Call) and e.fn in {"sum", "max"} and e.args[0].type.rank == 2:
        return "tile" if e.option("axis") == 0 else "half"
    return ""


def _is_dot(e: Expr) -> bool:
    return isinstance(e, Call) and e.fn == "dot"
