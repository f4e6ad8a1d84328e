"""Compiled kernels run on the CPU from their final IR: right ones give the right numbers, wrong ones don't."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgen.virtual import Compiler, CompileRequest, Toolchain
from kgen.virtual.execute import Report, Sizes, prepare
from kgen.virtual.launch import Buffer, Launch
from kgen.virtual.memory import read_hivm

SIZES = Sizes(196_608, 524_288, 131_072)
A2 = "Ascend910B2"
HEAD = "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"

# ORDER (1, 0) is right; with (0, 1) triton-ascend 3.2.0 bounds the wrong axis (K304).
BOUNDED = (
    HEAD
    + """
def bounded(x, y, rows, cols, ORDER: tl.constexpr, CHECK: tl.constexpr):
    p = tl.make_block_ptr(x, (rows, cols), (cols, 1), (0, 0), (16, 16), ORDER)
    b = tl.load(p, boundary_check=CHECK, padding_option="zero")
    o = tl.arange(0, 16)
    tl.store(y + o[:, None] * 16 + o[None, :], b)
"""
)

# A loaded tile that a dot takes and that is added to the dot's result: the load is lost (K204).
SHARED = (
    HEAD
    + """
def shared(d, a, y, task_num, num_core, APART: tl.constexpr):
    o = tl.arange(0, 64).to(tl.float32)
    m = 1.0 - tl.minimum(tl.abs(o[:, None] - o[None, :]), 1.0)
    for i in tl.range(tl.program_id(0), task_num, num_core):
        p = tl.make_block_ptr(d + i * 4096, (64, 64), (64, 1), (0, 0), (64, 64), (1, 0))
        q = tl.make_block_ptr(a + i * 4096, (64, 64), (64, 1), (0, 0), (64, 64), (1, 0))
        b_d = tl.load(p)
        b_a = tl.load(q)
        if APART:
            b = tl.dot(b_d, b_a + m, input_precision="ieee")
        else:
            b = tl.dot(b_d, b_a, input_precision="ieee") + b_d
        r = tl.make_block_ptr(y + i * 4096, (64, 64), (64, 1), (0, 0), (64, 64), (1, 0))
        tl.store(r, b)
"""
)


def compiled(
    toolchain: Toolchain, folder: Path, text: str, signature: dict[str, str], constants: dict[str, Any]
) -> str:
    """The final IR of the last function of a module."""
    source = folder / "k.py"
    source.write_text(text, encoding="utf-8")
    function = text.rsplit("\ndef ", 1)[1].partition("(")[0]
    with Compiler(toolchain, jobs=1) as compiler:
        result = compiler.compile(CompileRequest(source, function, signature, constants, A2), keep_ir=True)
    assert result.final_ir is not None, result.message
    return result.final_ir


def run(text: str, grid: int, *arguments: Any) -> Report:
    """Run a kernel on numpy arrays and numbers; arrays are read and written in place."""
    kinds = {np.dtype("f4"): "f32", np.dtype("f2"): "f16", np.dtype("i4"): "i32"}
    given = tuple(
        Buffer(f"x{i}", kinds[a.dtype], a.size, data=a.reshape(-1)) if isinstance(a, np.ndarray) else a
        for i, a in enumerate(arguments)
    )
    return prepare(text, SIZES).run(Launch((grid, 1, 1), given))


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("order", "check", "right"), [((1, 0), (0, 1), True), ((1, 0), (1,), True), ((0, 1), (1,), False)]
)
def test_k304_a_bound_on_the_wrong_axis_is_wrong_data(
    toolchain: Toolchain, tmp_path: Path, order: tuple[int, int], check: tuple[int, ...], right: bool
) -> None:
    signature = {"x": "*fp32", "y": "*fp32", "rows": "i32", "cols": "i32"}
    text = compiled(toolchain, tmp_path, BOUNDED, signature, {"ORDER": order, "CHECK": check})
    rows, cols = 16, 10
    x = np.zeros((32, 16), np.float32).reshape(-1)  # room after the matrix, so that a wrong bound stays in the tensor
    x[: rows * cols] = np.arange(1, rows * cols + 1)
    y = np.full((16, 16), np.nan, np.float32)
    expected = np.zeros((16, 16), np.float32)
    expected[:, :cols] = x[: rows * cols].reshape(rows, cols)
    run(text, 1, x, y, rows, cols)
    assert np.array_equal(y, expected) is right


@pytest.mark.toolchain
@pytest.mark.parametrize("apart", [True, False])
def test_k204_a_tile_for_a_dot_and_a_sum_is_lost(toolchain: Toolchain, tmp_path: Path, apart: bool) -> None:
    signature = {"d": "*fp32", "a": "*fp32", "y": "*fp32", "task_num": "i32", "num_core": "i32"}
    text = compiled(toolchain, tmp_path, SHARED, signature, {"APART": apart})
    rng = np.random.default_rng(0)
    d, a = (rng.standard_normal((2, 64, 64)).astype(np.float32) for _ in range(2))
    y = np.full((2, 64, 64), np.nan, np.float32)
    report = run(text, 2, d, a, y, 2, 2)
    assert not report.unmatched and not report.left
    assert np.allclose(y, d @ a + d, atol=1e-4) is apart
    assert (not read_hivm(text).unwritten()) is apart  # seen in the IR alone
