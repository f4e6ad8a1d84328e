"""The reader of the final IR: types, sizes, and no unknown thing passed over. Needs no tool chain."""

from __future__ import annotations

import pytest

from kgen.virtual import read_hivm
from kgen.virtual.hivm import HivmError
from kgen.virtual.hivm.read_types import read_memref


@pytest.mark.parametrize(
    "text, shape, element, space, strides",
    [
        ("memref<64x?xf32, #hivm.address_space<ub>>", (64, None), "f32", "ub", None),
        ("memref<4xindex>", (4,), "index", None, None),
        ("memref<bf16, #hivm.address_space<gm>>", (), "bf16", "gm", None),
        ("memref<8x4xbf16, strided<[16, 1], offset: ?>, #hivm.address_space<cbuf>>", (8, 4), "bf16", "cbuf", (16, 1)),
        ("memref<64xf32, affine_map<(d0)[s0] -> (d0 + s0)>, #hivm.address_space<cc>>", (64,), "f32", "cc", None),
    ],
)
def test_memref_types(
    text: str, shape: tuple[int | None, ...], element: str, space: str | None, strides: tuple[int, ...] | None
) -> None:
    memref = read_memref(text)
    assert (memref.shape, memref.element, memref.space, memref.strides) == (shape, element, space, strides)


HEADER = "func.func @k(%arg0: i64) attributes {hacc.entry, hivm.func_core_type = #hivm.func_core_type<AIV>} {"


def function(*lines: str) -> str:
    """A vector function with a body."""
    return "\n".join(["module {", HEADER, *lines, "return", "}", "}"])


def test_sizes_are_rounded_to_32_bytes_and_i1_is_packed() -> None:
    cast = "hivm.hir.pointer_cast"
    text = function(
        "%c96 = arith.constant 96 : i64",
        f"%0 = {cast}(%c96) : memref<3xf32, #hivm.address_space<ub>>",
        "%c0 = llvm.mlir.constant(0 : i64) : i64",
        f"%1 = {cast}(%c0) : memref<300xi1, #hivm.address_space<cbuf>>",
        f"%2 = {cast}(%c0, %c96) : memref<0xf32, #hivm.address_space<cc>>",
    )
    report = read_hivm(text)
    assert (report.peak("ub"), report.peak("cbuf"), report.peak("cc")) == (128, 64, 96)


@pytest.mark.parametrize(
    "line, named",
    [
        ("%0 = hivm.hir.pointer_cast(%c0) : memref<4xf32, #hivm.address_space<l9>>", "'l9'"),
        ("%0 = hivm.hir.pointer_cast(%c0) : memref<4xq7, #hivm.address_space<ub>>", "'q7'"),
        ("%0 = hivm.hir.pointer_cast(%c0) : memref<4xf32, #tiled<2>, #hivm.address_space<ub>>", "#tiled<2>"),
        ("%0 = hivm.hir.pointer_cast(%c0) : memref<4xf32>", "without a memory space"),
        ("%0 = hivm.hir.pointer_cast(%x) : memref<4xf32, #hivm.address_space<ub>>", "%x is used before it is defined"),
        ("%0 = hivm.hir.pointer_cast(%c0) : memref<4xf32, #hivm.address_space<ub>", "expected a closing bracket"),
        ("hivm.hir.teleport ins(%0 : memref<4xf32>)", "hivm.hir.teleport"),
    ],
)
def test_unknown_ir_is_an_error(line: str, named: str) -> None:
    with pytest.raises(HivmError, match=named.replace("(", r"\(")):
        read_hivm(function("%c0 = arith.constant 0 : i64", line))


def test_ir_without_a_device_function_is_an_error() -> None:
    with pytest.raises(HivmError, match="no device function"):
        read_hivm("module {\n}\n")
