"""The final HIVM IR as typed, immutable nodes.

A value is its SSA name (`"%12"`; the n-th result of an operation with several is `"%12#n"`). Names are unique in a
function: the parser renames those that a printer reuses in sibling regions. An `Operand` is a value or an integer that
stands in the text. Every operation begins with `line`, counted from 1 in the text; `place` is its source location.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kgen.virtual.hivm.affine import AffineMap
from kgen.virtual.hivm.types import MemRef, Type

Value = str
Operand = str | int
PIPES = ("S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX")


class Place(NamedTuple):
    """A line of the kernel's own source, with the line of the helper it called, if any."""

    file: str
    line: int
    inner: int | None = None


class Constant(NamedTuple):
    """`arith.constant`; floats are Python floats of the value that the type can hold."""

    line: int
    place: Place | None
    result: Value
    value: int | float
    type: Type


class Arith(NamedTuple):
    """`arith.*` and `math.*` on scalars, and `arith.select` on memrefs. `type` is the operands', `to` the result's."""

    line: int
    place: Place | None
    result: Value
    name: str  # without the dialect: addi, cmpi, select, index_cast, exp, ...
    operands: tuple[Value, ...]
    predicate: str | None  # of cmpi and cmpf
    type: Type
    to: Type


class Affine(NamedTuple):
    """`affine.apply`, `affine.min` or `affine.max`."""

    line: int
    place: Place | None
    result: Value
    name: str
    map: AffineMap
    operands: tuple[Value, ...]  # dims, then symbols


class PointerCast(NamedTuple):
    """An on-chip buffer at constant byte addresses; several addresses are its copies."""

    line: int
    place: Place | None
    result: Value
    addresses: tuple[Value, ...]
    sizes: tuple[Value, ...]  # of the dynamic dimensions
    type: MemRef


class View(NamedTuple):
    """`memref.view`: a typed, dense window of a byte buffer from a byte offset on."""

    line: int
    place: Place | None
    result: Value
    source: Value
    shift: Value
    sizes: tuple[Value, ...]
    type: MemRef


class Reinterpret(NamedTuple):
    """`memref.reinterpret_cast`: offset and strides in elements, from the start of the source's allocation."""

    line: int
    place: Place | None
    result: Value
    source: Value
    offset: Operand
    sizes: tuple[Operand, ...]
    strides: tuple[Operand, ...]
    type: MemRef


class Subview(NamedTuple):
    """`memref.subview`; `kept` are the source's dimensions that the result has (it may drop ones of size 1)."""

    line: int
    place: Place | None
    result: Value
    source: Value
    offsets: tuple[Operand, ...]
    sizes: tuple[Operand, ...]
    strides: tuple[Operand, ...]
    kept: tuple[int, ...]
    type: MemRef


class Collapse(NamedTuple):
    """`memref.collapse_shape`."""

    line: int
    place: Place | None
    result: Value
    source: Value
    groups: tuple[tuple[int, ...], ...]
    type: MemRef


class Expand(NamedTuple):
    """`memref.expand_shape`."""

    line: int
    place: Place | None
    result: Value
    source: Value
    groups: tuple[tuple[int, ...], ...]
    sizes: tuple[Operand, ...]
    type: MemRef


class Transpose(NamedTuple):
    """`memref.transpose`: the result's dimension i is the source's `order[i]`."""

    line: int
    place: Place | None
    result: Value
    source: Value
    order: tuple[int, ...]
    type: MemRef


class Alias(NamedTuple):
    """`memref.cast`, `memref.memory_space_cast`: the same memory."""

    line: int
    place: Place | None
    result: Value
    source: Value
    type: MemRef


class Load(NamedTuple):
    """`memref.load`: one element to the scalar unit."""

    line: int
    place: Place | None
    result: Value
    source: Value
    indices: tuple[Value, ...]
    type: MemRef


class Store(NamedTuple):
    """`memref.store`: one element from the scalar unit."""

    line: int
    place: Place | None
    value: Value
    target: Value
    indices: tuple[Value, ...]
    type: MemRef


class Dim(NamedTuple):
    """`memref.dim`."""

    line: int
    place: Place | None
    result: Value
    source: Value
    axis: Value


class Metadata(NamedTuple):
    """`memref.extract_strided_metadata`: the allocation that a view lies in (`base`, no dimensions), and the view's
    offset in it, sizes and strides in elements."""

    line: int
    place: Place | None
    base: Value
    offset: Value
    sizes: tuple[Value, ...]
    strides: tuple[Value, ...]
    source: Value
    type: MemRef  # the source's


class For(NamedTuple):
    """`scf.for`: upper bound exclusive. `carried` pairs each region argument with its initial value."""

    line: int
    place: Place | None
    results: tuple[Value, ...]
    variable: Value
    lower: Value
    upper: Value
    step: Value
    carried: tuple[tuple[Value, Value], ...]
    body: Block
    attributes: Mapping[str, str]


class While(NamedTuple):
    """`scf.while`: `before` ends in a `Condition`; its values become the arguments of `after`, whose yield feeds it."""

    line: int
    place: Place | None
    results: tuple[Value, ...]
    carried: tuple[tuple[Value, Value], ...]
    before: Block
    arguments: tuple[Value, ...]
    after: Block


class Condition(NamedTuple):
    """`scf.condition`."""

    line: int
    place: Place | None
    condition: Value
    values: tuple[Value, ...]


class If(NamedTuple):
    """`scf.if`; `orelse` is empty where there is none."""

    line: int
    place: Place | None
    results: tuple[Value, ...]
    condition: Value
    then: Block
    orelse: Block


class Yield(NamedTuple):
    """`scf.yield`."""

    line: int
    place: Place | None
    values: tuple[Value, ...]


class Call(NamedTuple):
    """A call of a template of the device library, or of a function in the module."""

    line: int
    place: Place | None
    results: tuple[Value, ...]
    callee: str  # without `_mlir_ciface_`
    operands: tuple[Value, ...]
    types: tuple[Type, ...]


class SetFlag(NamedTuple):
    """`hivm.hir.set_flag`: after all that `source` has been given so far."""

    line: int
    place: Place | None
    source: str
    target: str
    event: Operand


class WaitFlag(NamedTuple):
    """`hivm.hir.wait_flag`: `target` goes no further before the flag is set; it clears it."""

    line: int
    place: Place | None
    source: str
    target: str
    event: Operand


class Barrier(NamedTuple):
    """`hivm.hir.pipe_barrier`; the pipe `ALL` is every one of the core."""

    line: int
    place: Place | None
    pipe: str


class BlockSet(NamedTuple):
    """`hivm.hir.sync_block_set`: a flag from this core to the other kind of core of its block, set by `pipe`."""

    line: int
    place: Place | None
    core: str  # CUBE or VECTOR: who sets
    pipe: str
    flag: Operand


class BlockWait(NamedTuple):
    """`hivm.hir.sync_block_wait`."""

    line: int
    place: Place | None
    core: str  # CUBE or VECTOR: who waits
    pipe: str
    flag: Operand


class Query(NamedTuple):
    """What a core knows of itself: `get_block_idx`, `get_sub_block_idx`, `get_block_num`, `get_sys_cnt`, ..."""

    line: int
    place: Place | None
    result: Value
    name: str


class Setting(NamedTuple):
    """A register setting that moves nothing: `set_mask_norm`, `set_ffts_base_addr`, ..."""

    line: int
    place: Place | None
    name: str


class Return(NamedTuple):
    """`return`."""

    line: int
    place: Place | None
    values: tuple[Value, ...]


class Unknown(NamedTuple):
    """An operation that this reader does not know; whoever meets one reports it by name."""

    line: int
    place: Place | None
    name: str
    results: tuple[Value, ...]
    text: str


Operation = (
    Constant | Arith | Affine | PointerCast | View | Reinterpret | Subview | Collapse | Expand | Transpose | Alias
    | Load | Store | Dim | Metadata | For | While | Condition | If | Yield | Call | SetFlag | WaitFlag | Barrier
    | BlockSet | BlockWait | Query | Setting | Return | Unknown
)  # fmt: skip
Block = tuple[Operation, ...]


class Argument(NamedTuple):
    """A parameter of a function; `role` is the compiler's (`ffts_base_address`, `workspace`, ...), or empty."""

    name: Value
    type: Type
    role: str


class Function(NamedTuple):
    """One function with a body."""

    name: str
    line: int
    arguments: tuple[Argument, ...]
    body: Block
    core: str | None  # "aic" (cube), "aiv" (vector), None for the host
    mixed: bool  # one half of a kernel that has a cube and a vector function
    vector_function: bool  # a helper that the 950's vector unit runs as one call


class Module(NamedTuple):
    """The final IR of one kernel."""

    functions: tuple[Function, ...]
    declared: frozenset[str]  # the templates it may call

    def device(self) -> tuple[Function, ...]:
        """The functions that cores start with."""
        return tuple(f for f in self.functions if f.core is not None and not f.vector_function)

    def find(self, name: str) -> Function | None:
        """A function by name."""
        return next((f for f in self.functions if f.name == name), None)


def walk(block: Block) -> Iterator[Operation]:
    """Every operation, those in regions after the one that holds them."""
    for operation in block:
        yield operation
        if isinstance(operation, For):
            yield from walk(operation.body)
        elif isinstance(operation, If):
            yield from walk(operation.then)
            yield from walk(operation.orelse)
        elif isinstance(operation, While):
            yield from walk(operation.before)
            yield from walk(operation.after)
