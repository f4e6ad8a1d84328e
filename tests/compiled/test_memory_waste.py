"""The memory report: what of a strided or padded buffer nothing ever touches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgen.virtual.memory.text import memory_text
from tests.compiled.test_memory_report import BOUNDS, UB, buffer, call, function_of, loop, report_of, type_

EXP, ANY = call("vexp_2d_float", "%s"), type_("1xf32")


def view(operation: str, kind: str, source: str = "%a", result: str = "%s") -> str:
    """A view; of the types only the result's shape tells the report anything."""
    name, _, rest = operation.partition(" ")
    word = {"collapse_shape": "into", "expand_shape": "into"}.get(name, "to")
    return f"{result} = memref.{name} {source} {rest} : {ANY} {word} {type_(kind)}"


def base() -> str:
    """The allocation that `%a` lies in, as `%b`."""
    results = f"memref<f32, {UB}>, index, index, index"
    return f"%b, %o, %n, %t = memref.extract_strided_metadata %a : {type_('64xf32')} -> {results}"


def wasted(*lines: str) -> int:
    """Bytes of the buffer `%a` that nothing touches."""
    return next(b for b in function_of(BOUNDS, *lines).buffers if b.name == "%a").wasted_bytes


COLUMN = (buffer("%a", 0, "64x64x8xf32"), view("subview [0, 0, 0] [64, 64, 1] [1, 1, 1]", "64x64xf32"))


def test_a_strided_buffer_holds_an_eighth_of_what_it_takes() -> None:
    report = report_of(*COLUMN, EXP)
    (found,) = report.wasteful()
    assert (found.name, found.wasted_bytes, found.bytes) == ("%a", 64 * 64 * 7 * 4, 64 * 64 * 8 * 4)
    assert "114,688 of 131,072 bytes of UB 64x64x8xf32, line 3 of the IR" in memory_text(report)


def test_the_worst_waste_comes_first() -> None:
    other = buffer("%b", 1 << 17, "8x8xf32"), view("subview [0, 0] [8, 1] [1, 1]", "8xf32", "%b", "%t")
    report = report_of(*other, call("vabs_1d_float", "%t"), *COLUMN, EXP)
    assert [b.name for b in report.wasteful()] == ["%a", "%b"]
    assert "never touched" not in memory_text(report_of(buffer("%a", 0), call("vexp_1d_float", "%a")))


LINE, TABLE = buffer("%a", 0, "64xf32"), buffer("%a", 0, "64x8xf32")
SLICES: dict[str, tuple[tuple[str, ...], int]] = {
    "all of it": ((TABLE, call("vexp_2d_float", "%a")), 0),
    "nothing": ((TABLE,), 0),
    "a row": ((TABLE, view("subview [3, 0] [1, 8] [1, 1]", "8xf32"), EXP), 63 * 32),
    "any row": ((TABLE, view("subview [%four, 0] [1, 8] [1, 1]", "8xf32"), EXP), 0),
    "any two columns": ((TABLE, view("subview [0, %four] [64, 2] [1, 1]", "64x2xf32"), EXP), 0),
    "rows known at run time": ((TABLE, view("subview [0, 4] [%four, 4] [1, 1]", "?x4xf32"), EXP), 64 * 16),
    "anything of the rows": ((TABLE, view("subview [%four, 4] [%four, 4] [1, 1]", "?x4xf32"), EXP), 64 * 16),
    "the rest of the rows": ((TABLE, view("subview [8, 0] [%four, 8] [1, 1]", "?x8xf32"), EXP), 8 * 32),
    "less than a block": ((buffer("%a", 0, "9xf32"), view("subview [0] [1] [1]", "1xf32"), EXP), 32),
    "every second, from anywhere": ((LINE, view("subview [%four] [%four] [2]", "?xf32"), EXP), 0),
    "every second": ((LINE, view("subview [0] [32] [2]", "32xf32"), EXP), 128),
    "a step known at run time": ((LINE, view("subview [0] [2] [%four]", "2xf32"), EXP), 0),
    "two halves": (
        (LINE, view("subview [0] [32] [1]", "32xf32"), view("subview [32] [32] [1]", "32xf32", result="%t"),
         call("vadd_1d_float", "%s", "%t")),
        0,
    ),
    "a fill of the rest": ((*COLUMN, call("broadcast_scalar_float_to_1d", "%a"), EXP), 114_688),
    "a fill alone": ((*COLUMN, call("broadcast_scalar_float_to_1d", "%s")), 0),
    "a use of the rest": ((*COLUMN, call("vabs_3d_float", "%a"), EXP), 0),
    "a view that nothing uses": (
        (*COLUMN, view("subview [0, 0, 0] [64, 64, 8] [1, 1, 1]", "64x64x8xf32", result="%t"), EXP), 114_688,
    ),
    "a cast": ((*COLUMN, view("cast", "?x?xf32", "%s", "%t"), call("vexp_2d_float", "%t")), 114_688),
    "a collapsed view": (
        (*COLUMN, view("collapse_shape [[0, 1]]", "4096xf32", "%s", "%t"), call("vexp_1d_float", "%t")), 114_688,
    ),
    "an expanded view": (
        (LINE, view("expand_shape [[0, 1]] output_shape [8, 8]", "8x8xf32", result="%e"),
         view("subview [0, 0] [8, 2] [1, 1]", "8x2xf32", "%e"), EXP),
        48 * 4,
    ),
    "its base": (
        (LINE, base(), view("reinterpret_cast to offset: [0], sizes: [8, 1], strides: [8, 1]", "8x1xf32", "%b"), EXP),
        56 * 4,
    ),
    "a row, and a column of a transposed view": (
        (buffer("%a", 0, "8x8xf32"), view("transpose (d0, d1) -> (d1, d0)", "8x8xf32", result="%p"),
         view("subview [0, 0] [1, 8] [1, 1]", "8xf32", "%p"),
         view("subview [0, 0] [1, 8] [1, 1]", "8xf32", result="%t"), call("vadd_1d_float", "%s", "%t")),
        (64 - 15) * 4,
    ),
    "a part that a loop carries whole": (
        (TABLE, loop("%i", view("subview [0, 0] [64, 1] [1, 1]", "64xf32", "%x"), EXP, f"scf.yield %x : {ANY}",
                     carried=f" iter_args(%x = %a) -> ({ANY})")),
        64 * 28,
    ),
    "a collapsed part": (
        (TABLE, view("subview [0, 0] [64, 2] [1, 1]", "64x2xf32"),
         view("collapse_shape [[0, 1]]", "128xf32", "%s", "%t"), call("vexp_1d_float", "%t")),
        0,
    ),
    "a view from anywhere": (
        (LINE, view("reinterpret_cast to offset: [%four], sizes: [8], strides: [1]", "8xf32"), EXP), 0,
    ),
    "bytes seen as something else": ((buffer("%a", 0, "64xi8"), view("view [%zero][]", "8xf32"), EXP), 0),
    "bits": ((buffer("%a", 0, "16x256xi1"), view("subview [0, 0] [16, 1] [1, 1]", "16x1xi1"), EXP), 510),
}  # fmt: skip


@pytest.mark.parametrize("lines, expected", SLICES.values(), ids=SLICES.keys())
def test_bytes_that_nothing_touches(lines: tuple[str, ...], expected: int) -> None:
    assert wasted(*lines) == expected


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 5), st.integers(0, 5), st.integers(1, 3))
def test_touched_elements_are_what_counting_finds(rows: int, columns: int, row: int, column: int, step: int) -> None:
    rows, columns = min(rows, (8 - row - 1) // step + 1), min(columns, 8 - column)
    part = view(f"subview [{row}, {column}] [{rows}, {columns}] [{step}, 1]", f"{rows}x{columns}xf32")
    touched = {(row + i * step) * 8 + column + j for i in range(rows) for j in range(columns)}
    assert wasted(buffer("%a", 0, "8x8xf32"), part, EXP) == 4 * (64 - len(touched))


def test_a_value_that_is_two_parts_of_a_buffer_counts_as_all_of_it() -> None:
    half = view("subview [0] [32] [1]", "32xf32"), view("subview [32] [32] [1]", "32xf32", result="%t")
    chosen = f"%true = arith.constant true\n%c = arith.select %true, %s, %t : {ANY}"
    assert wasted(LINE, *half, chosen, call("vexp_1d_float", "%c")) == 0


@pytest.mark.parametrize(
    "slice_",
    [
        "subview [-3] [8] [1]",
        "subview [60] [8] [1]",
        "subview [0] [8] [0]",
        "subview [0] [8] [-1]",
        "subview [0] [0] [1]",
        "subview [%four] [999999999999] [1]",
        "reinterpret_cast to offset: [0], sizes: [999999999999], strides: [1]",
        "reinterpret_cast to offset: [0], sizes: [8], strides: [-1]",
    ],
)
def test_what_no_buffer_can_have_is_not_followed(slice_: str) -> None:
    assert wasted(LINE, view(slice_, "8xf32"), EXP) == 0


def test_a_buffer_larger_than_any_memory_is_not_followed() -> None:
    assert wasted(buffer("%a", 0, "9999999999xf32"), view("subview [0] [8] [1]", "8xf32"), EXP) == 0
