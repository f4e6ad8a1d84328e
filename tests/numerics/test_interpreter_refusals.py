"""The interpreter refuses bf16 arithmetic other than dots, by name; what stock does instead; and a late `activate`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from kgen.errors import KgenError

Operation = Callable[[Any, Any], Any]


@triton.jit
def apply_kernel(x_ptr, R: tl.constexpr, C: tl.constexpr, operation: tl.constexpr):
    offset = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    x = tl.load(x_ptr + offset)
    operation(x, x)


REFUSED: list[tuple[str, Operation]] = [
    ("fadd", lambda x, y: x + y),
    ("fadd", lambda x, y: x + 1.0),
    ("fsub", lambda x, y: x - y),
    ("fsub", lambda x, y: -x),
    ("fmul", lambda x, y: x * 2.0),
    ("fmul", lambda x, y: 2 * x),
    ("truediv", lambda x, y: x / y),
    ("truediv", lambda x, y: x / 2.0),
    ("rtruediv", lambda x, y: 1.0 / x),
    ("mod", lambda x, y: x % y),
    ("fcmpOLT", lambda x, y: x < y),
    ("fcmpOLE", lambda x, y: x <= y),
    ("fcmpOGT", lambda x, y: x > y),
    ("fcmpOGE", lambda x, y: x >= y),
    ("fcmpOEQ", lambda x, y: x == y),
    ("fcmpUNE", lambda x, y: x != y),
    ("minimum", lambda x, y: tl.minimum(y, x)),
    ("maximum", lambda x, y: tl.maximum(x, 0.0)),
    ("clamp", lambda x, y: tl.clamp(x, -1.0, 1.0)),
    ("abs", lambda x, y: tl.abs(x)),
    ("fma", lambda x, y: tl.fma(x, y, x)),
    ("exp", lambda x, y: tl.exp(x)),
    ("exp2", lambda x, y: tl.exp2(x)),
    ("exp2", lambda x, y: x.exp2()),
    ("log", lambda x, y: tl.log(x)),
    ("log2", lambda x, y: tl.log2(x)),
    ("sqrt", lambda x, y: tl.sqrt(x)),
    ("rsqrt", lambda x, y: tl.rsqrt(x)),
    ("sin", lambda x, y: tl.sin(x)),
    ("cos", lambda x, y: tl.cos(x)),
    ("erf", lambda x, y: tl.erf(x)),
    ("floor", lambda x, y: tl.floor(x)),
    ("ceil", lambda x, y: tl.ceil(x)),
    ("sum", lambda x, y: tl.sum(x, 1)),
    ("max", lambda x, y: tl.max(x, 1)),
    ("min", lambda x, y: tl.min(x, 1)),
    ("max", lambda x, y: tl.argmax(x, 1)),
    ("cumsum", lambda x, y: tl.cumsum(x, 1)),
    ("cumprod", lambda x, y: tl.cumprod(x, 1)),
]


@pytest.mark.parametrize(("name", "operation"), REFUSED, ids=[f"{name}-{i}" for i, (name, _) in enumerate(REFUSED)])
def test_other_bf16_arithmetic_is_refused_by_name(name: str, operation: Operation) -> None:
    with pytest.raises(KgenError, match=f"bf16 arithmetic: .*{name}") as caught:
        apply_kernel[(1,)](torch.ones(16, 16, dtype=torch.bfloat16), 16, 16, operation)
    assert caught.value.code == "interpreter-bf16"
    assert "tl.float32" in caught.value.hint


@pytest.mark.parametrize(("name", "operation"), REFUSED, ids=[f"{name}-{i}" for i, (name, _) in enumerate(REFUSED)])
def test_the_same_in_fp32_is_not(name: str, operation: Operation) -> None:
    apply_kernel[(1,)](torch.ones(16, 16), 16, 16, operation)


@pytest.mark.parametrize("operation", ["add", "max"])
def test_bf16_atomics_are_refused(operation: str) -> None:
    with pytest.raises((KgenError, ValueError), match="bf16"):
        atomic_kernel[(1,)](torch.ones(16, dtype=torch.bfloat16), 16, operation)


@triton.jit
def atomic_kernel(x_ptr, N: tl.constexpr, operation: tl.constexpr):
    offset = tl.arange(0, N)
    x = tl.load(x_ptr + offset)
    if operation == "add":
        tl.atomic_add(x_ptr + offset, x)
    else:
        tl.atomic_max(x_ptr + offset, x)


def test_bf16_meets_fp32_after_an_exact_widening() -> None:
    result: list[Any] = []

    def operation(x: Any, y: Any) -> None:
        result.append(x * y.to(tl.float32) / x)

    apply_kernel[(1,)](torch.full((16, 16), 3.0, dtype=torch.bfloat16), 16, 16, operation)
    assert result[0].dtype == tl.float32
    assert np.all(result[0].handle.data == 3.0)


STOCK = """
import torch, triton, triton.language as tl

@triton.jit
def kernel(x_ptr, cast_ptr, dot_ptr, N: tl.constexpr):
    offset = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + offset)
    tl.store(cast_ptr + offset, x.to(tl.bfloat16))
    tl.store(dot_ptr + offset, tl.dot(x.to(tl.bfloat16), x.to(tl.bfloat16)))

x = torch.full((16, 16), 1 + 2.0**-8 + 2.0**-9)
cast, product = torch.zeros(16, 16, dtype=torch.bfloat16), torch.zeros(16, 16)
kernel[(1,)](x, cast, product, 16)
print(bool(torch.equal(cast, x.bfloat16())), product[0, 0].item())
"""


def test_the_stock_interpreter_truncates_and_multiplies_bit_patterns(tmp_path: Path) -> None:
    """Why all this exists: if upstream mends it, this test says so and the replacement can shrink."""
    script = tmp_path / "stock.py"
    script.write_text(STOCK)
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    result = subprocess.run(
        [sys.executable, script], check=True, env=environment, capture_output=True, text=True, timeout=120
    )
    cast_is_right, product = result.stdout.split()
    assert cast_is_right == "False"
    assert float(product) == 16 * 0x3F80 * 0x3F80  # 16 products of the bit pattern of 1.0


LATE = """
import triton
from kgen.verify import interpreter
from kgen.errors import KgenError
try:
    interpreter.activate()
except KgenError as error:
    print(error.code)
"""


def test_activating_after_a_compiled_import_is_refused() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), environment.get("PYTHONPATH", "")])
    result = subprocess.run(
        [sys.executable, "-c", LATE], check=True, env=environment, capture_output=True, text=True, timeout=120
    )
    assert result.stdout.strip() == "interpreter-too-late"


@triton.jit
def copy_kernel(x_ptr, y_ptr, N: tl.constexpr):
    offset = tl.arange(0, N)
    x = tl.load(x_ptr + offset)
    tl.store(y_ptr + offset, x + 0.0)


def test_adding_zero_is_a_copy_and_the_one_bf16_sum_that_is_let_through() -> None:
    """`tile + 0.0` is how emitted kernels copy a dot's left operand (K201)."""
    x = torch.randn(64).bfloat16()
    y = torch.empty_like(x)
    copy_kernel[(1,)](x, y, 64)
    assert torch.equal(x, y)
