"""The virtual Ascend on random input: its reader never breaks, its scalars and views are Python's and numpy's, its
shortcuts through time are exact, and more cost never takes less time."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from kgen.spec.targets import load_target
from kgen.virtual.hivm import HivmError, Module, parse_module
from kgen.virtual.hivm import nodes as n
from kgen.virtual.hivm.affine import parse_affine_map
from kgen.virtual.hivm.lexer import Tokens
from kgen.virtual.launch import Buffer, Launch
from kgen.virtual.machine.protocol import Scalars
from kgen.virtual.machine.translate import translate
from kgen.virtual.timeline import Costs, evaluate, record
from kgen.virtual.timeline.engine import Block, DeadlockError
from kgen.virtual.timeline.model import _schedule, run_block
from kgen.virtual.timeline.price import (
    ALL,
    BARRIER,
    CROSS_SET,
    CROSS_WAIT,
    ELEMENTS,
    FIX,
    FIXPIPE,
    ISSUE,
    MTE1,
    MTE2,
    MTE3,
    PRODUCT,
    SCALAR,
    SET,
    WAIT,
    M,
    Prices,
    S,
    Step,
    V,
)
from kgen.virtual.timeline.record import Trace
from kgen.virtual.timeline.rounds import rounds

AIV = "attributes {hivm.func_core_type = #hivm.func_core_type<AIV>}"
GM, UB = (f"#hivm.address_space<{space}>" for space in ("gm", "ub"))
QUICK = settings(max_examples=60, deadline=None)

# ------------------------------------------------------------ affine maps

NAMES = ("d0", "d1", "s0")
Tree = Any  # an integer, a name, ("-", tree) or (operator, tree, tree)


def trees() -> st.SearchStrategy[Tree]:
    leaves = st.one_of(st.sampled_from(NAMES), st.integers(0, 100))
    positive = st.integers(1, 20)

    def grow(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        return st.one_of(
            st.tuples(st.just("-"), inner),
            st.tuples(st.sampled_from("+-*"), inner, inner),
            st.tuples(st.sampled_from(["floordiv", "ceildiv", "mod"]), inner, positive),
        )

    return st.recursive(leaves, grow, max_leaves=8)


def printed(tree: Tree, bare: bool) -> str:
    """As MLIR writes it; `bare`: without the brackets that precedence makes unnecessary."""
    if not isinstance(tree, tuple):
        return str(tree)
    if len(tree) == 2:
        inner = printed(tree[1], bare)
        return f"-{inner}" if not isinstance(tree[1], tuple) else f"-({inner})"
    op, left, right = tree
    texts = [printed(left, bare), printed(right, bare)]
    strength = 1 if op in "+-" else 2
    for i, side in enumerate((left, right)):
        weak = isinstance(side, tuple) and (len(side) == 2 or (1 if side[0] in "+-" else 2) < strength + i)
        if isinstance(side, tuple) and (weak or not bare):
            texts[i] = f"({texts[i]})"
    return f"{texts[0]} {op} {texts[1]}"


def value(tree: Tree, names: dict[str, int]) -> int:
    if not isinstance(tree, tuple):
        return names[tree] if isinstance(tree, str) else tree
    if len(tree) == 2:
        return -value(tree[1], names)
    a, b = value(tree[1], names), value(tree[2], names)
    rules: dict[str, Callable[[], int]] = {
        "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "floordiv": lambda: math.floor(Fraction(a, b)),
        "ceildiv": lambda: math.ceil(Fraction(a, b)), "mod": lambda: a - b * math.floor(Fraction(a, b)),
    }  # fmt: skip
    return rules[tree[0]]()


@given(trees(), trees(), st.tuples(*[st.integers(-200, 200)] * 3), st.booleans())
@settings(max_examples=150, deadline=None)
def test_affine_maps_evaluate_like_their_trees(
    first: Tree, second: Tree, operands: tuple[int, int, int], bare: bool
) -> None:
    text = f"(d0, d1)[s0] -> ({printed(first, bare)}, {printed(second, bare)})"
    names = dict(zip(NAMES, operands, strict=True))
    expected = [value(first, names), value(second, names)]
    read = parse_affine_map(text)
    assert [
        eval(x, {}, {f"v{i}": o for i, o in enumerate(operands)}) for x in read.python(("v0", "v1", "v2"))
    ] == expected
    literals = tuple(f"({o})" if o < 0 else str(o) for o in operands)
    assert [eval(x) for x in read.python(literals)] == expected


# ------------------------------------------------------------ the reader

SAMPLE = f"""#map = affine_map<(d0)[s0, s1] -> ((-d0 + s1) ceildiv s0, 4)>
module attributes {{dlti.target_system_spec = #dlti.target_system_spec<"NPU" : #a<"X", 24 : i32>>}} {{
  func.func private @vexp_1d_float(memref<?xf32, strided<[?], offset: ?>, {UB}>) attributes {{a}} loc(#loc)
  func.func @k(%arg0: i64 {{hacc.arg_type = #hacc.arg_type<workspace>}} loc("k.py":3:0), %arg1: memref<?xf32, {GM}>,
      %arg2: i32) {AIV} {{
    %c0 = arith.constant 0 : index loc(#loc1)
    %cst = arith.constant 5.000000e-01 : f32 loc(#loc1)
    %true = arith.constant true loc(#loc1)
    %c64_i64 = llvm.mlir.constant(64 : i64) : i64 loc(#loc1)
    %0 = hivm.hir.pointer_cast(%c64_i64) : memref<16x32xf32, {UB}> loc(#loc2)
    hivm.hir.set_ffts_base_addr %arg0 loc(#loc)
    %1 = hivm.hir.get_block_idx -> i64 loc(#loc)
    %2 = arith.trunci %1 : i64 to i32
    %3 = arith.index_cast %2 : i32 to index
    %4 = affine.min #map(%3)[%c0, %3] loc(#loc1)
    %5:2 = scf.for %arg3 = %c0 to %4 step %c0 iter_args(%arg4 = %2, %arg5 = %cst) -> (i32, f32) {{
      %6 = arith.cmpi slt, %arg4, %2 : i32
      %7 = scf.if %6 -> (i32) {{
        scf.yield %arg4 : i32
      }} else {{
        %8 = foo.bar %arg4 {{a = [1, 2]}} : i32 -> i32
        scf.yield %8 : i32
      }} loc(#loc1)
      scf.yield %7, %arg5 : i32, f32
    }} {{hivm.x = #hivm.y<Z>}} loc(#loc1)
    %9 = scf.while (%arg3 = %2) : (i32) -> i32 {{
      scf.condition(%true) %arg3 : i32
    }} do {{
    ^bb0(%arg4: i32):
      scf.yield %arg4 : i32
    }}
    %sub = memref.subview %0[%3, 0] [1, 32] [1, 1] : memref<16x32xf32, {UB}> to memref<32xf32, strided<[1], offset: ?>, {UB}>
    %cast = memref.reinterpret_cast %arg1 to offset: [%3], sizes: [8], strides: [1] : memref<?xf32, {GM}> to memref<8xf32, strided<[1], offset: ?>, {GM}>
    %tr = memref.transpose %0 (d0, d1) -> (d1, d0) : memref<16x32xf32, {UB}> to memref<32x16xf32, strided<[1, 32]>, {UB}>
    %col = memref.collapse_shape %0 [[0, 1]] : memref<16x32xf32, {UB}> into memref<512xf32, {UB}>
    %exp = memref.expand_shape %col [[0, 1]] output_shape [16, 32] : memref<512xf32, {UB}> into memref<16x32xf32, {UB}>
    %base, %off, %sz, %st = memref.extract_strided_metadata %sub : memref<32xf32, strided<[1], offset: ?>, {UB}> -> memref<f32, {UB}>, index, index, index
    %ld = memref.load %0[%3, %c0] : memref<16x32xf32, {UB}>
    memref.store %ld, %0[%3, %c0] : memref<16x32xf32, {UB}>
    func.call @vexp_1d_float(%sub) : (memref<32xf32, strided<[1], offset: ?>, {UB}>) -> () loc(#loc3)
    hivm.hir.set_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_V>, <PIPE_MTE3>, %1]
    hivm.hir.sync_block_set[<VECTOR>, <PIPE_MTE3>, <PIPE_S>] flag = 4 ffts_base_addr = %arg0
    hivm.hir.sync_block_wait[<CUBE>, <PIPE_FIX>, <PIPE_S>] flag = %1
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    return
  }} loc(#loc)
}} loc(#loc)
#loc = loc("/x/k.py":1:0)
#loc1 = loc("/x/h.py":2:0)
#loc2 = loc(callsite(#loc1 at #loc))
#loc3 = loc(fused[#loc2, #loc1])
"""  # noqa: E501
SAMPLE_TOKENS = Tokens(SAMPLE)
SPANS = [(a, a + len(t)) for a, t in zip(SAMPLE_TOKENS.starts, SAMPLE_TOKENS.texts, strict=True)]
STRANGE = [
    "%zz",
    "0",
    "-1",
    '"x"',
    "loc",
    "{",
    "}",
    "memref<>",
    "memref<?x?xq7>",
    "->",
    "^bb0",
    "#map",
    "!t<i>",
    "1.5",
    "->",
]


def outcome(text: str) -> str | None:
    """What is wrong about the answer to a text, or nothing."""
    try:
        return None if isinstance(parse_module(text), Module) else "no module"
    except HivmError as error:
        placed = error.line is not None and 1 <= error.line <= text.count("\n") + 1
        return None if placed or "no device function" in error.message else f"no line: {error.message}"


def test_the_sample_is_read() -> None:
    module = parse_module(SAMPLE)
    assert Counter(type(o) for o in n.walk(module.functions[0].body))[n.Unknown] == 1
    assert module.functions[0].body[4].place == n.Place("k.py", 1, 2)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_text_edited_at_random_gives_a_module_or_an_error_with_its_line(data: st.DataObject) -> None:
    text = SAMPLE
    places = data.draw(st.lists(st.integers(0, len(SPANS) - 2), min_size=1, max_size=3, unique=True))
    for place in sorted(places, reverse=True):
        start, end = SPANS[place]
        other = data.draw(st.sampled_from(SAMPLE_TOKENS.texts) | st.sampled_from(STRANGE))
        new = data.draw(
            st.sampled_from(["", f"{text[start:end]} {text[start:end]}", other, f"{other} {text[start:end]}"])
        )
        text = text[:start] + new + text[end:]
    if data.draw(st.booleans()):
        text = text[: data.draw(st.integers(0, len(text)))]
    assert outcome(text) is None


@given(st.text(alphabet='%#!^@<>(){}[]:=,-+*"\n aefmrx0?.', max_size=80))
@settings(max_examples=100, deadline=None)
def test_random_text_gives_an_error_with_its_line(text: str) -> None:
    assert outcome(text) is None
    assert outcome(f"func.func @k() {AIV} {{\n{text}\nreturn\n}}\n") is None


# ------------------------------------------------------------ scalars: folding and running


class Log:
    """A machine that writes down calls."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def bind_call(self, site: Any, call: n.Call, fixed: tuple[Any, ...] | None) -> Callable[..., None]:
        if fixed is not None:
            return lambda: self.seen.append((call.callee, *fixed))
        return lambda *values: self.seen.append((call.callee, *values))

    def bind_flag(self, site: Any, flag: n.SetFlag | n.WaitFlag, event: int | None) -> Callable[..., None]:
        return (lambda: self.seen.append(event)) if event is not None else self.seen.append

    def bind_scalars(self, before: Scalars) -> None:
        return None

    def bind_iteration(self, depth: int) -> None:
        return None


def calls(lines: Sequence[str], arguments: str, values: Sequence[Any], maps: str = "") -> list[Any]:
    text = "\n".join([f"{maps}func.func @k({arguments}) {AIV} {{", *lines, "return", "}", ""])
    machine: Any = Log()
    assert list(translate(parse_module(text).functions[0], machine).start(*values)) == []
    return machine.seen


def wrap(x: int, bits: int) -> int:
    return (x + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


def _quotient(a: int, b: int) -> int:
    return int(Fraction(a, b))  # towards zero


OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "addi": lambda a, b: a + b, "subi": lambda a, b: a - b, "muli": lambda a, b: a * b, "andi": lambda a, b: a & b,
    "ori": lambda a, b: a | b, "xori": lambda a, b: a ^ b, "minsi": min, "maxsi": max, "divsi": _quotient,
    "remsi": lambda a, b: a - b * _quotient(a, b), "floordivsi": lambda a, b: math.floor(Fraction(a, b)),
    "ceildivsi": lambda a, b: math.ceil(Fraction(a, b)),
}  # fmt: skip
PREDICATES = {"eq": "__eq__", "ne": "__ne__", "slt": "__lt__", "sle": "__le__", "sgt": "__gt__", "sge": "__ge__"}


@st.composite
def programs(draw: st.DrawFn) -> tuple[int, list[int], list[str], list[int]]:
    """Width, values of the leaves, lines over `%x0`, `%x1`, … , and the values of all names."""
    bits = draw(st.sampled_from([8, 32, 64]))
    edge = st.sampled_from([0, 1, -1, (1 << (bits - 1)) - 1, -(1 << (bits - 1))])
    leaves = draw(st.lists(edge | st.integers(-20, 20), min_size=2, max_size=4))
    values, lines = list(leaves), []
    for _ in range(draw(st.integers(1, 8))):
        a, b = (draw(st.integers(0, len(values) - 1)) for _ in range(2))
        new = len(values)
        if draw(st.integers(0, 4)) == 0:
            predicate = draw(st.sampled_from(sorted(PREDICATES)))
            lines.append(f"%t{new} = arith.cmpi {predicate}, %x{a}, %x{b} : i{bits}")
            lines.append(f"%x{new} = arith.select %t{new}, %x{b}, %x{a} : i{bits}")
            values.append(values[b] if getattr(values[a], PREDICATES[predicate])(values[b]) else values[a])
            continue
        name = draw(st.sampled_from(sorted(OPERATIONS)))
        divides = "div" in name or "rem" in name
        if divides and (values[b] == 0 or (values[b] == -1 and values[a] == -(1 << (bits - 1)))):
            name = "subi"
        lines.append(f"%x{new} = arith.{name} %x{a}, %x{b} : i{bits}")
        values.append(wrap(OPERATIONS[name](values[a], values[b]), bits))
    return bits, leaves, lines, values


@given(programs(), st.data())
@settings(max_examples=80, deadline=None)
def test_folded_programs_do_what_running_ones_do(made: tuple[int, list[int], list[str], list[int]], data: Any) -> None:
    """Constants or arguments, straight or in a loop that runs once: the calls are those of Python's integers."""
    bits, leaves, lines, values = made
    names = [f"%x{i}" for i in range(len(values))]
    lines = [*lines, f"func.call @out({', '.join(names)}) : ({', '.join([f'i{bits}'] * len(names))}) -> ()"]
    constant = data.draw(st.lists(st.booleans(), min_size=len(leaves), max_size=len(leaves)))
    for known in ([True] * len(leaves), [False] * len(leaves), constant):
        given_ = [f"%x{i} = arith.constant {x} : i{bits}" for i, x in enumerate(leaves) if known[i]]
        arguments = ", ".join(f"%x{i}: i{bits}" for i in range(len(leaves)) if not known[i])
        rest = [x for i, x in enumerate(leaves) if not known[i]]
        assert calls([*given_, *lines], arguments, rest) == [("out", *values)]
        looped = ["%z = arith.constant 0 : index", "%o = arith.constant 1 : index", *given_,
                  "scf.for %i = %z to %o step %o {", *lines, "}"]  # fmt: skip
        assert calls(looped, arguments, rest) == [("out", *values)]


@given(st.lists(st.integers(-5, 5), min_size=3, max_size=3), st.integers(0, 4), st.integers(0, 3), st.booleans())
@QUICK
def test_carried_values_go_round_as_in_python(start: list[int], outer: int, inner: int, folded: bool) -> None:
    lines = [
        "%z = arith.constant 0 : i32", "%o = arith.constant 1 : i32",
        "%r:3 = scf.for %i = %z to %n step %o iter_args(%a = %x, %b = %y, %c = %w) -> (i32, i32, i32) : i32 {",
        "%q:2 = scf.for %j = %z to %m step %o iter_args(%d = %b, %e = %a) -> (i32, i32) : i32 {",
        "%f = arith.subi %d, %j : i32", "%g = arith.muli %e, %c : i32", "scf.yield %g, %f : i32, i32", "}",
        "%h = arith.cmpi slt, %q#0, %q#1 : i32",
        "%k:2 = scf.if %h -> (i32, i32) {", "scf.yield %q#1, %a : i32, i32", "} else {",
        "%l = arith.addi %q#0, %i : i32", "scf.yield %l, %b : i32, i32", "}",
        "scf.yield %c, %k#0, %k#1 : i32, i32, i32", "}", "func.call @out(%r#0, %r#1, %r#2) : (i32, i32, i32) -> ()",
    ]  # fmt: skip
    a, b, c = start
    for i in range(outer):
        d, e = b, a
        for j in range(inner):
            d, e = wrap(e * c, 32), wrap(d - j, 32)
        first, second = (e, a) if d < e else (wrap(d + i, 32), b)
        a, b, c = c, first, second
    names, values = ("%x", "%y", "%w", "%n", "%m"), [*start, outer, inner]
    if folded:
        constants = [f"{name} = arith.constant {v} : i32" for name, v in zip(names, values, strict=True)]
        assert calls([*constants, *lines], "", []) == [("out", a, b, c)]
    else:
        assert calls(lines, ", ".join(f"{name}: i32" for name in names), values) == [("out", a, b, c)]


# ------------------------------------------------------------ views

SPACE = 5000  # elements of the allocation
GROUND = np.zeros(SPACE, np.int32)


class Views:
    """Operations of a random program and the numpy array that each view is."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.lines: list[str] = []
        self.arguments: list[str] = []
        self.values: list[Any] = []
        self.count = 0

    def number(self, x: int) -> str:
        """An operand: a literal, a constant or an argument."""
        how = self.draw(st.sampled_from(["literal", "literal", "constant", "argument"]))
        if how == "literal":
            return str(x)
        self.count += 1
        name = f"%n{self.count}"
        if how == "constant":
            self.lines.append(f"{name} = arith.constant {x} : index")
        else:
            self.arguments.append(f"{name}: index")
            self.values.append(x)
        return name

    def shown(self, x: int) -> str:
        """A number in a type, which may as well be unknown."""
        return str(x) if self.draw(st.booleans()) else "?"

    def type(self, a: Any, sizes: Sequence[str] | None = None) -> str:
        """A type that is true of the array; what an operand gives as a value isn't in the type."""
        shape = [self.shown(x) for x in a.shape]
        if sizes is not None:
            shape = ["?" if s.startswith("%") else s for s in sizes]
        strides = ", ".join(self.shown(x // 4) for x in a.strides)
        return (
            f"memref<{''.join(s + 'x' for s in shape)}f32, strided<[{strides}], offset: {self.shown(place(a))}>, {GM}>"
        )

    def define(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"%v{self.count} = {text}")
        return f"%v{self.count}"


def place(a: Any) -> int:
    """Elements from the allocation's start."""
    return int((a.ctypes.data - GROUND.ctypes.data) // 4)


def window(offset: int, sizes: Sequence[int], strides: Sequence[int]) -> Any:
    return as_strided(GROUND[offset:], sizes, [4 * s for s in strides], writeable=False)


def reinterpret(v: Views, name: str, kind: str) -> tuple[str, Any, str]:
    rank = v.draw(st.integers(1, 3))
    sizes = v.draw(st.lists(st.integers(1, 6), min_size=rank, max_size=rank))
    strides = v.draw(st.lists(st.integers(1, 40), min_size=rank, max_size=rank))
    if v.draw(st.booleans()):
        strides = [math.prod(sizes[i + 1 :]) for i in range(rank)]
    offset = v.draw(st.integers(0, 999))
    a = window(offset, sizes, strides)
    at, shape, steps = v.number(offset), [v.number(x) for x in sizes], [v.number(x) for x in strides]
    to = v.type(a, shape)
    text = f"offset: [{at}], sizes: [{', '.join(shape)}], strides: [{', '.join(steps)}]"
    return v.define(f"memref.reinterpret_cast {name} to {text} : {kind} to {to}"), a, to


def subview(v: Views, name: str, a: Any, kind: str) -> tuple[str, Any, str]:
    offsets, sizes, steps, index = [], [], [], []
    for extent in a.shape:
        size = v.draw(st.integers(1, extent))
        step = v.draw(st.integers(1, (extent - 1) // (size - 1) if size > 1 else 3))
        offset = v.draw(st.integers(0, extent - 1 - (size - 1) * step))
        offsets.append(offset)
        sizes.append(size)
        steps.append(step)
        index.append(slice(offset, offset + (size - 1) * step + 1, step))
    texts = [[v.number(x) for x in xs] for xs in (offsets, sizes, steps)]
    b = a[tuple(index)]
    units = [i for i, size in enumerate(texts[1]) if size == "1"]
    dropped = v.draw(st.lists(st.sampled_from(units), unique=True)) if units else []
    kept = [i for i in range(b.ndim) if i not in dropped]
    b = b[(*(0 if i in dropped else slice(None) for i in range(b.ndim)), ...)]
    # A dropped dimension may as well be another that looks alike: unit dimensions' strides are no matter.
    to = v.type(b, [texts[1][i] for i in kept])
    return v.define(f"memref.subview {name}{' '.join(f'[{chr(44).join(t)}]' for t in texts)} : {kind} to {to}"), b, to


def transpose(v: Views, name: str, a: Any, kind: str) -> tuple[str, Any, str]:
    order = v.draw(st.permutations(range(a.ndim)))
    b, (dims, new) = a.transpose(order), (", ".join(f"d{i}" for i in o) for o in (range(a.ndim), order))
    to = v.type(b)
    return v.define(f"memref.transpose {name} ({dims}) -> ({new}) : {kind} to {to}"), b, to


def collapse(v: Views, name: str, a: Any, kind: str) -> tuple[str, Any, str]:
    """Neighbours that have no gap between them; one with a size of 1 has none."""
    groups: list[list[int]] = []
    for axis in range(a.ndim):
        if groups:
            inner = next((i for i in range(axis, a.ndim) if a.shape[i] > 1), None)
            outer = next((i for i in reversed(range(axis)) if a.shape[i] > 1), None)
            dense = a.shape[axis] == 1 or outer is None or (
                inner == axis and a.strides[outer] == a.strides[axis] * a.shape[axis]
            )  # fmt: skip
            if dense and v.draw(st.booleans()):
                groups[-1].append(axis)
                continue
        groups.append([axis])
    sizes, strides = [], []
    for group in groups:
        long = [i for i in group if a.shape[i] > 1] or group
        for left, right in itertools.pairwise(long):
            assume(a.strides[left] == a.strides[right] * a.shape[right])
        sizes.append(math.prod(a.shape[i] for i in group))
        strides.append(a.strides[long[-1]] // 4)
    b = window(place(a), sizes, strides)
    to = v.type(b)
    return v.define(f"memref.collapse_shape {name} {groups} : {kind} into {to}"), b, to


def expand(v: Views, name: str, a: Any, kind: str) -> tuple[str, Any, str]:
    groups, sizes, strides = [], [], []
    for extent, step in zip(a.shape, a.strides, strict=True):
        first = v.draw(st.sampled_from([d for d in range(1, extent + 1) if extent % d == 0]))
        parts = [extent] if v.draw(st.booleans()) else [first, extent // first]
        groups.append(list(range(len(sizes), len(sizes) + len(parts))))
        sizes += parts
        strides += [step // 4 * math.prod(parts[i + 1 :]) for i in range(len(parts))]
    b = window(place(a), sizes, strides)
    shape = [v.number(x) for x in sizes]
    to = v.type(b, shape)
    return v.define(f"memref.expand_shape {name} {groups} output_shape [{', '.join(shape)}] : {kind} into {to}"), b, to


def cast(v: Views, name: str, a: Any, kind: str) -> tuple[str, Any, str]:
    to = v.type(a)
    return v.define(f"memref.cast {name} : {kind} to {to}"), a, to


STEPS = {f.__name__: f for f in (subview, transpose, collapse, expand, cast)}


@given(st.data())
@settings(max_examples=120, deadline=None)
def test_views_are_numpys(data: Any) -> None:
    v = Views(data.draw)
    if data.draw(st.booleans()):  # of a tensor
        kind = f"memref<?xf32, {GM}>"
        v.arguments.append(f"%t: {kind}")
        v.values.append((0, 0, (SPACE,), (1,)))
        name, a, kind = reinterpret(v, "%t", kind)
        base: Any = 0
    else:  # a buffer on chip, dense
        sizes = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
        kind = f"memref<{''.join(f'{s}x' for s in sizes)}f32, {UB}>"
        at = v.define("arith.constant 0 : i64")
        name, base = v.define(f"hivm.hir.pointer_cast({at}) : {kind}"), "ub"
        a = window(0, sizes, [math.prod(sizes[i + 1 :]) for i in range(len(sizes))])
    for _ in range(data.draw(st.integers(0, 5))):
        step = data.draw(st.sampled_from([*sorted(STEPS), "subview", "reinterpret"]))
        if a.ndim == 0 and step != "reinterpret":
            continue
        made = reinterpret(v, name, kind) if step == "reinterpret" else STEPS[step](v, name, a, kind)
        name, a, kind = made
        if a.ndim > 4:
            break
    v.lines.append(f"func.call @out({name}) : ({kind}) -> ()")
    rank = a.ndim
    if rank:
        numbers = ", ".join(["index"] * (2 * rank + 1))
        results = ["%base", "%off", *(f"%s{i}" for i in range(rank)), *(f"%t{i}" for i in range(rank))]
        v.lines.append(
            f"{', '.join(results)} = memref.extract_strided_metadata {name} : {kind} -> memref<f32>, {numbers}"
        )
        v.lines.append(f"func.call @numbers({', '.join(results[1:])}) : ({numbers}) -> ()")
    (_, view), *rest = calls(v.lines, ", ".join(v.arguments), v.values)
    assert view[:3] == (base, 32 * place(a), a.shape)
    long = [i for i in range(rank) if a.shape[i] > 1]
    assert [view[3][i] for i in long] == [a.strides[i] // 4 for i in long]
    if rank:
        ((_, offset, *found),) = rest
        assert (offset, *found[:rank]) == (place(a), *a.shape)
        assert [found[rank + i] for i in long] == [a.strides[i] // 4 for i in long]


# ------------------------------------------------------------ time

SMALL = st.integers(0, 12)
PIPES = st.sampled_from([V, MTE1, MTE2, MTE3, M, FIX])
LOCAL = st.one_of(
    st.builds(lambda p, b, late, s: Step(ISSUE, s, p, b, late), PIPES, SMALL, SMALL, SMALL),
    st.builds(
        lambda k, p, t, e, late, s: Step(k, s, p, latency=late if k == SET else 0, target=t, number=e),
        st.sampled_from([SET, WAIT]), PIPES | st.just(S), PIPES | st.just(S), st.integers(0, 1), SMALL, SMALL,
    ),
    st.builds(lambda p, s: Step(BARRIER, s, p), PIPES | st.just(ALL), SMALL),
    st.builds(lambda p, b, s: Step(ELEMENTS, s, p, b), st.sampled_from([MTE2, MTE3]), SMALL, SMALL),
    st.builds(lambda s: Step(SCALAR, s), st.integers(0, 60)),
)  # fmt: skip
CUBE = st.one_of(
    st.builds(
        lambda count, load, mul, last, unit, halves, only, at, late, s, waits, frees: Step(
            PRODUCT, s, M, count * mul, late, number=at, product=(count, load, mul, last, unit, halves, only),
            waits=waits, releases=frees,
        ),
        st.integers(1, 3), SMALL, SMALL, st.integers(0, 3), st.sampled_from([0, 2, 3]), st.integers(1, 2),
        st.integers(0, 1), st.integers(0, 1), SMALL, SMALL, st.sampled_from([(-1, -1), (0, -1), (0, 1)]),
        st.sampled_from([(-1, -1), (0, -1), (0, 1)]),
    ),
    st.builds(
        lambda b, unit, at, late, s: Step(FIXPIPE, s, FIX, b, late, number=at, product=(unit,)),
        SMALL, st.sampled_from([0, 2, 3]), st.integers(0, 1), SMALL, SMALL,
    ),
)  # fmt: skip
KINDS = st.sampled_from([("aiv",), ("aic",), ("aic", "aiv"), ("aic", "aiv", "aiv")])


class Steps:
    """A table of steps, and pieces of traces in which no core waits for a flag that isn't set by then."""

    def __init__(self, draw: Any, kinds: tuple[str, ...]) -> None:
        self.draw, self.kinds = draw, kinds
        self.table: list[Step] = []

    def event(self, step: Step) -> int:
        self.table.append(step)
        return len(self.table) - 1

    def piece(self, most: int) -> tuple[tuple[int, ...], ...]:
        kinds = self.kinds
        traces: list[list[int]] = [[] for _ in kinds]
        vectors = [i for i, kind in enumerate(kinds) if kind == "aiv"]
        crossing = len(kinds) > 1
        counts: Counter[tuple[int, int]] = Counter()  # (core that waits, or -1 - the vector core that set), flag
        for _ in range(self.draw(st.integers(0, most))):
            core = self.draw(st.integers(0, len(kinds) - 1))
            cube = kinds[core] == "aic"
            what = self.draw(st.integers(0, 3)) if crossing else 0
            flag = self.draw(st.integers(0, 1)) if what >= 2 else 0
            keys = [(-1 - v, flag) for v in vectors] if cube else [(core, flag)]
            if what == 2:
                step = Step(
                    CROSS_SET, self.draw(SMALL), self.draw(PIPES | st.just(S)), latency=self.draw(SMALL), number=flag
                )
                for key in [(v, flag) for v in vectors] if cube else [(-1 - core, flag)]:
                    counts[key] += 1
            elif what == 3 and all(counts[key] for key in keys):
                step = Step(CROSS_WAIT, self.draw(SMALL), S, number=flag)
                for key in keys:
                    counts[key] -= 1
            else:
                step = self.draw(LOCAL | CUBE if cube else LOCAL)
            traces[core].append(self.event(step))
        if self.draw(st.booleans()):
            self._settle(traces, counts)
        return tuple(tuple(t) for t in traces)

    def _settle(self, traces: list[list[int]], counts: Counter[tuple[int, int]]) -> None:
        """Take every flag that is left and let everything end, so that a piece leaves the state it began in."""
        vectors = [i for i, kind in enumerate(self.kinds) if kind == "aiv"]
        for flag in (0, 1):
            owed = max((counts[-1 - v, flag] for v in vectors), default=0)
            for v in vectors:
                traces[v] += [self.event(Step(CROSS_SET, 0, S, number=flag))] * (owed - counts[-1 - v, flag])
            traces[0] += [self.event(Step(CROSS_WAIT, 0, S, number=flag))] * owed
            for v in vectors:
                traces[v] += [self.event(Step(CROSS_WAIT, 0, S, number=flag))] * counts[v, flag]
        for trace in traces:
            left: Counter[tuple[int, int, int]] = Counter()
            for step in (self.table[event] for event in trace):
                key = (step.pipe, step.target, step.number)
                if step.kind == SET:
                    left[key] += 1
                elif step.kind == WAIT:
                    left[key] -= left[key] > 0
                for number in step.releases:
                    left[MTE1, MTE2, number] += number >= 0
                for number in step.waits:
                    left[MTE2, MTE1, number] -= left[MTE2, MTE1, number] > 0
            for (source, target, number), count in left.items():
                trace += [self.event(Step(WAIT, 0, source, target=target, number=number))] * count
            trace.append(self.event(Step(BARRIER, 0, ALL)))


def told(block: Block) -> Any:
    """All that is told of a block, and what later work can depend on."""
    return block.finish(), [
        (c.clock, c.unmatched, c.stalled, c.scalar_busy, [max(t, c.clock) for t in (*c.ready, *c.done)])
        for c in block.cores
    ]


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_rounds_take_exactly_the_time_of_the_whole(data: Any) -> None:
    kinds = data.draw(KINDS)
    made = Steps(data.draw, kinds)
    pieces = [made.piece(10) for _ in range(data.draw(st.integers(1, 3)))]
    order = data.draw(st.lists(st.integers(0, len(pieces) - 1), min_size=1, max_size=4))
    order = [piece for piece in order for _ in range(data.draw(st.sampled_from([1, 2, 9])))]
    depth = data.draw(st.integers(1, 4))
    whole, parts = Block(kinds, made.table, depth), Block(kinds, made.table, depth)
    whole.run([[event for piece in order for event in pieces[piece][core]] for core in range(len(kinds))])
    for piece in order:
        parts.round(pieces[piece])
    assert told(parts) == told(whole)
    # and what comes after takes the same time
    last = made.piece(6)
    whole.run(last)
    parts.round(last)
    assert told(parts) == told(whole)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_cut_of_a_trace_takes_the_same_time_or_the_same_deadlock(data: Any) -> None:
    """As a block is really run: rounds of recorded loops, with waits that may be for a later round or for nobody."""
    kinds = data.draw(KINDS)
    made = Steps(data.draw, kinds)
    pieces = [made.piece(8) for _ in range(3)]
    traces = []
    for core in range(len(kinds)):
        order = data.draw(st.lists(st.integers(0, 2), max_size=8))
        events = [event for piece in order for event in pieces[piece][core]]
        cuts = [sorted(data.draw(st.lists(st.integers(0, len(events)), max_size=5))) for _ in range(2)]
        traces.append(Trace(tuple(events), tuple(map(tuple, cuts))))
    cut = rounds(traces)
    for core, trace in enumerate(traces):
        assert tuple(itertools.chain.from_iterable(piece[core] for piece in cut)) == trace.events
    costs = replace(COSTS, queue_depth=data.draw(st.integers(1, 4)))
    prices: Any = Prices.__new__(Prices)
    prices.steps = made.table
    whole = Block(kinds, made.table, costs.queue_depth)
    try:
        whole.run([trace.events for trace in traces])
    except DeadlockError:
        with pytest.raises(Exception, match="wait for each other for ever"):
            run_block(kinds, tuple(traces), prices, costs)
    else:
        assert told(run_block(kinds, tuple(traces), prices, costs)) == told(whole)


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_the_order_of_the_cores_changes_nothing(data: Any) -> None:
    """Vector cores may change places; only the cube core's own place is special."""
    made = Steps(data.draw, ("aic", "aiv", "aiv"))
    cube, first, second = made.piece(20)
    one, other = (Block(made.kinds, made.table, 3) for _ in range(2))
    one.run([cube, first, second])
    other.run([cube, second, first])
    (end, (a, b, c)), (other_end, (x, y, z)) = told(one), told(other)
    assert (end, a, b, c) == (other_end, x, z, y)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=40), st.integers(1, 8), st.integers(0, 100))
@QUICK
def test_blocks_are_queued_in_order_on_the_core_that_is_free_first(times: list[int], cores: int, start: int) -> None:
    free, ran = [0.0] * cores, [0] * cores
    for time in times:
        core = min(range(cores), key=lambda c: free[c])
        free[core] += time + (start if ran[core] else 0)
        ran[core] += 1
    assert _schedule([float(t) for t in times], cores, float(start)) == max(free)


# ------------------------------------------------------------ constants

COSTS = Costs.of(load_target("Ascend910B2"))
# More of these is less time; more of any other constant is more.
RATES = {
    "clock_ghz", "vector_bytes", "vector_copy_bytes", "l1_to_l0a", "l1_to_l0b", "gm_to_ub", "ub_to_gm", "gm_to_l1",
    "l0c_to_gm", "l1_fill", "hbm_tb_per_s", "l2_tb_per_s", "queue_depth",
}  # fmt: skip


def typed(sizes: Sequence[int], strides: Sequence[int] | None, space: str) -> str:
    layout = f"strided<[{', '.join(map(str, strides))}], offset: ?>, " if strides is not None else ""
    return f"memref<{''.join(f'{s}x' for s in sizes)}f32, {layout}{space}>"


VECTOR = """vadd vmuls vexp vdiv vcmp_lt vsel_vv vabs vmod vxor reduce_sum_ar reduce_max_ra arange
    transpose_with_last_axis broadcast_scalar broadcast_last_axis cumsum_ra copy_ubuf_to_ubuf""".split()


@st.composite
def kernels(draw: st.DrawFn) -> str:
    """A vector kernel: moves of all shapes, vector work, flags and barriers, scalars, in loops and branches."""
    head: list[str] = [
        "%c0 = arith.constant 0 : index",
        "%c1 = arith.constant 1 : index",
        "%c4 = arith.constant 4 : index",
    ]
    fresh = itertools.count()

    def buffer(sizes: Sequence[int], strides: Sequence[int] | None = None) -> tuple[str, str]:
        number, kind = next(fresh), typed(sizes, strides, UB).replace(", offset: ?", "")
        head.append(f"%p{number} = arith.constant {draw(st.sampled_from([0, 4, 4096]))} : i64")
        head.append(f"%u{number} = hivm.hir.pointer_cast(%p{number}) : {kind}")
        return f"%u{number}", kind

    def move() -> str:
        rows, columns = draw(st.sampled_from([1, 8, 33])), draw(st.sampled_from([1, 8, 100]))
        far = draw(st.sampled_from([(columns, 1), (128, 1), (128, 3), (1, 64), (3, 1)]))
        near = draw(st.sampled_from([(columns, 1), (8 * columns, 8), (128, 1)]))
        name, local = buffer((rows, columns), near)
        number, kind = next(fresh), typed((rows, columns), far, GM)
        head.append(
            f"%g{number} = memref.reinterpret_cast %t to offset: [{draw(st.integers(0, 9))}], "
            f"sizes: [{rows}, {columns}], strides: [{far[0]}, {far[1]}] : memref<?xf32, {GM}> to {kind}"
        )
        if draw(st.booleans()):
            return f"func.call @load_gm_to_ubuf_2d_float(%g{number}, {name}) : ({kind}, {local}) -> ()"
        return f"func.call @store_ubuf_to_gm_2d_float({name}, %g{number}) : ({local}, {kind}) -> ()"

    def work() -> str:
        base = draw(st.sampled_from(VECTOR))
        sizes = draw(st.sampled_from([(8, 64), (1, 300), (33, 1), (16, 100)]))
        name, kind = buffer(sizes)
        return f"func.call @{base}_2d_float({name}, {name}, {name}) : ({kind}, {kind}, {kind}) -> ()"

    def flag() -> str:
        what, source, target = (draw(st.sampled_from(x)) for x in (["set", "wait"], *[["MTE2", "V", "MTE3", "S"]] * 2))
        return f"hivm.hir.{what}_flag[<PIPE_{source}>, <PIPE_{target}>, <EVENT_ID{draw(st.integers(0, 1))}>]"

    def scalar() -> str:
        number = next(fresh)
        return draw(st.sampled_from([
            f"%a{number} = arith.addi %n, %n : i32", f"%a{number} = arith.divsi %n, %n : i32",
            f"%a{number} = memref.load %t[%c0] : memref<?xf32, {GM}>",
            f"%a{number} = memref.load %t[%c4] : memref<?xf32, {GM}>",
            f"memref.store %f, %t[%c1] : memref<?xf32, {GM}>", "hivm.hir.pipe_barrier[<PIPE_V>]",
            "hivm.hir.pipe_barrier[<PIPE_MTE3>]", "hivm.hir.pipe_barrier[<PIPE_ALL>]",
        ]))  # fmt: skip

    def block(depth: int) -> list[str]:
        lines: list[str] = []
        for _ in range(draw(st.integers(1, 6))):
            kind = draw(st.integers(0, 9))
            if kind == 0 and depth < 2:
                lines += [f"scf.for %i{next(fresh)} = %c0 to %c4 step %c1 {{", *block(depth + 1), "}"]
            else:
                lines.append([move, move, move, work, work, work, flag, flag, scalar, scalar][kind]())
        return lines

    body = block(0)
    arguments = f"%t: memref<?xf32, {GM}>, %n: i32, %f: f32, %gx: i32, %gy: i32, %gz: i32"
    return "\n".join([f"func.func @k({arguments}) {AIV} {{", *head, *body, "return", "}"])


@given(kernels(), st.sampled_from([1.01, 1.7, 10.0]), st.sampled_from([1, 100]))
@settings(max_examples=20, deadline=None)
def test_more_cost_never_takes_less_time(text: str, factor: float, blocks: int) -> None:
    """One core and no flags between cores: clocks are sums and maxima, so each constant has one direction."""
    launch = Launch((blocks, 1, 1), (Buffer("t", "f32", 1 << 16), 3, 1.0))
    recording = record(parse_module(text), launch, COSTS)
    before = evaluate(recording, COSTS)
    assert before.us is not None
    for name in Costs.constants():
        after = evaluate(recording, COSTS.scaled(name, factor))
        low, high = (after, before) if name in RATES else (before, after)
        assert low.us is not None
        assert high.us is not None
        assert low.core_us <= high.core_us * (1 + 1e-12), name
        assert low.us <= high.us * (1 + 1e-12), name
