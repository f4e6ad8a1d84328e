"""Whatever a program file holds, the parser answers with a kernel or a `KgenError`; and text and nodes agree."""

from __future__ import annotations

import ast
import random
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from kgen.errors import KgenError
from kgen.ir.build import num
from kgen.ir.nodes import Assign, At, Expr, Fixed, For, IndexRef, Kernel, Part, Range, Read
from kgen.ir.parse import parse_kernel
from kgen.ir.parse_expr import parse_expr
from kgen.ir.rewrite import stmt_exprs, walk_block, walk_expr
from kgen.ir.scope import Local, Scope, flag_of
from kgen.ir.show import program_words, show, show_expr
from kgen.spec.load import load_spec

ROOT = Path(__file__).parents[2]
SPEC = load_spec(ROOT / "specs" / "gdn.yaml").spec
SOURCES = {name: (ROOT / "specs" / k.program.partition(":")[0]).read_text() for name, k in SPEC.kernels.items()}
WORDS = sorted(
    {word for source in SOURCES.values() for word in source.replace("(", " ( ").replace("[", " [ ").split()}
    | {"lambda:", "@", "**", "//", "not", "and", "while", "import", "0x1f", "1e400", "-", ":", ",", "]", ")", "None"}
    | {"last(t)", "t + 1", ".T", "tasks(", "scan(chunks(n))", "range(3)", "x = y", "if g:", "else:", "\n        ", "ö"}
)


def parse(kernel: str, source: str) -> Kernel | None:
    """The kernel, or None after a KgenError that can be shown; anything else fails the test."""
    try:
        return parse_kernel(SPEC, kernel, source, "p.py")
    except KgenError as error:
        assert error.code and error.message and error.render()
        return None


@given(st.sampled_from(sorted(SOURCES)), st.text(max_size=300))
@settings(max_examples=150, deadline=None)
def test_random_text_is_an_error(kernel: str, text: str) -> None:
    parse(kernel, text)
    name = SPEC.kernels[kernel].program.partition(":")[2]
    parse(kernel, f"def {name}(k, g, beta, A):\n    for t in tasks(chunks(T), heads(HV)):\n        a = {text}\n")


@given(st.sampled_from(sorted(SOURCES)), st.integers(0, 2**32), st.integers(1, 4))
@settings(max_examples=300, deadline=None)
def test_text_edited_at_random_never_breaks_the_parser(kernel: str, seed: int, edits: int) -> None:
    rng, text = random.Random(seed), SOURCES[kernel]
    for _ in range(edits):
        start = rng.randrange(len(text))
        stop = min(len(text), start + rng.choice((0, 1, 1, 2, 5, 30)))
        text = text[:start] + rng.choice((rng.choice(WORDS), " " + rng.choice(WORDS) + " ", "")) + text[stop:]
    parse(kernel, text)


class _Mutator(ast.NodeTransformer):
    """Replaces some expressions by others of the same file, so that most results are still Python."""

    def __init__(self, rng: random.Random, pool: list[ast.expr], chance: float) -> None:
        self.rng, self.pool, self.chance = rng, pool, chance

    def generic_visit(self, node: ast.AST) -> ast.AST:
        node = super().generic_visit(node)
        loaded = isinstance(node, ast.expr) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
        return self.rng.choice(self.pool) if loaded and self.rng.random() < self.chance else node


@given(st.sampled_from(sorted(SOURCES)), st.integers(0, 2**32), st.sampled_from((0.01, 0.03, 0.1)))
@settings(max_examples=300, deadline=None)
def test_expressions_moved_at_random_never_break_parser_or_printer(kernel: str, seed: int, chance: float) -> None:
    tree = ast.parse(SOURCES[kernel])
    pool = [
        n for n in ast.walk(tree) if isinstance(n, ast.expr) and isinstance(getattr(n, "ctx", ast.Load()), ast.Load)
    ]
    pool += [ast.Constant(value) for value in (0, 1, -1, 2.5, 10**12, None, "x", True, ...)]
    mutated = _Mutator(random.Random(seed), pool, chance).visit(tree)
    try:
        text = ast.unparse(ast.fix_missing_locations(mutated))
    except (ValueError, AttributeError, RecursionError):
        return
    parsed = parse(kernel, text)
    if parsed is not None:
        assert show(parsed)


# ---------------------------------------------------------------- printing, then parsing, is the identity

SCOPE_SOURCE = "def kkt(k, g, beta, A):\n    for t in tasks(chunks(T), heads(HV)):\n        pass\n"


def scope_of(kernel: Kernel) -> Scope:
    """A scope in which every expression of a parsed kernel means what it did: all names and flags at once."""
    entry = SPEC.kernels[kernel.name]
    named = {p: SPEC.tensors[entry.bind.get(p, p)] for p in kernel.params}
    tensors = {p: t.model_copy(update={"optional": t.optional and p not in entry.given}) for p, t in named.items()}
    loop = kernel.body[0]
    assert isinstance(loop, For)
    head = next(s.over for s in loop.spaces if s.kind == "heads")
    return Scope(SPEC, "p.py", SCOPE_SOURCE, tensors, head=head, flags=frozenset(map(flag_of, tensors)),
                 indices={v.name: v for v in kernel.indices})  # fmt: skip


def reparsed(text: str, scope: Scope) -> Expr:
    return parse_expr(ast.parse(text, mode="eval").body, scope)


def test_every_expression_of_every_program_prints_as_itself() -> None:
    count = 0
    for name, source in SOURCES.items():
        kernel = parse_kernel(SPEC, name, source, "p.py")
        scope, words = scope_of(kernel), program_words(kernel)
        for stmt in walk_block(kernel.body):
            for node in (e for own in stmt_exprs(stmt) for e in walk_expr(own)):
                if not isinstance(node, IndexRef) and node.type.dtype != "bool":
                    assert reparsed(show_expr(node, words), scope) == node, show_expr(node, words)
                    count += 1
            if isinstance(stmt, Assign):
                scope.locals[stmt.target] = Local(stmt.value.type)
    assert count > 100


def leaves(depth: int) -> st.SearchStrategy[str]:
    """Texts of expressions of two axes `[t, t]`."""
    tiles = st.sampled_from(("a", "b", "zeros(t, t)", "eye(t)", "beta[t][:, None]", "beta[t][None, :]", "A0[t]"))
    scalars = st.sampled_from(("scale", "2.0", "-1.5", "1e-06", "inf", "-inf", "K", "3", "sum(a)", "g[last(t)]"))
    base = st.one_of(tiles, tiles, scalars)
    return st.recursive(base, _grown, max_leaves=depth)


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    binary = st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda x: f"({x[0]}) {x[1]} ({x[2]})")
    loose = st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda x: f"{x[0]} {x[1]} {x[2]}")
    choice = st.tuples(inner, inner).map(lambda x: f"(({x[0]}) if g else ({x[1]}))")
    call = st.tuples(st.sampled_from(("exp2({})", "tril({}, -1)", "-({})", "({}).T", "sum({}, 1)[:, None]")), inner)
    two = st.tuples(st.sampled_from(("maximum({}, {})", "dot({}, {})", "where(({}) == ({}), a, 1.0)")), inner, inner)
    parts = st.sampled_from(
        ("a[2, 0:3][:, None]", "a[0:4, 0:4]", "sum(cumsum(a[1], 0, reverse=reverse))", "a[:, 3][:, None]")
    )
    return st.one_of(
        binary, loose, choice, parts, call.map(lambda x: x[0].format(x[1])), two.map(lambda x: x[0].format(x[1], x[2]))
    )


@given(leaves(12))
@settings(max_examples=400, deadline=None)
def test_printing_then_parsing_an_expression_is_the_identity(text: str) -> None:
    kernel = parse_kernel(SPEC, "chunk_scaled_dot_kkt", SOURCES["chunk_scaled_dot_kkt"], "p.py")
    scope = scope_of(kernel)
    scope.tensors["A0"] = SPEC.tensors["A"]
    a = reparsed("zeros(t, t)", scope)
    scope.locals.update(a=Local(a.type), b=Local(a.type))
    try:
        node = reparsed(text, scope)
    except KgenError:
        return
    shown = show_expr(node, {"USE_G": "g", "REVERSE": "reverse"})
    again = reparsed(shown, scope)
    assert again == node, (text, shown)
    assert show_expr(again, {"USE_G": "g", "REVERSE": "reverse"}) == shown


def test_indices_print_in_the_language() -> None:
    whole = Read("q", (At("t", 1), Fixed(num(3)), Range(num(0), num(4))))
    assert show_expr(whole) == "q[t + 1, 3, 0:4]"
    assert show_expr(Part("S", (At("bk", -2),))) == "S[bk - 2]"
