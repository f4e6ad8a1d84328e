"""Reads one operation: a function a kind, found by the operation's name; a name without one gives `Unknown`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kgen.virtual.hivm import nodes as n
from kgen.virtual.hivm import parse_control as control
from kgen.virtual.hivm import parse_memory as memory
from kgen.virtual.hivm import parse_scalars as scalars
from kgen.virtual.hivm.affine import AffineMap
from kgen.virtual.hivm.cursor import Cursor
from kgen.virtual.hivm.errors import UnexpectedError
from kgen.virtual.hivm.parse_context import Context, ReadBlock, define_all

_MOST_RESULTS = 1024


def read_operation(c: Cursor, maps: Mapping[str, AffineMap], block: ReadBlock) -> n.Operation:
    """The next operation with the regions it holds."""
    line, begin = c.line, c.at
    results = _results(c)
    name = c.texts[c.at].strip('"')
    if c.kinds[c.at] not in ("word", "string"):
        raise c.error("an operation")
    generic = c.kinds[c.at] == "string"
    c.at += 1
    context = Context(line, name, results, maps, block)
    reader = None if generic else _READERS.get(name)
    operation = reader(c, context) if reader is not None else _by_kind(c, context, begin, generic)
    place = c.place()
    return operation._replace(place=place) if place is not None else operation


def _results(c: Cursor) -> tuple[tuple[str, int], ...]:
    """`%a, %b:2 =`, or nothing."""
    out: list[tuple[str, int]] = []
    while c.kinds[c.at] == "value":
        name = c.take("value")
        out.append((name, _count(c) if c.accept(":") else 1))
        if not c.accept(","):
            c.expect("=")
            break
    return tuple(out)


def _count(c: Cursor) -> int:
    count = c.integer()
    if not 1 <= count <= _MOST_RESULTS:
        c.at -= 1
        raise c.error(f"from 1 to {_MOST_RESULTS} results")
    return count


def _by_kind(c: Cursor, x: Context, begin: int, generic: bool) -> n.Operation:
    """An operation that belongs to a kind by its name and has that kind's form; any other is unknown."""
    at = c.at
    for prefix, reader in _KINDS.items():
        if x.name.startswith(prefix) and not generic:
            try:
                return reader(c, x)
            except UnexpectedError:
                c.at = at
    return _unknown(c, x, begin)


def _unknown(c: Cursor, x: Context, begin: int) -> n.Unknown:
    """An operation that isn't known: passed over to the end of its line, with the regions that it holds, and to the end
    of the line on which they close."""
    while not c.ended():
        if c.texts[c.at] in ("(", "[", "{", "<"):
            c.skip_balanced()
        else:
            c.at += 1
    text = c.tokens.text[c.tokens.starts[begin] : c.tokens.starts[c.at]].strip()
    return n.Unknown(x.line, None, x.name, define_all(c, x), text[:400])


_KINDS: dict[str, Callable[[Cursor, Context], n.Operation]] = {
    "arith.": scalars.arith,
    "math.": scalars.arith,
    "hivm.hir.get_": scalars.query,
    "hivm.hir.set_": scalars.setting,
}
_READERS: dict[str, Callable[[Cursor, Context], n.Operation]] = {
    "arith.constant": scalars.constant,
    "llvm.mlir.constant": scalars.llvm_constant,
    "affine.apply": scalars.affine,
    "affine.min": scalars.affine,
    "affine.max": scalars.affine,
    "hivm.hir.pointer_cast": memory.pointer_cast,
    "memref.view": memory.view,
    "memref.reinterpret_cast": memory.reinterpret,
    "memref.subview": memory.subview,
    "memref.collapse_shape": memory.collapse,
    "memref.expand_shape": memory.expand,
    "memref.transpose": memory.transpose,
    "memref.cast": memory.alias,
    "memref.memory_space_cast": memory.alias,
    "memref.load": memory.load,
    "memref.store": memory.store,
    "memref.dim": memory.dim,
    "memref.extract_strided_metadata": memory.metadata,
    "scf.for": control.for_,
    "scf.while": control.while_,
    "scf.condition": control.condition,
    "scf.if": control.if_,
    "scf.yield": control.yield_,
    "return": control.return_,
    "func.return": control.return_,
    "func.call": control.call,
    "call": control.call,
    "hivm.hir.set_flag": control.flag,
    "hivm.hir.wait_flag": control.flag,
    "hivm.hir.pipe_barrier": control.barrier,
    "hivm.hir.sync_block_set": control.block_flag,
    "hivm.hir.sync_block_wait": control.block_flag,
}
