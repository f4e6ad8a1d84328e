"""The reader of the final IR: every node from text, names, places, unknown operations, errors with their line."""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kgen.errors import KgenError
from kgen.virtual.hivm import HivmError, Module, parse_module
from kgen.virtual.hivm import nodes as n
from kgen.virtual.hivm.affine import AffineMap, Binary, parse_affine_map
from kgen.virtual.hivm.lexer import Tokens
from kgen.virtual.hivm.read_types import read_memref
from kgen.virtual.hivm.types import MemRef, Scalar, element_bits, row_major

MAPS = """\
#map = affine_map<(d0)[s0] -> (d0 * 2 + s0)>
#map1 = affine_map<()[s0, s1] -> (s0 ceildiv 4, s1 - 3)>
"""
LOCS = """\
#loc1 = loc("/tmp/dir/kernels.py":12:4)
#loc2 = loc(unknown)
#loc3 = loc("/tmp/dir/helpers.py":7:1)
#loc4 = loc(callsite(#loc3 at #loc1))
"""
TILE = "memref<8x16xf32, #hivm.address_space<ub>>"
AIV = "attributes {hivm.func_core_type = #hivm.func_core_type<AIV>}"
GM, UB, CC = (f"#hivm.address_space<{space}>" for space in ("gm", "ub", "cc"))
ARGUMENTS = (
    f"%arg0: i32, %arg1: memref<?xf32, {GM}>, %arg2: i1, %arg3: index, %arg4: memref<8x16xf32, {UB}>, "
    f"%arg5: f32, %arg6: i64, %arg7: memref<?xi8, {GM}>, %arg8: memref<1x8x1x16xf32, {UB}>, %arg9: memref<?xi32, {GM}>"
)
F32_8x16 = MemRef((8, 16), "f32", "ub")
I32, I64, I1, F32, INDEX = (Scalar(e) for e in ("i32", "i64", "i1", "f32", "index"))


def module(*lines: str, arguments: str = ARGUMENTS, maps: str = MAPS) -> str:
    """A vector function with these lines; the first of them is line 4."""
    return "\n".join([f"{maps}func.func @k({arguments}) {AIV} {{", *lines, "return", "}", LOCS])


def body(*lines: str, **how: str) -> n.Block:
    """The operations of these lines, without the `return`."""
    (function,) = parse_module(module(*lines, **how)).functions
    assert isinstance(function.body[-1], n.Return)
    return function.body[:-1]


def subview_type(shape: str, strides: str) -> str:
    return f"memref<{shape}xf32, strided<[{strides}], offset: ?>, {UB}>"


NODES: list[tuple[str, n.Operation]] = [
    ("%a = arith.constant 7 : i32", n.Constant(4, None, "%a", 7, I32)),
    ("%a = arith.constant -3 : index", n.Constant(4, None, "%a", -3, INDEX)),
    ("%a = arith.constant true", n.Constant(4, None, "%a", 1, I1)),
    ("%a = arith.constant false", n.Constant(4, None, "%a", 0, I1)),
    ("%a = arith.constant 5.000000e-01 : f32", n.Constant(4, None, "%a", 0.5, F32)),
    ("%a = arith.constant -1.500000e+00 : bf16", n.Constant(4, None, "%a", -1.5, Scalar("bf16"))),
    ("%a = arith.constant 0xFF800000 : f32", n.Constant(4, None, "%a", -math.inf, F32)),
    ("%a = arith.constant 0x7F80 : bf16", n.Constant(4, None, "%a", math.inf, Scalar("bf16"))),
    ("%a = arith.constant 0x7C00 : f16", n.Constant(4, None, "%a", math.inf, Scalar("f16"))),
    ("%a = llvm.mlir.constant(4 : i64) : i64", n.Constant(4, None, "%a", 4, I64)),
    ("%a = llvm.mlir.constant(true) : i1", n.Constant(4, None, "%a", 1, I1)),
    ("%a = arith.addi %arg0, %arg0 : i32", n.Arith(4, None, "%a", "addi", ("%arg0", "%arg0"), None, I32, I32)),
    (
        "%a = arith.addi %arg0, %arg0 overflow<nsw> : i32",
        n.Arith(4, None, "%a", "addi", ("%arg0", "%arg0"), None, I32, I32),
    ),
    (
        "%a = arith.mulf %arg5, %arg5 fastmath<contract> : f32",
        n.Arith(4, None, "%a", "mulf", ("%arg5", "%arg5"), None, F32, F32),
    ),
    ("%a = math.sqrt %arg5 : f32", n.Arith(4, None, "%a", "sqrt", ("%arg5",), None, F32, F32)),
    (
        "%a = arith.cmpi slt, %arg0, %arg0 : i32",
        n.Arith(4, None, "%a", "cmpi", ("%arg0", "%arg0"), "slt", I32, I1),
    ),
    (
        "%a = arith.cmpf une, %arg5, %arg5 : f32",
        n.Arith(4, None, "%a", "cmpf", ("%arg5", "%arg5"), "une", F32, I1),
    ),
    ("%a = arith.index_cast %arg0 : i32 to index", n.Arith(4, None, "%a", "index_cast", ("%arg0",), None, I32, INDEX)),
    (
        "%a = arith.select %arg2, %arg0, %arg0 : i32",
        n.Arith(4, None, "%a", "select", ("%arg2", "%arg0", "%arg0"), None, I32, I32),
    ),
    (
        f"%a = arith.select %arg2, %arg4, %arg4 : memref<8x16xf32, {UB}>",
        n.Arith(4, None, "%a", "select", ("%arg2", "%arg4", "%arg4"), None, F32_8x16, F32_8x16),
    ),
    (
        "%a = affine.apply #map(%arg3)[%arg3]",
        n.Affine(
            4, None, "%a", "apply", AffineMap(("d0",), ("s0",), (Binary("+", Binary("*", "d0", 2), "s0"),)),
            ("%arg3", "%arg3"),
        ),
    ),
    (
        "%a = affine.min #map1()[%arg3, %arg3]",
        n.Affine(
            4, None, "%a", "min", AffineMap((), ("s0", "s1"), (Binary("ceildiv", "s0", 4), Binary("-", "s1", 3))),
            ("%arg3", "%arg3"),
        ),
    ),
    (
        f"%a = hivm.hir.pointer_cast(%arg6) : memref<8x16xf32, {UB}>",
        n.PointerCast(4, None, "%a", ("%arg6",), (), F32_8x16),
    ),
    (
        f"%a = hivm.hir.pointer_cast(%arg6, %arg6)[%arg3] : memref<?x16xf32, {UB}>",
        n.PointerCast(4, None, "%a", ("%arg6", "%arg6"), ("%arg3",), MemRef((None, 16), "f32", "ub")),
    ),
    (
        f"%a = memref.view %arg7[%arg3][] : memref<?xi8, {GM}> to memref<4x16xf32, {GM}>",
        n.View(4, None, "%a", "%arg7", "%arg3", (), MemRef((4, 16), "f32", "gm")),
    ),
    (
        f"%a = memref.view %arg7[%arg3][%arg3] : memref<?xi8, {GM}> to memref<?x16xf32, {GM}>",
        n.View(4, None, "%a", "%arg7", "%arg3", ("%arg3",), MemRef((None, 16), "f32", "gm")),
    ),
    (
        f"%a = memref.reinterpret_cast %arg1 to offset: [%arg3], sizes: [8, 16], strides: [%arg3, 1] : "
        f"memref<?xf32, {GM}> to memref<8x16xf32, strided<[?, 1], offset: ?>, {GM}>",
        n.Reinterpret(
            4, None, "%a", "%arg1", "%arg3", (8, 16), ("%arg3", 1), MemRef((8, 16), "f32", "gm", (None, 1), None)
        ),
    ),
    (
        f"%a = memref.reinterpret_cast %arg1 to offset: [-4], sizes: [], strides: [] : "
        f"memref<?xf32, {GM}> to memref<f32, strided<[], offset: -4>, {GM}>",
        n.Reinterpret(4, None, "%a", "%arg1", -4, (), (), MemRef((), "f32", "gm", (), -4)),
    ),
    (
        f"%a = memref.subview %arg4[%arg3, 0] [1, 16] [1, 1] : memref<8x16xf32, {UB}> to {subview_type('16', '1')}",
        n.Subview(
            4, None, "%a", "%arg4", ("%arg3", 0), (1, 16), (1, 1), (1,), MemRef((16,), "f32", "ub", (1,), None)
        ),
    ),
    (
        f"%a = memref.subview %arg4[2, 4] [%arg3, 8] [2, 1] : memref<8x16xf32, {UB}> to "
        f"memref<?x8xf32, strided<[32, 1], offset: 36>, {UB}>",
        n.Subview(
            4, None, "%a", "%arg4", (2, 4), ("%arg3", 8), (2, 1), (0, 1), MemRef((None, 8), "f32", "ub", (32, 1), 36)
        ),
    ),
    (
        f"%a = memref.collapse_shape %arg8 [[0, 1], [2, 3]] : memref<1x8x1x16xf32, {UB}> into memref<8x16xf32, {UB}>",
        n.Collapse(4, None, "%a", "%arg8", ((0, 1), (2, 3)), F32_8x16),
    ),
    (
        f"%a = memref.expand_shape %arg4 [[0, 1], [2]] output_shape [2, 4, 16] : memref<8x16xf32, {UB}> into "
        f"memref<2x4x16xf32, {UB}>",
        n.Expand(4, None, "%a", "%arg4", ((0, 1), (2,)), (2, 4, 16), MemRef((2, 4, 16), "f32", "ub")),
    ),
    (
        f"%a = memref.expand_shape %arg4 [[0, 1], [2]] : memref<8x16xf32, {UB}> into memref<2x4x16xf32, {UB}>",
        n.Expand(4, None, "%a", "%arg4", ((0, 1), (2,)), (2, 4, 16), MemRef((2, 4, 16), "f32", "ub")),
    ),
    (
        f"%a = memref.transpose %arg4 (d0, d1) -> (d1, d0) : memref<8x16xf32, {UB}> to "
        f"memref<16x8xf32, strided<[1, 16]>, {UB}>",
        n.Transpose(4, None, "%a", "%arg4", (1, 0), MemRef((16, 8), "f32", "ub", (1, 16), 0)),
    ),
    (
        f"%a = memref.cast %arg4 : memref<8x16xf32, {UB}> to memref<?x?xf32, strided<[?, ?], offset: ?>, {UB}>",
        n.Alias(4, None, "%a", "%arg4", MemRef((None, None), "f32", "ub", (None, None), None)),
    ),
    (
        f"%a = memref.memory_space_cast %arg4 : memref<8x16xf32, {UB}> to memref<8x16xf32>",
        n.Alias(4, None, "%a", "%arg4", MemRef((8, 16), "f32", None)),
    ),
    (
        f"%a = memref.load %arg4[%arg3, %arg3] : memref<8x16xf32, {UB}>",
        n.Load(4, None, "%a", "%arg4", ("%arg3", "%arg3"), F32_8x16),
    ),
    (
        f"%a = memref.load %arg1[%arg3] {{disableDCache}} : memref<?xf32, {GM}>",
        n.Load(4, None, "%a", "%arg1", ("%arg3",), MemRef((None,), "f32", "gm")),
    ),
    (
        f"memref.store %arg5, %arg4[%arg3, %arg3] : memref<8x16xf32, {UB}>",
        n.Store(4, None, "%arg5", "%arg4", ("%arg3", "%arg3"), F32_8x16),
    ),
    (f"%a = memref.dim %arg1, %arg3 : memref<?xf32, {GM}>", n.Dim(4, None, "%a", "%arg1", "%arg3")),
    (
        f"%b, %o, %s:2, %t:2 = memref.extract_strided_metadata %arg4 : memref<8x16xf32, {UB}> -> "
        f"memref<f32, {UB}>, index, index, index, index, index",
        n.Metadata(4, None, "%b", "%o", ("%s#0", "%s#1"), ("%t#0", "%t#1"), "%arg4", F32_8x16),
    ),
    (
        "func.call @vadd_1d_float(%arg5, %arg0) : (f32, i32) -> ()",
        n.Call(4, None, (), "vadd_1d_float", ("%arg5", "%arg0"), (F32, I32)),
    ),
    (
        "%r:2 = call @_mlir_ciface_f(%arg5) {no_inline} : (f32) -> (i32, f32)",
        n.Call(4, None, ("%r#0", "%r#1"), "f", ("%arg5",), (F32,)),
    ),
    ("func.call @g() : () -> ()", n.Call(4, None, (), "g", (), ())),
    ("hivm.hir.set_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID7>]", n.SetFlag(4, None, "V", "MTE3", 7)),
    ("hivm.hir.wait_flag[<PIPE_S>, <PIPE_MTE2>, %arg6]", n.WaitFlag(4, None, "S", "MTE2", "%arg6")),
    ("hivm.hir.pipe_barrier[<PIPE_ALL>]", n.Barrier(4, None, "ALL")),
    ("hivm.hir.pipe_barrier[<PIPE_V>]", n.Barrier(4, None, "V")),
    (
        "hivm.hir.sync_block_set[<VECTOR>, <PIPE_MTE3>, <PIPE_S>] flag = 4 ffts_base_addr = %arg6",
        n.BlockSet(4, None, "VECTOR", "MTE3", 4),
    ),
    (
        "hivm.hir.sync_block_wait[<CUBE>, <PIPE_FIX>, <PIPE_S>] flag = %arg6",
        n.BlockWait(4, None, "CUBE", "FIX", "%arg6"),
    ),
    ("%a = hivm.hir.get_block_idx -> i64", n.Query(4, None, "%a", "get_block_idx")),
    ("%a = hivm.hir.get_sys_cnt -> i64", n.Query(4, None, "%a", "get_sys_cnt")),
    ("hivm.hir.set_mask_norm", n.Setting(4, None, "set_mask_norm")),
    ("hivm.hir.set_ffts_base_addr %arg6", n.Setting(4, None, "set_ffts_base_addr")),
    (
        "scf.for %i = %arg3 to %arg3 step %arg3 {\n} {hivm.a = #x<Y>, b}",
        n.For(4, None, (), "%i", "%arg3", "%arg3", "%arg3", (), (), {"hivm.a": "#x<Y>", "b": ""}),
    ),
    (
        "%r:2 = scf.for %i = %arg0 to %arg0 step %arg0 iter_args(%x = %arg5, %y = %arg0) -> (f32, i32) : i32 {\n"
        "scf.yield %x, %i : f32, i32\n}",
        n.For(
            4, None, ("%r#0", "%r#1"), "%i", "%arg0", "%arg0", "%arg0", (("%x", "%arg5"), ("%y", "%arg0")),
            (n.Yield(5, None, ("%x", "%i")),), {},
        ),
    ),
    (
        "%r = scf.while (%x = %arg0) : (i32) -> f32 {\nscf.condition(%arg2) %arg5 : f32\n} do {\n^bb0(%y: f32):\n"
        "scf.yield %arg0 : i32\n}",
        n.While(
            4, None, ("%r",), (("%x", "%arg0"),), (n.Condition(5, None, "%arg2", ("%arg5",)),), ("%y",),
            (n.Yield(8, None, ("%arg0",)),),
        ),
    ),
    (
        "scf.while : () -> () {\nscf.condition(%arg2)\n} do {\nscf.yield\n}",
        n.While(4, None, (), (), (n.Condition(5, None, "%arg2", ()),), (), (n.Yield(7, None, ()),)),
    ),
    (
        "scf.if %arg2 {\nhivm.hir.set_mask_norm\n} {hivm.x}",
        n.If(4, None, (), "%arg2", (n.Setting(5, None, "set_mask_norm"),), ()),
    ),
    (
        "%r = scf.if %arg2 -> (i32) {\nscf.yield %arg0 : i32\n} else {\nscf.yield %arg0 : i32\n}",
        n.If(4, None, ("%r",), "%arg2", (n.Yield(5, None, ("%arg0",)),), (n.Yield(7, None, ("%arg0",)),)),
    ),
]  # fmt: skip
AFTER = "%after = arith.addi %arg0, %arg0 : i32"


def test_every_kind_of_node_has_a_sample() -> None:
    sampled = {type(o) for _, node in NODES for o in n.walk((node,))} | {n.Return, n.Unknown}
    assert sampled == set(n.Operation.__args__)


@pytest.mark.parametrize("text, node", NODES, ids=[re.sub(r"\W+", "-", text[:50]) for text, _ in NODES])
def test_nodes_without_locations(text: str, node: n.Operation) -> None:
    found, after = body(text, AFTER)
    assert found == node
    assert type(found) is type(node)
    assert isinstance(after, n.Arith)
    assert (after.result, after.line) == ("%after", 5 + text.count("\n"))


@pytest.mark.parametrize("text, node", NODES, ids=[re.sub(r"\W+", "-", text[:50]) for text, _ in NODES])
def test_nodes_with_locations(text: str, node: n.Operation) -> None:
    located = "\n".join(re.sub(r"([^{:])$", r"\1 loc(#loc4)", line) for line in text.split("\n"))
    located = located.replace("} loc(#loc4)\ndo", "}\ndo").replace("{ loc(#loc4)", "{")
    found, after = body(located, AFTER + " loc(#loc1)")
    place = n.Place("kernels.py", 12, 7)
    assert found.place == place
    for inner in n.walk((found,)):
        assert inner.place == place
    assert _placeless(found) == node
    assert after.place == n.Place("kernels.py", 12)


def _placeless(o: n.Operation) -> Any:
    """The same node, and those in it, without places."""
    fields = {}
    for name, value in o._asdict().items():
        nested = isinstance(value, tuple) and value and all(isinstance(x, n.Operation) for x in value)
        fields[name] = tuple(_placeless(x) for x in value) if nested else value
    return type(o)(**{**fields, "place": None})


def test_functions_arguments_roles_and_declarations() -> None:
    text = f"""module @m attributes {{a = #b<"NPU" : #c<"X", 24 : i32>>, d}} {{
  func.func @k_infer_task_type_function() -> i8 attributes {{hacc.function_kind = #hacc.function_kind<HOST>}} {{
    %c32_i8 = arith.constant 32 : i8
    return %c32_i8 : i8
  }}
  func.func private @_mlir_ciface_vexp_1d_float(memref<?xf32, strided<[?], offset: ?>, {UB}>, f32) attributes {{
    hivm.func_core_type = #hivm.func_core_type<AIV>}}
  func.func private @plain(i32) -> (i32, f32)
  func.func @k_mix_aic(%arg0: i64 {{hacc.arg_type = #hacc.arg_type<ffts_base_address>}} loc("k.py":3:0),
      %arg1: memref<?xi8, {GM}> {{hacc.arg_type = #hacc.arg_type<workspace>, x = 1 : i32}}, %arg2: i32) attributes {{
      hacc.function_kind = #hacc.function_kind<DEVICE>, hivm.func_core_type = #hivm.func_core_type<AIC>,
      hivm.part_of_mix}} {{
    return
  }}
  func.func @k_mix_aiv(%arg0: i32) attributes {{hivm.func_core_type = #hivm.func_core_type<AIV>, hivm.part_of_mix}} {{
    return
  }}
  func.func public @outlined(%arg0: i32) attributes {{hivm.vector_function,
      hivm.func_core_type = #hivm.func_core_type<AIV>}} {{
    return
  }}
}}
"""
    found = parse_module(text)
    host, cube, vector, outlined = found.functions
    assert [f.name for f in found.functions] == ["k_infer_task_type_function", "k_mix_aic", "k_mix_aiv", "outlined"]
    assert [f.line for f in found.functions] == [2, 9, 15, 18]
    assert [(f.core, f.mixed, f.vector_function) for f in found.functions] == [
        (None, False, False), ("aic", True, False), ("aiv", True, False), ("aiv", False, True),
    ]  # fmt: skip
    assert cube.arguments == (
        n.Argument("%arg0", I64, "ffts_base_address"),
        n.Argument("%arg1", MemRef((None,), "i8", "gm"), "workspace"),
        n.Argument("%arg2", I32, ""),
    )
    assert found.declared == {"vexp_1d_float", "plain"}
    assert found.device() == (cube, vector)
    assert found.find("outlined") is outlined
    assert found.find("nobody") is None
    assert isinstance(host.body[-1], n.Return)
    assert host.body[-1].values == ("%c32_i8",)


def test_a_function_for_no_one_kind_of_core_is_not_taken_for_a_vector_core() -> None:
    """The compiler splits a mixed kernel before this IR is printed; what isn't split can't be modelled."""
    text = module(AFTER).replace("<AIV>", "<MIX>")
    with pytest.raises(HivmError) as caught:
        parse_module(text)
    assert caught.value.line == 3


# ------------------------------------------------------------ names


def test_comments_are_read_over() -> None:
    found = body(
        "%a = arith.addi %arg0, %arg0 : i32  // a / b", "// nothing", "cf.br ^bb1", "^bb1:  // pred: ^bb0", AFTER
    )
    assert [type(o) for o in found] == [n.Arith, n.Unknown, n.Unknown, n.Arith]
    assert [o.line for o in found] == [4, 6, 7, 8]


def test_names_reused_in_sibling_regions_become_unique() -> None:
    first, second, other = body(
        "scf.for %i = %arg3 to %arg3 step %arg3 {",
        "%x = arith.addi %i, %i : index",
        "%y = arith.addi %x, %arg3 : index",
        "}",
        "scf.for %i = %arg3 to %arg3 step %arg3 {",
        "%x = arith.muli %i, %arg3 : index",
        "}",
        "scf.if %arg2 {",
        "%x = arith.constant 1 : i32",
        "%y = arith.addi %x, %x : i32",
        "} else {",
        "%x = arith.constant 2 : i32",
        "%y = arith.addi %x, %x : i32",
        "}",
    )
    defined = [name for o in n.walk((first, second, other)) for name in _defined(o)]
    assert len(defined) == len(set(defined)) == 9
    assert isinstance(second, n.For)
    assert isinstance(second.body[0], n.Arith)
    assert second.body[0].operands == (second.variable, "%arg3")
    assert isinstance(other, n.If)
    for block in (other.then, other.orelse):
        constant, add = block
        assert add.operands == (constant.result, constant.result)


def _defined(o: n.Operation) -> list[str]:
    if isinstance(o, n.For):
        return [o.variable, *o.results, *(inner for inner, _ in o.carried)]
    return [o.result] if hasattr(o, "result") else list(getattr(o, "results", ()))


def test_a_name_of_a_region_does_not_outlive_it_and_an_outer_name_comes_back() -> None:
    inner, outer = body(
        "%0:2 = scf.for %i = %arg0 to %arg0 step %arg0 iter_args(%a = %arg0, %b = %arg0) -> (i32, i32) : i32 {",
        "%1 = arith.addi %a, %b : i32",
        "scf.yield %1, %a : i32, i32",
        "}",
        "%1 = arith.subi %0#0, %0#1 : i32",
    )
    assert isinstance(inner, n.For)
    assert isinstance(outer, n.Arith)
    assert outer.operands == inner.results
    assert outer.result not in {o.result for o in inner.body if isinstance(o, n.Arith)}
    assert inner.body[-1] == n.Yield(6, None, (inner.body[0].result, inner.carried[0][0]))
    for line in ("%z = arith.addi %i, %i : i32", "%z = arith.addi %a, %a : i32", "%z = arith.addi %1, %1 : i32"):
        with pytest.raises(HivmError, match="used before it is defined"):
            body("scf.for %i = %arg0 to %arg0 step %arg0 iter_args(%a = %arg0) -> (i32) : i32 {",
                 "%1 = arith.addi %a, %i : i32", "scf.yield %1 : i32", "}", line)  # fmt: skip


def test_functions_do_not_share_names() -> None:
    text = "\n".join(
        [f"func.func @{x}(%arg0: i32) {AIV} {{\n%0 = arith.addi %arg0, %arg0 : i32\nreturn\n}}" for x in "ab"]
    )
    first, second = parse_module(text).functions
    assert [o._replace(line=0) for o in first.body] == [o._replace(line=0) for o in second.body]
    with pytest.raises(HivmError, match="%1 is used before"):
        parse_module(text.replace("%0", "%1", 1) + f"func.func @c() {AIV} {{\n%0 = arith.addi %1, %1 : i32\nreturn\n}}")


@pytest.mark.parametrize("name", ["%r#2", "%r"])
def test_a_result_that_an_operation_does_not_have_is_not_defined(name: str) -> None:
    """What is kept in the nodes must be a value of some node, or translation meets a name that nobody gave."""
    with pytest.raises(HivmError) as caught:
        body("%r:2 = foo.bar", f"%b = arith.addi {name}, %arg0 : i32")
    assert caught.value.line == 5


# ------------------------------------------------------------ places

PLACES = [
    ('"/a/b/k.py":12:4', n.Place("k.py", 12)),
    ("unknown", None),
    ('"name"', None),
    ("callsite(#locA at #locB)", n.Place("k.py", 20, 7)),
    ("callsite(#locA at #locC)", n.Place("k.py", 30, 7)),  # C: a call in a call
    ("callsite(callsite(#locA at #locD) at #locB)", n.Place("k.py", 20, 7)),
    ("callsite(#locA at callsite(#locD at #locB))", n.Place("k.py", 20, 7)),
    ('callsite("/x/h.py":7:0 at "/x/k.py":20:1)', n.Place("k.py", 20, 7)),
    ('"add"(#locB)', n.Place("k.py", 20)),
    ('"add"("/x/k.py":20:1)', n.Place("k.py", 20)),
    ('"a(b"(callsite(#locA at #locB))', n.Place("k.py", 20, 7)),
    ("fused[#locB, #locA]", n.Place("k.py", 20)),
    ("fused[#locU, #locB]", n.Place("k.py", 20)),
    ('fused<"pass">[#locB, #locA]', n.Place("k.py", 20)),
    ('fused["/x/a,b.py":3:1, #locB]', n.Place("a,b.py", 3)),
    ("fused[callsite(#locA at #locB), #locD]", n.Place("k.py", 20, 7)),
    ("callsite(#locU at #locB)", n.Place("k.py", 20)),
    ("callsite(#nowhere at #nobody)", None),
]


@pytest.mark.parametrize("location, place", PLACES)
def test_places(location: str, place: n.Place | None) -> None:
    """The outermost line is the place, the innermost its `inner`."""
    given = """#loc10 = loc("/x/h.py":7:0)
#loc11 = loc("/x/k.py":20:1)
#loc12 = loc(callsite(#loc13 at #loc14))
#loc13 = loc("/x/m.py":9:0)
#loc14 = loc("/x/k.py":30:1)
#loc15 = loc(unknown)
"""
    for letter, number in zip("ABCDEU", range(10, 16), strict=True):
        location = location.replace(f"#loc{letter}", f"#loc{number}")
    text = module("%a = arith.constant 1 : i32 loc(#loc5)") + f"{given}#loc5 = loc({location})\n"
    assert parse_module(text).functions[0].body[0].place == place


def test_locations_inline_and_undefined_are_read_over() -> None:
    first, second, third = body(
        "scf.for %i = %arg3 to %arg3 step %arg3 {",
        '} loc("x.py":1:2)',
        "%a = arith.constant 1 : i32 loc(#loc99)",
        "hivm.hir.set_mask_norm loc(callsite(#loc1 at #loc2))",
    )
    assert [type(o) for o in (first, second, third)] == [n.For, n.Constant, n.Setting]
    assert second.place is None


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Fail what takes longer."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_locations_that_name_each_other_end() -> None:
    for text in ("#loc1 = loc(#loc1)", "#loc1 = loc(callsite(#loc1 at #loc1))"):
        with at_most(1.0):
            parse_module(module("hivm.hir.set_mask_norm loc(#loc1)").replace(LOCS, text + "\n"))


# ------------------------------------------------------------ unknown operations

UNKNOWN: list[tuple[str, str, tuple[str, ...]]] = [
    ("foo.bar", "foo.bar", ()),
    ("%r = foo.bar %arg0, %arg3 : i32, index -> i32", "foo.bar", ("%r",)),
    ("%r:2, %s = foo.bar", "foo.bar", ("%r#0", "%r#1", "%s")),
    ('foo.bar %arg0 {a = [1, 2], b = #c<d<e>, "}">, f = "x{"} : i32', "foo.bar", ()),
    ("hivm.hir.teleport ins(%arg4 : memref<8x16xf32>) outs(%arg4 : memref<8x16xf32>) -> ()", "hivm.hir.teleport", ()),
    ('%r = "foo.bar"(%arg0) {a = 1 : i32} : (i32) -> i32', "foo.bar", ("%r",)),
    ("foo.bar %arg0 {\n%z = foo.inner %arg0 : i32\nfoo.yield %z : i32\n}", "foo.bar", ()),
    ("%r = foo.bar %arg0 {\n^bb0(%q: i32):\nfoo.inner\n} {attribute = 1}", "foo.bar", ("%r",)),
    ('%r = "foo.bar"(%arg0) ({\n^bb0(%q: i32):\n"foo.inner"() : () -> ()\n}) {a} : (i32) -> i32', "foo.bar", ("%r",)),
    ('%r = "foo.bar"(%arg0) <{a = 1}> ({\n"foo.inner"() : () -> ()\n}) : (i32) -> i32', "foo.bar", ("%r",)),
    ("foo.bar %arg0 {\nfoo.inner\n} else {\nfoo.inner\n}", "foo.bar", ()),
    ("%s, %o = arith.addui_extended %arg0, %arg0 : i32, i1", "arith.addui_extended", ("%s", "%o")),
    ("%s = math.fpowi %arg5, %arg0 : f32, i32", "math.fpowi", ("%s",)),
    ("%x = hivm.hir.get_foo %arg0 : i32 -> i32", "hivm.hir.get_foo", ("%x",)),
    ("hivm.hir.set_foo[<PIPE_V>] {a = 1}", "hivm.hir.set_foo", ()),
    ("hivm.hir.set_ctrl false at ctrl[60]", "hivm.hir.set_ctrl", ()),
]  # fmt: skip


@pytest.mark.parametrize("located", [False, True])
@pytest.mark.parametrize("text, name, results", UNKNOWN, ids=[re.sub(r"\W+", "-", text[:40]) for text, *_ in UNKNOWN])
def test_unknown_operations_are_kept_by_name_and_the_rest_is_read(
    text: str, name: str, results: tuple[str, ...], located: bool
) -> None:
    """A name that a reader claims (`arith.*`, `get_*`, `set_*`) may turn out to be a form that it doesn't know."""
    found, after = body(text + " loc(#loc1)" * located, AFTER)
    assert isinstance(found, n.Unknown | n.Setting | n.Query | n.Arith)
    if isinstance(found, n.Unknown):
        assert (found.name, found.results) == (name, results)
        assert found.text.startswith(text.split("\n", 1)[0][:20])
    assert found.line == 4
    assert (found.place == n.Place("kernels.py", 12)) == located
    assert isinstance(after, n.Arith)
    assert after.line == 5 + text.count("\n")


@pytest.mark.parametrize("text, name, results", UNKNOWN[:5])
def test_an_unknown_operation_at_the_end_of_a_block(text: str, name: str, results: tuple[str, ...]) -> None:
    loop, branch, after = body(
        "scf.for %i = %arg3 to %arg3 step %arg3 {",
        text,
        "}",
        "scf.if %arg2 {",
        f"{text} }}",
        AFTER,
    )
    assert isinstance(loop, n.For)
    assert isinstance(branch, n.If)
    assert isinstance(after, n.Arith)
    for block in (loop.body, branch.then):
        assert [(type(o), o.name) for o in block] == [(n.Unknown, name)]
        assert len(block[0].results) == len(results)


def test_results_of_an_unknown_operation_can_be_used() -> None:
    unknown, add = body("%r:2 = foo.bar", "%b = arith.addi %r#1, %r#0 : i32")
    assert isinstance(unknown, n.Unknown)
    assert isinstance(add, n.Arith)
    assert add.operands == (unknown.results[1], unknown.results[0])


def test_branches_between_blocks_are_kept_by_name() -> None:
    """What the compiler for the 950 leaves; whoever runs such a function must say that it can't."""
    found = body("cf.br ^bb1(%arg0 : i32)", "^bb1(%x: i32):", "%y = arith.addi %x, %arg0 : i32",
                 "cf.cond_br %arg2, ^bb1(%y : i32), ^bb2", "^bb2:", AFTER)  # fmt: skip
    assert [type(o) for o in found] == [n.Unknown, n.Unknown, n.Arith, n.Unknown, n.Unknown, n.Arith]
    assert [o.name for o in found if isinstance(o, n.Unknown)] == ["cf.br", "block label", "cf.cond_br", "block label"]
    assert [o.line for o in found] == [4, 5, 6, 7, 8, 9]
    assert found[1].results == (found[2].operands[0],)


def test_attributes_of_a_while_loop_are_its_own() -> None:
    """MLIR prints them behind the word `attributes`."""
    (found,) = body("scf.while : () -> () {", "scf.condition(%arg2)", "} do {", "scf.yield",
                    "} attributes {hivm.loop_core_type = 1}")  # fmt: skip
    assert isinstance(found, n.While)


# ------------------------------------------------------------ errors

BAD: list[tuple[str, str, str]] = [
    # what, a line of the body, what the message names
    ("value before its definition", "%a = arith.addi %arg0, %b : i32", "%b is used before it is defined"),
    ("the same, last on its line", "hivm.hir.set_ffts_base_addr %b", "%b is used before it is defined"),
    ("the same, of a flag", "hivm.hir.sync_block_wait[<CUBE>, <PIPE_FIX>, <PIPE_S>] flag = %b", "%b is used before"),
    ("its own operand", "%a = arith.addi %a, %a : i32", "%a is used before it is defined"),
    ("result of nothing", "%a = arith.addi %arg0, %zz#1 : i32", "%zz#1 is used before it is defined"),
    ("memory space", "%a = hivm.hir.pointer_cast(%arg6) : memref<4xf32, #hivm.address_space<l9>>", "'l9'"),
    ("space of a cast", "%a = memref.cast %arg1 : memref<4xf32> to memref<4xf32, #hivm.address_space<l9>>", "'l9'"),
    ("element", f"%a = hivm.hir.pointer_cast(%arg6) : memref<4xq7, {UB}>", "'q7'"),
    ("layout", f"%a = hivm.hir.pointer_cast(%arg6) : memref<4xf32, #tiled<2>, {UB}>", "#tiled<2>"),
    ("strides", f"%a = hivm.hir.pointer_cast(%arg6) : memref<4xf32, strided<[x]>, {UB}>", "strided<"),
    ("empty type", "%a = memref.cast %arg1 : memref<> to memref<4xf32>", "memref"),
    ("buffer without a space", "%a = hivm.hir.pointer_cast(%arg6) : memref<4xf32>", "without a memory space"),
    ("map", "%a = affine.apply #map9(%arg3)[%arg3]", "#map9"),
    ("constant", "%a = arith.constant x : i32", "'x'"),
    ("constant of another type", "%a = arith.constant 1.5 : i32", "'1.5'"),
    ("constant tensor", "%a = arith.constant dense<1> : tensor<4xi32>", "tensor"),
    ("a stray mark", "]", "']'"),
    ("unreadable", "%a = arith.addi ` %arg0", "`"),
    ("two results", "%a, %b = arith.addi %arg0, %arg0 : i32", "2 results"),
    ("metadata", f"%a, %b = memref.extract_strided_metadata %arg4 : {TILE} -> memref<f32>, index", "results"),
    ("rank", f"%a = memref.subview %arg4[0, 0] [2, 16] [1, 1] : {TILE} to memref<16xf32, {UB}>", "rank"),
    ("flag number", "hivm.hir.set_flag[<PIPE_V>, <PIPE_S>, <EVENT_IDx>]", "EVENT_ID"),
    ("pipe", "hivm.hir.set_flag[<V>, <PIPE_S>, <EVENT_ID0>]", "PIPE_"),
    ("pipe nobody has", "hivm.hir.pipe_barrier[<PIPE_W>]", "W"),
    ("transposed dimension", f"%a = memref.transpose %arg4 (d0, d1) -> (d1, d2) : {TILE} to {TILE}", "d2"),
    ("memref expected", f"%a = memref.cast %arg1 : memref<?xf32, {GM}> to f32", "a memref type"),
    ("a word too many", "%a = memref.reinterpret_cast %arg1 to offset: [0], size: [8], strides: [1] : a to b", "sizes"),
]  # fmt: skip


@pytest.mark.parametrize("what, line, named", BAD, ids=[what for what, *_ in BAD])
def test_errors_tell_the_line(what: str, line: str, named: str) -> None:
    with pytest.raises(HivmError) as caught:
        parse_module(module(AFTER, "hivm.hir.set_mask_norm", line, "hivm.hir.set_mask_norm"))
    assert named in caught.value.message
    assert caught.value.line == 6
    assert "line 6" in caught.value.message
    assert isinstance(caught.value, KgenError)
    assert caught.value.render()


@pytest.mark.parametrize(
    "line",
    [
        "%a = memref.cast %arg1 : memref<4xf32 to memref<4xf32>",
        "func.call @f(%arg0 : (i32) -> ()",
        "foo.bar (%arg0",
        "foo.bar {a = [1}",
    ],
)
def test_a_bracket_that_nothing_closes_is_told_where_it_stands(line: str) -> None:
    """Not at the end of the text: real IR has thousands of lines."""
    with pytest.raises(HivmError) as caught:
        parse_module(module(AFTER, line, *[AFTER.replace("after", f"after{i}") for i in range(20)]))
    assert caught.value.line == 5


@pytest.mark.parametrize(
    "text, line, named",
    [
        ("", None, "no device function"),
        ("module {\n}\n", None, "no device function"),
        ("func.func @k() attributes {a} {\nreturn\n}", 1, "@?k does not say which core"),
        ("\n\nfunc.func @k() {\nreturn\n}", 3, "does not say which core"),
        (f"\nfunc.func @k(%a: i32) {AIV} {{\nreturn\n", 4, "the end of the text"),
        (f"func.func @k(%a i32) {AIV} {{\nreturn\n}}", 1, "':'"),
        ("arith.addi %a, %b : i32", 1, "outside every function"),
        ("func.func @k() -> (i32", 1, "closing bracket"),
        ("#map = affine_map<(d0) -> (d0 + e)>\n", 1, "affine map"),
        ("\n#map = affine_map<(d0) -> ()>\n", 2, "affine map"),
        ("\x00", 1, "unreadable"),
    ],
)
def test_errors_outside_a_function(text: str, line: int | None, named: str) -> None:
    with pytest.raises(HivmError, match=named) as caught:
        parse_module(text)
    assert caught.value.line == line


def test_a_brace_too_many_is_an_error() -> None:
    with pytest.raises(HivmError):
        parse_module(module(AFTER) + "}\n}\n")


# ------------------------------------------------------------ types and constants


@pytest.mark.parametrize(
    "text, kind",
    [
        ("memref<f32>", MemRef((), "f32", None)),
        ("memref<4xindex>", MemRef((4,), "index", None)),
        ("memref<0x?xi1>", MemRef((0, None), "i1", None)),
        (f"memref<8x4xbf16, strided<[16, 1]>, {UB}>", MemRef((8, 4), "bf16", "ub", (16, 1), 0)),
        (f"memref<8x4xbf16, strided<[?, 1], offset: 7>, {CC}>", MemRef((8, 4), "bf16", "cc", (None, 1), 7)),
        (f"memref<8xf32, strided<[-1], offset: ?>, {UB}>", MemRef((8,), "f32", "ub", (-1,), None)),
        (f"memref<64xf32, affine_map<(d0)[s0] -> (d0 + s0)>, {CC}>", MemRef((64,), "f32", "cc", None, None)),
    ],
)
def test_memref_types(text: str, kind: MemRef) -> None:
    """A layout given as a map moves the start by what isn't known: its offset isn't 0."""
    tokens = Tokens(f"%a : {text} to {text}")
    assert tokens.kinds == ["value", "mark", "memref", "word", "memref", "end"]
    assert tokens.texts[2] == text
    assert read_memref(text) == kind


def test_a_layout_map_that_is_not_dense_is_not_taken_for_dense() -> None:
    with pytest.raises(HivmError):
        read_memref(f"memref<8x4xf32, affine_map<(d0, d1) -> (d0 * 128 + d1)>, {UB}>")


def test_sizes_of_types() -> None:
    assert row_major((2, 3, 4)) == (12, 4, 1)
    assert row_major(()) == ()
    kind = MemRef((2, None), "f32", "ub", (64, 1))
    assert kind.span((2, 8)) == 72
    assert kind.span((2, 0)) == 0
    assert MemRef((2, 3), "i1", "ub").span((2, 3)) == 6
    with pytest.raises(HivmError, match="dynamic stride"):
        MemRef((2, 3), "f32", "ub", (None, 1)).span((2, 3))
    assert MemRef((1, 3), "f32", "ub", (None, 1)).span((1, 3)) == 3
    with pytest.raises(HivmError, match="'q7'"):
        element_bits("q7")
    assert (Scalar("bf16").bits, Scalar("index").bits, Scalar("bf16").is_float, Scalar("i8").is_float) == (
        16, 64, True, False,
    )  # fmt: skip


@pytest.mark.parametrize(
    "text, value",
    [
        ("0.693147182 : f32", 0.693147182464599609375),  # the nearest f32; the compiler prints 9 digits
        ("1.000000e-01 : f16", 0.0999755859375),
        ("1.000000e-01 : bf16", 0.10009765625),
        ("0x3DCD : bf16", 0.10009765625),
        ("0x3F317218 : f32", 0.693147182464599609375),
        ("-0.000000e+00 : f32", -0.0),
        ("1.000000e+40 : f64", 1e40),
    ],
)
def test_a_float_constant_is_what_its_type_can_hold(text: str, value: float) -> None:
    (found,) = body(f"%a = arith.constant {text}")
    assert isinstance(found, n.Constant)
    assert found.value == value
    assert math.copysign(1, found.value) == math.copysign(1, value)


def test_a_constant_that_is_no_number() -> None:
    (found,) = body("%a = arith.constant 0x7FC00000 : f32")
    assert isinstance(found, n.Constant)
    assert math.isnan(found.value)


# ------------------------------------------------------------ affine maps


@pytest.mark.parametrize(
    "text, operands, values",
    [
        ("(d0) -> (-d0 ceildiv 4)", (9,), [-2]),
        ("(d0) -> (-(d0 floordiv 4))", (9,), [-2]),
        ("(d0, d1)[s0] -> (d0 - d1 - s0)", (10, 3, 2), [5]),
        ("(d0)[s0, s1] -> ((-d0 + s1) ceildiv s0, 4)", (3, 4, 20), [5, 4]),
        ("()[s0, s1, s2, s3, s4] -> ((s0 + ((s2 - s3) floordiv s4) * s1) mod 2)", (3, 2, 9, 1, 4), [1]),
        ("(d0) -> (d0 mod 4)", (-3,), [1]),
        ("(d0) -> (d0 floordiv 4)", (-3,), [-1]),
        ("(d0) -> (d0 * -2 + -3)", (5,), [-13]),
        ("() -> (5 - -2)", (), [7]),
        ("(d0) -> (- -d0)", (3,), [3]),
        ("(d0) -> (2 * (d0 + 1) mod 5)", (3,), [3]),
    ],
)
def test_affine_maps(text: str, operands: tuple[int, ...], values: list[int]) -> None:
    names = tuple(f"x{i}" for i in range(len(operands)))
    sources = parse_affine_map(text).python(names)
    assert [eval(source, {}, dict(zip(names, operands, strict=True))) for source in sources] == values
    texts = tuple(f"({x})" if x < 0 else str(x) for x in operands)  # as constants stand in translated code
    assert [eval(source) for source in parse_affine_map(text).python(texts)] == values


@pytest.mark.parametrize(
    "text",
    ["", "(d0)", "(d0) -> d0", "(d0) -> (d0", "(d0) -> (d0 +)", "(d0) -> (d0) x", "(x) -> (x)", "(d0) -> (d0 d0)"],
)
def test_bad_affine_maps(text: str) -> None:
    with pytest.raises(HivmError, match="affine map"):
        parse_affine_map(text)


def test_a_map_may_not_use_what_it_does_not_declare() -> None:
    with pytest.raises(HivmError, match="s0"):
        parse_affine_map("(d0) -> (d0 + s0)").python(("x",))


# ------------------------------------------------------------ broken text

SAMPLE = f"""{MAPS}module attributes {{dlti.x = #dlti.y<"NPU" : #a<"AI", 24 : i32>>, hivm.core = #hivm.core<MIX>}} {{
  func.func private @vadd_1d_float(memref<?xf32, strided<[?], offset: ?>, {UB}>, i1) attributes {{a}} loc(#loc1)
  func.func @k(%first: i64 {{hacc.arg_type = #hacc.arg_type<workspace>}} loc("k.py":3:0), {ARGUMENTS})
      {AIV} {{
"""


def sample() -> str:
    """All kinds of operations in one function, with locations."""
    lines = []
    for number, (text, _) in enumerate(NODES):
        named = re.sub(r"%(?!arg\d)(\w+)", rf"%\1_{number}", text)
        lines.append(re.sub(r"$", " loc(#loc4)", named))
    return SAMPLE + "\n".join([*lines, "%u:2 = foo.bar {", "x.y", "} loc(#loc2)", "return", "}", "}"]) + "\n" + LOCS


def outcome(text: str) -> str | None:
    """What is wrong about the answer to a text, or nothing."""
    try:
        return None if isinstance(parse_module(text), Module) else "no module"
    except HivmError as error:
        placed = error.line is not None and 1 <= error.line <= text.count("\n") + 1
        return None if placed or "no device function" in error.message else f"no line: {error.message}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def test_text_cut_at_any_token_gives_a_module_or_an_error_with_its_line() -> None:
    text = sample()
    assert outcome(text) is None
    assert len(parse_module(text).functions[0].body) == len(NODES) + 2
    wrong: dict[str, str] = {}
    for start in Tokens(text).starts:
        found = outcome(text[:start])
        if found is not None:
            wrong.setdefault(found, text[max(0, start - 60) : start])
    assert wrong == {}


def test_text_without_any_one_token_gives_a_module_or_an_error_with_its_line() -> None:
    text = sample()
    tokens = Tokens(text)
    ends = [start + len(token) for start, token in zip(tokens.starts, tokens.texts, strict=True)]
    wrong: dict[str, str] = {}
    for start, end in list(zip(tokens.starts, ends, strict=True))[::2]:
        found = outcome(text[:start] + text[end:])
        if found is not None:
            wrong.setdefault(found, text[max(0, start - 60) : end])
    assert wrong == {}
