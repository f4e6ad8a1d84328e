"""Constants, scalar arithmetic, affine maps and what a core knows of itself."""

from __future__ import annotations

import struct

from kgen.virtual.hivm import nodes as n
from kgen.virtual.hivm.cursor import Cursor
from kgen.virtual.hivm.errors import HivmError
from kgen.virtual.hivm.floats import ROUND, wrap
from kgen.virtual.hivm.parse_context import Context, define
from kgen.virtual.hivm.types import Scalar, Type


def constant(c: Cursor, x: Context) -> n.Operation:
    text = _literal(c)
    if text == "dense":
        raise HivmError("a constant tensor, which kgen does not know", x.line)
    if text in ("true", "false"):
        return n.Constant(x.line, None, define(c, x), int(text == "true"), Scalar("i1"))
    c.expect(":")
    kind = c.type()
    if not isinstance(kind, Scalar):
        raise HivmError("a constant that is no scalar, which kgen does not know", x.line)
    return n.Constant(x.line, None, define(c, x), _number(text, kind, x.line), kind)


def llvm_constant(c: Cursor, x: Context) -> n.Operation:
    """`llvm.mlir.constant(4 : i64) : i64`, as the compiler for the 950 writes the addresses of buffers."""
    c.expect("(")
    text = _literal(c)
    kind = Scalar("i1")
    if text not in ("true", "false"):
        c.expect(":")
        read = c.type()
        if not isinstance(read, Scalar):
            raise HivmError("a constant that is no scalar, which kgen does not know", x.line)
        kind = read
    c.expect(")")
    c.expect(":")
    c.type()
    value = int(text == "true") if kind.element == "i1" else _number(text, kind, x.line)
    return n.Constant(x.line, None, define(c, x), value, kind)


def _literal(c: Cursor) -> str:
    """A number or a word."""
    if c.kinds[c.at] not in ("number", "word"):
        raise c.error("a literal")
    c.at += 1
    return c.texts[c.at - 1]


_PATTERNS = {"f16": ("<H", "<e"), "f32": ("<I", "<f"), "f64": ("<Q", "<d")}


def _number(text: str, kind: Scalar, line: int) -> int | float:
    """A literal as its type holds it; floats that decimal can't show (inf, NaN) stand as their bits."""
    try:
        if not kind.is_float:
            return wrap(int(text, 0), kind.bits)
        if not text.startswith("0x"):
            return ROUND.get(kind.element, float)(float(text))
        bits = int(text, 16)
        if kind.element == "bf16":
            return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])
        whole, real = _PATTERNS[kind.element]
        return float(struct.unpack(real, struct.pack(whole, bits))[0])
    except HivmError as error:  # of a type whose width isn't known
        raise error.placed(line) from None
    except (ValueError, KeyError, struct.error):
        raise HivmError(f"unreadable constant {text!r} of type {kind.element}", line) from None


def arith(c: Cursor, x: Context) -> n.Operation:
    name = x.name.partition(".")[2]
    predicate = None
    if name in ("cmpi", "cmpf"):
        predicate = c.take("word")
        c.expect(",")
    operands = c.values()
    if c.accept("fastmath"):
        c.skip_balanced()
    if c.accept("overflow"):
        c.skip_balanced()
    c.attributes()
    c.expect(":")
    kind: Type = c.type()
    to = kind
    if name == "select" and c.accept(","):
        kind = to = c.type()
    if c.accept("to"):
        to = c.type()
    if predicate is not None:
        to = Scalar("i1")
    _end(c)
    return n.Arith(x.line, None, define(c, x), name, operands, predicate, kind, to)


def affine(c: Cursor, x: Context) -> n.Operation:
    alias = c.take("alias")
    if alias not in x.maps:
        raise HivmError(f"the map {alias} is not defined", x.line)
    map_ = x.maps[alias]
    c.expect("(")
    operands = c.values(")")
    if c.accept("["):
        operands += c.values("]")
    c.attributes()
    if len(operands) != len(map_.dims) + len(map_.symbols):
        raise HivmError(f"{len(operands)} operands for the map {alias}, which takes another number", x.line)
    return n.Affine(x.line, None, define(c, x), x.name.partition(".")[2], map_, operands)


def query(c: Cursor, x: Context) -> n.Operation:
    c.expect("->")
    c.type()
    _end(c)
    return n.Query(x.line, None, define(c, x), x.name.removeprefix("hivm.hir."))


# What may be set without a word on it: masks that templates set again, and where cross-core flags lie.
_SETTINGS = frozenset({"hivm.hir.set_mask_norm", "hivm.hir.set_ffts_base_addr"})


def setting(c: Cursor, x: Context) -> n.Operation:
    if x.name not in _SETTINGS:
        raise c.error("a setting that kgen knows")
    if not c.ended():
        c.values()
        if c.accept(":"):
            c.types()
    _end(c)
    return n.Setting(x.line, None, x.name.removeprefix("hivm.hir."))


def _end(c: Cursor) -> None:
    """More of an operation than its kind has makes it another operation."""
    if not c.ended():
        raise c.error("the end of the operation")
