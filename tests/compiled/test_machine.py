"""Device functions as Python: scalar arithmetic, control flow, folding, views, arguments. Needs no tool chain."""

from __future__ import annotations

import functools
import itertools
import math
import operator
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from kgen.errors import KgenError
from kgen.virtual.hivm import HivmError, parse_module
from kgen.virtual.hivm import nodes as n
from kgen.virtual.launch import Buffer, Launch
from kgen.virtual.machine.arguments import arguments_of
from kgen.virtual.machine.protocol import Scalars, Site
from kgen.virtual.machine.translate import Program, translate

AIV = "attributes {hivm.func_core_type = #hivm.func_core_type<AIV>}"
GM, UB, L1 = (f"#hivm.address_space<{space}>" for space in ("gm", "ub", "cbuf"))


class Log:
    """A machine that writes down what it is told."""

    def __init__(self, memory: dict[Any, Any] | None = None) -> None:
        self.seen: list[Any] = []
        self.memory = memory or {}
        self.fixed: list[bool] = []  # of each call bound
        self.waits = 0  # how often each cross-core wait asks to be called again
        self.queries: dict[str, int] = {}
        self.sites: list[Site] = []

    def _keep(self, site: Site) -> None:
        self.sites.append(site)

    def bind_call(self, site: Site, call: n.Call, fixed: tuple[Any, ...] | None) -> Callable[..., None]:
        self._keep(site)
        self.fixed.append(fixed is not None)
        if fixed is not None:
            return lambda: self.seen.append((call.callee, *fixed))
        return lambda *values: self.seen.append((call.callee, *values))

    def bind_load(self, site: Site, load: n.Load) -> Callable[..., Any]:
        self._keep(site)

        def read(view: Any, indices: tuple[int, ...]) -> Any:
            place = view[1] // load.type.bits + sum(i * s for i, s in zip(indices, view[3], strict=True))
            self.seen.append(("load", view[0], place))
            return self.memory.get((view[0], place), 0)

        return read

    def bind_store(self, site: Site, store: n.Store) -> Callable[..., None]:
        self._keep(site)

        def write(value: Any, view: Any, indices: tuple[int, ...]) -> None:
            place = view[1] // store.type.bits + sum(i * s for i, s in zip(indices, view[3], strict=True))
            self.memory[view[0], place] = value
            self.seen.append(("store", view[0], place, value))

        return write

    def bind_flag(self, site: Site, flag: n.SetFlag | n.WaitFlag, event: int | None) -> Callable[..., None]:
        self._keep(site)
        what = (type(flag).__name__, flag.source, flag.target)
        if event is not None:
            return lambda: self.seen.append((*what, event))
        return lambda value: self.seen.append((*what, value))

    def bind_barrier(self, site: Site, barrier: n.Barrier) -> Callable[[], None]:
        self._keep(site)
        return lambda: self.seen.append(("barrier", barrier.pipe))

    def bind_block_set(self, site: Site, flag: n.BlockSet) -> Callable[[int], None]:
        self._keep(site)
        return lambda value: self.seen.append(("block set", flag.core, flag.pipe, value))

    def bind_block_wait(self, site: Site, flag: n.BlockWait) -> Callable[[int], bool]:
        self._keep(site)
        left = [self.waits]

        def wait(value: int) -> bool:
            left[0] -= 1
            if left[0] >= 0:
                return True
            left[0] = self.waits
            self.seen.append(("block wait", flag.core, value))
            return False

        return wait

    def bind_query(self, site: Site, query: n.Query) -> Callable[[], int]:
        self._keep(site)
        return lambda: self.queries.get(query.name, 0)

    def bind_unknown(self, site: Site, name: str) -> Callable[[], None]:
        self._keep(site)
        return lambda: self.seen.append(("unknown", name))

    def bind_scalars(self, before: Scalars) -> Callable[[], None] | None:
        return lambda: self.seen.append(before)

    def bind_iteration(self, depth: int) -> Callable[[], None] | None:
        return (lambda: self.seen.append(("iteration", depth))) if depth < 1 else None


def function(lines: Sequence[str], arguments: str = "", maps: str = "") -> n.Function:
    """A vector function of these lines."""
    text = "\n".join([f"{maps}func.func @k({arguments}) {AIV} {{", *lines, "return", "}", ""])
    return parse_module(text).functions[0]


def program(lines: Sequence[str], arguments: str = "", maps: str = "", machine: Log | None = None) -> Program:
    return translate(function(lines, arguments, maps), machine or Log())


def calls(
    lines: Sequence[str], arguments: str = "", values: Iterable[Any] = (), maps: str = "", **how: Any
) -> list[Any]:
    """What the lines call and store, without scalar work and marks of iterations."""
    machine = Log(**how)
    for _ in program(lines, arguments, maps, machine).start(*values):
        raise AssertionError("waits")
    return [seen for seen in machine.seen if not isinstance(seen, Scalars) and seen[0] != "iteration"]


@functools.cache
def operation(name: str, kind: str, count: int, to: str | None) -> tuple[Log, Program]:
    """A program of one scalar operation, with a machine that sees its result."""
    names = [f"%a{i}" for i in range(count)]
    line = f"%r = {name} {', '.join(names)} : {kind}{f' to {to}' if to else ''}"
    machine = Log()
    lines = [line, f"func.call @out(%r) : ({to or kind}) -> ()"]
    return machine, program(lines, ", ".join(f"{a}: {kind}" for a in names), machine=machine)


def compute(name: str, kind: str, *values: Any, to: str | None = None) -> Any:
    """One scalar operation on values that come at run time."""
    machine, made = operation(name, kind, len(values), to)
    machine.seen.clear()
    assert list(made.start(*values)) == []
    ((what, result),) = machine.seen
    assert what == "out"
    return result


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


# ------------------------------------------------------------ integers

EDGES = {
    8: [0, 1, -1, 2, 7, -7, 127, -128],
    32: [0, 1, -1, 2, 3, -3, 7, -7, 2**31 - 1, -(2**31), 2**30, 46341],
    64: [0, 1, -1, 2, -7, 2**63 - 1, -(2**63), 2**32],
}
PAIRS = [(bits, a, b) for bits, values in EDGES.items() for a in values for b in values]


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


WRAPPING: dict[str, Callable[[int, int], int]] = {
    "arith.addi": operator.add,
    "arith.subi": operator.sub,
    "arith.muli": operator.mul,
    "arith.andi": operator.and_,
    "arith.ori": operator.or_,
    "arith.xori": operator.xor,
    "arith.minsi": min,
    "arith.maxsi": max,
}


@pytest.mark.parametrize("name", WRAPPING)
def test_integers_wrap_in_their_width(name: str) -> None:
    wrong = [
        (bits, a, b, got)
        for bits, a, b in PAIRS
        if (got := compute(name, f"i{bits}", a, b)) != signed(WRAPPING[name](a, b), bits)
    ]
    assert wrong == []


def test_index_arithmetic_is_64_bits_wide() -> None:
    assert compute("arith.addi", "index", 2**40, 2**40) == 2**41
    assert compute("arith.muli", "index", -3, 2**33) == -3 * 2**33


DIVISIONS: dict[str, Callable[[int, int], int]] = {
    "arith.divsi": truncated,
    "arith.remsi": lambda a, b: a - b * truncated(a, b),
    "arith.floordivsi": operator.floordiv,
    "arith.ceildivsi": lambda a, b: -(-a // b),
}


@pytest.mark.parametrize("name", DIVISIONS)
@pytest.mark.parametrize("bits", [32, 64])
def test_divisions_round_as_their_names_say_for_all_signs(name: str, bits: int) -> None:
    values = [v for v in (*range(-9, 10), *EDGES[bits]) if abs(v) < 2 ** (bits - 1)]
    wrong = [
        (a, b, got)
        for a in values
        for b in values
        if b != 0 and (got := compute(name, f"i{bits}", a, b)) != DIVISIONS[name](a, b)
    ]
    assert wrong == []


UNSIGNED: dict[str, Callable[[int, int], int]] = {
    "arith.divui": operator.floordiv,
    "arith.remui": operator.mod,
    "arith.ceildivui": lambda a, b: -(-a // b),
    "arith.minui": min,
    "arith.maxui": max,
}


@pytest.mark.parametrize("name", UNSIGNED)
@pytest.mark.parametrize("negative", [False, True])
def test_unsigned_operations_take_the_bits_for_unsigned(name: str, negative: bool) -> None:
    wrong = []
    for bits, a, b in PAIRS:
        if (a < 0 or b < 0) == negative and (b or not name.endswith(("divui", "remui"))):
            mask = (1 << bits) - 1
            expected = signed(UNSIGNED[name](a & mask, b & mask), bits)
            got = compute(name, f"i{bits}", a, b)
            if got != expected:
                wrong.append((bits, a, b, got, expected))
    assert wrong == []


@pytest.mark.parametrize("predicate", "eq ne slt sle sgt sge ult ule ugt uge".split())
def test_comparisons_of_integers(predicate: str) -> None:
    compare = getattr(operator, predicate if predicate in ("eq", "ne") else predicate[1:])
    wrong = []
    for bits, a, b in PAIRS:
        mask = (1 << bits) - 1 if predicate.startswith("u") else -1
        got = compute(f"arith.cmpi {predicate},", f"i{bits}", a, b)
        if bool(got) != compare(a & mask, b & mask):
            wrong.append((bits, a, b, got))
    assert wrong == []


@pytest.mark.parametrize("bits", [8, 32, 64])
def test_shifts(bits: int) -> None:
    wrong = []
    for a in EDGES[bits]:
        for by in (0, 1, 3, bits - 1):
            for name, expected in (
                ("arith.shli", signed(a << by, bits)),
                ("arith.shrsi", a >> by),
                ("arith.shrui", signed((a & (1 << bits) - 1) >> by, bits)),
            ):
                got = compute(name, f"i{bits}", a, by)
                if got != expected:
                    wrong.append((name, a, by, got, expected))
    assert wrong == []


CASTS = [
    # operation, from, to, value, result
    ("arith.trunci", "i64", "i32", 2**31, -(2**31)),
    ("arith.trunci", "i64", "i32", -1, -1),
    ("arith.trunci", "i32", "i8", 200, -56),
    ("arith.trunci", "i32", "i1", 2, 0),
    ("arith.trunci", "i32", "i1", -1, 1),
    ("arith.extsi", "i32", "i64", -5, -5),
    ("arith.extsi", "i1", "i32", 1, -1),
    ("arith.extsi", "i1", "i32", 0, 0),
    ("arith.extui", "i32", "i64", -1, 2**32 - 1),
    ("arith.extui", "i8", "i32", -1, 255),
    ("arith.extui", "i1", "i64", 1, 1),
    ("arith.index_cast", "i32", "index", -5, -5),
    ("arith.index_cast", "index", "i32", 2**31, -(2**31)),
    ("arith.index_cast", "index", "i64", 2**40, 2**40),
    ("arith.index_cast", "index", "i1", 2, 0),
    ("arith.index_cast", "index", "i1", 3, 1),
    ("arith.index_cast", "index", "i1", -1, 1),
    ("arith.index_cast", "i1", "index", 1, -1),  # sign-extended, as MLIR's documentation says
    ("arith.index_castui", "i1", "index", 1, 1),
    ("arith.index_castui", "i32", "index", -1, 2**32 - 1),
    ("arith.index_castui", "index", "i32", 2**32 - 1, -1),
    ("arith.sitofp", "i32", "f32", 2**24 + 1, 2.0**24),
    ("arith.sitofp", "i32", "f32", -3, -3.0),
    ("arith.sitofp", "i32", "bf16", 257, 256.0),
    ("arith.sitofp", "i1", "f32", 1, -1.0),
    ("arith.uitofp", "i1", "f32", 1, 1.0),
    ("arith.uitofp", "i32", "f32", -1, 2.0**32),
    ("arith.fptosi", "f32", "i32", 2.9, 2),
    ("arith.fptosi", "f32", "i32", -2.9, -2),
    ("arith.truncf", "f32", "bf16", 1.00390625, 1.0),  # a tie, to even
    ("arith.truncf", "f32", "bf16", 1.01171875, 1.015625),
    ("arith.truncf", "f32", "bf16", -3.4028235e38, -math.inf),
    ("arith.truncf", "f32", "f16", 65520.0, math.inf),
    ("arith.truncf", "f32", "f16", 65519.0, 65504.0),
    ("arith.truncf", "f64", "f32", 1e39, math.inf),
    ("arith.extf", "bf16", "f32", 1.5, 1.5),
    ("arith.bitcast", "f32", "i32", 1.0, 0x3F800000),
    ("arith.bitcast", "f32", "i32", -0.0, -(2**31)),
    ("arith.bitcast", "i32", "f32", 0x3F800000, 1.0),
    ("arith.bitcast", "bf16", "i16", -2.0, signed(0xC000, 16)),
    ("arith.bitcast", "i16", "bf16", 0x3FC0, 1.5),
    ("arith.bitcast", "f16", "i16", 1.0, 0x3C00),
]


@pytest.mark.parametrize("operation, source, to, value, expected", CASTS)
def test_casts(operation: str, source: str, to: str, value: Any, expected: Any) -> None:
    got = compute(operation, source, value, to=to)
    assert got == expected
    assert type(got) in ((int, bool) if to.startswith("i") else (float,))


@pytest.mark.parametrize("value", [3e9, -3e9, math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("name", ["arith.fptosi", "arith.fptoui"])
def test_a_float_that_no_integer_is_becomes_some_integer_of_the_width(name: str, value: float) -> None:
    """Which one isn't told by MLIR; a kernel may compute it and not use it."""
    assert -(2**31) <= compute(name, "f32", value, to="i32") < 2**31


def test_i1_arithmetic() -> None:
    bits = (0, 1)
    for name, rule in (
        ("arith.addi", lambda a, b: (a + b) % 2), ("arith.subi", lambda a, b: (a - b) % 2),
        ("arith.muli", operator.and_), ("arith.andi", operator.and_), ("arith.ori", operator.or_),
        ("arith.xori", operator.xor), ("arith.cmpi eq,", operator.eq), ("arith.cmpi ne,", operator.ne),
        ("arith.cmpi ult,", operator.lt), ("arith.cmpi uge,", operator.ge), ("arith.minui", min),
        ("arith.maxui", max), ("arith.divui", lambda a, b: a // b if b else None),
        ("arith.shrui", lambda a, b: None if b else a), ("arith.shli", lambda a, b: None if b else a),
    ):  # fmt: skip
        for a, b in itertools.product(bits, bits):
            expected = rule(a, b)
            assert expected is None or compute(name, "i1", a, b) == expected, (name, a, b)


def test_i1_is_signed_where_an_operation_says_so() -> None:
    """The only negative number of one bit is its 1."""
    for a, b in itertools.product((0, 1), (0, 1)):
        assert bool(compute("arith.cmpi slt,", "i1", a, b)) == (-a < -b)
        assert compute("arith.maxsi", "i1", a, b) == -max(-a, -b)


def test_a_comparison_can_be_used_as_a_number() -> None:
    lines = [
        "%c = arith.cmpi slt, %a, %b : i32",
        "%n = arith.xori %c, %c2 : i1",
        "%s = arith.extsi %c : i1 to i32",
        "%u = arith.extui %n : i1 to i64",
        "func.call @out(%c, %n, %s, %u) : (i1, i1, i32, i64) -> ()",
    ]
    arguments = "%a: i32, %b: i32, %c2: i1"
    assert calls(lines, arguments, (1, 2, 1)) == [("out", 1, 0, -1, 0)]
    assert calls(lines, arguments, (2, 1, 1)) == [("out", 0, 1, 0, 1)]


def test_select() -> None:
    lines = ["%r = arith.select %c, %a, %b : i32", "func.call @out(%r) : (i32) -> ()"]
    for chosen, expected in ((1, 5), (0, 6)):
        assert calls(lines, "%c: i1, %a: i32, %b: i32", (chosen, 5, 6)) == [("out", expected)]


# ------------------------------------------------------------ floats

NAN, INF = math.nan, math.inf
REALS = [0.0, -0.0, 1.0, -1.5, 0.1, 3.4028234663852886e38, 1.401298464324817e-45, INF, -INF, NAN]


def same(a: float, b: float) -> bool:
    return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))


def to_f32(x: float) -> float:
    return float(np.float32(x))


@pytest.mark.parametrize(
    "name, rule",
    [("addf", np.add), ("subf", np.subtract), ("mulf", np.multiply), ("divf", np.divide),
     ("maximumf", np.maximum), ("minimumf", np.minimum), ("maxnumf", np.fmax), ("minnumf", np.fmin)],
)  # fmt: skip
def test_f32_arithmetic_is_numpys(name: str, rule: Callable[[Any, Any], Any]) -> None:
    reals = [to_f32(x) for x in (*REALS, math.pi, 1e-3, 16777217.0, 7e-39)]
    signless = name[:3] in ("max", "min")  # which zero a maximum gives isn't told by numpy
    with np.errstate(all="ignore"):
        for a, b in itertools.product(reals, reals):
            got, expected = compute(f"arith.{name}", "f32", a, b), float(rule(np.float32(a), np.float32(b)))
            assert same(got, expected) or (signless and got == expected == 0), (name, a, b, got, expected)


def test_f16_and_bf16_arithmetic_is_rounded() -> None:
    assert compute("arith.addf", "f16", 2048.0, 1.0) == 2048.0
    assert compute("arith.mulf", "f16", 256.0, 256.0) == INF
    assert compute("arith.addf", "bf16", 256.0, 1.0) == 256.0
    assert compute("arith.divf", "bf16", 1.0, 3.0) == 0.333984375
    assert compute("arith.divf", "f32", 1.0, 3.0) == to_f32(1 / 3)
    assert compute("arith.divf", "f64", 1.0, 3.0) == 1 / 3


@pytest.mark.parametrize("predicate", "oeq one olt ole ogt oge ord ueq une ult ule ugt uge uno".split())
def test_comparisons_of_floats_with_nan(predicate: str) -> None:
    """Ordered ones are false for NaN, unordered ones true."""
    for a, b in itertools.product(REALS, REALS):
        unordered = math.isnan(a) or math.isnan(b)
        if predicate in ("ord", "uno"):
            expected = unordered == (predicate == "uno")
        elif unordered:
            expected = predicate[0] == "u"
        else:
            expected = getattr(operator, predicate[1:])(a, b)
        assert bool(compute(f"arith.cmpf {predicate},", "f32", a, b)) == expected, (a, b)


@pytest.mark.parametrize(
    "name, values, expected",
    [
        ("math.exp", (1.0,), to_f32(math.e)), ("math.exp", (1e3,), INF), ("math.exp", (-1e3,), 0.0),
        ("math.exp", (NAN,), NAN), ("math.exp2", (3.0,), 8.0), ("math.exp2", (1e4,), INF),
        ("math.log", (0.0,), -INF), ("math.log", (-1.0,), NAN), ("math.log", (NAN,), NAN), ("math.log", (INF,), INF),
        ("math.sqrt", (2.0,), to_f32(math.sqrt(2))), ("math.sqrt", (-1.0,), NAN), ("math.sqrt", (NAN,), NAN),
        ("math.sqrt", (INF,), INF), ("math.rsqrt", (4.0,), 0.5), ("math.rsqrt", (0.0,), INF),
        ("math.absf", (-0.0,), 0.0), ("math.floor", (-1.5,), -2.0), ("math.ceil", (-1.5,), -1.0),
        ("math.floor", (INF,), INF), ("math.ceil", (NAN,), NAN),
        ("arith.negf", (0.0,), -0.0), ("arith.negf", (NAN,), NAN), ("math.fma", (2.0, 3.0, 1.0), 7.0),
    ],
)  # fmt: skip
def test_float_functions(name: str, values: tuple[float, ...], expected: float) -> None:
    assert same(compute(name, "f32", *values), expected)


def test_float_constants_stand_as_they_are() -> None:
    lines = [
        "%a = arith.constant -2.5 : f32",
        "%b = arith.constant 0xFF800000 : f32",
        "%c = arith.constant 0x7FC00000 : f32",
        "%d = arith.constant -0.0 : f32",
        "%e = arith.constant 5.0e-01 : f32",
        "func.call @out(%a, %b, %c, %d) : (f32, f32, f32, f32) -> ()",
        "%s = arith.subf %e, %a : f32",
        "%t = arith.addf %x, %b : f32",
        "%u = arith.mulf %x, %d : f32",
        "func.call @out(%s, %t, %u, %c) : (f32, f32, f32, f32) -> ()",
    ]
    first, second = calls(lines, "%x: f32", (3.0,))
    assert all(map(same, first[1:], (-2.5, -INF, NAN, -0.0)))
    assert all(map(same, second[1:], (3.0, -INF, -0.0, NAN)))


def test_a_constant_takes_part_with_the_value_of_its_type() -> None:
    """0.3 isn't the f32 that the kernel multiplies with; most products show it."""
    (wrong, total) = (0, 0)
    for x in (to_f32(1 + k / 977) for k in range(200)):
        lines = [
            "%c = arith.constant 0.693147182 : f32",
            "%r = arith.mulf %x, %c : f32",
            "func.call @out(%r) : (f32) -> ()",
        ]
        ((_, got),) = calls(lines, "%x: f32", (x,))
        total += 1
        wrong += got != float(np.float32(x) * np.float32(0.693147182))
    assert (wrong, total) == (0, 200)


def test_a_float_argument_has_the_value_of_its_type() -> None:
    kernel = function(["func.call @out(%x) : (f32) -> ()"], "%x: f32, %gx: i32, %gy: i32, %gz: i32")
    assert arguments_of(kernel, Launch((1, 1, 1), (0.1,)))[0] == to_f32(0.1)


def test_unknown_arithmetic_is_told_by_name() -> None:
    lines = ["%a = math.cos %x : f32", "%b = arith.addi %v, %v : vector<4xi32>", "func.call @out(%a) : (f32) -> ()"]
    seen = calls(lines, "%x: f32, %v: i32", (1.0, 0))
    assert [s[0] for s in seen] == ["unknown", "unknown", "out"]
    assert "cos" in seen[0][1]


def test_division_by_zero_is_a_zero_division() -> None:
    """The timeline tells it in the words of a launch."""
    for name in ("divsi", "remsi", "floordivsi", "ceildivsi"):
        with pytest.raises(ZeroDivisionError):
            compute(f"arith.{name}", "i32", 1, 0)


# ------------------------------------------------------------ control flow


def test_loops_count_like_range() -> None:
    lines = ["scf.for %i = %a to %b step %s {", "func.call @out(%i) : (index) -> ()", "}"]
    for bounds in ((0, 5, 1), (2, 11, 3), (5, 5, 1), (7, 2, 1), (-3, 3, 2)):
        assert calls(lines, "%a: index, %b: index, %s: index", bounds) == [("out", i) for i in range(*bounds)]


@pytest.mark.parametrize("count", [0, 1, 5])
def test_loops_carry_values_and_swap_them_at_once(count: int) -> None:
    lines = [
        "%c0 = arith.constant 0 : i32", "%c1 = arith.constant 1 : i32",
        "%r:3 = scf.for %i = %c0 to %n step %c1 iter_args(%a = %x, %b = %y, %s = %c0) -> (i32, i32, i32) : i32 {",
        "%t = arith.addi %s, %a : i32", "scf.yield %b, %a, %t : i32, i32, i32", "}",
        "func.call @out(%r#0, %r#1, %r#2) : (i32, i32, i32) -> ()",
    ]  # fmt: skip
    a, b, s = 10, 3, 0
    for _ in range(count):
        a, b, s = b, a, s + a
    assert calls(lines, "%n: i32, %x: i32, %y: i32", (count, 10, 3)) == [("out", a, b, s)]


@pytest.mark.parametrize("outer, inner", [(0, 3), (3, 0), (1, 1), (3, 4)])
def test_nested_loops_carry_values(outer: int, inner: int) -> None:
    lines = [
        "%c0 = arith.constant 0 : i32", "%c1 = arith.constant 1 : i32",
        "%r:2 = scf.for %i = %c0 to %n step %c1 iter_args(%a = %x, %b = %c0) -> (i32, i32) : i32 {",
        "%q:2 = scf.for %j = %c0 to %m step %c1 iter_args(%c = %a, %d = %b) -> (i32, i32) : i32 {",
        "%t = arith.addi %c, %i : i32", "%u = arith.subi %t, %d : i32", "scf.yield %u, %t : i32, i32", "}",
        "%v = arith.addi %q#0, %a : i32",  # the outer value, though the inner loop began with it
        "func.call @inner(%q#0, %q#1, %a, %b) : (i32, i32, i32, i32) -> ()",
        "scf.yield %q#1, %v : i32, i32", "}",
        "func.call @out(%r#0, %r#1) : (i32, i32) -> ()",
    ]  # fmt: skip
    expected: list[Any] = []
    a, b = 7, 0
    for i in range(outer):
        c, d = a, b
        for _ in range(inner):
            t = c + i
            c, d = t - d, t
        expected.append(("inner", c, d, a, b))
        a, b = d, c + a
    expected.append(("out", a, b))
    assert calls(lines, "%n: i32, %m: i32, %x: i32", (outer, inner, 7)) == expected


BUFFERS = [
    "%p0 = arith.constant 0 : i64", "%p1 = arith.constant 64 : i64",
    f"%u = hivm.hir.pointer_cast(%p0) : memref<4xf32, {UB}>", f"%w = hivm.hir.pointer_cast(%p1) : memref<4xf32, {UB}>",
]  # fmt: skip
ROW = f"memref<4xf32, {UB}>"


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_loops_carry_buffers(count: int) -> None:
    lines = [
        *BUFFERS,
        f"%r:2 = scf.for %i = %a to %n step %s iter_args(%x = %u, %y = %w) -> ({ROW}, {ROW}) {{",
        f"%v = memref.subview %x[2] [2] [1] : {ROW} to memref<2xf32, strided<[1], offset: 2>, {UB}>",
        f"func.call @out(%v) : (memref<2xf32, strided<[1], offset: 2>, {UB}>) -> ()",
        f"scf.yield %y, %x : {ROW}, {ROW}", "}",
        f"%z = memref.subview %r#0[1] [2] [1] : {ROW} to memref<2xf32, strided<[1], offset: 1>, {UB}>",
        f"func.call @end(%z) : (memref<2xf32, strided<[1], offset: 1>, {UB}>) -> ()",
    ]  # fmt: skip
    expected = [("out", ("ub", (i % 2) * 512 + 64, (2,), (1,))) for i in range(count)]
    expected.append(("end", ("ub", count % 2 * 512 + 32, (2,), (1,))))
    assert calls(lines, "%a: index, %n: index, %s: index", (0, count, 1)) == expected


def test_while_counts_down_and_gives_what_its_condition_had() -> None:
    lines = [
        "%c1 = arith.constant 1 : i32", "%c0 = arith.constant 0 : i32",
        "%r:2 = scf.while (%a = %n, %b = %c0) : (i32, i32) -> (i32, i32) {",
        "%t = arith.muli %a, %a : i32", "%c = arith.cmpi sgt, %a, %c0 : i32",
        "func.call @before(%a) : (i32) -> ()",
        "scf.condition(%c) %t, %b : i32, i32", "} do {", "^bb0(%x: i32, %y: i32):",
        "%s = arith.addi %x, %y : i32", "func.call @after(%x, %y) : (i32, i32) -> ()",
        "%d = arith.subi %y, %c1 : i32", "%e = arith.addi %d, %n : i32",
        "scf.yield %e, %d : i32, i32", "}",
        "func.call @out(%r#0, %r#1) : (i32, i32) -> ()",
    ]  # fmt: skip
    for start in (0, 1, 4):
        expected: list[Any] = []
        a, b = start, 0
        while True:
            t = a * a
            expected.append(("before", a))
            if a <= 0:
                break
            expected.append(("after", t, b))
            a, b = b - 1 + start, b - 1
        expected.append(("out", t, b))
        assert calls(lines, "%n: i32", (start,)) == expected


def test_while_loops_carry_buffers() -> None:
    lines = [
        *BUFFERS, "%c1 = arith.constant 1 : i32", "%c0 = arith.constant 0 : i32",
        f"%r:2 = scf.while (%a = %n, %x = %u) : (i32, {ROW}) -> (i32, {ROW}) {{",
        "%c = arith.cmpi sgt, %a, %c0 : i32", f"scf.condition(%c) %a, %x : i32, {ROW}", "} do {",
        f"^bb0(%b: i32, %y: {ROW}):", "%d = arith.subi %b, %c1 : i32",
        f"%v = memref.subview %y[2] [2] [1] : {ROW} to memref<2xf32, strided<[1], offset: 2>, {UB}>",
        f"func.call @in(%v) : (memref<2xf32, strided<[1], offset: 2>, {UB}>) -> ()",
        f"scf.yield %d, %w : i32, {ROW}", "}",
        f"%z = memref.subview %r#1[1] [2] [1] : {ROW} to memref<2xf32, strided<[1], offset: 1>, {UB}>",
        f"func.call @out(%z) : (memref<2xf32, strided<[1], offset: 1>, {UB}>) -> ()",
    ]  # fmt: skip
    assert calls(lines, "%n: i32", (2,)) == [
        ("in", ("ub", 64, (2,), (1,))), ("in", ("ub", 576, (2,), (1,))), ("out", ("ub", 544, (2,), (1,))),
    ]  # fmt: skip


def test_branches_with_and_without_results() -> None:
    lines = [
        *BUFFERS,
        f"%r:2 = scf.if %c -> (i32, {ROW}) {{", "func.call @then() : () -> ()",
        f"scf.yield %a, %u : i32, {ROW}", "} else {",
        "%t = arith.addi %a, %a : i32", f"scf.yield %t, %w : i32, {ROW}", "}",
        "scf.if %c {", "func.call @only() : () -> ()", "}",
        "scf.if %c {", "} else {", "func.call @other() : () -> ()", "}",
        f"%v = memref.cast %r#1 : {ROW} to memref<?xf32, strided<[?], offset: ?>, {UB}>",
        f"func.call @out(%r#0, %v) : (i32, memref<?xf32, strided<[?], offset: ?>, {UB}>) -> ()",
    ]  # fmt: skip
    assert calls(lines, "%c: i1, %a: i32", (1, 5)) == [("then",), ("only",), ("out", 5, ("ub", 0, (4,), (1,)))]
    assert calls(lines, "%c: i1, %a: i32", (0, 5)) == [("other",), ("out", 10, ("ub", 512, (4,), (1,)))]


def test_a_value_that_a_cast_does_not_change_keeps_its_value_of_then() -> None:
    """A cast is another name for its operand, which may itself be a loop's own variable."""
    lines = [
        "%r:2 = scf.for %i = %z to %n step %o iter_args(%a = %z, %old = %z) -> (index, index) {",
        "%b = arith.index_cast %a : index to i64", "%c = arith.index_cast %b : i64 to index",
        "%next = arith.addi %a, %i : index", "%kept = arith.addi %next, %o : index",
        "scf.yield %kept, %c : index, index", "}",
        "%d = arith.index_cast %r#1 : index to i64",
        "%s:2 = scf.for %i = %z to %n step %o iter_args(%a = %r#0, %e = %d) -> (index, i64) {",
        "%f = arith.addi %a, %o : index", "func.call @out(%a, %e, %d, %r#0) : (index, i64, i64, index) -> ()",
        "scf.yield %f, %e : index, i64", "}",
    ]  # fmt: skip
    a, old = 0, 0
    for i in range(3):
        a, old = a + i + 1, a
    expected = [("out", a + k, old, old, a) for k in range(3)]
    assert calls(lines, "%z: index, %n: index, %o: index", (0, 3, 1)) == expected


def test_waits_hand_over_until_they_are_answered() -> None:
    machine = Log()
    machine.waits = 2
    lines = [
        "hivm.hir.sync_block_set[<CUBE>, <PIPE_FIX>, <PIPE_S>] flag = %f",
        "hivm.hir.sync_block_wait[<CUBE>, <PIPE_FIX>, <PIPE_S>] flag = %f",
        "hivm.hir.sync_block_wait[<CUBE>, <PIPE_FIX>, <PIPE_S>] flag = 3",
    ]
    running = program(lines, "%f: i64", machine=machine).start(9)
    assert sum(1 for _ in running) == 4
    assert machine.seen == [("block set", "CUBE", "FIX", 9), ("block wait", "CUBE", 9), ("block wait", "CUBE", 3)]


def test_flags_barriers_queries_and_settings() -> None:
    lines = [
        "hivm.hir.set_mask_norm",
        "%b = hivm.hir.get_block_idx -> i64",
        "%one = arith.constant 1 : i64",
        "%s = arith.select %c, %b, %one : i64",
        "hivm.hir.set_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID2>]",
        "hivm.hir.wait_flag[<PIPE_V>, <PIPE_MTE3>, %one]",
        "hivm.hir.wait_flag[<PIPE_V>, <PIPE_MTE3>, %s]",
        "hivm.hir.pipe_barrier[<PIPE_ALL>]",
    ]
    machine = Log()
    machine.queries["get_block_idx"] = 5
    list(program(lines, "%c: i1", machine=machine).start(1))
    assert [x for x in machine.seen if not isinstance(x, Scalars)] == [
        ("SetFlag", "V", "MTE3", 2), ("WaitFlag", "V", "MTE3", 1), ("WaitFlag", "V", "MTE3", 5), ("barrier", "ALL"),
    ]  # fmt: skip


def test_scalar_work_is_counted_once_where_it_is_done() -> None:
    lines = [
        "%a = arith.addi %x, %x : i32", "%b = arith.divsi %a, %x : i32", "%c = arith.extsi %b : i32 to i64",
        "func.call @one() : () -> ()", "%d = arith.addi %x, %x : i32", "scf.for %i = %x to %y step %x : i32 {",
        "%e = arith.muli %x, %i : i32", "%f = arith.muli %e, %i : i32", "func.call @two() : () -> ()",
        "%g = arith.muli %x, %i : i32", "}", "%h = affine.apply #map()[%z]",
    ]  # fmt: skip
    machine = Log()
    maps = "#map = affine_map<()[s0] -> (s0 * 4 + 3)>\n"
    list(program(lines, "%x: i32, %y: i32, %z: index", maps, machine).start(1, 3, 4))
    assert [site.before for site in machine.sites] == [Scalars(1, 1), Scalars(4, 0)]
    loop: list[Any] = [("iteration", 0), ("two",), Scalars(1, 0)]
    assert machine.seen == [("one",), Scalars(1, 0), *loop, *loop, Scalars(2, 0)]


def test_results_of_unknown_operations_are_zero_and_told() -> None:
    lines = ["%r:2 = foo.bar %x", "%s = arith.addi %r#1, %x : i32", "%t = func.call @f(%x) : (i32) -> i32",
             "func.call @out(%s, %t) : (i32, i32) -> ()"]  # fmt: skip
    assert calls(lines, "%x: i32", (4,)) == [("unknown", "foo.bar"), ("unknown", "call @f with results"), ("out", 4, 0)]


def test_a_buffer_of_an_unknown_operation_does_not_break_the_translation() -> None:
    """It is told as unknown; whoever runs on must get no further than that, but no Python error either."""
    lines = [
        f"%m = foo.alloc : {ROW}",
        f"%v = memref.subview %m[2] [2] [1] : {ROW} to memref<2xf32, strided<[1], offset: 2>, {UB}>",
        f"%l = memref.load %m[%i] : {ROW}",
        f"func.call @out(%v, %l) : (memref<2xf32, strided<[1], offset: 2>, {UB}>, f32) -> ()",
    ]
    assert calls(lines, "%i: index", (0,))[0] == ("unknown", "foo.alloc")


# ------------------------------------------------------------ folding


def test_constant_calls_are_known_beforehand() -> None:
    machine = Log()
    lines = [*BUFFERS, f"%v = memref.subview %w[2] [2] [1] : {ROW} to memref<2xf32, strided<[1], offset: 2>, {UB}>",
             "%k = arith.constant 7 : i32",
             f"func.call @out(%v, %k) : (memref<2xf32, strided<[1], offset: 2>, {UB}>, i32) -> ()",
             f"func.call @out(%v, %n) : (memref<2xf32, strided<[1], offset: 2>, {UB}>, i32) -> ()"]  # fmt: skip
    list(program(lines, "%n: i32", machine=machine).start(7))
    assert machine.fixed == [True, False]
    assert [x for x in machine.seen if not isinstance(x, Scalars)] == [("out", ("ub", 576, (2,), (1,)), 7)] * 2


def test_no_text_of_the_ir_gets_into_python() -> None:
    lines = ["%__import__ = arith.constant 1 : i32", "%os.system = arith.addi %__import__, %a-b : i32",
             'func.call @"evil()"(%os.system) : (i32) -> ()']  # fmt: skip
    made = program(lines, "%a-b: i32")
    assert not any(word in made.source for word in ("import", "os", "evil", "a-b"))
    assert calls(lines, "%a-b: i32", (2,)) == [("evil()", 3)]


# ------------------------------------------------------------ views


def views(lines: Sequence[str], arguments: str = "", values: Iterable[Any] = (), **how: Any) -> list[Any]:
    """The views handed to `@out`, without the call's name."""
    return [seen[1] for seen in calls(lines, arguments, values, **how) if seen[0] == "out"]


def out(name: str, kind: str) -> str:
    return f"func.call @out({name}) : ({kind}) -> ()"


def memref(shape: str, strides: str | None = None, offset: str = "?", space: str = GM) -> str:
    layout = f"strided<[{strides}], offset: {offset}>, " if strides is not None else ""
    return f"memref<{shape}, {layout}{space}>"


FLAT = memref("?xf32")
TENSOR = (0, 0, (1 << 20,), (1,))


@pytest.mark.parametrize("offset, shift", [("%o", 40), ("40", 40), ("0", 0)])
def test_a_reinterpret_cast_counts_from_the_allocation(offset: str, shift: int) -> None:
    """Not from the view that it is given: MLIR takes the base pointer of the descriptor."""
    moved, part = memref("8x16xf32", "64, 1"), memref("4x4xf32", "64, 1")
    free, pair = memref("?x?xf32", "?, ?"), memref("2xf32", "3")
    rows, static = memref("8x16xf32", "64, 1", "0"), memref("4x4xf32", "64, 1", "67")
    lines = [
        f"%a = memref.reinterpret_cast %t to offset: [%o], sizes: [8, 16], strides: [64, 1] : {FLAT} to {moved}",
        f"%b = memref.subview %a[1, 2] [4, 4] [1, 1] : {moved} to {part}",
        f"%c = memref.cast %b : {part} to {free}",
        f"%d = memref.reinterpret_cast %c to offset: [{offset}], sizes: [2], strides: [3] : {free} to {pair}",
        out("%d", pair),
        f"%e = memref.reinterpret_cast %t to offset: [0], sizes: [8, 16], strides: [64, 1] : {FLAT} to {rows}",
        f"%f = memref.subview %e[1, 3] [4, 4] [1, 1] : {rows} to {static}",
        f"%g = memref.reinterpret_cast %f to offset: [{offset}], sizes: [2], strides: [3] : {static} to {pair}",
        out("%g", pair),
    ]
    assert views(lines, f"%t: {FLAT}, %o: index", (TENSOR, 40)) == [(0, 32 * shift, (2,), (3,))] * 2


def test_an_allocation_that_nobody_knows_is_an_error() -> None:
    moved = memref("8xf32", "1")
    lines = [
        f"%a = memref.reinterpret_cast %t to offset: [%o], sizes: [8], strides: [1] : {FLAT} to {moved}",
        f"%s = arith.select %c, %a, %a : {moved}",
        f"%d = memref.reinterpret_cast %s to offset: [0], sizes: [2], strides: [1] : {moved} to {moved}",
    ]
    with pytest.raises(HivmError, match="allocation"):
        program(lines, f"%t: {FLAT}, %o: index, %c: i1")


def test_memref_view_is_a_byte_window() -> None:
    bytes_, tile, wide = memref("?xi8"), memref("4x16xbf16"), memref("2x?x3xf32")
    part, pair = memref("3x3xf32", "3, 1"), memref("2xf32", "1", "5")
    lines = [
        f"%a = memref.view %w[%o][] : {bytes_} to {tile}",
        f"%b = memref.view %w[%o][%n] : {bytes_} to {wide}",
        f"%c = memref.subview %b[1, 2, 0] [1, 3, 3] [1, 1, 1] : {wide} to {part}",
        f"%d = memref.reinterpret_cast %b to offset: [5], sizes: [2], strides: [1] : {wide} to {pair}",
        *(out(name, kind) for name, kind in (("%a", tile), ("%b", wide), ("%c", part), ("%d", pair))),
    ]
    assert views(lines, f"%w: {bytes_}, %o: index, %n: index", (("ws", 0, (1 << 30,), (1,)), 96, 5)) == [
        ("ws", 768, (4, 16), (16, 1)), ("ws", 768, (2, 5, 3), (15, 3, 1)),
        ("ws", 768 + 32 * (15 + 6), (3, 3), (3, 1)), ("ws", 768 + 32 * 5, (2,), (1,)),
    ]  # fmt: skip


def test_a_buffer_with_dynamic_sizes() -> None:
    free, bits = memref("4x?xf32", space=UB), memref("4x8xi1", "16, 1", "0", UB)
    part = memref("2x2xf32", "?, 1", space=UB)
    lines = [
        "%p = arith.constant 64 : i64",
        "%k = arith.constant 6 : index",
        f"%a = hivm.hir.pointer_cast(%p)[%n] : {free}",
        f"%b = hivm.hir.pointer_cast(%p)[%k] : {free}",
        f"%c = hivm.hir.pointer_cast(%q) : {bits}",
        f"%d = memref.subview %a[1, 1] [2, 2] [1, 1] : {free} to {part}",
        *(out(name, kind) for name, kind in (("%a", free), ("%b", free), ("%c", bits), ("%d", part))),
    ]
    assert views(lines, "%n: index, %q: i64", (6, 32)) == [
        ("ub", 512, (4, 6), (6, 1)), ("ub", 512, (4, 6), (6, 1)), ("ub", 256, (4, 8), (16, 1)),
        ("ub", 512 + 32 * 7, (2, 2), (6, 1)),
    ]  # fmt: skip


def test_a_select_of_buffers_is_a_view_like_any_other() -> None:
    lines = [
        *BUFFERS, f"%s = arith.select %c, %u, %w : {ROW}",
        f"%v = memref.subview %s[1] [2] [2] : {ROW} to memref<2xf32, strided<[2], offset: 1>, {UB}>",
        out("%v", f"memref<2xf32, strided<[2], offset: 1>, {UB}>"),
        f"%e = memref.expand_shape %s [[0, 1]] output_shape [2, 2] : {ROW} into memref<2x2xf32, {UB}>",
        out("%e", f"memref<2x2xf32, {UB}>"),
    ]  # fmt: skip
    for chosen, address in ((1, 0), (0, 512)):
        assert views(lines, "%c: i1", (chosen,)) == [
            ("ub", address + 32, (2,), (2,)), ("ub", address, (2, 2), (2, 1)),
        ]  # fmt: skip


def test_metadata_of_a_view() -> None:
    tile, moved = memref("8x16xf32", "64, 1"), memref("4x?xf32", "64, 2")
    one, column = memref("f32"), memref("4xf32", "?")
    numbers = ", ".join(["index"] * 5)
    lines = [
        f"%a = memref.reinterpret_cast %t to offset: [%o], sizes: [8, 16], strides: [64, 1] : {FLAT} to {tile}",
        f"%b = memref.subview %a[2, 3] [4, %n] [1, 2] : {tile} to {moved}",
        f"%base, %off, %s:2, %st:2 = memref.extract_strided_metadata %b : {moved} -> {one}, {numbers}",
        f"func.call @numbers(%off, %s#0, %s#1, %st#0, %st#1) : ({numbers}) -> ()",
        f"%c = memref.reinterpret_cast %base to offset: [%off], sizes: [4], strides: [%st#0] : {one} to {column}",
        out("%c", column),
        f"%d = memref.dim %b, %one : {moved}",
        "func.call @dim(%d) : (index) -> ()",
        f"%l = memref.load %b[%one, %one] : {moved}",
    ]
    place = 100 + 2 * 64 + 3
    assert calls(lines, f"%t: {FLAT}, %o: index, %n: index, %one: index", (TENSOR, 100, 5, 1)) == [
        ("numbers", place, 4, 5, 64, 2), ("out", (0, 32 * place, (4,), (64,))), ("dim", 5),
        ("load", 0, place + 64 + 2),
    ]  # fmt: skip


def test_a_scalar_memref_becomes_one_with_dimensions_of_one() -> None:
    one, tile = memref("f32", space=UB), memref("1x1xf32", space=UB)
    lines = [
        "%p = arith.constant 64 : i64",
        f"%a = hivm.hir.pointer_cast(%p) : {one}",
        f"%b = memref.expand_shape %a [] output_shape [1, 1] : {one} into {tile}",
        f"%c = memref.collapse_shape %b [] : {tile} into {one}",
        out("%b", tile),
        out("%c", one),
    ]
    assert views(lines) == [("ub", 512, (1, 1), (1, 1)), ("ub", 512, (), ())]


# ------------------------------------------------------------ arguments


def kernel(arguments: str) -> n.Function:
    return function([], arguments)


TAIL = "%x: i32, %y: i32, %z: i32"
DATA = Buffer("q", "f32", 1000)


def test_arguments_come_after_the_compilers_and_before_the_grid() -> None:
    role = "hacc.arg_type = #hacc.arg_type"
    made = kernel(
        f"%f: i64 {{{role}<ffts_base_address>}}, %l: memref<?xi8, {GM}> {{{role}<sync_block_lock>}}, "
        f"%w: memref<?xi8, {GM}> {{{role}<workspace>}}, %q: memref<?xf32, {GM}>, %n: i32, %s: f32, {TAIL}"
    )
    values = arguments_of(made, Launch((2, 3, 4), (DATA, 5, 0.5)))
    assert values[0] == 0
    assert values[1][0] == "sync_block_lock"
    assert values[2][:2] == ("ws", 0)
    assert values[3:] == [(0, 0, (1000,), (1,)), 5, 0.5, 2, 3, 4]


@pytest.mark.parametrize(
    "given, told",
    [
        ((), "takes 2 run-time arguments, the launch has 0"),
        ((DATA,), "the launch has 1"),
        ((DATA, 1, 2), "the launch has 3"),
        ((1, DATA), "argument 0 of k is 1"),
        ((DATA, DATA), "argument 1 of k is a tensor"),
        ((DATA, 1.5), "argument 1 of k is 1.5"),  # an integer parameter
        ((Buffer("q", "bf16", 10), 1), "argument 0 of k is"),  # of another element type
        ((DATA, 2**31), "argument 1 of k is 2147483648"),
        ((DATA, 2**32), "argument 1 of k is 4294967296"),
        ((DATA, 3 * 2**32 + 1), "argument 1 of k is 12884901889"),
    ],
)
def test_arguments_that_do_not_fit(given: tuple[Any, ...], told: str) -> None:
    made = kernel(f"%q: memref<?xf32, {GM}>, %n: i32, {TAIL}")
    with pytest.raises(KgenError) as caught:
        arguments_of(made, Launch((1, 1, 1), given))
    assert told in caught.value.message
    assert caught.value.code == "launch-arguments"
    assert caught.value.hint


def test_bf16_is_the_nearest_with_ties_to_even() -> None:
    def real(bits: int) -> float:
        return float(struct.unpack("<f", struct.pack("<I", bits))[0])

    for bits in (0x3F808000, 0x3F818000, 0x3F807FFF, 0x3F808001, 0x7F7E8000, 0x00018000, 0x00008000, 0x80008001):
        below, above = bits & 0xFFFF0000, (bits & 0xFFFF0000) + 0x10000
        short, long = abs(real(bits) - real(below)), abs(real(above) - real(bits))
        expected = below if short < long or (short == long and not below >> 16 & 1) else above
        assert same(compute("arith.truncf", "f32", real(bits), to="bf16"), real(expected)), hex(bits)


# ------------------------------------------------------------ loops without an end


def test_a_loop_that_would_not_end_is_an_error_for_people() -> None:
    """Bounds that come from memory may be anything."""
    count = program(
        ["%z = arith.constant 0 : i64", "%o = arith.constant 1 : i64", "scf.for %i = %z to %n step %o : i64 {", "}"],
        "%n: i64",
    )
    assert list(count.start(1000)) == []
    with pytest.raises(KgenError, match="more than") as caught:
        list(count.start(1 << 40))
    assert caught.value.code == "loop-endless"
    forever = program(
        ["scf.while : () -> () {", "%t = arith.constant true", "scf.condition(%t)", "} do {", "scf.yield", "}"]
    )
    with pytest.raises(KgenError, match="more than"):
        list(forever.start())
