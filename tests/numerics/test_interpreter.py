"""The interpreter, op by op against torch: casts, dots, memory, reductions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from kgen.verify import bf16

N = 65536
ALL_BF16 = torch.arange(N, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16)


@triton.jit
def cast_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr, rounding: tl.constexpr):
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offset, mask=offset < n)
    tl.store(y_ptr + offset, x.to(y_ptr.dtype.element_ty, fp_downcast_rounding=rounding), mask=offset < n)


def cast(x: torch.Tensor, dtype: torch.dtype, rounding: str | None = None) -> torch.Tensor:
    y = torch.empty(x.shape, dtype=dtype)
    cast_kernel[(triton.cdiv(x.numel(), 16384),)](x, y, x.numel(), 16384, rounding)
    return y


def assert_same_bits(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal bit by bit, except that any NaN equals any other."""
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    nan = torch.isnan(expected)
    assert torch.equal(torch.isnan(actual), nan)
    integer = {2: torch.int16, 4: torch.int32, 8: torch.int64}[actual.element_size()]
    assert torch.equal(actual[~nan].view(integer), expected[~nan].view(integer))


def fp32_samples() -> torch.Tensor:
    """Special values, every bf16, every tie between two bf16 with its neighbours, and random bit patterns."""
    exact = torch.arange(N, dtype=torch.int64) << 16
    ties = torch.cat([exact + 0x8000 + step for step in (-1, 0, 1)])
    random = torch.randint(0, 2**32, (2**17,), generator=torch.Generator().manual_seed(0), dtype=torch.int64)
    return torch.cat([exact, ties, random]).to(torch.uint32).view(torch.float32)


# Casts


def test_every_bf16_widens_exactly() -> None:
    assert_same_bits(cast(ALL_BF16, torch.float32), ALL_BF16.float())


def test_fp32_to_bf16_rounds_to_nearest_even() -> None:
    x = fp32_samples()
    assert_same_bits(cast(x, torch.bfloat16), x.bfloat16())


def test_nan_with_a_low_payload_stays_nan() -> None:
    x = torch.tensor([0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF], dtype=torch.int64).to(torch.uint32)
    y = cast(x.view(torch.float32), torch.bfloat16)
    assert torch.isnan(y).all()
    assert torch.equal(torch.signbit(y), torch.tensor([False, True, False, True]))


def test_fp32_to_bf16_toward_zero_truncates() -> None:
    x = fp32_samples()
    expected = (x.view(torch.int32) >> 16).to(torch.int16).view(torch.bfloat16)
    expected[torch.isnan(x)] = float("nan")
    assert_same_bits(cast(x, torch.bfloat16, "rtz"), expected)


def test_fp32_to_fp16_rounds_to_nearest_even() -> None:
    x = torch.cat([fp32_samples(), torch.randn(4096, generator=torch.Generator().manual_seed(1))])
    assert_same_bits(cast(x, torch.float16), x.half())


def test_fp16_and_bf16_meet_in_fp32() -> None:
    halves = ALL_BF16.view(torch.float16)
    assert_same_bits(cast(halves, torch.bfloat16), halves.float().bfloat16())
    assert_same_bits(cast(ALL_BF16, torch.float16), ALL_BF16.float().half())


def test_fp64_rounds_once() -> None:
    just_above_a_tie = 1 + 2.0**-8 + 2.0**-40  # through fp32 this would become the tie, then 1.0
    x = torch.tensor([just_above_a_tie, -just_above_a_tie, 1 + 2.0**-8, 1e300, -1e300, 1e-300, 1e-40, 0.0, -0.0])
    x = torch.cat([x.double(), torch.tensor([just_above_a_tie, float("inf"), float("nan")], dtype=torch.float64)])
    x[0], x[1] = just_above_a_tie, -just_above_a_tie
    y = cast(x, torch.bfloat16)
    assert y[0].item() == 1 + 2.0**-7 and y[1].item() == -(1 + 2.0**-7) and y[9].item() == 1 + 2.0**-7
    rest = [2, 3, 4, 5, 6, 7, 8, 10, 11]
    assert_same_bits(y[rest], x[rest].float().bfloat16())


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
def test_integers_become_bf16_values(dtype: torch.dtype) -> None:
    x = torch.arange(0, 200) if dtype == torch.uint8 else torch.arange(-70000, 70000, 17)
    assert_same_bits(cast(x.to(dtype), torch.bfloat16), x.float().bfloat16())


@triton.jit
def constants_kernel(x_ptr, y_ptr, z_ptr, w_ptr, N: tl.constexpr, value: tl.constexpr):
    offset = tl.arange(0, N)
    tl.store(y_ptr + offset, tl.full((N,), value, dtype=tl.bfloat16))
    tl.store(z_ptr + offset, tl.load(x_ptr + offset, mask=offset < 0, other=value))
    tl.store(w_ptr + offset, (offset < 8).to(tl.bfloat16))


@pytest.mark.parametrize("value", [0, 1, 3, -2.7, 1 + 2.0**-8, float("-inf")])
def test_constants_fill_values_and_masks_round_like_casts(value: float) -> None:
    x, (y, z, w) = torch.ones(16, dtype=torch.bfloat16), torch.full((3, 16), float("nan"), dtype=torch.bfloat16)
    constants_kernel[(1,)](x, y, z, w, 16, value)
    expected = torch.full((16,), float(value)).bfloat16()
    assert torch.equal(y, expected) and torch.equal(z, expected)
    assert torch.equal(w, (torch.arange(16) < 8).bfloat16())


# Dots


@triton.jit
def dot_kernel(a_ptr, b_ptr, c_ptr, o_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, T: tl.constexpr,
               precision: tl.constexpr):  # fmt: skip
    """o = c + a @ b, or c + a @ transpose(b) where b is stored as [N, K]."""
    a = tl.load(tl.make_block_ptr(a_ptr, (M, K), (K, 1), (0, 0), (M, K), (1, 0)))
    c = tl.load(tl.make_block_ptr(c_ptr, (M, N), (N, 1), (0, 0), (M, N), (1, 0)))
    if T:
        b = tl.trans(tl.load(tl.make_block_ptr(b_ptr, (N, K), (K, 1), (0, 0), (N, K), (1, 0))))
    else:
        b = tl.load(tl.make_block_ptr(b_ptr, (K, N), (N, 1), (0, 0), (K, N), (1, 0)))
    o = tl.dot(a, b, acc=c, input_precision=precision)
    tl.store(tl.make_block_ptr(o_ptr, (M, N), (N, 1), (0, 0), (M, N), (1, 0)), o)


def dot(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, transposed: bool, precision: str | None) -> torch.Tensor:
    m, k = a.shape
    n = b.shape[0] if transposed else b.shape[1]
    o = torch.full((m, n), float("nan"), dtype=c.dtype)
    dot_kernel[(1,)](a, b, c, o, m, n, k, transposed, precision)
    return o


@pytest.mark.parametrize(
    "shape", [(16, 16, 16), (64, 64, 64), (64, 32, 128), (16, 128, 256), (64, 96, 60), (1, 64, 64)]
)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_dot_against_fp64(shape: tuple[int, int, int], transposed: bool, dtype: torch.dtype) -> None:
    m, n, k = shape
    generator = torch.Generator().manual_seed(m * n + k)
    a = torch.randn(m, k, generator=generator).to(dtype)
    b = torch.randn(*((n, k) if transposed else (k, n)), generator=generator).to(dtype)
    c = torch.randn(m, n, generator=generator)
    expected = c.double() + a.double() @ (b.double().T if transposed else b.double())
    actual = dot(a, b, c, transposed, "ieee" if dtype == torch.float32 else None)
    assert torch.allclose(actual.double(), expected, rtol=1e-5, atol=2e-6 * k**0.5)


def test_dot_of_fp16_sums_in_fp32_even_into_fp16() -> None:
    a, b = torch.ones(16, 4096, dtype=torch.float16), torch.full((4096, 16), 0.25, dtype=torch.float16)
    b[0] = 2048.0  # each later quarter would vanish in an fp16 sum
    c = torch.zeros(16, 16, dtype=torch.float32)
    assert torch.equal(dot(a, b, c, False, None), torch.full((16, 16), 2048.0 + 4095 * 0.25))


def test_dot_of_bf16_is_exact_where_fp32_is() -> None:
    integers = torch.arange(16 * 16).reshape(16, 16) % 7 - 3
    a, b = integers.bfloat16(), integers.T.contiguous().bfloat16()
    assert torch.equal(dot(a, b, torch.zeros(16, 16), False, None), (integers @ integers.T).float())


def test_fp32_dot_is_tf32_unless_ieee_is_asked_for() -> None:
    a = torch.full((16, 16), 1 + 2.0**-12)
    c = torch.zeros(16, 16)
    identity = torch.eye(16)
    assert torch.equal(dot(a, identity, c, False, "ieee"), a)
    assert torch.equal(dot(a, identity, c, False, "tf32x3"), a)
    assert torch.equal(dot(a, identity, c, False, None), torch.ones(16, 16))


def test_nan_and_infinity_pass_through_a_dot() -> None:
    a = torch.zeros(16, 16, dtype=torch.bfloat16)
    a[3, 5], a[7, 2] = float("nan"), float("inf")
    o = dot(a, torch.ones(16, 16, dtype=torch.bfloat16), torch.zeros(16, 16), False, None)
    assert torch.isnan(o[3]).all() and torch.isinf(o[7]).all() and (o[[0, 1, 15]] == 0).all()


# Memory


@triton.jit(do_not_specialize=["rows", "i_r"])
def copy_block_kernel(x_ptr, y_ptr, rows, i_r, columns: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
                      padding: tl.constexpr):  # fmt: skip
    """Copy one [BR, BC] block at row i_r of a [rows, columns] matrix into a [BR, BC] one, padded."""
    x_block = tl.make_block_ptr(x_ptr, (rows, columns), (columns, 1), (i_r, 0), (BR, BC), (1, 0))
    y_block = tl.make_block_ptr(y_ptr, (BR, BC), (BC, 1), (0, 0), (BR, BC), (1, 0))
    tl.store(y_block, tl.load(x_block, boundary_check=(0, 1), padding_option=padding))


PADDED = [(dtype, "zero") for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.int32)]
PADDED += [(dtype, "nan") for dtype, _ in PADDED if dtype.is_floating_point]


@pytest.mark.parametrize(("dtype", "padding"), PADDED)
@pytest.mark.parametrize("first", [0, 16, -5, 40])
def test_block_load_pads_outside_the_boundary(dtype: torch.dtype, padding: str, first: int) -> None:
    rows, columns = 21, 12
    x = torch.arange(rows * columns).reshape(rows, columns).to(dtype)
    y = torch.full((16, 16), 7).to(dtype)
    copy_block_kernel[(1,)](x, y, rows, first, columns, 16, 16, padding)
    expected = torch.full((16, 16), float("nan") if padding == "nan" else 0).to(dtype)
    for row in range(16):
        if 0 <= first + row < rows:
            expected[row, :columns] = x[first + row]
    assert torch.equal(y.nan_to_num(-1.0), expected.nan_to_num(-1.0))


@triton.jit(do_not_specialize=["rows", "i_r"])
def store_block_kernel(x_ptr, y_ptr, rows, i_r, columns: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    x_block = tl.make_block_ptr(x_ptr, (BR, BC), (BC, 1), (0, 0), (BR, BC), (1, 0))
    y_block = tl.make_block_ptr(y_ptr, (rows, columns), (columns, 1), (i_r, 0), (BR, BC), (1, 0))
    tl.store(y_block, tl.load(x_block).to(y_ptr.dtype.element_ty), boundary_check=(0, 1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_block_store_writes_only_inside_and_rounds(dtype: torch.dtype) -> None:
    rows, columns, first = 21, 12, 16
    x = torch.randn(16, 16, generator=torch.Generator().manual_seed(0))
    y = torch.full((rows + 4, columns), float("nan"), dtype=dtype)
    store_block_kernel[(1,)](x, y, rows, first, columns, 16, 16)
    assert torch.equal(y[first:rows], x[: rows - first, :columns].to(dtype))
    assert torch.isnan(y[:first]).all() and torch.isnan(y[rows:]).all()


@triton.jit
def move_kernel(x_ptr, y_ptr, flag_ptr, R: tl.constexpr, C: tl.constexpr):
    """Everything bf16 may go through without arithmetic: masked loads, trans, reshape, broadcast, where, bitcast."""
    row, column = tl.arange(0, R), tl.arange(0, C)
    x = tl.load(x_ptr + row[:, None] * C + column[None, :])
    flag = tl.load(flag_ptr + row)
    x = tl.trans(tl.trans(x))
    x = tl.reshape(tl.reshape(x, (C, R)), (R, C))
    x = x.to(tl.int16, bitcast=True).to(tl.bfloat16, bitcast=True)
    x = tl.where(tl.broadcast_to(flag[:, None], (R, C)) != 0, x, 0.0)
    x = tl.where(flag[:, None] != 0, x, tl.zeros((R, C), dtype=tl.bfloat16))
    tl.store(y_ptr + row[:, None] * C + column[None, :], x)


def test_moving_bf16_keeps_every_bit() -> None:
    x = ALL_BF16[:16384].reshape(128, 128)
    flag = (torch.arange(128) % 3 != 0).int()
    y = torch.full_like(x, float("nan"))
    move_kernel[(1,)](x, y, flag, 128, 128)
    expected = torch.where(flag.bool()[:, None], x, torch.zeros_like(x))
    assert torch.equal(y.view(torch.int16), expected.view(torch.int16))


# fp32 arithmetic, control flow and device functions


@triton.jit
def softplus_rows(x, axis: tl.constexpr):
    total = tl.sum(x, axis)
    if axis == 1:
        return total[:, None]
    else:
        return total[None, :]


@triton.jit
def fp32_kernel(x_ptr, y_ptr, tail_ptr, R: tl.constexpr, C: tl.constexpr, OP: tl.constexpr):
    row, column = tl.arange(0, R), tl.arange(0, C)
    x = tl.load(x_ptr + row[:, None] * C + column[None, :]).to(tl.float32)
    if OP == "sum":
        y = x - softplus_rows(x, 1) + softplus_rows(x, 0)
    elif OP == "max":
        y = x - tl.max(x, 1)[:, None]
    elif OP == "cumsum":
        y = tl.cumsum(x, 0) + tl.cumsum(x, 1, reverse=True)
    elif OP == "exp2":
        y = tl.exp2(tl.minimum(x, 0.0)) + tl.exp(-tl.abs(x)) + tl.maximum(x, 1.0, propagate_nan=tl.PropagateNan.ALL)
    else:
        y = tl.zeros((R, C), dtype=tl.float32)
        for i in range(tl.cdiv(R, 4)):
            y += tl.where(row[:, None] >= column[None, :], x, 0.0) * i
        y = y / 2.0
    tl.store(y_ptr + row[:, None] * C + column[None, :], y.to(y_ptr.dtype.element_ty))
    tl.store(tail_ptr + row, tl.sum(y, axis=1))


FP32_REFERENCES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda x: x - x.sum(1, keepdim=True) + x.sum(0, keepdim=True),
    "max": lambda x: x - x.amax(1, keepdim=True),
    "cumsum": lambda x: x.cumsum(0) + x.flip(1).cumsum(1).flip(1),
    "exp2": lambda x: torch.exp2(x.clamp(max=0)) + torch.exp(-x.abs()) + x.clamp(min=1),
    "loop": lambda x: x.tril() * sum(range(8)) / 2,
}


@pytest.mark.parametrize("operation", FP32_REFERENCES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_fp32_arithmetic(operation: str, dtype: torch.dtype) -> None:
    x = torch.randn(32, 64, generator=torch.Generator().manual_seed(3)).to(dtype)
    y, tail = torch.full((32, 64), float("nan"), dtype=dtype), torch.full((32,), float("nan"))
    fp32_kernel[(1,)](x, y, tail, 32, 64, operation)
    expected = FP32_REFERENCES[operation](x.double())
    tolerance = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 1e-6}[dtype]
    assert torch.allclose(y.double(), expected, rtol=tolerance, atol=1e-4 if dtype == torch.float32 else tolerance)
    assert torch.allclose(tail.double(), expected.sum(1), rtol=1e-4, atol=1e-4)


@triton.jit
def undefined_name_kernel(x_ptr):
    tl.store(x_ptr, math.pi)  # noqa: F821


def test_names_of_the_interpreter_do_not_leak_into_the_kernel() -> None:
    with pytest.raises(NameError, match="math"):
        undefined_name_kernel[(1,)](torch.zeros(1))


# The conversions by themselves


def test_numpy_conversions_agree_with_torch() -> None:
    bits = np.arange(N, dtype=np.uint16)
    assert np.array_equal(bf16.to_float32(bits).view(np.uint32), bits.astype(np.uint32) << 16)
    quiet = bits[~((bits & 0x7F80 == 0x7F80) & (bits & 0x7F != 0) & (bits & 0x40 == 0))]
    assert np.array_equal(bf16.from_float32(bf16.to_float32(quiet)), quiet)
    with np.errstate(all="ignore"):
        assert np.array_equal(bf16.from_float64(bf16.to_float32(quiet).astype(np.float64)), quiet)
    assert bf16.from_float32(np.float32([[1.0], [2.0]])).shape == (2, 1)
