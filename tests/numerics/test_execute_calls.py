"""What the executor's templates mean, against expectations written with numpy and torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kgen.errors import KgenError
from kgen.virtual.execute.calls import handler
from kgen.virtual.execute.elements import stored, to_bf16, widened
from kgen.virtual.execute.memory import CoreMemory, GlobalMemory
from kgen.virtual.hivm.types import MemRef, Scalar, row_major
from kgen.virtual.launch import Buffer, Launch
from tests.numerics.template_calls import call

rng = np.random.default_rng(0)


def memory(*arrays: np.ndarray) -> CoreMemory:
    """A core beside tensors."""
    names = {"<f4": "f32", "<f2": "f16", "<u2": "bf16", "<i4": "i32", "<i8": "i64"}
    buffers = tuple(Buffer(f"x{i}", names[a.dtype.str], a.size, data=a) for i, a in enumerate(arrays))
    return CoreMemory(GlobalMemory(Launch((1, 1, 1), buffers), 4096), 65536, 65536, 65536)


def at(space: str | int, byte: int, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> Any:
    return space, 8 * byte, shape, strides or row_major(shape)


def ub(shape: tuple[int, ...], element: str, space: str = "ub") -> MemRef:
    return MemRef(shape, element, space)


def put(m: CoreMemory, byte: int, values: np.ndarray, element: str = "f32") -> Any:
    view = at("ub", byte, values.shape)
    m.array(view, element)[...] = stored(values, element)
    return view


def number(value: float, element: str = "i32") -> tuple[float, Scalar]:
    return value, Scalar(element)


# ------------------------------------------------------------ memory


def test_memories_start_as_nan() -> None:
    m = memory()
    for element in ("f32", "f16"):
        assert np.isnan(m.array(at("ub", 64, (8,)), element)).all()
    assert np.isnan(widened(m.array(at("cc", 0, (8,)), "bf16"), "bf16")).all()
    assert m.load(at("ub", 0, (8,)), "i32", (3,)) == 0x7FFF7FFF


@pytest.mark.parametrize(
    "view", [at("ub", 65532, (2,)), at("ub", 0, (2, 2), (1 << 20, 1)), ("ub", -32, (1,), (1,)), at(0, 12, (2,))]
)
def test_nothing_is_reached_outside_a_memory(view: Any) -> None:
    m = memory(np.zeros(4, np.float32))
    with pytest.raises(KgenError) as caught:
        m.array(view, "f32")
    assert caught.value.code == "execute-out-of-bounds"
    assert ("UB" if view[0] == "ub" else "x0") in caught.value.message


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(0, 20))
def test_masks_are_one_bit_an_element(values: list[bool], start: int) -> None:
    m = memory()
    whole = m.array(at("ub", 0, (16,)), "ui8")
    whole[...] = 0b10101010
    view = ("ub", start, (len(values),), (1,))
    m.put_bits(view, np.array(values))
    assert m.bits(view).tolist() == values
    bits = np.unpackbits(whole, bitorder="little")
    untouched = [i for i in range(128) if not start <= i < start + len(values)]
    assert all(bits[i] == i % 2 for i in untouched)


def test_single_elements_of_every_type() -> None:
    m = memory()
    for byte, (element, value) in enumerate({"f32": 1.5, "bf16": -0.25, "f16": 2.0, "i32": -7, "i64": 1 << 40}.items()):
        view = at("ub", 64 * byte, (4,))
        m.store(view, element, (2,), value)
        assert m.load(view, element, (2,)) == value
    m.store(at("ub", 512, (16,)), "i1", (9,), 1)
    m.store(at("ub", 512, (16,)), "i1", (8,), 0)
    assert (m.load(at("ub", 512, (16,)), "i1", (9,)), m.load(at("ub", 512, (16,)), "i1", (8,))) == (1, 0)


# ------------------------------------------------------------ casts

floats = st.floats(width=32, allow_nan=True, allow_infinity=True)


@given(st.lists(floats, min_size=1, max_size=20))
def test_rint_is_torch_s_rounding(values: list[float]) -> None:
    x = np.array(values, np.float32)
    expected = torch.from_numpy(x).to(torch.bfloat16)
    found = torch.from_numpy(to_bf16(x).view(np.int16)).view(torch.bfloat16)
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found.nan_to_num(), expected.nan_to_num())
    half = torch.from_numpy(x).to(torch.float16)
    assert torch.equal(torch.from_numpy(stored(x, "f16")).nan_to_num(), half.nan_to_num())


@given(st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-60000, max_value=60000))
def test_directed_modes_bracket_the_value(x: float) -> None:
    value = np.array([x], np.float32)
    for element in ("bf16", "f16"):

        def rounded(mode: int, element: str = element) -> float:
            return float(widened(stored(value, element, mode), element).astype(np.float64)[0])

        low, high, cut, nearest = (rounded(mode) for mode in (2, 3, 4, 0))
        assert low <= x <= high
        assert cut == (low if x >= 0 else high)
        assert nearest in (low, high)
        away = rounded(1)
        assert away in (low, high)
        assert abs(away - x) == min(abs(low - x), abs(high - x))


@pytest.mark.parametrize(
    ("mode", "expected"),
    [(0, [2, 2, -2, 4]), (1, [2, 3, -3, 4]), (2, [1, 2, -3, 3]), (3, [2, 3, -2, 4]), (4, [1, 2, -2, 3])],
)
def test_integers_by_mode(mode: int, expected: list[int]) -> None:
    m = memory()
    source = put(m, 0, np.array([1.6, 2.5, -2.5, 3.5], np.float32))
    target = at("ub", 256, (4,))
    types = (ub((4,), "f32"), ub((4,), "i32"))
    call(m, "vcast_float_to_int32_t_1d_with_mode", (source, types[0]), (target, types[1]), number(mode))
    assert m.array(target, "i32").tolist() == expected


def test_integers_saturate_and_nan_is_zero() -> None:
    values = np.array([1e20, -1e20, np.nan, np.inf], np.float32)
    assert stored(values, "i32").tolist() == [2**31 - 1, -(2**31), 0, 2**31 - 1]
    assert stored(np.array([300.0], np.float32), "i8", 6).tolist() == [44]


# ------------------------------------------------------------ the vector unit


@pytest.mark.parametrize(
    ("name", "op"),
    [("vadd", np.add), ("vsub", np.subtract), ("vmul", np.multiply), ("vdiv", np.divide), ("vmax", np.maximum)],
)
def test_two_dimensions_spread(name: str, op: Any) -> None:
    m = memory()
    a, b = rng.standard_normal((8, 1)).astype(np.float32), rng.standard_normal((1, 16)).astype(np.float32)
    views = put(m, 0, a), put(m, 1024, b), at("ub", 4096, (8, 16), (32, 1)), at("ub", 2048, (0,))
    types = (ub((8, 1), "f32"), ub((1, 16), "f32"), ub((8, 16), "f32"), ub((0,), "f32"))
    call(m, f"{name}_2d_float", *zip(views, types, strict=True))
    assert np.array_equal(m.array(views[2], "f32"), op(a, b))
    assert np.isnan(m.array(at("ub", 4096 + 64, (8, 16), (32, 1)), "f32")).all()  # the gaps stay


@pytest.mark.parametrize(("name", "op"), [("vadds_vs", np.add), ("vmuls_vs", np.multiply), ("vmins_vs", np.minimum)])
def test_scalar_forms(name: str, op: Any) -> None:
    m = memory()
    a = rng.standard_normal(40).astype(np.float32)
    target = at("ub", 512, (40,))
    kind = ub((40,), "f32")
    call(m, f"{name}_1d_float", (put(m, 0, a), kind), number(0.1, "f32"), (target, kind), (at("ub", 0, (0,)), kind))
    assert np.array_equal(m.array(target, "f32"), op(a, np.float32(0.1)))


def test_compare_and_select() -> None:
    m = memory()
    a, b = rng.standard_normal(70).astype(np.float32), rng.standard_normal(70).astype(np.float32)
    kind, mask_kind = ub((70,), "f32"), ub((70,), "i1")
    x, y, mask, out = put(m, 0, a), put(m, 512, b), at("ub", 1024, (70,)), at("ub", 2048, (70,))
    call(m, "vcmp_lt_1d_float", (x, kind), (y, kind), (mask, mask_kind))
    assert np.array_equal(m.bits(mask), a < b)
    call(m, "vsel_vs_1d_float", (mask, mask_kind), (x, kind), number(0.0, "f32"), (out, kind), (y, kind))
    assert np.array_equal(m.array(out, "f32"), np.where(a < b, a, 0))
    call(m, "vnot_1d_bool", (mask, mask_kind), (mask, mask_kind), (y, kind))
    assert np.array_equal(m.bits(mask), a >= b)
    call(m, "vcast_bool_to_float_1d_with_temp", (mask, mask_kind), (out, kind), (y, kind), number(0))
    assert np.array_equal(m.array(out, "f32"), (a >= b).astype(np.float32))


@pytest.mark.parametrize(
    ("name", "shape", "result", "axis"),
    [
        ("reduce_sum_ra", (13, 24), (1, 24), 0), ("enablevc_reduce_sum_ar", (13, 24), (13, 1), 1),
        ("reduce_max_ar", (5, 9), (5, 1), 1), ("enablevc_reduce_sum_r", (33,), (1,), 0),
        ("reduce_sum_ra0a1", (3, 4, 8), (1, 4, 8), 0), ("reduce_min_ara", (3, 5, 8), (3, 1, 8), 1),
    ],
)  # fmt: skip
def test_reductions(name: str, shape: tuple[int, ...], result: tuple[int, ...], axis: int) -> None:
    m = memory()
    values = rng.standard_normal(shape).astype(np.float32)
    op = np.sum if "sum" in name else np.max if "max" in name else np.min
    target = at("ub", 8192, result)
    pairs = [
        (put(m, 0, values), ub(shape, "f32")),
        (target, ub(result, "f32")),
        (at("ub", 16384, (0,)), ub((0,), "f32")),
    ]
    call(m, f"{name}_float", *pairs, number(0.0, "f32"))
    assert np.allclose(m.array(target, "f32"), op(values.astype(np.float64), axis=axis).reshape(result), atol=1e-5)


def test_broadcasts_and_moves_within_ub() -> None:
    m = memory()
    column, row = rng.standard_normal((6, 1)).astype(np.float32), rng.standard_normal((1, 8)).astype(np.float32)
    whole, kind = at("ub", 4096, (6, 8)), ub((6, 8), "f32")
    last = "broadcast_last_axis_align_2d_float"
    call(m, last, (put(m, 0, column), ub((6, 1), "f32")), (whole, kind), (whole, kind))
    assert np.array_equal(m.array(whole, "f32"), np.broadcast_to(column, (6, 8)))
    call(m, "broadcast_first_axis_align_2d_float", (put(m, 0, row), ub((1, 8), "f32")), (whole, kind))
    assert np.array_equal(m.array(whole, "f32"), np.broadcast_to(row, (6, 8)))
    turned = at("ub", 8192, (8, 6))
    call(m, "transpose_2d_with_last_axis_float", (whole, kind), (turned, ub((8, 6), "f32")))
    assert np.array_equal(m.array(turned, "f32"), np.broadcast_to(row, (6, 8)).T)
    sums = at("ub", 12288, (6, 8))
    call(m, "cumsum_ra_reverse_float", (whole, kind), (sums, kind))
    assert np.allclose(m.array(sums, "f32"), np.arange(6, 0, -1)[:, None] * row)
    apart = at("ub", 4096, (6,), (8,))
    call(m, "deinterleave_channel_0_from_n_channels_1d_float", (apart, kind), (at("ub", 0, (6,)), kind))
    assert np.array_equal(m.array(at("ub", 0, (6,)), "f32"), np.repeat(row[0, 0], 6))
    lanes = at("ub", 0, (20,))
    call(m, "arange_1d_int32_t", (lanes, ub((20,), "i32")), number(3, "index"), number(2, "index"))
    assert m.array(lanes, "i32").tolist() == list(range(3, 43, 2))
    call(m, "broadcast_scalar_bfloat16_t_to_1d", number(1.0, "bf16"), (lanes, ub((20,), "bf16")))
    assert m.array(lanes, "bf16").tolist() == [0x3F80] * 20


# ------------------------------------------------------------ moves and products


def test_a_load_pads_its_last_granule_and_no_more() -> None:
    x = np.arange(1, 12, dtype=np.float32)
    m = memory(x)
    target = at("ub", 0, (11,))
    pairs = [(at(0, 0, (11,)), ub((11,), "f32", "gm")), (target, ub((11,), "f32"))]
    call(m, "load_gm_to_ubuf_1d_float", *pairs, number(2), number(5.0, "f32"), number(0, "index"))
    after = m.array(at("ub", 0, (24,)), "f32")
    assert np.array_equal(after[:16], [*x, 5, 5, 5, 5, 5])
    assert np.isnan(after[16:]).all()


@pytest.mark.parametrize(("kind", "expected"), [(0, [5, 1]), (1, [7, 4]), (2, [5, 3]), (3, [2, 1])])
def test_stores_by_atomic_kind(kind: int, expected: list[float]) -> None:
    x = np.array([2, 3], np.float32)
    m = memory(x)
    pairs = [(put(m, 0, np.array([5, 1], np.float32)), ub((2,), "f32")), (at(0, 0, (2,)), ub((2,), "f32", "gm"))]
    call(m, "store_ubuf_to_gm_1d_float", *pairs, number(kind))
    assert x.tolist() == expected


@pytest.mark.parametrize("element", ["f32", "bf16"])
@pytest.mark.parametrize("turned", ["", "_ta", "_tb"])
@pytest.mark.parametrize(("rows", "depth", "cols"), [(32, 32, 32), (20, 24, 40)])
def test_a_product_through_fractals(element: str, turned: str, rows: int, depth: int, cols: int) -> None:
    """Rows past m and columns past the last fractal of n hold what was there; the rest is the product."""
    name = {"f32": "float", "bf16": "bfloat16_t"}[element]
    c0 = 8 if element == "f32" else 16
    a = rng.standard_normal((depth, rows) if turned == "_ta" else (rows, depth)).astype(np.float32)
    b = rng.standard_normal((cols, depth) if turned == "_tb" else (depth, cols)).astype(np.float32)
    kept = [stored(x, element) for x in (a, b)]
    out = np.full((rows, cols), np.nan, np.float32)
    m = memory(*kept, out)
    views = []
    for place, x in enumerate(kept):
        shape = (-(-x.shape[1] // c0), -(-x.shape[0] // 16), 16, c0)
        target = at("cbuf", 16384 * place, shape)
        pairs = [(at(place, 0, x.shape), ub(x.shape, element, "gm")), (target, ub(shape, element, "cbuf"))]
        call(m, f"nd2nz_{name}", *pairs)
        views.append((target, pairs[1][1]))
    acc = at("cc", 0, (3, 2, 16, 16))
    c = (acc, ub((3, 2, 16, 16), "f32", "cc"))
    sizes = [number(x, "index") for x in (rows, depth, cols)]
    events = [number(-1, "i64")] * 7
    for first in (1, 0):
        call(m, f"mma_tile_{name}_to_float{turned}", *views, number(first, "i1"), *sizes, c, *events, number(0, "i8"))
    flags = [number(0, "i64"), number(0, "i64"), number(0, "i1"), number(0, "i8")]
    target = (at(2, 0, out.shape), ub(out.shape, "f32", "gm"))
    call(m, "fixpipe_nz2nd_float_to_float_4d_to_2d", c, target, *flags)
    wide = [widened(x, element).astype(np.float64) for x in kept]
    left, right = (wide[0].T if turned == "_ta" else wide[0]), (wide[1].T if turned == "_tb" else wide[1])
    assert np.allclose(out, 2 * (left @ right), atol=1e-4)
    matrix = m.array(acc, "f32").transpose(1, 2, 0, 3).reshape(32, 48)
    assert np.isnan(matrix[:, -(-cols // 16) * 16 :]).all()


@pytest.mark.parametrize("name", ["vteleport_1d_float", "mma_tile_float_to_float_tc", "reduce_mean_ar_float", "frob"])
def test_what_is_not_known_has_no_meaning(name: str) -> None:
    assert handler(name, (ub((4,), "f32"),) * 8) is None
