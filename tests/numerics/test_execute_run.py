"""Whole kernels on the CPU: blocks, cores of a block, flags without a partner, poison, unknown operations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from kgen.errors import KgenError
from kgen.virtual.execute import Sizes, prepare
from kgen.virtual.launch import Buffer, Launch

SIZES = Sizes(4096, 4096, 4096)
GM, UB = "#hivm.address_space<gm>", "#hivm.address_space<ub>"
ROW, TILE = f"memref<16xf32, strided<[1], offset: ?>, {GM}>", f"memref<16xf32, {UB}>"
FLAT = f"memref<?xf32, {GM}>"
ARGUMENTS = f"%x: {FLAT}, %y: {FLAT}, %gx: i32, %gy: i32, %gz: i32"
HERE = [
    "%c16 = arith.constant 16 : index", "%at0 = arith.constant 0 : i64", "%b = hivm.hir.get_block_idx -> i64",
    "%bi = arith.index_cast %b : i64 to index", "%o = arith.muli %bi, %c16 : index",
    f"%u = hivm.hir.pointer_cast(%at0) : {TILE}",
    f"%px = memref.reinterpret_cast %x to offset: [%o], sizes: [16], strides: [1] : {FLAT} to {ROW}",
    f"%py = memref.reinterpret_cast %y to offset: [%o], sizes: [16], strides: [1] : {FLAT} to {ROW}",
]  # fmt: skip
LOAD = f"func.call @load_gm_to_ubuf_1d_float(%px, %u) : ({ROW}, {TILE}) -> ()"
EXP = f"func.call @vexp_1d_float(%u, %u) : ({TILE}, {TILE}) -> ()"
STORE = f"func.call @store_ubuf_to_gm_1d_float(%u, %py) : ({TILE}, {ROW}) -> ()"


def function(name: str, core: str, lines: Sequence[str], mixed: bool = False) -> str:
    part = "hivm.part_of_mix, " * mixed
    head = f"func.func @{name}({ARGUMENTS}) attributes {{{part}hivm.func_core_type = #hivm.func_core_type<{core}>}} {{"
    return "\n".join([head, *lines, "return", "}", ""])


def tensors(blocks: int = 1) -> tuple[np.ndarray, np.ndarray, Launch]:
    x = np.linspace(-1, 1, 16 * blocks, dtype=np.float32)
    y = np.zeros_like(x)
    buffers = (Buffer("x", "f32", x.size, data=x), Buffer("y", "f32", y.size, data=y))
    return x, y, Launch((blocks, 1, 1), buffers)


def flag(what: str, source: str, target: str, event: int) -> str:
    return f"hivm.hir.{what}_flag[<PIPE_{source}>, <PIPE_{target}>, <EVENT_ID{event}>]"


def cross(what: str, core: str, pipe: str, number: int) -> str:
    return f"hivm.hir.sync_block_{what}[<{core}>, <PIPE_{pipe}>, <PIPE_S>] flag = {number}"


def test_every_block_does_its_own_part_and_flags_match() -> None:
    lines = [
        *HERE, LOAD, flag("set", "MTE2", "V", 0), flag("wait", "MTE2", "V", 0), EXP, flag("set", "V", "MTE3", 1),
        flag("wait", "V", "MTE3", 1), STORE,
    ]  # fmt: skip
    x, y, launch = tensors(5)
    report = prepare(function("k", "AIV", lines), SIZES).run(launch)
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-6)
    assert not report.unmatched and not report.left and not report.faults


def test_what_nobody_loaded_is_poison_in_each_block() -> None:
    _, y, launch = tensors(3)
    prepare(function("k", "AIV", [*HERE, EXP, STORE]), SIZES).run(launch)
    assert np.isnan(y).all()


def test_a_wait_that_nobody_answers_and_flags_that_nobody_waits_for() -> None:
    lines = [flag("wait", "MTE2", "V", 0), flag("set", "V", "MTE3", 1), flag("set", "V", "MTE3", 1)]
    report = prepare(function("k", "AIV", lines), SIZES).run(tensors(2)[2])
    assert report.unmatched == {"MTE2 -> V event 0": 2}
    assert report.left == {"V -> MTE3 event 1": 4}  # a block: one lost under the second, one over at the end
    assert report.faults == (
        "flags waited for and never set: MTE2 -> V event 0 (2); flags set and not waited for: V -> MTE3 event 1 (4)"
    )


def test_a_flag_of_another_event_or_pair_of_pipes_does_not_match() -> None:
    lines = [flag("set", "MTE2", "V", 0), flag("wait", "MTE2", "V", 1), flag("wait", "V", "MTE2", 0)]
    report = prepare(function("k", "AIV", lines), SIZES).run(tensors()[2])
    assert report.unmatched == {"MTE2 -> V event 1": 1, "V -> MTE2 event 0": 1}
    assert report.left == {"MTE2 -> V event 0": 1}


def mixed(cube: Sequence[str], vector: Sequence[str]) -> str:
    return function("k_mix_aic", "AIC", cube, True) + function("k_mix_aiv", "AIV", vector, True)


def test_both_vector_cores_wait_for_the_cube_and_the_cube_for_both() -> None:
    cube = [cross("set", "CUBE", "FIX", 2), cross("wait", "VECTOR", "MTE3", 3)]
    vector = [cross("wait", "CUBE", "FIX", 2), *HERE, LOAD, EXP, STORE, cross("set", "VECTOR", "MTE3", 3)]
    x, y, launch = tensors(2)
    report = prepare(mixed(cube, vector), SIZES).run(launch)
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-6)
    assert not report.unmatched and not report.left


def test_a_flag_that_one_vector_core_sets_does_not_free_the_cube() -> None:
    lone = [
        "%s = hivm.hir.get_sub_block_idx -> i64", "%zero = arith.constant 0 : i64",
        "%first = arith.cmpi eq, %s, %zero : i64", "scf.if %first {", cross("set", "VECTOR", "MTE3", 3), "}",
    ]  # fmt: skip
    with pytest.raises(KgenError, match="wait for each other for ever"):
        prepare(mixed([cross("wait", "VECTOR", "MTE3", 3)], lone), SIZES).run(tensors()[2])


def test_cross_core_flags_that_nobody_waits_for_are_told() -> None:
    report = prepare(mixed([cross("set", "CUBE", "FIX", 2)], []), SIZES).run(tensors()[2])
    assert report.left == {"cross-core flag 2": 2}  # one for each vector core


def test_cross_core_flags_count_to_fifteen() -> None:
    report = prepare(mixed([cross("set", "CUBE", "FIX", 2)] * 16, [cross("wait", "CUBE", "FIX", 2)] * 16), SIZES).run(
        tensors()[2]
    )
    assert report.left == {"cross-core flag 2, over 15 times": 2}


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (f"func.call @vsort_1d_float(%u) : ({TILE}) -> ()", "@vsort_1d_float"),
        (f"hivm.hir.vsort ins(%u : {TILE}) outs(%u : {TILE})", "hivm.hir.vsort"),
    ],
)
def test_an_unknown_operation_ends_the_run_by_name(line: str, named: str) -> None:
    with pytest.raises(KgenError, match=named) as raised:
        prepare(function("k", "AIV", [*HERE, line]), SIZES).run(tensors()[2])
    assert raised.value.hint


def test_an_address_outside_the_memory_is_an_error() -> None:
    small = Sizes(32, 4096, 4096)
    with pytest.raises(KgenError):
        prepare(function("k", "AIV", [*HERE, LOAD]), small).run(tensors()[2])
    _, _, launch = tensors(2)
    short = Launch((3, 1, 1), launch.arguments)
    with pytest.raises(KgenError):
        prepare(function("k", "AIV", [*HERE, LOAD]), SIZES).run(short)
