"""What the device library's templates do at their edges: memories, masks, operands that don't fit, element by element.

Expectations are written with plain loops, numpy and torch. The helpers serve the other test_execute_ files too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kgen.errors import KgenError
from kgen.virtual.execute.calls import handler
from kgen.virtual.execute.memory import STORAGE, CoreMemory, GlobalMemory
from kgen.virtual.hivm.types import MemRef, Scalar, Type, row_major
from kgen.virtual.launch import Buffer, Launch
from tests.numerics.template_calls import call

rng = np.random.default_rng(1)
UB, L1, L0C = 16384, 65536, 65536
POISON_I32 = 0x7FFF7FFF
SCRATCH = (("ub", 0, (0,), (1,)), MemRef((None,), "f32", "ub"))
NAMES = {
    "f32": "float", "f16": "half", "bf16": "bfloat16_t", "i8": "int8_t", "ui8": "uint8_t", "i16": "int16_t",
    "ui16": "uint16_t", "i32": "int32_t", "i64": "int64_t", "i1": "bool",
}  # fmt: skip


def memory(*arrays: np.ndarray) -> CoreMemory:
    """A core beside tensors."""
    names = {STORAGE[e].str: e for e in ("f32", "f16", "bf16", "i32", "i64", "i8")}
    buffers = tuple(Buffer(f"x{i}", names[a.dtype.str], a.size, data=a) for i, a in enumerate(arrays))
    return CoreMemory(GlobalMemory(Launch((1, 1, 1), buffers), 64), UB, L1, L0C)


def at(base: str | int, byte: int, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> Any:
    return base, 8 * byte, shape, strides or row_major(shape)


def ref(view: Any, element: str) -> tuple[Any, Type]:
    """A memref operand; as in the final IR its shape is dynamic."""
    return view, MemRef((None,) * len(view[2]), element, view[0] if isinstance(view[0], str) else "gm")


def num(value: float, element: str = "i32") -> tuple[float, Type]:
    return value, Scalar(element)


def bf16(values: Any) -> np.ndarray:
    """The bits that torch rounds to."""
    return torch.as_tensor(np.asarray(values, np.float32)).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)


def put(m: CoreMemory, byte: int, values: Any, element: str, strides: tuple[int, ...] | None = None) -> Any:
    """Values in UB; bf16 as its bits."""
    values = np.asarray(values)
    view = at("ub", byte, values.shape, strides)
    m.array(view, element)[...] = values
    return view


def got(m: CoreMemory, view: Any, element: str) -> list[Any]:
    return m.array(view, element).tolist()


# ------------------------------------------------------------ memory


def test_poison_passes_for_no_number() -> None:
    m = memory()
    for space, size in (("ub", UB), ("cbuf", L1), ("cc", L0C), ("ws", 64)):
        assert np.isnan(m.array(at(space, 0, (size // 4,)), "f32")).all()
        assert np.isnan(m.array(at(space, 0, (size // 2,)), "f16")).all()
        assert set(m.array(at(space, 0, (size // 4,)), "i32").tolist()) == {POISON_I32}
    assert POISON_I32 % 2 == 1
    assert m.array(at("ub", 0, (1,)), "i64")[0] > 2**62


@given(st.integers(-3, 3), st.integers(1, 5), st.integers(-40, 40), st.integers(1, 4), st.integers(0, 40))
def test_a_view_is_in_its_memory_or_an_error(step: int, count: int, row: int, rows: int, start: int) -> None:
    x = np.arange(32, dtype=np.float32)
    view = (0, 32 * start, (rows, count), (row, step))
    places = [start + i * row + j * step for i in range(rows) for j in range(count)]
    m = memory(x)
    if min(places) < 0 or max(places) >= 32:
        with pytest.raises(KgenError, match="x0") as caught:
            m.array(view, "f32")
        assert caught.value.code == "execute-out-of-bounds"
    else:
        assert m.array(view, "f32").reshape(-1).tolist() == places


@given(st.integers(-3, 9), st.integers(1, 9), st.integers(-20, 30), st.integers(1, 4), st.integers(0, 50), st.data())
def test_a_mask_s_view_finds_its_own_bits(
    step: int, count: int, row: int, rows: int, start: int, data: st.DataObject
) -> None:
    """Against single bits set one by one; bits beside the view stay."""
    places = [start + i * row + j * step for i in range(rows) for j in range(count)]
    view = ("ub", start, (rows, count), (row, step))
    m = memory()
    if min(places) < 0:
        with pytest.raises(KgenError, match="UB"):
            m.bits(view)
        return
    before = int.from_bytes(m.array(at("ub", 0, (64,)), "ui8").tobytes(), "little")
    assert m.bits(view).reshape(-1).tolist() == [bool(before >> p & 1) for p in places]
    if len(set(places)) < len(places):
        return
    values = data.draw(st.lists(st.booleans(), min_size=len(places), max_size=len(places)))
    m.put_bits(view, np.array(values).reshape(rows, count))
    expected = before
    for place, value in zip(places, values, strict=True):
        expected = expected & ~(1 << place) | value << place
    assert int.from_bytes(m.array(at("ub", 0, (64,)), "ui8").tobytes(), "little") == expected


def test_a_mask_past_the_end_is_an_error() -> None:
    m = memory()
    m.put_bits(("ub", 8 * UB - 4, (4,), (1,)), np.ones(4, bool))
    with pytest.raises(KgenError) as caught:
        m.put_bits(("ub", 8 * UB - 4, (5,), (1,)), np.ones(5, bool))
    assert caught.value.code == "execute-out-of-bounds"


# ------------------------------------------------------------ what a call may be given


def test_an_error_names_template_and_memory() -> None:
    m = memory(np.zeros(4, np.float32))
    with pytest.raises(KgenError) as caught:
        call(m, "load_gm_to_ubuf_1d_float", ref(at(0, 8, (8,)), "f32"), ref(at("ub", 0, (8,)), "f32"))
    assert caught.value.code == "execute-out-of-bounds"
    assert "@load_gm_to_ubuf_1d_float" in caught.value.message and "bytes 8 to 40 of x0" in caught.value.message


def test_operands_that_do_not_fit_are_a_kgen_error() -> None:
    m = memory()
    a, b = put(m, 0, np.zeros(6), "f32"), put(m, 64, np.zeros(5), "f32")
    with pytest.raises(KgenError, match="@vadd_1d_float") as caught:
        call(m, "vadd_1d_float", ref(a, "f32"), ref(b, "f32"), ref(a, "f32"), SCRATCH)
    assert caught.value.code == "execute-operands"


@pytest.mark.parametrize(
    ("name", "elements"),
    [
        ("vexp_1d_float", ["f32"] * 3), ("vadd_1d_float", ["f32"] * 4), ("vnot_1d_bool", ["i1"] * 3),
        ("vcmp_eq_1d_float", ["f32", "f32", "i1"]), ("vsel_vv_1d_bool_float", ["i1"] + ["f32"] * 4),
        ("vcast_float_to_bfloat16_t_1d_with_mode", ["f32", "bf16", 0]), ("reduce_sum_r_float", ["f32"] * 3),
        ("enablevc_reduce_max_r_float", ["f32"] * 3), ("copy_ubuf_to_ubuf_1d_float", ["f32"] * 2),
        ("broadcast_1d_float", ["f32"] * 2), ("arange_1d_int32_t", ["i32", 0, 1]), ("flip_1d_float", ["f32"] * 2),
        ("interleave_1d_float", ["f32"] * 4), ("gather_1d_float", ["f32", "i32", "f32", "i32"]),
        ("load_gm_to_ubuf_1d_float", ["f32", "f32", 2, 1.0, 0]), ("store_ubuf_to_gm_1d_float", ["f32", "f32", 1]),
        ("deinterleave_channel_0_from_n_channels_1d_float", ["f32"] * 2),
        ("reduce_max_with_index_left_r_float", ["f32", "f32", "i32"]),
    ],
)  # fmt: skip
def test_views_without_elements_do_nothing(name: str, elements: list[Any]) -> None:
    """Wherever they lie."""
    m = memory()
    before = m.array(at("ub", 0, (UB,)), "ui8").copy()
    nowhere = at("ub", 4 * UB, (0,))
    call(m, name, *(ref(nowhere, e) if isinstance(e, str) else num(e) for e in elements))
    assert np.array_equal(m.array(at("ub", 0, (UB,)), "ui8"), before)


@pytest.mark.parametrize(
    ("name", "elements"),
    [
        ("vadd_1d_float", ["f32"]), ("vadd_1d_float", []), ("vcmp_eq_1d_float", ["f32", "f32"]),
        ("mma_tile_float_to_float", ["f32"] * 7 + ["i64"]), ("vexp_1d_float", ["f8E4M3FN"] * 3),
        ("mma_tile_float_to_float_hf32", ["f32"] * 15), ("mma_tile_with_float_bias_half_to_float", ["f16"] * 16),
        ("fixpipe_nz2nd_int32_t_to_int8_t_4d_to_2d", ["i32", "i8"]), ("reduce_xori_ra_float", ["f32"] * 3),
        ("vcast_uint8_t_to_half_1d_with_temp", ["ui8", "f16", "f16"]), ("sort_1d_float", ["f32"] * 3),
        ("transpose_2d_without_last_axis_float", ["f32"] * 2), ("reduce_sum_r_bool", ["i1"] * 3),
    ],
)  # fmt: skip
def test_forms_without_a_known_meaning(name: str, elements: list[str]) -> None:
    types = tuple(MemRef((None,), e, "ub") for e in elements)
    if name == "mma_tile_float_to_float":  # a product whose sums aren't in L0C's types
        types = (*types[:6], MemRef((None,), "f16", "cc"), types[7])
    assert handler(name, types) is None


# ------------------------------------------------------------ element by element


@pytest.mark.parametrize("element", ["f32", "f16", "bf16"])
def test_bitwise_operations_see_bits(element: str) -> None:
    m = memory()
    raw = {"f32": "ui32", "f16": "ui16", "bf16": "ui16"}[element]
    a, b = rng.integers(0, 1 << 16, 24), rng.integers(0, 1 << 16, 24)
    x, y, out = put(m, 0, a, raw), put(m, 128, b, raw), at("ub", 256, (24,))
    for name, op in (("vand", np.bitwise_and), ("vor", np.bitwise_or)):
        call(m, f"{name}_1d_{NAMES[element]}", ref(x, element), ref(y, element), ref(out, element), SCRATCH)
        assert got(m, out, raw) == op(a, b).tolist()
    call(m, f"vnot_1d_{NAMES[element]}", ref(x, element), ref(out, element), SCRATCH)
    assert got(m, out, raw) == [int(~v & (1 << 8 * STORAGE[raw].itemsize) - 1) for v in a]


@pytest.mark.parametrize("name", ["vand", "vor", "vxor"])
def test_masks_are_combined_bit_by_bit(name: str) -> None:
    m = memory()
    op: Callable[..., Any] = {"vand": np.logical_and, "vor": np.logical_or, "vxor": np.logical_xor}[name]
    a, b = rng.random((3, 13)) < 0.5, rng.random((3, 13)) < 0.5
    views = [("ub", 8 * 64 * i, (3, 13), (256, 1)) for i in (0, 8, 16)]
    m.put_bits(views[0], a)
    m.put_bits(views[1], b)
    call(m, f"{name}_2d_bool", *(ref(v, "i1") for v in views), SCRATCH)
    assert np.array_equal(m.bits(views[2]), op(a, b))


def test_bf16_and_fp16_round_after_each_operation() -> None:
    a, b = rng.standard_normal(40).astype(np.float32), rng.standard_normal(40).astype(np.float32)
    for element, kind in (("bf16", torch.bfloat16), ("f16", torch.float16)):
        m = memory()
        x, y = torch.from_numpy(a).to(kind), torch.from_numpy(b).to(kind)
        raw = [t.view(torch.int16).numpy() for t in (x, y)]
        views = [put(m, 128 * i, r, "i16") for i, r in enumerate(raw)]
        out = at("ub", 512, (40,))
        for name, op in (("vadd", torch.add), ("vmul", torch.mul), ("vsub", torch.sub), ("vmax", torch.maximum)):
            call(m, f"{name}_1d_{NAMES[element]}", *(ref(v, element) for v in (*views, out)), SCRATCH)
            assert got(m, out, "i16") == op(x, y).view(torch.int16).tolist(), (element, name)


def test_three_dimensions_with_gaps_spread_and_leave_the_gaps() -> None:
    m = memory()
    a, b = rng.standard_normal((2, 1, 5)).astype(np.float32), rng.standard_normal((1, 3, 1)).astype(np.float32)
    x, y = put(m, 0, a, "f32", (8, 8, 1)), put(m, 256, b, "f32", (24, 8, 1))
    out = at("ub", 1024, (2, 3, 5), (24, 8, 1))
    call(m, "vmul_3d_float", ref(x, "f32"), ref(y, "f32"), ref(out, "f32"), SCRATCH)
    assert np.array_equal(m.array(out, "f32"), a * b)
    assert np.isnan(m.array(at("ub", 1024 + 20, (2, 3, 3), (24, 8, 1)), "f32")).all()


def test_a_result_in_place_of_an_operand_moved_by_one() -> None:
    m = memory()
    a = rng.standard_normal(16).astype(np.float32)
    x = put(m, 0, a, "f32")
    call(m, "vadds_vs_1d_float", ref(x, "f32"), num(1.0, "f32"), ref(at("ub", 4, (16,)), "f32"), SCRATCH)
    assert np.array_equal(m.array(at("ub", 4, (16,)), "f32"), a + np.float32(1))


@pytest.mark.parametrize(
    ("name", "element", "values", "scalar", "expected"),
    [
        ("vshls_vs", "i32", [1, -3], 4, [16, -48]), ("vshrs_vs", "i32", [-16, 33], 2, [-4, 8]),
        ("vshrs_vs", "ui16", [65528, 9], 3, [8191, 1]), ("vmaxs_vs", "i32", [-5, 9], 0, [0, 9]),
        ("vmins_vs", "i16", [-5, 9], 0, [-5, 0]), ("vmuls_vs", "i32", [2**30, 3], 4, [0, 12]),
        ("vadds_vs", "ui8", [250, 1], 10, [4, 11]), ("vsub_sv", "f32", [3.0, -1.0], 10.0, [7.0, 11.0]),
        ("vdiv_sv", "f32", [4.0, -8.0], 2.0, [0.5, -0.25]), ("vdiv_vs", "f16", [1.0, 3.0], 2.0, [0.5, 1.5]),
    ],
)  # fmt: skip
def test_forms_with_a_scalar(name: str, element: str, values: list[Any], scalar: float, expected: list[Any]) -> None:
    m = memory()
    source, out = ref(put(m, 0, values, element), element), at("ub", 64, (2,))
    pairs = [num(scalar, element), source] if name.endswith("sv") else [source, num(scalar, element)]
    call(m, f"{name}_1d_{NAMES[element]}", *pairs, ref(out, element), SCRATCH)
    assert got(m, out, element) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("vexp", torch.exp), ("vln", torch.log), ("vsqrt", torch.sqrt), ("vabs", torch.abs), ("vrelu", torch.relu),
        ("vrec", torch.reciprocal), ("vrsqrt", torch.rsqrt),
    ],
)  # fmt: skip
def test_functions_of_one_operand(name: str, expected: Callable[[torch.Tensor], torch.Tensor]) -> None:
    m = memory()
    a = np.array([0.25, 1.0, 2.5, 100.0, -1.0, 0.0, np.inf, np.nan], np.float32)
    out = at("ub", 64, a.shape)
    call(m, f"{name}_1d_float", ref(put(m, 0, a, "f32"), "f32"), ref(out, "f32"), SCRATCH)
    np.testing.assert_allclose(m.array(out, "f32"), expected(torch.from_numpy(a)).numpy(), rtol=1e-6)


def test_maxima_and_comparisons_with_nan() -> None:
    m = memory()
    a, b = np.array([np.nan, 1, np.nan, 2], np.float32), np.array([1, np.nan, np.nan, 2], np.float32)
    x, y, out, mask = put(m, 0, a, "f32"), put(m, 64, b, "f32"), at("ub", 128, (4,)), ("ub", 8 * 256, (4,), (1,))
    call(m, "vmax_1d_float", ref(x, "f32"), ref(y, "f32"), ref(out, "f32"), SCRATCH)
    assert np.array_equal(np.isnan(m.array(out, "f32")), [True, True, True, False])
    for name, expected in (("eq", [0, 0, 0, 1]), ("ne", [1, 1, 1, 0]), ("le", [0, 0, 0, 1]), ("gt", [0, 0, 0, 0])):
        call(m, f"vcmp_{name}_1d_float", ref(x, "f32"), ref(y, "f32"), ref(mask, "i1"))
        assert m.bits(mask).tolist() == [bool(e) for e in expected], name


@pytest.mark.parametrize("form", ["vv", "vs", "sv", "ss"])
@pytest.mark.parametrize("element", ["f32", "bf16", "i32", "i64"])
def test_selects(form: str, element: str) -> None:
    m = memory()
    wanted = rng.random(20) < 0.5
    mask, out = ("ub", 3, (20,), (1,)), at("ub", 1024, (20,))
    m.put_bits(mask, wanted)
    a, b = rng.integers(0, 99, 20), rng.integers(0, 99, 20)
    raw = [bf16(v) if element == "bf16" else v for v in (a, b)]
    pairs, chosen = [], []
    for letter, numbers, bits, place in zip(form, (a, b), raw, (256, 512), strict=True):
        pairs.append(ref(put(m, place, bits, element), element) if letter == "v" else num(int(numbers[0]), element))
        chosen.append(numbers if letter == "v" else np.full(20, numbers[0]))
    name = f"vsel_{form}_1d_{'bool_' * (form == 'vv')}{NAMES[element]}"
    call(m, name, ref(mask, "i1"), *pairs, ref(out, element), SCRATCH)
    assert [m.load(out, element, (i,)) for i in range(20)] == np.where(wanted, *chosen).tolist()


def test_a_select_s_condition_may_be_typed_as_bytes() -> None:
    m = memory()
    call_mask = put(m, 0, [0b101, 0b1], "i8")
    a, b, out = put(m, 64, np.arange(10), "f32"), put(m, 128, np.full(10, -1), "f32"), at("ub", 256, (10,))
    pairs = [ref(call_mask, "i8"), ref(a, "f32"), ref(b, "f32"), ref(out, "f32"), SCRATCH]
    call(m, "vsel_vv_1d_int8_t_float", *pairs)
    assert got(m, out, "f32") == [0, -1, 2, -1, -1, -1, -1, -1, 8, -1]
