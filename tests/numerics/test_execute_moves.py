"""Moves between memories with padding and atomics, fractals, products and fixpipe."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from kgen.errors import KgenError
from kgen.virtual.execute.memory import STORAGE, CoreMemory
from tests.numerics.test_execute_templates import NAMES, at, bf16, call, got, memory, num, put, ref

rng = np.random.default_rng(4)


# ------------------------------------------------------------ moves


def load(m: CoreMemory, source: Any, target: Any, element: str, mode: int, pad: float, left: int = 0) -> None:
    name = f"load_gm_to_ubuf_{len(target[2])}d_{NAMES[element]}"
    call(m, name, ref(source, element), ref(target, element), num(mode), num(pad, element), num(left, "index"))


@pytest.mark.parametrize(("mode", "pad"), [(2, 5.0), (0, 0.0)])
def test_a_load_s_left_padding_lies_before_the_target(mode: int, pad: float) -> None:
    x = np.arange(1, 9, dtype=np.float32)
    m = memory(x)
    load(m, at(0, 0, (8,)), at("ub", 64 + 8, (8,)), "f32", mode, 5.0, left=2)
    around = m.array(at("ub", 32, (32,)), "f32")
    assert around[8:24].tolist() == [pad, pad, *x, pad, pad, pad, pad, pad, pad]
    assert np.isnan(around[:8]).all() and np.isnan(around[24:]).all()


def test_rows_in_whole_blocks_are_each_padded() -> None:
    x = np.arange(22, dtype=np.float32)
    m = memory(x)
    load(m, at(0, 0, (2, 11)), at("ub", 0, (2, 11), (24, 1)), "f32", 2, 7.0)
    found = m.array(at("ub", 0, (2, 24)), "f32")
    assert found[:, :16].tolist() == [[*x[:11], *[7.0] * 5], [*x[11:], *[7.0] * 5]]
    assert np.isnan(found[:, 16:]).all()


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (at(0, 0, (2, 11)), at("ub", 0, (2, 11))),  # rows that aren't whole blocks apart: the scalar unit loads
        (at(0, 0, (11,), (2,)), at("ub", 0, (11,))),  # every second element of a tensor
        (at(0, 0, (3,)), at("ub", 4, (3,))),  # all of it before the first whole block
    ],
)
def test_what_the_scalar_unit_loads_is_not_padded(source: Any, target: Any) -> None:
    x = np.arange(22, dtype=np.float32)
    m = memory(x)
    load(m, source, target, "f32", 2, 7.0)
    assert np.array_equal(m.array(target, "f32"), memory(x).array(source, "f32"))
    assert 7.0 not in set(m.array(at("ub", 0, (64,)), "f32").tolist()) - set(x.tolist())
    last = target[1] // 8 + 4 * math.prod(target[2])
    assert np.isnan(m.array(at("ub", last, (8,)), "f32")).all()


def test_an_unaligned_load_is_padded_to_the_end_of_its_last_block() -> None:
    x = np.arange(1, 10, dtype=np.float32)
    m = memory(x)
    load(m, at(0, 0, (9,)), at("ub", 4, (9,)), "f32", 2, 7.0)
    found = m.array(at("ub", 0, (24,)), "f32")
    assert found[1:16].tolist() == [*x, 7, 7, 7, 7, 7, 7]
    assert np.isnan(found[16:]).all() and np.isnan(found[0])


def test_elements_in_blocks_of_their_own_are_each_padded() -> None:
    """The compiler's layout for a strided load: one element, seven of padding."""
    x = np.arange(1, 9, dtype=np.float32)
    m = memory(x)
    load(m, at(0, 0, (4,), (2,)), at("ub", 0, (4,), (8,)), "f32", 2, 7.0)
    assert got(m, at("ub", 0, (4, 8)), "f32") == [[v, *[7.0] * 7] for v in (1.0, 3.0, 5.0, 7.0)]


@pytest.mark.parametrize("element", ["bf16", "f16", "i32", "i64", "i8"])
def test_loads_and_stores_of_every_type_with_gaps(element: str) -> None:
    kind = STORAGE[element]
    x, y = rng.integers(0, 99, 60).astype(kind), np.zeros(60, kind)
    m = memory(x, y)
    source, target = at(0, kind.itemsize, (3, 5), (20, 2)), at(1, 0, (3, 5), (10, 1))
    tile = at("ub", 0, (3, 5), (64, 1))
    load(m, source, tile, element, 0, 0.0)
    call(m, f"store_ubuf_to_gm_2d_{NAMES[element]}", ref(tile, element), ref(target, element), num(0))
    expected = np.zeros(60, kind)
    for i in range(3):
        for j in range(5):
            expected[10 * i + j] = x[1 + 20 * i + 2 * j]
    assert y.tolist() == expected.tolist()


def test_an_atomic_add_of_bf16_rounds_once() -> None:
    y = bf16([1.0, 256.0, 0.1])
    m = memory(y)
    tile = put(m, 0, bf16([2.0**-9, 1.0, 0.2]), "bf16")
    call(m, "store_ubuf_to_gm_1d_bfloat16_t", ref(tile, "bf16"), ref(at(0, 0, (3,)), "bf16"), num(1))
    before, added = torch.tensor([1.0, 256.0, 0.1]).bfloat16(), torch.tensor([2.0**-9, 1.0, 0.2]).bfloat16()
    assert y.view(np.int16).tolist() == (before + added).view(torch.int16).tolist()


@pytest.mark.parametrize(
    ("tile", "kind"),
    [(at("ub", 4, (8,)), 1), (at("ub", 0, (2, 11)), 2), (at("ub", 0, (4,), (3,)), 3), (at("ub", 0, (8,)), 6)],
)
def test_atomics_that_the_device_drops_or_does_not_know(tile: Any, kind: int) -> None:
    m = memory(np.zeros(22, np.float32))
    with pytest.raises(KgenError) as caught:
        target = at(0, 0, tile[2])
        call(m, f"store_ubuf_to_gm_{len(tile[2])}d_float", ref(tile, "f32"), ref(target, "f32"), num(kind))
    assert caught.value.code == "execute-atomic"


@pytest.mark.parametrize(("count", "filled"), [(16, 16), (17, 24)])
def test_l1_is_filled_in_whole_blocks(count: int, filled: int) -> None:
    m = memory()
    call(m, "set_l1_2d_float", num(1.5, "f32"), ref(at("cbuf", 64, (count,)), "f32"))
    found = m.array(at("cbuf", 64, (64,)), "f32")
    assert (found[:filled] == 1.5).all() and np.isnan(found[filled:]).all()


# ------------------------------------------------------------ the matrix unit


def fractals(rows: int, columns: int, c0: int) -> tuple[int, ...]:
    return -(-columns // c0), -(-rows // 16), 16, c0


def element_at(m: CoreMemory, view: Any, element: str, row: int, column: int) -> float:
    """One element of a matrix in fractals, by its address."""
    c0 = view[2][3]
    return float(m.load(view, element, (column // c0, row // 16, row % 16, column % c0)))


@pytest.mark.parametrize("element", ["f32", "bf16", "i8"])
@pytest.mark.parametrize(("rows", "columns"), [(16, 32), (1, 1), (17, 33), (40, 7), (32, 64)])
def test_nd2nz_writes_its_matrix_and_nothing_else(element: str, rows: int, columns: int) -> None:
    kind = STORAGE[element]
    c0 = 32 // kind.itemsize
    x = rng.integers(0, 99, (rows, columns + 3)).astype(kind)
    m = memory(x)
    target = at("cbuf", 0, fractals(rows, columns, c0))
    poison = m.array(target, element).copy()
    call(m, f"nd2nz_{NAMES[element]}", ref(at(0, 0, (rows, columns), (columns + 3, 1)), element), ref(target, element))
    found = m.array(target, element)
    for row in range(target[2][1] * 16):
        for column in range(target[2][0] * c0):
            place = column // c0, row // 16, row % 16, column % c0
            inside = row < rows and column < columns
            expected = x[row, column] if inside else poison[place]
            assert found[place].tobytes() == expected.tobytes(), (row, column)


def test_a_matrix_larger_than_its_fractals_is_an_error() -> None:
    m = memory(np.zeros((17, 8), np.float32))
    with pytest.raises(KgenError, match="@nd2nz_float"):
        call(m, "nd2nz_float", ref(at(0, 0, (17, 8)), "f32"), ref(at("cbuf", 0, (1, 1, 16, 8)), "f32"))


def product(
    m: CoreMemory,
    element: str,
    sums: str,
    turned: str,
    a: np.ndarray,
    b: np.ndarray,
    init: int,
    sizes: tuple[int, int, int],
) -> Any:
    """Matrices through nd2nz into a product; gives L0C's view."""
    c0 = 32 // STORAGE[element].itemsize
    views = []
    for place, x in enumerate((a, b)):
        target = at("cbuf", 24576 * place, fractals(*x.shape, c0))
        call(m, f"nd2nz_{NAMES[element]}", ref(at(place, 0, x.shape), element), ref(target, element))
        views.append(ref(target, element))
    c = at("cc", 0, fractals(sizes[0], sizes[2], 16))
    pairs = [*views, num(init, "i1"), *(num(s, "index") for s in sizes), ref(c, sums)]
    call(m, f"mma_tile_{NAMES[element]}_to_{NAMES[sums]}{turned}", *pairs, *[num(-1, "i64")] * 7, num(0, "i8"))
    return c


@pytest.mark.parametrize("turned", ["", "_ta", "_tb", "_ta_tb"])
@pytest.mark.parametrize(("element", "sums"), [("f32", "f32"), ("bf16", "f32"), ("f16", "f32"), ("i8", "i32")])
@pytest.mark.parametrize("sizes", [(16, 16, 16), (33, 20, 9), (5, 70, 40)])
def test_products_of_ragged_matrices(turned: str, element: str, sums: str, sizes: tuple[int, int, int]) -> None:
    """Small whole numbers, so that the sums are exact; the poison beyond k never enters them."""
    rows, depth, columns = sizes
    a, b = rng.integers(-8, 8, (rows, depth)), rng.integers(-8, 8, (depth, columns))
    kept = [np.ascontiguousarray(x.T if t in turned else x) for x, t in ((a, "_ta"), (b, "_tb"))]
    m = memory(*(bf16(x) if element == "bf16" else x.astype(STORAGE[element]) for x in kept))
    for init, times in ((1, 1), (0, 2), (0, 3)):
        c = product(m, element, sums, turned, *kept, init, sizes)
        found = [[element_at(m, c, sums, i, j) for j in range(columns)] for i in range(rows)]
        assert found == (times * (a @ b)).tolist()


def test_products_of_bytes_are_summed_as_integers() -> None:
    """Past what fp32 counts exactly."""
    a, b = np.full((1, 1101), 127, np.int8), np.full((1101, 16), 127, np.int8)
    m = memory(a, b)
    c = product(m, "i8", "i32", "", a, b, 1, (1, 1101, 16))
    assert element_at(m, c, "i32", 0, 5) == 127 * 127 * 1101


def test_a_product_without_any_depth_leaves_its_sums() -> None:
    m = memory(np.ones((16, 16), np.float32), np.ones((16, 16), np.float32))
    ones = np.ones((16, 16), np.float32)
    product(m, "f32", "f32", "", ones, ones, 1, (16, 0, 16))
    assert np.isnan(m.array(at("cc", 0, (256,)), "f32")).all()


def test_poison_in_a_product_shows() -> None:
    """A row of the left operand that nobody loaded."""
    m = memory(np.ones((16, 16), np.float32), np.ones((16, 16), np.float32))
    c = product(m, "f32", "f32", "", np.ones((15, 16), np.float32), np.ones((16, 16), np.float32), 1, (16, 16, 16))
    assert [math.isnan(element_at(m, c, "f32", row, 3)) for row in range(16)] == [False] * 15 + [True]


@pytest.mark.parametrize(("target", "quantisation"), [("f32", 0), ("f16", 1), ("bf16", 16)])
@pytest.mark.parametrize("relu", [0, 1])
def test_fixpipe_casts_and_cuts(target: str, quantisation: int, relu: int) -> None:
    values = (rng.standard_normal((32, 32)) * 300).astype(np.float32)
    values[0, 0] = 1e6
    out = np.zeros((21, 40), STORAGE[target])
    m = memory(out)
    c = at("cc", 0, (2, 2, 16, 16))
    m.array(c, "f32")[...] = values.reshape(2, 16, 2, 16).transpose(2, 0, 1, 3)
    flags = [num(quantisation, "i64"), num(relu, "i64"), num(0, "i1"), num(0, "i8")]
    name = f"fixpipe_nz2nd_float_to_{NAMES[target]}_4d_to_2d"
    call(m, name, ref(c, "f32"), ref(at(0, 0, (21, 30), (40, 1)), target), *flags)
    kinds = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
    expected = torch.from_numpy(values[:21, :30])
    expected = (torch.relu(expected) if relu else expected).to(kinds[target])
    found = torch.from_numpy(out[:, :30].copy()).view(torch.int16 if target != "f32" else torch.float32)
    assert torch.equal(found, expected.contiguous().view(found.dtype))
    assert not out[:, 30:].any()


@pytest.mark.parametrize(("quantisation", "relu", "split"), [(16, 0, 0), (0, 2, 0), (0, 3, 0), (0, 0, 1)])
def test_a_fixpipe_that_is_not_a_plain_cast_is_an_error(quantisation: int, relu: int, split: int) -> None:
    m = memory(np.zeros((16, 16), np.float32))
    flags = [num(quantisation, "i64"), num(relu, "i64"), num(split, "i1"), num(0, "i8")]
    with pytest.raises(KgenError) as caught:
        target = ref(at(0, 0, (16, 16)), "f32")
        call(m, "fixpipe_nz2nd_float_to_float_4d_to_2d", ref(at("cc", 0, (1, 1, 16, 16)), "f32"), target, *flags)
    assert caught.value.code == "execute-fixpipe"
