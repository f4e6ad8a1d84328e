"""What the executor's templates reduce, run along an axis, and place without computing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kgen.errors import KgenError
from kgen.virtual.hivm.types import row_major
from tests.numerics.test_execute_templates import NAMES, SCRATCH, UB, at, call, got, memory, num, put, ref

rng = np.random.default_rng(3)


# ------------------------------------------------------------ along axes


@pytest.mark.parametrize("element", ["f32", "f16", "i32"])
@pytest.mark.parametrize(("op", "fold"), [("sum", np.add), ("max", np.maximum), ("min", np.minimum)])
@pytest.mark.parametrize(
    ("axes", "shape", "axis"),
    [
        ("r", (19,), 0), ("ra", (7, 9), 0), ("ar", (7, 9), 1), ("ara", (2, 7, 9), 1), ("aar", (2, 3, 7), 2),
        ("ra0a1", (5, 2, 9), 0),
    ],
)  # fmt: skip
def test_reductions_of_strided_views(
    element: str, op: str, fold: Any, axes: str, shape: tuple[int, ...], axis: int
) -> None:
    """Small whole numbers, so that any order of summing is exact."""
    m = memory()
    values = rng.integers(-9, 9, shape)
    padded = (*shape[:-1], 16)[-len(shape) :] if len(shape) > 1 else (32,)
    source = put(m, 0, values, element, row_major(padded))
    out = at("ub", 8192, tuple(1 if a == axis else n for a, n in enumerate(shape)), row_major(padded))
    call(m, f"reduce_{op}_{axes}_{NAMES[element]}", ref(source, element), ref(out, element), SCRATCH, num(0, element))
    assert np.array_equal(m.array(out, element), fold.reduce(values, axis=axis, keepdims=True))


@pytest.mark.parametrize(
    ("op", "fold"),
    [("prod", np.multiply), ("ori", np.bitwise_or), ("andi", np.bitwise_and), ("xori", np.bitwise_xor)],
)
def test_reductions_of_integers(op: str, fold: Any) -> None:
    m = memory()
    values = rng.integers(1, 9, (5, 8))
    out = at("ub", 1024, (1, 8))
    source = put(m, 0, values, "i32")
    call(m, f"reduce_{op}_ra_int32_t", ref(source, "i32"), ref(out, "i32"), SCRATCH, num(0))
    assert got(m, out, "i32") == [fold.reduce(values, axis=0).tolist()]


@pytest.mark.parametrize(
    ("name", "tie", "expected"), [("max", "left", [1, 0]), ("max", "right", [3, 2]), ("min", "left", [0, 3])]
)
def test_where_a_maximum_is(name: str, tie: str, expected: list[int]) -> None:
    m = memory()
    values = np.array([[1, 7, 3, 7], [9, 2, 9, 1]], np.float32)
    out, index = at("ub", 128, (2, 1), (8, 1)), at("ub", 256, (2, 1), (8, 1))
    pairs = [ref(put(m, 0, values, "f32"), "f32"), ref(out, "f32"), ref(index, "i32"), SCRATCH, num(0.0, "f32")]
    call(m, f"reduce_{name}_with_index_{tie}_ar_float", *pairs)
    assert m.array(index, "i32").reshape(-1).tolist() == expected
    assert m.array(out, "f32").reshape(-1).tolist() == [row[i] for row, i in zip(values, expected, strict=True)]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("name", "shape"), [("cumsum_ra", (6, 5)), ("cumprod_ra", (6, 5)), ("cumsum_ara", (2, 6, 5))])
def test_running_sums_go_row_by_row(name: str, shape: tuple[int, ...], reverse: bool) -> None:
    m = memory()
    values = rng.standard_normal(shape).astype(np.float32)
    expected = values.copy()
    rows = expected if len(shape) == 2 else expected.transpose(1, 0, 2)
    order = range(len(rows) - 2, -1, -1) if reverse else range(1, len(rows))
    for i in order:
        before = rows[i + 1 if reverse else i - 1]
        rows[i] = before + rows[i] if "sum" in name else before * rows[i]
    out = at("ub", 1024, shape)
    source = put(m, 0, values, "f32")
    call(m, f"{name}{'_reverse' * reverse}_float", ref(source, "f32"), ref(out, "f32"))
    assert np.array_equal(m.array(out, "f32"), expected)


# ------------------------------------------------------------ places


@pytest.mark.parametrize(
    ("name", "shape", "whole"),
    [
        ("broadcast_1d", (1,), (9,)), ("broadcast_first_axis_align_2d", (1, 9), (4, 9)),
        ("broadcast_first_axis_unalign_3d", (1, 2, 9), (3, 2, 9)), ("broadcast_last_axis_align_2d", (4, 1), (4, 9)),
        ("broadcast_middle_axis_align_3d", (3, 1, 9), (3, 2, 9)),
        ("broadcast_last_axis_unknown_align_2d", (4, 1), (4, 9)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("element", ["f32", "bf16", "i64"])
def test_broadcasts(name: str, shape: tuple[int, ...], whole: tuple[int, ...], element: str) -> None:
    m = memory()
    values = rng.integers(0, 9999, shape)
    source, out = put(m, 0, values, element), at("ub", 4096, whole)
    call(m, f"{name}_{NAMES[element]}", ref(source, element), ref(out, element), SCRATCH)
    assert np.array_equal(m.array(out, element), np.broadcast_to(values, whole))


def test_masks_are_spread_and_filled() -> None:
    m = memory()
    row, out = ("ub", 0, (1, 21), (32, 1)), ("ub", 2048, (3, 21), (256, 1))
    m.put_bits(row, np.arange(21) % 2 == 0)
    call(m, "broadcast_first_axis_align_2d_bool", ref(row, "i1"), ref(out, "i1"))
    assert np.array_equal(m.bits(out), np.broadcast_to(np.arange(21) % 2 == 0, (3, 21)))
    call(m, "broadcast_scalar_bool_to_2d", num(0, "i1"), ref(out, "i1"))
    assert not m.bits(out).any()


@pytest.mark.parametrize(
    ("name", "shape", "order"),
    [
        ("transpose_2d_with_last_axis", (5, 9), (1, 0)), ("transpose_3d_with_last_axis", (2, 5, 9), (2, 1, 0)),
        ("transpose_3d_without_last_axis", (2, 5, 9), (1, 0, 2)),
    ],
)  # fmt: skip
def test_transposes(name: str, shape: tuple[int, ...], order: tuple[int, ...]) -> None:
    m = memory()
    values = rng.integers(0, 9999, shape)
    source, out = (
        put(m, 0, values, "bf16", row_major((*shape[:-1], 16))),
        at("ub", 4096, tuple(shape[a] for a in order)),
    )
    call(m, f"{name}_bfloat16_t", ref(source, "bf16"), ref(out, "bf16"))
    assert np.array_equal(m.array(out, "bf16"), values.transpose(order))


@pytest.mark.parametrize(("shape", "steps"), [((7,), [3]), ((3, 4), [10, 2]), ((2, 3, 4), [100, 10, 1])])
@pytest.mark.parametrize("element", ["i32", "f32", "i64"])
def test_sequences(shape: tuple[int, ...], steps: list[int], element: str) -> None:
    m = memory()
    out = at("ub", 0, shape)
    operands = [num(5, "index"), *(num(s, "index") for s in steps)]
    call(m, f"arange_{len(shape)}d_{NAMES[element]}", ref(out, element), *operands)
    expected = [5 + sum(i * s for i, s in zip(place, steps, strict=True)) for place in np.ndindex(shape)]
    assert m.array(out, element).reshape(-1).tolist() == expected


def test_a_sequence_with_gaps_begins_where_the_library_has_it() -> None:
    m = memory()
    out = at("ub", 0, (4,), (8,))
    call(m, "arange_1d_int32_t", ref(out, "i32"), num(2, "index"), num(1, "index"))
    assert got(m, out, "i32") == [16, 17, 18, 19]


def test_channels_are_taken_apart_and_put_together() -> None:
    m = memory()
    x = put(m, 0, np.arange(16), "f32")
    even, odd, whole = at("ub", 128, (8,)), at("ub", 256, (8,)), at("ub", 512, (16,))
    call(m, "deinterleave_channel_0_from_2_channels_1d_float", ref(x, "f32"), ref(even, "f32"))
    call(m, "deinterleave_channel_1_from_2_channels_1d_float", ref(x, "f32"), ref(odd, "f32"))
    assert (got(m, even, "f32"), got(m, odd, "f32")) == (list(range(0, 16, 2)), list(range(1, 16, 2)))
    call(m, "interleave_1d_float", ref(even, "f32"), ref(odd, "f32"), ref(whole, "f32"), SCRATCH)
    assert got(m, whole, "f32") == list(range(16))


def test_the_first_of_n_channels() -> None:
    """By a view that steps over the others, or from rows n times as long."""
    m = memory()
    put(m, 0, np.arange(64).reshape(2, 32), "f32")
    for source in (at("ub", 0, (2, 4), (32, 8)), at("ub", 0, (2, 32))):
        out = at("ub", 1024, (2, 4))
        m.array(out, "f32")[...] = -1
        call(m, "deinterleave_channel_0_from_n_channels_2d_float", ref(source, "f32"), ref(out, "f32"))
        assert got(m, out, "f32") == [[0, 8, 16, 24], [32, 40, 48, 56]]


def test_gathers_flips_and_compressions() -> None:
    m = memory()
    x, indices = put(m, 256, np.arange(10, 26), "f16"), put(m, 0, [3, 0, 15, 3, -1], "i32")
    put(m, 254, [99], "f16")
    out, flipped, count = at("ub", 512, (5,)), at("ub", 768, (16,)), at("ub", 1024, (1,))
    call(m, "gather_1d_half", ref(x, "f16"), ref(indices, "i32"), ref(out, "f16"), ref(indices, "i32"))
    assert got(m, out, "f16") == [13, 10, 25, 13, 99]
    call(m, "flip_1d_half", ref(x, "f16"), ref(flipped, "f16"))
    assert got(m, flipped, "f16") == list(range(25, 9, -1))
    mask = ("ub", 8 * 2048, (16,), (1,))
    m.put_bits(mask, np.arange(16) % 5 == 0)
    kept = put(m, 1280, np.zeros(16), "f16")
    call(m, "vgathermask_1d_half", ref(x, "f16"), ref(mask, "i1"), ref(kept, "f16"), ref(count, "i64"))
    assert got(m, kept, "f16") == [10, 15, 20, 25] + [0] * 12
    assert got(m, count, "i64") == [4]


def test_a_gather_past_the_memory_is_an_error() -> None:
    m = memory()
    x, indices, out = put(m, 256, np.arange(4), "f32"), put(m, 0, [0, UB], "i32"), at("ub", 512, (2,))
    with pytest.raises(KgenError, match="@gather_1d_float"):
        call(m, "gather_1d_float", ref(x, "f32"), ref(indices, "i32"), ref(out, "f32"), ref(indices, "i32"))
