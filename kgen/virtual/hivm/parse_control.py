"""Loops, branches, calls, and synchronisation between pipes and cores."""

from __future__ import annotations

from kgen.virtual.hivm import nodes as n
from kgen.virtual.hivm.cursor import Cursor
from kgen.virtual.hivm.errors import HivmError
from kgen.virtual.hivm.parse_context import Context, define_all


def _carried(c: Cursor, word: str) -> list[tuple[str, n.Value]]:
    """`iter_args(%a = %b, …)`: names not yet defined, with their initial values."""
    out: list[tuple[str, n.Value]] = []
    if c.accept(word) if word else c.peek("("):
        c.expect("(")
        while not c.accept(")"):
            name = c.take("value")
            c.expect("=")
            out.append((name, c.value()))
            c.accept(",")
    return out


def for_(c: Cursor, x: Context) -> n.Operation:
    variable = c.take("value")
    c.expect("=")
    lower = c.value()
    c.expect("to")
    upper = c.value()
    c.expect("step")
    step = c.value()
    carried = _carried(c, "iter_args")
    if c.accept("->"):
        c.types()
    if c.accept(":"):
        c.type()
    outside = c.names()
    unique = c.define(variable)
    pairs = tuple((c.define(name), value) for name, value in carried)
    c.expect("{")
    body = x.block()
    attributes = _attribute_map(c.attributes())
    c.leave(outside)
    return n.For(x.line, None, define_all(c, x), unique, lower, upper, step, pairs, body, attributes)


def while_(c: Cursor, x: Context) -> n.Operation:
    """`scf.while (%a = %b) : (T) -> T { … } do { ^bb0(%c: T): … }`."""
    carried = _carried(c, "")
    c.expect(":")
    c.types()
    c.expect("->")
    c.types()
    outside = c.names()
    pairs = tuple((c.define(name), value) for name, value in carried)
    c.expect("{")
    before = x.block()
    c.leave(dict(outside))
    c.expect("do")
    c.expect("{")
    arguments: list[n.Value] = []
    if c.kinds[c.at] == "alias" and c.texts[c.at].startswith("^"):
        c.at += 1
        c.expect("(")
        while not c.accept(")"):
            arguments.append(c.define(c.take("value")))
            c.expect(":")
            c.type()
            c.place()
            c.accept(",")
        c.expect(":")
    after = x.block()
    c.accept("attributes")
    c.attributes()
    c.leave(outside)
    return n.While(x.line, None, define_all(c, x), pairs, before, tuple(arguments), after)


def condition(c: Cursor, x: Context) -> n.Operation:
    c.expect("(")
    condition = c.value()
    c.expect(")")
    return n.Condition(x.line, None, condition, typed_values(c))


def if_(c: Cursor, x: Context) -> n.Operation:
    condition = c.value()
    if c.accept("->"):
        c.types()
    c.expect("{")
    then = x.block()
    orelse: n.Block = ()
    if c.accept("else"):
        c.expect("{")
        orelse = x.block()
    c.attributes()
    return n.If(x.line, None, define_all(c, x), condition, then, orelse)


def yield_(c: Cursor, x: Context) -> n.Operation:
    return n.Yield(x.line, None, typed_values(c))


def return_(c: Cursor, x: Context) -> n.Operation:
    return n.Return(x.line, None, typed_values(c))


def typed_values(c: Cursor) -> tuple[n.Value, ...]:
    """`%a, %b : T, T`."""
    values = c.values()
    if c.accept(":"):
        c.type()
        while c.accept(","):
            c.type()
    return values


def call(c: Cursor, x: Context) -> n.Operation:
    callee = c.take("symbol")[1:].strip('"').removeprefix("_mlir_ciface_")
    c.expect("(")
    operands = c.values(")")
    c.attributes()
    c.expect(":")
    types = c.types()
    c.expect("->")
    c.types()
    return n.Call(x.line, None, define_all(c, x), callee, operands, types)


def flag(c: Cursor, x: Context) -> n.Operation:
    c.expect("[")
    source = _pipe(c)
    c.expect(",")
    target = _pipe(c)
    c.expect(",")
    event: n.Operand = _event(c) if c.peek("<") else c.value()
    c.expect("]")
    kind = n.SetFlag if x.name.endswith("set_flag") else n.WaitFlag
    return kind(x.line, None, source, target, event)


def barrier(c: Cursor, x: Context) -> n.Operation:
    c.expect("[")
    pipe = _pipe(c, "ALL")
    c.expect("]")
    return n.Barrier(x.line, None, pipe)


def block_flag(c: Cursor, x: Context) -> n.Operation:
    c.expect("[")
    core = _angle_word(c, "")
    c.expect(",")
    pipe = _pipe(c, "ALL")
    c.expect(",")
    _pipe(c, "ALL")
    c.expect("]")
    if c.take("word") != "flag":
        raise c.error("flag")
    c.expect("=")
    flag = c.operand()
    if c.accept("ffts_base_addr"):
        c.expect("=")
        c.value()
    kind = n.BlockSet if x.name.endswith("_set") else n.BlockWait
    return kind(x.line, None, core, pipe, flag)


def _pipe(c: Cursor, *also: str) -> str:
    """`<PIPE_V>`."""
    line, pipe = c.line, _angle_word(c, "PIPE_")
    if pipe not in n.PIPES and pipe not in also:
        raise HivmError(f"the pipe {pipe!r}, which kgen does not know", line)
    return pipe


def _event(c: Cursor) -> int:
    """`<EVENT_ID3>`."""
    line, number = c.line, _angle_word(c, "EVENT_ID")
    if not number.isdecimal():
        raise HivmError(f"expected a number after EVENT_ID, found {number!r}", line)
    return int(number)


def _angle_word(c: Cursor, prefix: str) -> str:
    """`<PIPE_V>`: what follows the prefix."""
    c.expect("<")
    line, word = c.line, c.take("word")
    c.expect(">")
    if not word.startswith(prefix):
        raise HivmError(f"expected {prefix}…, found {word!r}", line)
    return word[len(prefix) :]


def _attribute_map(text: str) -> dict[str, str]:
    """`{a = 1, b}` as a mapping; a bare name maps to nothing."""
    out: dict[str, str] = {}
    for part in text[1:-1].split(","):
        name, _, value = part.partition("=")
        if name.strip():
            out[name.strip()] = value.strip()
    return out
