"""Buffers, views of memory, and single elements."""

from __future__ import annotations

from kgen.virtual.hivm import nodes as n
from kgen.virtual.hivm.cursor import Cursor
from kgen.virtual.hivm.errors import HivmError
from kgen.virtual.hivm.parse_context import Context, define, define_all
from kgen.virtual.hivm.types import MemRef


def pointer_cast(c: Cursor, x: Context) -> n.Operation:
    c.expect("(")
    addresses = c.values()
    if c.accept(":"):
        while not c.peek(")"):
            c.type()
            c.accept(",")
    c.expect(")")
    sizes: tuple[n.Value, ...] = ()
    if c.accept("["):
        sizes = c.values("]")
    c.attributes()
    c.expect(":")
    kind = c.memref()
    if kind.space is None:
        raise HivmError("a buffer without a memory space", x.line)
    if not addresses:
        raise HivmError("a buffer without an address", x.line)
    if len(sizes) != kind.shape.count(None):
        raise HivmError(f"a buffer with {len(sizes)} sizes for {kind.shape.count(None)} open ones", x.line)
    return n.PointerCast(x.line, None, define(c, x), addresses, sizes, kind)


def view(c: Cursor, x: Context) -> n.Operation:
    source = c.value()
    c.expect("[")
    shift = c.value()
    c.expect("]")
    c.expect("[")
    sizes = c.values("]")
    return n.View(x.line, None, define(c, x), source, shift, sizes, _target(c, "to"))


def reinterpret(c: Cursor, x: Context) -> n.Operation:
    source = c.value()
    pieces: dict[str, tuple[n.Operand, ...]] = {}
    for word in ("offset", "sizes", "strides"):
        if c.accept("to"):
            pass
        if c.take("word") != word:
            raise c.error(word)
        c.expect(":")
        pieces[word] = c.operands()
        c.accept(",")
    if len(pieces["offset"]) != 1:
        raise HivmError("a reinterpret_cast with more than one offset", x.line)
    kind = _target(c, "to")
    if not len(pieces["sizes"]) == len(pieces["strides"]) == len(kind.shape):
        raise HivmError(f"a reinterpret_cast whose sizes and strides aren't {len(kind.shape)} each", x.line)
    return n.Reinterpret(
        x.line, None, define(c, x), source, pieces["offset"][0], pieces["sizes"], pieces["strides"], kind
    )


def subview(c: Cursor, x: Context) -> n.Operation:
    source = c.value()
    offsets, sizes, strides = c.operands(), c.operands(), c.operands()
    kind = _target(c, "to")
    if not len(offsets) == len(sizes) == len(strides):
        raise HivmError("a subview with other numbers of offsets, sizes and strides", x.line)
    kept = _kept(sizes, kind, x.line)
    return n.Subview(x.line, None, define(c, x), source, offsets, sizes, strides, kept, kind)


def _kept(sizes: tuple[n.Operand, ...], kind: MemRef, line: int) -> tuple[int, ...]:
    """Which dimensions the result has: those of static size 1 may be dropped, the others stand in order."""
    kept: list[int] = []
    missing = len(sizes) - len(kind.shape)
    for axis, size in enumerate(sizes):
        place = len(kept)
        wanted = kind.shape[place] if place < len(kind.shape) else -1
        if missing and size == 1 and wanted != 1:
            missing -= 1
        else:
            kept.append(axis)
    # Unit dimensions that look alike may be kept or dropped from either end; no address depends on which.
    while missing and kept:
        last = next((a for a in reversed(kept) if sizes[a] == 1), None)
        if last is None:
            break
        kept.remove(last)
        missing -= 1
    if missing or len(kept) != len(kind.shape):
        raise HivmError("a subview whose rank does not follow from its sizes", line)
    return tuple(kept)


def collapse(c: Cursor, x: Context) -> n.Operation:
    source = c.value()
    groups = c.groups()
    kind = _target(c, "into")
    _check_groups(groups, sum(map(len, groups)), x.line)
    if len(groups) != len(kind.shape):
        raise HivmError(f"a collapse_shape of {len(groups)} groups to {len(kind.shape)} dimensions", x.line)
    return n.Collapse(x.line, None, define(c, x), source, groups, kind)


def expand(c: Cursor, x: Context) -> n.Operation:
    source = c.value()
    groups = c.groups()
    sizes: tuple[n.Operand, ...] | None = None
    if c.accept("output_shape"):
        sizes = c.operands()
    kind = _target(c, "into")
    _check_groups(groups, len(kind.shape), x.line)
    if sizes is not None and len(sizes) != len(kind.shape):
        raise HivmError(f"an expand_shape to {len(kind.shape)} dimensions with {len(sizes)} sizes", x.line)
    if sizes is None:
        if None in kind.shape:
            raise HivmError("an expand_shape without sizes", x.line)
        sizes = tuple(size for size in kind.shape if size is not None)
    return n.Expand(x.line, None, define(c, x), source, groups, sizes, kind)


def _check_groups(groups: tuple[tuple[int, ...], ...], long: int, line: int) -> None:
    """Groups hold the dimensions of the long side, in order and each once; there are none of memory that has none."""
    every = tuple(axis for group in groups for axis in group)
    if groups and (not all(groups) or every != tuple(range(long))):
        raise HivmError(f"groups that don't hold {long} dimensions in order: {groups!r}", line)


def transpose(c: Cursor, x: Context) -> n.Operation:
    """`memref.transpose %x (d0, d1) -> (d1, d0) : … to …`."""
    source = c.value()
    names: list[list[str]] = []
    for arrow in (False, True):
        if arrow:
            c.expect("->")
        c.expect("(")
        listed: list[str] = []
        while not c.accept(")"):
            listed.append(c.take("word"))
            c.accept(",")
        names.append(listed)
    missing = [name for name in names[1] if name not in names[0]]
    if missing or len(names[0]) != len(names[1]):
        raise HivmError(f"a transpose to {', '.join(names[1])} from {', '.join(names[0])}", x.line)
    order = tuple(names[0].index(name) for name in names[1])
    kind = _target(c, "to")
    if len(set(order)) != len(order) or len(kind.shape) != len(order):
        raise HivmError(f"a transpose of {len(order)} dimensions to {len(kind.shape)}, each wanted once", x.line)
    return n.Transpose(x.line, None, define(c, x), source, order, kind)


def alias(c: Cursor, x: Context) -> n.Operation:
    source = c.value()
    return n.Alias(x.line, None, define(c, x), source, _target(c, "to"))


def _target(c: Cursor, word: str) -> MemRef:
    """`{…} : source to target`: the target."""
    c.attributes()
    c.expect(":")
    c.type()
    c.expect(word)
    return c.memref()


def load(c: Cursor, x: Context) -> n.Operation:
    source = c.value()
    c.expect("[")
    indices = c.values("]")
    c.attributes()
    c.expect(":")
    return n.Load(x.line, None, define(c, x), source, indices, c.memref())


def store(c: Cursor, x: Context) -> n.Operation:
    value = c.value()
    c.expect(",")
    target = c.value()
    c.expect("[")
    indices = c.values("]")
    c.attributes()
    c.expect(":")
    return n.Store(x.line, None, value, target, indices, c.memref())


def dim(c: Cursor, x: Context) -> n.Operation:
    source = c.value()
    c.expect(",")
    axis = c.value()
    c.expect(":")
    c.type()
    return n.Dim(x.line, None, define(c, x), source, axis)


def metadata(c: Cursor, x: Context) -> n.Operation:
    source = c.value()
    c.expect(":")
    kind = c.memref()
    c.expect("->")
    while c.kinds[c.at] in ("memref", "word") and not c.peek("loc"):
        c.type()
        if not c.accept(","):
            break
    base, offset, *rest = define_all(c, x)
    rank = len(kind.shape)
    if len(rest) != 2 * rank:
        raise HivmError(f"extract_strided_metadata has {len(rest) + 2} results, expected {2 * rank + 2}", x.line)
    return n.Metadata(x.line, None, base, offset, tuple(rest[:rank]), tuple(rest[rank:]), source, kind)
