"""A node of the IR is known everywhere or nowhere: a new one fails here until every walk has a place for it."""

from __future__ import annotations

from dataclasses import fields

import pytest

from kgen.emit.expressions import source
from kgen.emit.statements import Writer
from kgen.errors import KgenBug
from kgen.ir import build, nodes
from kgen.ir.build import i32, num
from kgen.ir.nodes import (
    I32,
    Access,
    AccessAxis,
    Assign,
    At,
    Axis,
    Binary,
    Call,
    Cast,
    Expand,
    Expr,
    Fixed,
    For,
    If,
    IfExp,
    IndexRef,
    Kernel,
    Load,
    Loop,
    Name,
    Num,
    Part,
    PartAssign,
    Range,
    Read,
    Space,
    Stmt,
    Store,
    StoreTile,
    Transpose,
    Type,
    Unary,
    children,
)
from kgen.ir.parse_expr import SHAPES
from kgen.ir.rewrite import (
    bodies,
    map_block,
    map_expr,
    map_operands,
    map_stmt_exprs,
    stmt_exprs,
    walk_expr,
    with_bodies,
)
from kgen.ir.show import EXPRESSIONS, show, show_expr
from kgen.ir.verify import GONE, Verifier
from kgen.passes.refuse import CALLS
from kgen.plan.liveness import layout
from kgen.verify import program as evaluator
from kgen.verify import program_tiles

T = Axis("t", "BT")
VECTOR, TILE, FLAG = Type((T,)), Type((T, T)), Type((), "bool")
X, V, F = Name("b_x", type=TILE), Name("b_v", type=VECTOR), Name("USE_G", type=FLAG)
SPAN = AccessAxis(i32("T_cur"), num(1), num(0), "BT", num(True))
ACCESS = Access("k", Name("bos", type=Type((), "int64")), (SPAN,))

EXPRS: dict[type[Expr], Expr] = {
    Num: num(2.0),
    Name: X,
    Read: Read("k", (At("t"),), type=VECTOR),
    Part: Part("b_x", (Fixed(num(1)), Range(num(0), num(1))), type=Type((Axis("t[0:1]", "BT"),))),
    Unary: Unary("-", X, type=TILE),
    Binary: build.binary("+", X, X),
    IfExp: IfExp(F, X, X, type=TILE),
    Transpose: build.transpose(X),
    Expand: build.expand(V, 1),
    Call: build.call("exp", (X,)),
    IndexRef: IndexRef(T, type=VECTOR),
    Cast: Cast(X, type=Type(TILE.axes, "@k")),
    Load: Load(ACCESS, type=VECTOR),
}
STMTS: dict[type[Stmt], Stmt] = {
    For: For("tiles", ("bk",), (Space("tiles", "K"),), (Assign("b_y", X),)),
    If: If(F, (Assign("b_y", X),), (Assign("b_y", X),)),
    Assign: Assign("b_y", X),
    PartAssign: PartAssign("b_x", (Fixed(num(1)), Range(num(0), num(1))), V),
    Store: Store("k", (At("t"),), V),
    Loop: Loop("i_k", num(0), i32("K"), num(2), (Assign("b_y", X),)),
    StoreTile: StoreTile(ACCESS, V),
}
LANGUAGE = {Num, Name, Read, Part, Unary, Binary, IfExp, Transpose, Expand, Call, IndexRef}
DEVICE = {Num, Name, Unary, Binary, Transpose, Expand, Call, Cast, Load}
LANGUAGE_STMTS, DEVICE_STMTS = {For, If, Assign, PartAssign, Store}, {If, Assign, Loop, StoreTile}


def subclasses(base: type) -> set[type]:
    return {c for c in vars(nodes).values() if isinstance(c, type) and issubclass(c, base) and c is not base}


def test_every_node_has_a_sample_and_a_dialect() -> None:
    assert set(EXPRS) == subclasses(Expr) == LANGUAGE | DEVICE
    assert set(STMTS) == subclasses(Stmt) == LANGUAGE_STMTS | DEVICE_STMTS


@pytest.mark.parametrize("node", EXPRS.values(), ids=lambda n: type(n).__name__)
def test_walks_see_every_operand(node: Expr) -> None:
    marker = Name("marker", type=Type((), "marker"))
    operands = list(children(node))
    assert map_operands(node, lambda e: e) is node and map_expr(node, lambda e: e) is node
    assert all(c is marker for c in children(map_operands(node, lambda _: marker)))
    assert len(list(walk_expr(node))) == 1 + sum(len(list(walk_expr(c))) for c in operands)
    held = [f.name for f in fields(node) if isinstance(getattr(node, f.name), Expr)]
    assert len(operands) >= len(held)


@pytest.mark.parametrize("stmt", STMTS.values(), ids=lambda n: type(n).__name__)
def test_walks_see_every_expression_and_body(stmt: Stmt) -> None:
    marker = Name("marker", type=Type((), "marker"))
    blocks = [f.name for f in fields(stmt) if f.name in ("body", "orelse")]
    assert len(bodies(stmt)) == len(blocks)
    assert with_bodies(stmt, bodies(stmt)) is stmt and map_block((stmt,), lambda s: s) == (stmt,)
    assert all(inner == () for inner in bodies(with_bodies(stmt, tuple(() for _ in bodies(stmt)))))
    held = [f.name for f in fields(stmt) if isinstance(getattr(stmt, f.name), Expr)]
    assert len(list(stmt_exprs(stmt))) >= len(held)
    assert map_stmt_exprs(stmt, lambda e: e) is stmt
    marked = map_stmt_exprs(stmt, lambda e: map_expr(e, lambda x: marker if not list(children(x)) else x))
    leaves = [x for e in stmt_exprs(marked) for x in walk_expr(e) if not list(children(x))]
    assert all(x is marker for x in leaves)


def kernel(*body: Stmt) -> Kernel:
    task = Loop("i_task", num(0), i32("task_num"), None, (Assign("b_x", build.call("exp", (X,))), *body))
    return Kernel("p", "p", "p.py", ("k",), (task,))


def test_show_knows_every_node() -> None:
    assert set(EXPRESSIONS) == subclasses(Expr)
    for node in EXPRS.values():
        assert show_expr(node)
    for stmt in STMTS.values():
        assert show(kernel(stmt))


def test_verify_looks_into_every_node() -> None:
    for node in EXPRS.values():
        assert type(node).__name__ in Verifier().look(node).kinds
        above = Call("exp", (node,), type=Type(node.type.axes, "fp32"))
        assert type(node).__name__ in Verifier().look(above).kinds


def test_the_printer_knows_what_the_device_does_and_nothing_else() -> None:
    for kind, node in EXPRS.items():
        if kind in DEVICE:
            assert source(node)
        else:
            with pytest.raises(KgenBug, match="no device form"):
                source(node)
    for form, stmt in STMTS.items():
        if form in DEVICE_STMTS:
            assert Writer("p.py", ()).statement(stmt).kind
        else:
            with pytest.raises(KgenBug, match="no device form"):
                Writer("p.py", ()).statement(stmt)


def test_the_evaluator_knows_every_node_of_the_language() -> None:
    assert set(evaluator.EXPRESSIONS) == LANGUAGE - {IndexRef}  # which only says a shape
    assert set(evaluator.STATEMENTS) == LANGUAGE_STMTS


@pytest.mark.parametrize(
    "node", [EXPRS[k] for k in sorted(DEVICE, key=lambda k: k.__name__)], ids=lambda n: type(n).__name__
)
def test_the_planner_places_every_device_node(node: Expr) -> None:
    stored = node if node.type.axes == VECTOR.axes else V
    placed = layout(kernel(Assign("b_y", node), Assign("b_v", V), StoreTile(ACCESS, stored)), 2)
    assert placed.points > 0


@pytest.mark.parametrize(
    "stmt", [STMTS[k] for k in sorted(DEVICE_STMTS, key=lambda k: k.__name__)], ids=lambda n: type(n).__name__
)
def test_the_planner_walks_every_device_statement(stmt: Stmt) -> None:
    assert layout(kernel(stmt), 2).points > 0


def test_a_select_has_a_place_of_its_own() -> None:
    """vsel writes beside its operands, however soon they die; other vector work may write over a dying one."""

    def tiles(made: Expr) -> int:
        sums = build.binary("+", X, X)
        body = Assign("b_s", sums), Assign("b_y", made), StoreTile(ACCESS, build.call("sum", (Name("b_y", type=TILE),)))
        return sum(b.rows == "BT" and not b.scratch for b in layout(kernel(*body), 4).buffers)

    summed = Name("b_s", type=TILE)
    assert tiles(build.call("maximum", (summed, summed))) + 1 == tiles(
        build.call("where", (build.binary(">", summed, build.num(0.0)), summed, build.num(0.0)))
    )


# ---------------------------------------------------------------- built-ins

OPERANDS: dict[str, tuple[Expr, ...]] = {
    "dot": (X, X), "sum": (X,), "max": (X,), "cumsum": (V,), "maximum": (X, X), "minimum": (X, X), "tril": (X,),
    "where": (Binary("==", X, X, type=Type(TILE.axes, "bool")), X, X),
}  # fmt: skip
BUILTINS = {
    **{fn: build.call(fn, OPERANDS.get(fn, (X,))) for fn in build.ARITY if fn != "index"},
    "index": Call("index", (IndexRef(T),), type=Type((T,), "int32")),
    "full": Call("full", (num(0.0), IndexRef(T)), type=VECTOR),
    "eye": Call("eye", (IndexRef(T), IndexRef(T)), type=TILE),
}


def test_every_builtin_is_listed() -> None:
    assert set(BUILTINS) == {*build.ARITY, *SHAPES} - {"zeros"}  # zeros is a full


@pytest.mark.parametrize("fn", sorted(BUILTINS))
def test_every_builtin_is_lowered_or_refused(fn: str) -> None:
    """It has a device form, or a pass leaves none of it, or a program that says it is refused."""
    gone = {kind for _, kinds, _ in GONE for kind in kinds}
    if f"{fn}()" in gone or fn in CALLS:
        return
    assert source(BUILTINS[fn]).startswith("tl.")


@pytest.mark.parametrize("fn", sorted(BUILTINS))
def test_every_builtin_has_a_reference_meaning(fn: str) -> None:
    own = {"full", "eye", "index", "dot", "sum", "max", "cumsum", "tril"}
    assert fn in own or fn in program_tiles.FUNCTIONS


def test_integers_are_int32() -> None:
    assert i32("i_t").type == I32 and num(3).type == I32 and num(True).type == FLAG
