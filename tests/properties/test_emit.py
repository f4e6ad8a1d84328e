"""Printed expressions mean what their trees mean, and breaking a long line changes no token of it."""

from __future__ import annotations

import io
import math
import tokenize
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgen.emit.expressions import PRECEDENCE, source
from kgen.emit.layout import WIDTH, wrap
from kgen.emit.literals import literal, quoted
from kgen.emit.statements import Writer
from kgen.errors import KgenBug
from kgen.ir import build
from kgen.ir.nodes import Assign, Binary, Call, Cast, Expr, Name, Num, Type, Unary
from kgen.ir.scope import source_lines
from kgen.ir.show import show_expr

BOOL, I32 = Type((), "bool"), Type((), "int32")
INTEGERS = {"i_t": 3, "i_k": -2, "T_cur": 17, "BT": 5}
FLOATS = {"b_x": 0.5, "b_y": -3.25, "scale": 7.0}
FLAGS = {"USE_G": True, "REVERSE": False}


class Tl:
    """Scalars' share of `triton.language`."""

    minimum, maximum = staticmethod(min), staticmethod(max)
    cdiv = staticmethod(lambda a, b: -(-a // b))
    cast = staticmethod(lambda x, dtype: dtype(x))
    exp = staticmethod(lambda x: math.exp(min(x, 50.0)))
    abs = staticmethod(abs)
    where = staticmethod(lambda c, a, b: a if c else b)
    int32, int64, float32 = int, int, float


def evaluate(e: Expr) -> Any:
    """The tree itself, with no text between."""
    if isinstance(e, Num):
        return e.value
    if isinstance(e, Name):
        return {**INTEGERS, **FLOATS, **FLAGS}[e.id]
    if isinstance(e, Unary):
        return -evaluate(e.x)
    if isinstance(e, Cast):
        return {"int64": int, "int32": int, "fp32": float}[e.type.dtype](evaluate(e.x))
    if isinstance(e, Binary):
        return _binary(e.op, evaluate(e.a), evaluate(e.b))
    assert isinstance(e, Call)
    return getattr(Tl, e.fn)(*map(evaluate, e.args))


def _binary(op: str, a: Any, b: Any) -> Any:
    if op in ("and", "or"):
        return (a and b) if op == "and" else (a or b)
    if op in ("//", "%", "/") and b == 0:
        raise ZeroDivisionError
    table = {
        "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a / b, "//": lambda: a // b,
        "%": lambda: a % b, "==": lambda: a == b, "!=": lambda: a != b, "<": lambda: a < b, "<=": lambda: a <= b,
        ">": lambda: a > b, ">=": lambda: a >= b, "&": lambda: a & b,
    }  # fmt: skip
    return table[op]()


def integers() -> st.SearchStrategy[Expr]:
    leaf = st.one_of(
        st.integers(-9, 9).map(build.num), st.sampled_from(sorted(INTEGERS)).map(lambda n: Name(n, type=I32))
    )
    return st.recursive(
        leaf,
        lambda x: st.one_of(
            st.tuples(st.sampled_from(("+", "-", "*", "//", "%")), x, x).map(lambda t: build.binary(*t)),
            st.tuples(st.sampled_from(("minimum", "maximum", "cdiv")), x, x).map(
                lambda t: Call(t[0], (t[1], t[2]), type=I32)
            ),
            x.map(lambda e: Unary("-", e, type=e.type)),
            x.map(lambda e: Cast(e, type=Type((), "int64"))),
        ),
        max_leaves=12,
    )


def floats() -> st.SearchStrategy[Expr]:
    leaf = st.one_of(
        st.floats(-4, 4, allow_nan=False).map(build.num),
        st.sampled_from(("inf", "-inf")).map(lambda x: build.num(float(x))),
        st.sampled_from(sorted(FLOATS)).map(build.name),
        integers(),
    )
    return st.recursive(
        leaf,
        lambda x: st.one_of(
            st.tuples(st.sampled_from(("+", "-", "*", "/")), x, x).map(lambda t: build.binary(*t)),
            st.tuples(st.sampled_from(("minimum", "maximum")), x, x).map(lambda t: Call(t[0], t[1:], type=build.F32)),
            st.tuples(st.sampled_from(("exp", "abs")), x).map(lambda t: Call(t[0], t[1:], type=build.F32)),
            x.map(lambda e: Unary("-", e, type=build.F32)),
        ),
        max_leaves=12,
    )


def conditions() -> st.SearchStrategy[Expr]:
    compare = st.tuples(st.sampled_from(("==", "!=", "<", "<=", ">", ">=")), integers(), integers())
    leaf = st.one_of(
        compare.map(lambda t: build.binary(*t)),
        st.sampled_from(sorted(FLAGS)).map(lambda n: Name(n, type=BOOL)),
        st.booleans().map(build.num),
    )
    both = ("and", "or", "==", "!=", "&")
    return st.recursive(
        leaf, lambda x: st.tuples(st.sampled_from(both), x, x).map(lambda t: build.binary(*t)), max_leaves=8
    )


def agrees(e: Expr) -> None:
    try:
        want = evaluate(e)
    except (ZeroDivisionError, OverflowError):
        return
    text = source(e)
    got = eval(text, {"tl": Tl, "float": float, **INTEGERS, **FLOATS, **FLAGS})
    same = got == want or (isinstance(want, float) and math.isnan(want) and math.isnan(got))
    assert same and type(got) is type(want), (text, want, got)


@given(st.one_of(integers(), floats(), conditions()))
@settings(max_examples=600, deadline=None)
def test_printed_expressions_mean_their_trees(e: Expr) -> None:
    agrees(e)


@given(integers())
@settings(max_examples=150, deadline=None)
def test_an_augmented_assignment_means_the_assignment(e: Expr) -> None:
    """`x = x - (a + b)` prints as `x -= a + b`."""
    for op in "+-*":
        whole = build.binary(op, Name("i_t", type=I32), e)
        line = Writer("p.py", ()).statement(Assign("i_t", whole)).fields
        try:
            want = evaluate(whole)
        except (ZeroDivisionError, OverflowError):
            return
        scope: dict[str, Any] = {"tl": Tl, **INTEGERS}
        exec(f"{line['target']} {line['op']} {line['value']}", scope)
        assert scope["i_t"] == want


def test_parentheses_only_where_needed() -> None:
    a, b, c = (Name(n, type=I32) for n in "abc")
    assert source(build.binary("-", build.binary("-", a, b), c)) == "a - b - c"
    assert source(build.binary("-", a, build.binary("-", b, c))) == "a - (b - c)"
    assert source(build.binary("*", build.binary("+", a, b), c)) == "(a + b) * c"
    assert source(build.binary("+", build.binary("*", a, b), c)) == "a * b + c"
    assert source(build.binary("==", build.binary("==", a, b), c)) == "(a == b) == c"
    assert source(Unary("-", build.binary("*", a, b))) == "-(a * b)"
    assert set(PRECEDENCE) >= {"+", "-", "*", "/", "//", "%", "==", "!=", "<", "<=", ">", ">=", "&", "and", "or"}


def test_nan_is_never_printed() -> None:
    with pytest.raises(KgenBug):
        source(build.num(math.nan))


@given(floats())
@settings(max_examples=100, deadline=None)
def test_printing_is_deterministic_and_one_line(e: Expr) -> None:
    assert source(e) == source(e)
    assert "\n" not in source(e) and "\n" not in show_expr(e)


# ---------------------------------------------------------------- long lines


def tokens(text: str) -> list[str]:
    """Tokens, less layout and the commas that may end an argument list."""
    skip = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    words = [t.string for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type not in skip]
    return [w for w, after in zip(words, [*words[1:], ""], strict=True) if not (w == "," and after in {")", "]", "}"})]


def texts() -> st.SearchStrategy[str]:
    """Statements with calls, tuples, subscripts and strings that look like both."""
    leaf = st.sampled_from(
        ("b_x", "i_t * BT", "1.0", '"a, b"', '"(["', "'q: [B, T'", "x[:, None]", "x[a, b]", "f(x)", "(x,)", "{}", "[]")
    )
    many = lambda x: st.lists(x, min_size=1, max_size=7)  # noqa: E731
    return st.recursive(
        leaf,
        lambda x: st.one_of(
            many(x).map(lambda a: f"tl.function_of({', '.join(a)})"),
            many(x).map(lambda a: f"({', '.join(a)},)"),
            many(x).map(lambda a: f"[{', '.join(a)}]"),
            many(x).map(lambda a: "{" + ", ".join(f'"k{n}": {v}' for n, v in enumerate(a)) + "}"),
            st.tuples(x, x).map(lambda t: f"{t[0]} + ({t[1]})"),
            x.map(lambda t: f"name = keyword({t})".removeprefix("name = ")),
        ),
        max_leaves=40,
    )


@given(texts(), st.sampled_from((0, 4, 12, 40)))
@settings(max_examples=400, deadline=None)
def test_wrapping_changes_no_token(text: str, indent: int) -> None:
    statement = f"b_result = {text}"
    lines = wrap(statement, indent)
    assert all(line.startswith(" " * indent) for line in lines)
    block = f"if True:\n{chr(10).join(lines)}\n" if indent else "\n".join(lines) + "\n"
    assert tokens(block)[(3 if indent else 0) :] == tokens(statement + "\n")
    compile(block, "block", "exec")
    assert len(wrap(statement, indent)) == len(lines) and (len(" " * indent + statement) > WIDTH or len(lines) == 1)


@given(texts())
@settings(max_examples=100, deadline=None)
def test_a_tuple_of_one_stays_a_tuple(text: str) -> None:
    block = "\n".join(wrap(f"x = ({text} + {'a_long_name' * 12},)", 0))
    tree = compile(block, "block", "exec", 0x400)
    assert type(tree.body[0].value).__name__ == "Tuple", block  # type: ignore[attr-defined]


@given(st.text(max_size=40))
def test_a_quoted_text_is_itself(text: str) -> None:
    assert eval(quoted(text)) == text
    assert eval(literal({text: (text,)})) == {text: (text,)}
    assert "\n" not in quoted(text)


@given(st.text(max_size=60))
def test_a_program_line_fits_in_a_comment(text: str) -> None:
    """Whatever a program holds, a line of it in a comment is one line."""
    for line in source_lines(text):
        assert len(f"# {line}".splitlines()) <= 1
