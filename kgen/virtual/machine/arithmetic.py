"""Scalar arithmetic of `arith` and `math` as Python: widths wrap, divisions truncate, floats round to their type."""

from __future__ import annotations

import math
import struct

from kgen.virtual.hivm.floats import ROUND, round_bf16, round_f16, round_f32
from kgen.virtual.hivm.nodes import Arith
from kgen.virtual.hivm.types import ELEMENT_BITS, Scalar
from kgen.virtual.machine.endless import counted

_F32 = struct.Struct("<f")
_F16 = struct.Struct("<e")
_F64 = struct.Struct("<d")
_INTS = {8: struct.Struct("<b"), 16: struct.Struct("<h"), 32: struct.Struct("<i"), 64: struct.Struct("<q")}
_FLOAT_STRUCTS = {"f16": _F16, "f32": _F32, "f64": _F64}


def divide(a: int, b: int) -> int:
    """Truncated quotient."""
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def remainder(a: int, b: int) -> int:
    """What the truncated quotient leaves, with the sign of `a`."""
    return a - b * divide(a, b)


def bitcast(x: float, source: str, target: str) -> float:
    """The same bits as another type of the same width."""
    if source == "bf16" or target == "bf16":
        raw = _F32.pack(x)[2:] if source == "bf16" else _INTS[16].pack(int(x))
        return float(_F32.unpack(b"\0\0" + raw)[0]) if target == "bf16" else int(_INTS[16].unpack(raw)[0])
    from_struct = _FLOAT_STRUCTS.get(source) or _INTS[int(source.lstrip("uis"))]
    to_struct = _FLOAT_STRUCTS.get(target) or _INTS[int(target.lstrip("uis"))]
    raw = from_struct.pack(x if source in _FLOAT_STRUCTS else int(x))
    value = to_struct.unpack(raw)[0]
    return float(value) if target in _FLOAT_STRUCTS else int(value)


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def _exp2(x: float) -> float:
    try:
        return math.pow(2.0, x)
    except OverflowError:
        return math.inf


def _log(x: float) -> float:
    return math.log(x) if x > 0 else (-math.inf if x == 0 else math.nan)


def _divf(a: float, b: float) -> float:
    if b != 0:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1.0, b)


def _sqrt(x: float) -> float:
    return math.sqrt(x) if x >= 0 else math.nan


def _number_minimum(a: float, b: float) -> float:
    """The smaller, a number before NaN."""
    return b if math.isnan(a) else a if math.isnan(b) else min(a, b)


def _number_maximum(a: float, b: float) -> float:
    return b if math.isnan(a) else a if math.isnan(b) else max(a, b)


def _nan_minimum(a: float, b: float) -> float:
    return math.nan if math.isnan(a) or math.isnan(b) else min(a, b)


def _nan_maximum(a: float, b: float) -> float:
    return math.nan if math.isnan(a) or math.isnan(b) else max(a, b)


def _whole(x: float, bits: int, signed: bool) -> int:
    """A float as an integer: truncated, saturated, 0 for NaN; an unsigned one as its bits."""
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    if math.isnan(x):
        return 0
    value = low if x <= low else high if x >= high else math.trunc(x)
    return value - (1 << bits) if value >> (bits - 1) == 1 else value


def _floor(x: float) -> float:
    return float(math.floor(x)) if math.isfinite(x) else x


def _ceil(x: float) -> float:
    return float(math.ceil(x)) if math.isfinite(x) else x


def _unordered(a: float, b: float) -> bool:
    return math.isnan(a) or math.isnan(b)


# Names that translated code may use.
NAMESPACE: dict[str, object] = {
    "_divide": divide, "_remainder": remainder, "_bitcast": bitcast, "_exp": _exp, "_exp2": _exp2, "_log": _log,
    "_divf": _divf, "_sqrt": _sqrt, "_min_number": _number_minimum, "_max_number": _number_maximum,
    "_min_nan": _nan_minimum, "_max_nan": _nan_maximum, "_unordered": _unordered,
    "_round_f32": round_f32, "_round_f16": round_f16, "_round_bf16": round_bf16, "_fabs": math.fabs,
    "_floor": _floor, "_ceil": _ceil, "_whole": _whole, "_range": counted,
}  # fmt: skip

FREE = frozenset({"index_cast", "index_castui", "extsi", "extui", "trunci", "select", "bitcast", "extf"})
SLOW = frozenset({"divsi", "divui", "remsi", "remui", "floordivsi", "ceildivsi", "ceildivui", "divf"})

_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_INFIX = {"addi": "+", "subi": "-", "muli": "*"}
_BITS = {"andi": "&", "ori": "|", "xori": "^"}
_FLOAT_INFIX = {"addf": "+", "subf": "-", "mulf": "*"}
_FLOAT_CALLS = {
    "divf": "_divf", "maximumf": "_max_nan", "minimumf": "_min_nan", "maxnumf": "_max_number", "minnumf": "_min_number",
    "exp": "_exp", "exp2": "_exp2", "log": "_log", "sqrt": "_sqrt", "absf": "_fabs", "floor": "_floor",
    "ceil": "_ceil",
}  # fmt: skip


def wrapped(text: str, bits: int) -> str:
    """An integer expression brought back into its width, two's complement; one bit is 0 or 1."""
    if bits == 1:
        return f"(({text}) & 1)"
    half, mask = 1 << (bits - 1), (1 << bits) - 1
    return f"((({text}) + {half} & {mask}) - {half})"


def expression(o: Arith, x: list[str]) -> str | None:
    """The operation as a Python expression over operand names, or None for one that isn't known."""
    if o.name == "select":
        return f"({x[1]} if {x[0]} else {x[2]})"
    if not isinstance(o.type, Scalar) or not isinstance(o.to, Scalar):
        return None
    if o.type.element not in ELEMENT_BITS or o.to.element not in ELEMENT_BITS:
        return None
    return _convert(o, o.type, o.to, x) or _integer(o, o.type, x) or _float(o, o.type, x)


def _convert(o: Arith, source: Scalar, to: Scalar, x: list[str]) -> str | None:
    """Casts."""
    signed = f"(-{x[0]})" if source.element == "i1" else x[0]
    if o.name in ("index_cast", "extsi"):
        return _narrowed(signed, source, to)
    if o.name in ("extui", "index_castui"):
        return _narrowed(_unsigned(x[0], source), source, to)
    if o.name == "trunci":
        return _narrowed(x[0], source, to)
    if o.name in ("sitofp", "uitofp", "truncf"):
        given = signed if o.name == "sitofp" else _unsigned(x[0], source) if o.name == "uitofp" else x[0]
        return _rounded(f"float({given})", to.element)
    if o.name == "extf":
        return x[0]
    if o.name in ("fptosi", "fptoui"):
        return f"_whole({x[0]}, {to.bits}, {o.name == 'fptosi'})"
    if o.name == "bitcast":
        return f"_bitcast({x[0]}, {source.element!r}, {to.element!r})"
    return None


def _narrowed(text: str, source: Scalar, to: Scalar) -> str:
    """An integer brought into a narrower type."""
    return wrapped(text, to.bits) if to.bits < source.bits else text


def _unsigned(text: str, kind: Scalar) -> str:
    """The same bits, read without a sign."""
    return text if kind.element == "i1" else f"({text} & {(1 << kind.bits) - 1})"


def _integer(o: Arith, kind: Scalar, x: list[str]) -> str | None:
    name = o.name
    if name in _INFIX:
        text = f"{x[0]} {_INFIX[name]} {x[1]}"
        return f"({text})" if kind.element == "index" else wrapped(text, kind.bits)
    if name in _BITS:
        return f"({x[0]} {_BITS[name]} {x[1]})"
    if name == "shli":
        return wrapped(f"{x[0]} << {x[1]}", kind.bits)
    if name == "shrsi":
        return f"({x[0]} >> {x[1]})"
    if name == "cmpi" and o.predicate is not None:
        return _compare_integers(o.predicate, kind, x)
    if kind.element == "i1" and name in _ONE_BIT:
        return _ONE_BIT[name].format(*x)
    if name in _UNSIGNED:
        return wrapped(_UNSIGNED[name].format(*(_unsigned(each, kind) for each in x)), kind.bits)
    if name in _SIGNED:
        return _SIGNED[name].format(*x)
    return None


_SIGNED = {
    "divsi": "({0} // {1} if {0} >= 0 < {1} else _divide({0}, {1}))",
    "remsi": "({0} % {1} if {0} >= 0 < {1} else _remainder({0}, {1}))",
    "floordivsi": "({0} // {1})",
    "ceildivsi": "(-(-{0} // {1}))",
    "minsi": "({0} if {0} < {1} else {1})",
    "maxsi": "({0} if {0} > {1} else {1})",
}
_ONE_BIT = {"minsi": "({0} | {1})", "maxsi": "({0} & {1})", "minui": "({0} & {1})", "maxui": "({0} | {1})"}
_UNSIGNED = {
    "divui": "{0} // {1}",
    "remui": "{0} % {1}",
    "ceildivui": "-(-{0} // {1})",
    "minui": "min({0}, {1})",
    "maxui": "max({0}, {1})",
    "shrui": "{0} >> {1}",
}


def _compare_integers(predicate: str, kind: Scalar, x: list[str]) -> str:
    """Signed unless the predicate says otherwise; the one bit of i1 is its sign."""
    if predicate.startswith("u"):
        return f"({_unsigned(x[0], kind)} {_COMPARE[predicate[1:]]} {_unsigned(x[1], kind)})"
    if predicate.startswith("s") and kind.element == "i1":
        return f"(-{x[0]} {_COMPARE[predicate[1:]]} -{x[1]})"
    return f"({x[0]} {_COMPARE[predicate.removeprefix('s')]} {x[1]})"


def _float(o: Arith, kind: Scalar, x: list[str]) -> str | None:
    name = o.name
    if name in _FLOAT_INFIX:
        return _rounded(f"{x[0]} {_FLOAT_INFIX[name]} {x[1]}", kind.element)
    if name in _FLOAT_CALLS:
        return _rounded(f"{_FLOAT_CALLS[name]}({', '.join(x)})", kind.element)
    if name == "negf":
        return f"(-{x[0]})"
    if name == "rsqrt":
        return _rounded(f"_divf(1.0, _sqrt({x[0]}))", kind.element)
    if name == "fma":
        return _rounded(f"{x[0]} * {x[1]} + {x[2]}", kind.element)
    if name == "cmpf" and o.predicate is not None:
        return _compare_floats(o.predicate, x)
    return None


def _compare_floats(predicate: str, x: list[str]) -> str | None:
    """Ordered comparisons are false for NaN, unordered ones true."""
    if predicate in ("ord", "uno"):
        return f"({'not ' if predicate == 'ord' else ''}_unordered({x[0]}, {x[1]}))"
    if predicate == "one":
        return f"({x[0]} < {x[1]} or {x[0]} > {x[1]})"
    sign = _COMPARE.get(predicate[1:])
    if sign is None:
        return None
    plain = f"{x[0]} {sign} {x[1]}"
    return f"({plain})" if predicate[0] == "o" else f"({plain} or _unordered({x[0]}, {x[1]}))"


def _rounded(text: str, element: str) -> str:
    return f"({text})" if element not in ROUND else f"_round_{element}({text})"
