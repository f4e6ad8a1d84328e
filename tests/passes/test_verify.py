"""The verifier's own tests: a kernel broken in one way after a pass is named with what and where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kgen.errors import KgenBug
from kgen.ir import build
from kgen.ir.build import i32
from kgen.ir.nodes import (
    F32,
    I64,
    Access,
    Assign,
    Axis,
    Binary,
    Call,
    Cast,
    Expr,
    If,
    Kernel,
    Load,
    Loop,
    Name,
    Stmt,
    StoreTile,
    Type,
)
from kgen.ir.rewrite import map_block, map_expr, map_stmt_exprs, with_body
from kgen.ir.verify import verify
from kgen.passes import Context, lower

from .conftest import GDN
from .test_deletion import parsed

STAGES = {k: dict(lower(parsed(k), Context(GDN, k))) for k in ("chunk_fwd_o", "chunk_delta_h", "recompute_w_u")}


def on_exprs(kernel: Kernel, fn: Callable[[Expr], Expr]) -> Kernel:
    return with_body(kernel, map_block(kernel.body, lambda s: map_stmt_exprs(s, lambda e: map_expr(e, fn))))


def on_access(kernel: Kernel, fn: Callable[[Access], Access]) -> Kernel:
    def stmt(s: Stmt) -> Stmt:
        return replace(s, access=fn(s.access)) if isinstance(s, StoreTile) else s

    kernel = on_exprs(kernel, lambda e: replace(e, access=fn(e.access)) if isinstance(e, Load) else e)
    return with_body(kernel, map_block(kernel.body, stmt))


def insert(kernel: Kernel, *stmts: Stmt) -> Kernel:
    """Statements at the end of the task loop."""
    loop = kernel.body[0]
    assert isinstance(loop, Loop)
    return with_body(kernel, (replace(loop, body=(*loop.body, *stmts)),))


def drop(kernel: Kernel, target: str) -> Kernel:
    return with_body(
        kernel, map_block(kernel.body, lambda s: () if isinstance(s, Assign) and s.target == target else s)
    )


def narrow(a: Access) -> Access:
    return replace(a, base=i32("i_hv")) if a.axes else a


def late(a: Access) -> Access:
    product = build.binary("*", i32("i_hv"), i32("BT"))
    return replace(a, base=build.cast(product, "int64")) if a.axes else a


def wide(a: Access) -> Access:
    return replace(a, axes=tuple(replace(x, offset=build.cast(x.offset, "int64")) for x in a.axes))


T = Axis("t", "BT")
VECTOR, LANES = Type((T,), "fp32"), Type((Axis("bv", "BV"),))
X = Assign("b_x", Call("full", (build.num(0.0),), type=VECTOR))
BROKEN: dict[str, tuple[str, str, Callable[[Kernel], Kernel], str]] = {
    "int32 base": ("chunk_fwd_o", "addresses", lambda k: on_access(k, narrow), "narrow base"),
    "base widened after its product": ("chunk_fwd_o", "addresses", lambda k: on_access(k, late), "K101"),
    "int64 offset": ("chunk_fwd_o", "addresses", lambda k: on_access(k, wide), "K103"),
    "name without a value": ("chunk_fwd_o", "masks", lambda k: drop(k, "b_q"), "'b_q' has no value on some path"),
    "name without its flag": (
        "chunk_fwd_o", "signature",
        lambda k: insert(k, Assign("b_y", Name("b_g", type=VECTOR))), "'b_g' has no value on some path",
    ),
    "name after its loop": (
        "recompute_w_u", "signature",
        lambda k: insert(k, Assign("b_y", Name("b_k", type=Type((T, Axis("bk", "BK")), "@k")))), "'b_k' has no value",
    ),
    "another type than assigned": (
        "chunk_fwd_o", "signature",
        lambda k: insert(k, X, Assign("b_y", Name("b_x", type=Type((T,), "@q")))),
        "read as @q[t] and was assigned fp32[t]",
    ),
    "other axes than assigned": (
        "chunk_fwd_o", "signature",
        lambda k: insert(k, X, Assign("b_y", Name("b_x", type=F32))), "was assigned fp32[t]",
    ),
    "sum of other axes": (
        "chunk_fwd_o", "signature",
        lambda k: insert(k, X, Assign("b_y", Binary("+", Name("b_x", type=VECTOR), i32("i_t"), type=F32))),
        "its operands make fp32[t]",
    ),
    "elementwise axes that differ": (
        "chunk_fwd_o", "signature",
        lambda k: insert(k, Assign("b_y", Binary("*", X.value, Name("o", type=LANES), type=VECTOR))),
        "axis t against bv",
    ),
    "cast that reshapes": (
        "chunk_fwd_o", "signature",
        lambda k: insert(k, X, Assign("b_y", Cast(X.value, type=I64))), "its operands make int64[t]",
    ),
    "something carried across tasks": (
        "chunk_fwd_o", "signature", lambda k: replace(insert(k, X), prologue=(*k.prologue, X)), "K502",
    ),
    "loop variable assigned": (
        "chunk_fwd_o", "signature", lambda k: insert(k, Assign("i_task", i32("i_c"))), "a loop's variable and assigned",
    ),
    "one loop variable twice": (
        "chunk_fwd_o", "signature",
        lambda k: insert(k, Loop("i_task", build.num(0), build.num(2), None, ())), "count 'i_task'",
    ),
    "no loop over tasks": ("chunk_fwd_o", "signature", lambda k: with_body(k, k.body + k.body), "one loop over tasks"),
    "device node too early": (
        "chunk_fwd_o", "choices",
        lambda k: on_exprs(k, lambda e: build.cast(e, "int64") if isinstance(e, Name) else e), "only widen makes it",
    ),
    "argument missing": ("chunk_fwd_o", "signature", lambda k: replace(k, scalars=()), "'scale' has no value"),
}  # fmt: skip


@pytest.mark.parametrize("title", BROKEN)
def test_broken(title: str) -> None:
    kernel, stage, breaks, message = BROKEN[title]
    whole = STAGES[kernel][stage]
    verify(whole, stage)
    with pytest.raises(KgenBug) as caught:
        verify(breaks(whole), stage)
    text = str(caught.value)
    assert message in text and f"after {stage}: kernel {kernel} (programs/delta_rule.py" in text


def test_a_value_on_both_sides_of_a_flag_is_a_value() -> None:
    flag = Name("USE_G", type=Type((), "bool"))
    k = STAGES["chunk_fwd_o"]["signature"]
    read = Assign("b_y", Name("b_x", type=VECTOR))
    verify(insert(k, If(flag, (X,), (X,)), read), "signature")
    verify(insert(k, If(flag, (X,)), If(flag, (read,))), "signature")
    with pytest.raises(KgenBug):
        verify(insert(k, If(flag, (X,)), If(flag, (), (read,))), "signature")


def test_an_unknown_stage_is_named() -> None:
    with pytest.raises(KgenBug, match="no stage 'nothing'"):
        verify(STAGES["chunk_fwd_o"]["parse"], "nothing")
