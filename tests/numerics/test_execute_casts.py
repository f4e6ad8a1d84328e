"""Casts of the executor by rounding mode, against all numbers of a narrow type and against torch."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kgen.errors import KgenError
from tests.numerics.test_execute_templates import NAMES, SCRATCH, at, bf16, call, got, memory, num, put, ref

rng = np.random.default_rng(2)


def neighbours(x: float, kind: Any) -> tuple[float, float]:
    """The numbers of a type around a number, from all there are of a half-width float."""
    everything = np.arange(1 << 16, dtype=np.uint16)
    numbers = everything.view(np.float16) if kind == "f16" else (everything.astype(np.uint32) << 16).view(np.float32)
    numbers = numbers[np.isfinite(numbers)].astype(np.float64)
    low, high = numbers[numbers <= x], numbers[numbers >= x]
    return (low.max() if len(low) else -math.inf), (high.min() if len(high) else math.inf)


WIDE = st.floats(width=32, allow_nan=False, allow_infinity=False) | st.floats(-70000, 70000, width=32)


@pytest.mark.parametrize("element", ["f16", "bf16"])
@given(WIDE)
def test_a_narrowing_cast_takes_the_neighbour_that_its_mode_says(element: str, x: float) -> None:
    low, high = neighbours(x, element)

    def cast(mode: int) -> float:
        m = memory()
        source = put(m, 0, np.array([x], np.float32), "f32")
        target = at("ub", 64, (1,))
        call(m, f"vcast_float_to_{NAMES[element]}_1d_with_mode", ref(source, "f32"), ref(target, element), num(mode))
        return float(m.load(target, element, (0,)))

    assert (cast(2), cast(3)) == (low, high)
    assert cast(4) == (low if x >= 0 else high)
    if low == high:
        assert {cast(mode) for mode in (0, 1, 5)} == {low}
    elif math.isfinite(low) and math.isfinite(high):
        below, above = Fraction(x) - Fraction(low), Fraction(high) - Fraction(x)
        nearest = {low} if below < above else {high} if above < below else {low, high}
        assert cast(0) in nearest
        assert cast(1) == (next(iter(nearest)) if len(nearest) == 1 else high if x > 0 else low)
        bits = bf16([cast(5)])[0] if element == "bf16" else np.float16(cast(5)).view(np.uint16)
        assert bits & 1 and cast(5) in (low, high)


@given(st.lists(st.floats(width=32), min_size=1, max_size=9))
def test_rint_is_torch_s(values: list[float]) -> None:
    x = np.array(values, np.float32)
    for element, kind in (("bf16", torch.bfloat16), ("f16", torch.float16)):
        m = memory()
        target = at("ub", 64, x.shape)
        name = f"vcast_float_to_{NAMES[element]}_1d_with_mode"
        call(m, name, ref(put(m, 0, x, "f32"), "f32"), ref(target, element), num(0))
        found = torch.tensor([m.load(target, element, (i,)) for i in range(len(x))]).to(kind)
        assert torch.equal(found.nan_to_num(7.0, 8.0, -8.0), torch.from_numpy(x).to(kind).nan_to_num(7.0, 8.0, -8.0))
        assert torch.equal(found.isnan(), torch.from_numpy(x).isnan())


@pytest.mark.parametrize(("element", "step"), [("bf16", 2.0**-7), ("f16", 2.0**-10)])
def test_halves_between_two_numbers(element: str, step: float) -> None:
    """Exactly between 1 and the next number: to even with rint, outwards with mode 1."""
    m = memory()
    half = np.array([1 + step / 2, -1 - step / 2, 1 + 3 * step / 2], np.float32)
    source, target = put(m, 0, half, "f32"), at("ub", 64, (3,))
    for mode, expected in ((0, [1, -1, 1 + 2 * step]), (1, [1 + step, -1 - step, 1 + 2 * step])):
        call(m, f"vcast_float_to_{NAMES[element]}_1d_with_mode", ref(source, "f32"), ref(target, element), num(mode))
        assert [m.load(target, element, (i,)) for i in range(3)] == expected


@pytest.mark.parametrize("mode", range(6))
def test_every_nan_stays_one_in_bf16(mode: int) -> None:
    """Also those whose bits a rounding would carry into the exponent or the sign."""
    m = memory()
    bits = np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0xFF800001, 0x7FC00000], np.uint32)
    source, target = put(m, 0, bits.view(np.float32), "f32"), at("ub", 64, (5,))
    call(m, "vcast_float_to_bfloat16_t_1d_with_mode", ref(source, "f32"), ref(target, "bf16"), num(mode))
    assert all(math.isnan(m.load(target, "bf16", (i,))) for i in range(5))


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (0, [1.0, -2.0, 2.0, -4.0, 0.0]), (1, [1.0, -2.0, 3.0, -4.0, 0.0]), (2, [1.0, -2.0, 2.0, -4.0, 0.0]),
        (3, [2.0, -1.0, 3.0, -3.0, 1.0]), (4, [1.0, -1.0, 2.0, -3.0, 0.0]),
    ],
)  # fmt: skip
def test_fp32_to_fp32_is_made_whole(mode: int, expected: list[float]) -> None:
    m = memory()
    source = put(m, 0, np.array([1.2, -1.7, 2.5, -3.5, 0.49999997], np.float32), "f32")
    call(m, "vcast_float_to_float_1d_with_mode", ref(source, "f32"), ref(source, "f32"), num(mode))
    assert got(m, source, "f32") == expected


@given(st.integers(-(2**31), 2**31 - 1), st.integers(0, 4))
def test_integers_become_the_fp32_that_the_mode_says(value: int, mode: int) -> None:
    m = memory()
    target = at("ub", 64, (1,))
    source = put(m, 0, [value], "i32")
    call(m, "vcast_int32_t_to_float_1d_with_mode", ref(source, "i32"), ref(target, "f32"), num(mode))
    found = m.load(target, "f32", (0,))
    near = np.float32(value)
    candidates = sorted(
        {float(np.nextafter(near, np.float32(d), dtype=np.float32)) for d in (-np.inf, np.inf)} | {float(near)}
    )
    low, high = max(c for c in candidates if c <= value), min(c for c in candidates if c >= value)
    if mode in (0, 1):
        assert abs(Fraction(found) - value) == min(abs(Fraction(c) - value) for c in candidates)
        assert mode == 1 or found == float(near)
    else:
        assert found == {2: low, 3: high, 4: low if value >= 0 else high}[mode]


@pytest.mark.parametrize(("form", "expected"), [("mode", [2**31 - 1, -(2**31), 7]), ("overflow", [5, -(2**31), 7])])
def test_narrower_integers_saturate_unless_they_are_to_wrap(form: str, expected: list[int]) -> None:
    m = memory()
    source, target = put(m, 0, [2**32 + 5, -(2**31), 7], "i64"), at("ub", 64, (3,))
    scratch = [] if form == "mode" else [SCRATCH]
    pairs = [ref(source, "i64"), ref(target, "i32"), *scratch, num(0 if form == "mode" else 6)]
    call(m, f"vcast_int64_t_to_int32_t_1d_with_{form}", *pairs)
    assert got(m, target, "i32") == expected


def test_integers_widen_unchanged() -> None:
    m = memory()
    source, target = put(m, 0, [-7, 2**31 - 1], "i32"), at("ub", 64, (2,))
    call(m, "vcast_int32_t_to_int64_t_1d_with_mode", ref(source, "i32"), ref(target, "i64"), num(0))
    assert got(m, target, "i64") == [-7, 2**31 - 1]


@pytest.mark.parametrize("element", ["f32", "f16", "bf16", "i16", "i32"])
def test_a_mask_becomes_ones_and_zeros(element: str) -> None:
    m = memory()
    mask, target = ("ub", 0, (11,), (1,)), at("ub", 64, (11,))
    m.put_bits(mask, np.arange(11) % 3 == 0)
    pairs = [ref(mask, "i1"), ref(target, element), ref(SCRATCH[0], element), num(0)]
    call(m, f"vcast_bool_to_{NAMES[element]}_1d_with_temp", *pairs)
    assert [m.load(target, element, (i,)) for i in range(11)] == [float(i % 3 == 0) for i in range(11)]


@pytest.mark.parametrize(
    ("source", "target", "view"),
    [
        ("bf16", "f32", at("ub", 2, (8,))), ("f32", "bf16", at("ub", 0, (8,), (2,))),
        ("f32", "f16", at("ub", 0, (4, 8), (12, 1))), ("f32", "bf16", at("ub", 8, (1,))),
    ],
)  # fmt: skip
def test_a_cast_that_the_library_does_not_make_is_an_error(source: str, target: str, view: Any) -> None:
    """It has no scalar path for these: bf16 casts are skipped, fp32 to fp16 traps."""
    m = memory()
    rank = len(view[2])
    out = at("ub", 1024, view[2], (16, 1)[-rank:])
    with pytest.raises(KgenError, match="aligned") as caught:
        name = f"vcast_{NAMES[source]}_to_{NAMES[target]}_{rank}d_with_mode"
        call(m, name, ref(view, source), ref(out, target), num(0))
    assert caught.value.code == "execute-cast"


@pytest.mark.parametrize("view", [at("ub", 64, (1, 1), (7, 3)), at("ub", 0, (3, 5), (16, 1)), at("ub", 32, (5,))])
def test_casts_that_it_makes(view: Any) -> None:
    m = memory()
    m.array(view, "bf16")[...] = bf16(np.full(view[2], 1.5))
    out = at("ub", 1024, view[2], (24, 1)[-len(view[2]) :])
    call(m, f"vcast_bfloat16_t_to_float_{len(view[2])}d_with_mode", ref(view, "bf16"), ref(out, "f32"), num(0))
    assert np.array_equal(m.array(out, "f32"), np.full(view[2], 1.5, np.float32))
