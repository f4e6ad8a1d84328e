"""Types of the tile language, for editors and mypy. Programs are parsed, never executed: nothing here runs.

A program is one function over tensors. Tiles have full size; rows past a chunk's end and lanes past a dim are *void*:
loads give void, elementwise arithmetic spreads it, contractions skip it, stores drop it. Arithmetic is fp32.
"""

from collections.abc import Iterator
from typing import Any, Protocol, overload

# ---------------------------------------------------------------- values

class Dim(int):
    """A named dim of the spec, such as `K`. As a value it is the dim's size."""

class Index:
    """An index variable: a chunk `t`, a sequence `n`, a tile `bk`, a part `s` of a chunk.

    It indexes tensors (`q[t, bk]`) and slabs of tiles (`S[bk]`), and shapes new tiles (`zeros(t, bk)`). It isn't a
    value: its lane numbers are `index(t)`.
    """

    def __add__(self, rows: int) -> Index:
        """The rows read, moved later; the tile stays where it is. Rows outside the sequence read zero, or history."""
    def __sub__(self, rows: int) -> Index:
        """The rows read, moved earlier."""

class Row:
    """One row of a sequence: `last(t)`, `start(n)`, `end(n)`."""

    def __add__(self, rows: int) -> Row: ...
    def __sub__(self, rows: int) -> Row: ...

class Tile:
    """A local value: a tile of two axes, a vector, or a scalar.

    Axes carry names, so `dot(q_t, k_t)` without `.T` is an error before any size is known. A vector meets a tile only
    through `x[:, None]` (a column) or `x[None, :]` (a row).
    """

    @property
    def T(self) -> Tile:
        """The transpose of a tile of two axes."""
    def __getitem__(self, index: Any) -> Tile:
        """A slab (`S[bk]`), a slice or row (`m[i, 0:i]`), or a vector as a tile (`x[:, None]`)."""
    def __setitem__(self, index: Any, value: Tile | float) -> None:
        """Assign a slab or slice; the rest of the tile stays."""
    def __add__(self, other: Value) -> Tile: ...
    def __radd__(self, other: Value) -> Tile: ...
    def __sub__(self, other: Value) -> Tile: ...
    def __rsub__(self, other: Value) -> Tile: ...
    def __mul__(self, other: Value) -> Tile: ...
    def __rmul__(self, other: Value) -> Tile: ...
    def __truediv__(self, other: Value) -> Tile: ...
    def __rtruediv__(self, other: Value) -> Tile: ...
    def __neg__(self) -> Tile: ...
    def __eq__(self, other: Value) -> Tile:  # type: ignore[override]
        """Where values agree. There is no `<`: only int32 equality vectorises."""
    def __ne__(self, other: Value) -> Tile:  # type: ignore[override]
        """Where values differ."""

class Tensor(Protocol):
    """A parameter of a program, indexed over its dims in the spec without the head: the enclosing loop supplies that.

    Trailing whole dims may be omitted. An optional tensor is used only under `if x:`. Each element of an output is
    written exactly once across tasks, and outputs aren't read.
    """

    def __getitem__(self, index: Any) -> Tile: ...
    def __setitem__(self, index: Any, value: Tile | float) -> None: ...
    def __bool__(self) -> bool: ...

Value = Tile | Row | float | int

class Space:
    """What a loop ranges over."""

    def __iter__(self) -> Iterator[Any]: ...

# ---------------------------------------------------------------- dims, scalars, flags

T: Dim
"""Rows of all sequences."""
N: Dim
"""Sequences."""
NT: Dim
"""Chunks of all sequences."""
BT: Dim
"""Rows of a chunk, and the columns that a row has in its own chunk."""
H: Dim
"""Query and key heads."""
HV: Dim
"""Value heads; value head i belongs to key head `i // (HV // H)`."""
K: Dim
"""Width of a key head."""
V: Dim
"""Width of a value head."""
D: Dim
"""Channels."""
W: Dim
"""Taps of a convolution."""

inf: float
scale: float
"""A scalar of the spec."""
reverse: bool
"""A flag of the spec."""

def __getattr__(name: str) -> Any:
    """Other dims, scalars and flags: each spec has its own."""

# ---------------------------------------------------------------- loops

def tasks(*spaces: Space) -> Iterator[Any]:
    """The outermost loop, once: every combination of its spaces is a task. Tasks have no order and share nothing.

    One loop variable a space, except for `heads`.
    """

def scan(space: Space, reverse: bool = False) -> Iterator[Any]:
    """A sequential loop; tiles assigned before it and reassigned inside are carried, also over no steps at all."""

def tiles(dim: Dim) -> Space:
    """A static dim in tiles, ascending; the plan chooses their size. Tiles may be carried, as in an online softmax."""

def chunks(over: Dim | Index) -> Space:
    """Chunks of all sequences, `chunks(T)`, or of one, `chunks(n)`. None crosses sequences; an empty one has none."""

def seqs(dim: Dim) -> Space:
    """Sequences, empty ones too."""

def tokens(n: Index) -> Space:
    """Rows of a sequence, one at a time."""

def parts(dim: Dim, rows: int) -> Space:
    """Chunks in parts of `rows`: rows on T and the same columns on BT, so that `A[s, s]` is a diagonal block."""

def heads(dim: Dim) -> Space:
    """Heads, as a space of tasks; the head is never written in an index."""

def group(dim: Dim) -> Space:
    """Inside `heads(H)`: each value head of this key head."""

# ---------------------------------------------------------------- new tiles

def zeros(*axes: Index | Dim) -> Tile:
    """Zeros in fp32, shaped by index variables and dims: `zeros(t, bv)`, `zeros(K, bv)`, `zeros()`."""

def full(value: float, *axes: Index | Dim) -> Tile:
    """A constant in fp32: `full(-inf, t)`."""

def eye(axis: Index | Dim) -> Tile:
    """The identity of an axis."""

def index(axis: Index | Dim) -> Tile:
    """Lane numbers, int32. Those of rows count from the start of their sequence."""

# ---------------------------------------------------------------- reductions and contractions

def dot(a: Tile, b: Tile, exact: bool = False) -> Tile:
    """The matrix product, summed in fp32 over what exists.

    A loaded 16-bit operand goes in as it is, an fp32 one is rounded to its partner's type. `exact`: IEEE fp32.
    """

@overload
def sum(x: Tile) -> Tile: ...
@overload
def sum(x: Tile, axis: int) -> Tile:
    """The sum of what exists, over an axis or over all."""

def max(x: Tile, axis: int) -> Tile:
    """The largest of what exists along an axis."""

def cumsum(x: Tile, axis: int, reverse: bool = False) -> Tile:
    """Running sums of a vector, from its first row or to its last."""

# ---------------------------------------------------------------- elementwise

def exp(x: Value) -> Tile:
    """e to the x."""

def exp2(x: Value) -> Tile:
    """2 to the x: gates between stages are base 2."""

def log(x: Value) -> Tile:
    """The natural logarithm."""

def tanh(x: Value) -> Tile:
    """The hyperbolic tangent."""

def sigmoid(x: Value) -> Tile:
    """1 / (1 + e^-x)."""

def rsqrt(x: Value) -> Tile:
    """1 / sqrt(x)."""

def abs(x: Value) -> Tile:
    """The absolute value."""

def maximum(a: Value, b: Value) -> Tile:
    """The larger of each pair."""

def minimum(a: Value, b: Value) -> Tile:
    """The smaller of each pair."""

def where(condition: Tile, a: Value, b: Value) -> Tile:
    """a where the condition holds, b elsewhere; whatever the other holds there."""

def tril(x: Tile, k: int = 0) -> Tile:
    """Zero above diagonal k, whatever x holds there (inf and NaN included)."""

# ---------------------------------------------------------------- rows and sequences

def last(t: Index) -> Row:
    """The last row of a chunk."""

def start(n: Index) -> Row:
    """The first row of a sequence."""

def end(n: Index) -> Row:
    """One past the last row of a sequence."""

def seq(t: Index) -> Index:
    """The sequence of a chunk."""

def step(t: Index) -> int:
    """The ordinal of a chunk or row in its sequence."""

def local(t: Index) -> Index:
    """The chunk's rows as positions in a table, counted from the start of the sequence."""

def history(x: Tensor, s: Tensor) -> Tensor:
    """A view of x whose rows before each sequence are `s[n]`; zeros where s is absent."""

def ending(s: Tensor) -> Tensor:
    """A view that holds `s[n]` in the last rows of history and sequence, zeros elsewhere."""
