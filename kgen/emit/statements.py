"""Statements of the device dialect as a plain tree of texts, which the Jinja macros lay out."""

from __future__ import annotations

from dataclasses import dataclass, field

from kgen.emit.expressions import block_arguments, pointer, source
from kgen.errors import KgenBug
from kgen.ir.nodes import Assign, Binary, If, Kernel, Loop, Name, Stmt, StoreTile
from kgen.ir.scope import source_lines


@dataclass(frozen=True)
class Line:
    """One statement: `kind` picks the macro, `comments` stand above it, `body` and `orelse` are nested."""

    kind: str
    fields: dict[str, str]
    comments: tuple[str, ...] = ()
    body: tuple[Line, ...] = ()
    orelse: tuple[Line, ...] = ()


@dataclass
class Writer:
    """Turns a kernel's statements into lines; remembers which program line it last named."""

    program: str  # file name of the tile program
    source: tuple[str, ...]  # its lines
    line: int = 0
    shaped: set[str] = field(default_factory=set)

    def block(self, block: tuple[Stmt, ...]) -> tuple[Line, ...]:
        return tuple(self.statement(s) for s in block)

    def statement(self, stmt: Stmt) -> Line:
        comments = (*self._heading(stmt), *((stmt.note,) if stmt.note else ()))
        if isinstance(stmt, Assign):
            return Line("assign", _assignment(stmt), comments)
        if isinstance(stmt, StoreTile):
            return Line("store", _store(stmt), comments)
        if isinstance(stmt, If):
            body, orelse = self.block(stmt.body), self.block(stmt.orelse)
            return Line("if", {"test": source(stmt.test)}, comments, body, orelse)
        if isinstance(stmt, Loop):
            return Line("loop", _loop(stmt), comments, self.block(stmt.body))
        raise KgenBug(f"{type(stmt).__name__} has no device form")

    def _heading(self, stmt: Stmt) -> tuple[str, ...]:
        """`delta_rule.py:15  k_t = k[t, bk]  -> [BT, BK]`: the program's line where it changes, a new tile's shape."""
        origin, shape = self._origin(stmt), self._shape(stmt)
        parts = [origin, f"-> {shape}" if origin and shape else shape]
        text = "  ".join(p for p in parts if p)
        return (text,) if text else ()

    def _origin(self, stmt: Stmt) -> str:
        number = stmt.span.line
        if not number or number == self.line or number > len(self.source):
            return ""
        self.line = number
        shown = "".join(c if c.isprintable() else " " for c in self.source[number - 1])
        return f"{self.program}:{number}  {shown.strip()}"

    def _shape(self, stmt: Stmt) -> str:
        if not isinstance(stmt, Assign) or not stmt.value.type.rank or stmt.target in self.shaped or stmt.note:
            return ""
        self.shaped.add(stmt.target)
        return f"[{', '.join(str(a.size) for a in stmt.value.type.axes)}]"


def _assignment(stmt: Assign) -> dict[str, str]:
    """`x = x + y` prints as `x += y`."""
    v = stmt.value
    if isinstance(v, Binary) and v.op in {"+", "-", "*"} and isinstance(v.a, Name) and v.a.id == stmt.target:
        return {"target": stmt.target, "op": f"{v.op}=", "value": source(v.b)}
    return {"target": stmt.target, "op": "=", "value": source(v)}


def _store(stmt: StoreTile) -> dict[str, str]:
    if not stmt.access.axes:
        return {"fn": "tl.store", "args": f"{pointer(stmt.access)}, {source(stmt.value)}"}
    fn = {1: "store_row", 2: "store_tile"}[len(stmt.access.axes)]
    return {"fn": fn, "args": ", ".join([pointer(stmt.access), source(stmt.value), *block_arguments(stmt.access)])}


def _loop(stmt: Loop) -> dict[str, str]:
    step = (source(stmt.step),) if stmt.step is not None else ()
    args = ", ".join((source(stmt.start), source(stmt.stop), *step))
    return {"var": stmt.var, "fn": "tl.static_range" if stmt.static else "tl.range", "args": args}


def kernel_lines(kernel: Kernel, program: str, text: str) -> tuple[Line, ...]:
    """The whole body of a lowered kernel."""
    writer = Writer(program, source_lines(text))
    return (*writer.block(kernel.prologue), *writer.block(kernel.body))
