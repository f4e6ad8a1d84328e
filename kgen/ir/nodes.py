"""Nodes of the IR. All are frozen; a pass returns new ones, or the same object when nothing changes.

Two dialects share these nodes. *Language* nodes are what a tile program says (`Read`, `Store`, `Part`, `For`);
*device* nodes are what a kernel does (`Load`, `StoreTile`, `Loop`, `Cast`). `ir/verify.py` knows which may appear
after which pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields


@dataclass(frozen=True, slots=True)
class Span:
    """Where a node came from in its program file; lines from 1, columns from 0."""

    line: int = 0
    column: int = 0
    end_column: int = 0


NOWHERE = Span()


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a tile: `name` is the index variable or whole dim it ranges over, `size` its rows or lanes.

    `size` is a tile symbol (`BT`, `BK`) or a constant; an axis of size 1 made by `[:, None]` has no name.
    """

    name: str
    size: str | int


ONE = Axis("", 1)


@dataclass(frozen=True, slots=True)
class Type:
    """Axes and element type: `fp32`, `int32`, `int64`, `bool`, or `@x`, the storage dtype of tensor x."""

    axes: tuple[Axis, ...] = ()
    dtype: str = "fp32"

    @property
    def rank(self) -> int:
        return len(self.axes)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(a.name or '1' for a in self.axes)}]"


F32 = Type()
I32 = Type((), "int32")
I64 = Type((), "int64")


# ---------------------------------------------------------------- indices of tensors and of tiles


@dataclass(frozen=True, slots=True)
class At:
    """The rows or lanes of an index variable, moved by `shift` rows."""

    var: str
    shift: int = 0


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole dim."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: `last(t)`, `start(n)`, `end(n)`, plus `shift`."""

    fn: str
    var: str
    shift: int = 0


@dataclass(frozen=True, slots=True)
class Expr:
    type: Type = field(default=F32, kw_only=True)
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Fixed:
    """One position: a constant, or the variable of an unrolled loop."""

    value: Expr


@dataclass(frozen=True, slots=True)
class Range:
    """A range of a dim or of a tile's axis; its ends are constants or come from unrolled loops."""

    start: Expr
    stop: Expr


Index = At | Whole | Range | Row | Fixed


# ---------------------------------------------------------------- expressions


@dataclass(frozen=True, slots=True)
class Num(Expr):
    """A constant; `inf` is one too."""

    value: float | int | bool


@dataclass(frozen=True, slots=True)
class Name(Expr):
    """A local tile or scalar, a scalar argument, a dim or a constexpr."""

    id: str


@dataclass(frozen=True, slots=True)
class Read(Expr):
    """Rows or lanes of a tensor; the head is supplied by the enclosing loop."""

    tensor: str
    index: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Part(Expr):
    """A slab or slice of a local tile."""

    base: str
    index: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Unary(Expr):
    op: str
    x: Expr


@dataclass(frozen=True, slots=True)
class Binary(Expr):
    """`+ - * /`, integer `// %`, comparisons and `and`; broadcasting is explicit except for scalars."""

    op: str
    a: Expr
    b: Expr


@dataclass(frozen=True, slots=True)
class IfExp(Expr):
    """`a if flag else b`."""

    test: Expr
    a: Expr
    b: Expr


@dataclass(frozen=True, slots=True)
class Transpose(Expr):
    x: Expr


@dataclass(frozen=True, slots=True)
class Expand(Expr):
    """`x[:, None]` (axis 1) or `x[None, :]` (axis 0)."""

    x: Expr
    axis: int


@dataclass(frozen=True, slots=True)
class Call(Expr):
    """A built-in of the language, or after lowering a device function."""

    fn: str
    args: tuple[Expr, ...]
    options: tuple[tuple[str, object], ...] = ()

    def option(self, key: str, default: object = None) -> object:
        return dict(self.options).get(key, default)


@dataclass(frozen=True, slots=True)
class IndexRef(Expr):
    """An index variable as a value's shape (`zeros(t, bv)`) or a lane number's source (`index(t)`)."""

    axis: Axis


@dataclass(frozen=True, slots=True)
class Cast(Expr):
    """`x` in another element type; the type says which."""

    x: Expr


@dataclass(frozen=True, slots=True)
class AccessAxis:
    """One axis of a block in memory: `extent` elements exist, `stride` apart; the block takes `size` from `offset`.

    `check`: whether the block can end past the extent; None: not yet decided.
    """

    extent: Expr
    stride: Expr
    offset: Expr
    size: str | int
    check: Expr | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """A block of a tensor: int64 `base` from its pointer, then axes outermost first."""

    tensor: str
    base: Expr
    axes: tuple[AccessAxis, ...]


@dataclass(frozen=True, slots=True)
class Load(Expr):
    """A block loaded, zero past its extents; no axes: one element."""

    access: Access


# ---------------------------------------------------------------- statements


@dataclass(frozen=True, slots=True)
class Stmt:
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)
    note: str = field(default="", compare=False, kw_only=True)  # why a pass put it there: printed as a comment


@dataclass(frozen=True, slots=True)
class Space:
    """What a loop ranges over: `chunks(T)`, `seqs(N)`, `tiles(K)`, `parts(T, 16)`, `heads(HV)`, `tokens(n)`, `range(a,
    b)`."""

    kind: str
    over: str
    size: int = 0
    start: int = 0


@dataclass(frozen=True, slots=True)
class For(Stmt):
    """A loop of the language. `kind`: tasks, scan, tiles, group or range."""

    kind: str
    vars: tuple[str, ...]
    spaces: tuple[Space, ...]
    body: tuple[Stmt, ...]
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class If(Stmt):
    test: Expr
    body: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()


@dataclass(frozen=True, slots=True)
class Assign(Stmt):
    target: str
    value: Expr


@dataclass(frozen=True, slots=True)
class PartAssign(Stmt):
    """Assignment to a slab or slice of a local tile."""

    target: str
    index: tuple[Index, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class Store(Stmt):
    tensor: str
    index: tuple[Index, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class Loop(Stmt):
    """A counted loop of the device dialect; `static` loops are unrolled by the compiler's front end."""

    var: str
    start: Expr
    stop: Expr
    step: Expr | None
    body: tuple[Stmt, ...]
    static: bool = False


@dataclass(frozen=True, slots=True)
class StoreTile(Stmt):
    access: Access
    value: Expr


# ---------------------------------------------------------------- the kernel


@dataclass(frozen=True, slots=True)
class IndexVar:
    """An index variable in scope. `kind`: chunk, seq, tile, part or int."""

    name: str
    kind: str
    over: str
    size: int = 0


@dataclass(frozen=True, slots=True)
class Kernel:
    """One tile program on its way to a kernel.

    `params`: tensors in the program's order. `prologue`: statements before the task loop. `runtime` and `constexprs`
    are filled by the last pass. `whole`: static dims that one tile must cover. `spaces`: what the tasks range over.
    `wide`: parameters that are always fp32.
    """

    name: str
    program: str
    path: str
    params: tuple[str, ...]
    body: tuple[Stmt, ...]
    prologue: tuple[Stmt, ...] = ()
    indices: tuple[IndexVar, ...] = ()
    whole: tuple[str, ...] = ()
    runtime: tuple[str, ...] = ()
    constexprs: tuple[str, ...] = ()
    scalars: tuple[str, ...] = ()
    spaces: tuple[Space, ...] = ()
    wide: tuple[str, ...] = ()

    def index_var(self, name: str) -> IndexVar:
        return next(v for v in self.indices if v.name == name)


def children(node: Expr) -> Iterator[Expr]:
    """The direct operands of an expression."""
    if isinstance(node, Load):
        yield node.access.base
        for axis in node.access.axes:
            yield from (axis.extent, axis.stride, axis.offset)
            if axis.check is not None:
                yield axis.check
        return
    for f in fields(node):
        value = getattr(node, f.name)
        if isinstance(value, Expr):
            yield value
        elif f.name == "args":
            yield from value
