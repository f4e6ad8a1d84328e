"""The picture of a kernel's memory: one rectangle a buffer, to scale, whatever the names."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kgen.spec.targets import load_target
from kgen.virtual import Compiler, CompileRequest, Toolchain
from kgen.virtual.memory import FunctionMemory, Limits, MemoryReport, read_hivm
from kgen.virtual.memory.picture import picture
from tests.compiled.test_memory_report import BOUNDS, CHIP, L0C, L1, buffer, call, loop, text_of, type_

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"
Element = ElementTree.Element


def panels(svg: str) -> list[Element]:
    return [g for g in ElementTree.fromstring(svg).iter(f"{SVG}g") if g.get("class", "").startswith("panel ")]


def found(parent: Element, kind: str) -> list[Element]:
    return [element for element in parent.iter() if element.get("class") == kind]


def number(element: Element, name: str) -> float:
    return float(element.get(name, "nan"))


def check_panel(panel: Element, function: FunctionMemory, space: str) -> None:
    """Every buffer has one rectangle a copy, at its address and life; the capacity is where it belongs."""
    memory = function.space(space)
    assert memory is not None and memory.capacity_bytes is not None
    drawn = {(g.get("data-name"), int(g.get("data-address", ""))): g for g in found(panel, "buffer")}
    expected = {(b.name, begin): b for b in memory.buffers if b.first is not None for begin, _ in b.ranges}
    assert drawn.keys() == expected.keys() and len(found(panel, "buffer")) == len(expected)
    (capacity,), (reserved,) = found(panel, "capacity"), found(panel, "reserved")
    bottom = max(number(line, "y1") for line in panel.iter(f"{SVG}line") if line.get("class") is None)
    scale = (bottom - number(reserved, "y1")) / memory.peak_bytes
    assert number(capacity, "y1") <= number(reserved, "y1")
    if memory.peak_bytes >= 0.3 * memory.capacity_bytes:
        assert number(capacity, "y1") == pytest.approx(bottom - scale * memory.capacity_bytes, abs=0.05)
    for key, item in expected.items():
        rectangle = drawn[key].find(f"{SVG}rect")
        assert rectangle is not None
        assert number(rectangle, "y") == pytest.approx(bottom - scale * (key[1] + item.bytes), abs=0.05)
        assert number(rectangle, "height") == pytest.approx(max(1.0, scale * item.bytes), abs=0.05)
        assert number(rectangle, "width") > 0
    # Those that begin earlier lie further left; those that end later reach further right.
    by_life = sorted(expected.items(), key=lambda entry: entry[1].first or 0)
    lefts = [number(drawn[key][1], "x") for key, _ in by_life]
    assert lefts == sorted(lefts)
    by_end = sorted(expected.items(), key=lambda entry: entry[1].last or 0)
    rights = [round(number(drawn[key][1], "x") + number(drawn[key][1], "width"), 1) for key, _ in by_end]
    assert rights == sorted(rights)


def check(report: MemoryReport, svg: str) -> None:
    """All panels of a picture."""
    expected = [(function, space.space) for function in report.functions for space in function.spaces]
    drawn = panels(svg)
    assert [g.get("class") for g in drawn] == [f"panel {space}" for _, space in expected]
    for panel, (function, space) in zip(drawn, expected, strict=True):
        check_panel(panel, function, space)


LINES = (
    BOUNDS, buffer("%a", 0, "64x128xf32"), buffer("%b", 32768, "32x128xf32"), buffer("%s", 131072, "8192xf32"),
    buffer("%unused", 180000, "64xf32"), call("load_gm_to_ubuf_2d_float", "%a"),
    loop("%i", call("vadd_2d_float", "%a", "%b", "%s"), call("store_ubuf_to_gm_2d_float", "%b"),
         call("vexp_1d_float", "%arg0")),
)  # fmt: skip


def test_a_rectangle_a_buffer_to_scale() -> None:
    report = read_hivm(text_of(*LINES), CHIP)
    svg = picture(report)
    check(report, svg)
    (panel,) = panels(svg)
    (peak,) = found(panel, "peak")
    rectangle = found(panel, "buffer")[2][1]  # the scratch lives at the peak only
    left, right = number(rectangle, "x"), number(rectangle, "x") + number(rectangle, "width")
    assert left < number(peak, "x1") < right
    assert len(found(ElementTree.fromstring(svg), "loop")) == 1


def test_little_of_a_memory_is_drawn_on_a_broken_axis() -> None:
    text = text_of(
        buffer("%a", 0), buffer("%b", 256, space=L1), buffer("%c", 0, space=L0C), call("v", "%a", "%b", "%c")
    )
    report = read_hivm(text, CHIP)
    svg = picture(report)
    check(report, svg)
    assert svg.count("axis broken") == 3
    assert "axis broken" not in picture(read_hivm(text_of(*LINES), CHIP))


def test_copies_of_a_buffer_have_a_rectangle_each() -> None:
    cast = f"%a = hivm.hir.pointer_cast(%p, %q) : {type_('64xf32')}"
    report = read_hivm(
        text_of("%p = arith.constant 0 : i64\n%q = arith.constant 512 : i64", cast, call("v", "%a")), CHIP
    )
    check(report, picture(report))
    assert len(found(panels(picture(report))[0], "buffer")) == 2


def test_a_memory_that_is_too_small_is_drawn_where_it_ends() -> None:
    (panel,) = panels(picture(read_hivm(text_of(*LINES), Limits({"ub": 100_000}))))
    (capacity,), (reserved,) = found(panel, "capacity"), found(panel, "reserved")
    assert number(capacity, "y1") > number(reserved, "y1")


def test_without_a_target_there_is_no_capacity() -> None:
    (panel,) = panels(picture(read_hivm(text_of(*LINES))))
    assert not found(panel, "capacity") and found(panel, "reserved")


def test_a_kernel_that_puts_nothing_on_chip_has_a_picture() -> None:
    assert panels(picture(read_hivm(text_of()))) == []


HOSTILE = '"><script>alert(1)</script>&\x00\x1b[31m'


def test_text_is_escaped() -> None:
    place = '#loc1 = loc("/tmp/<b>&amp;.py":3:0)\n'
    text = place + text_of(buffer("%a", 0, "64x128xf32"), call("vexp_1d_float", "%a") + " loc(#loc1)")
    svg = picture(read_hivm(text, CHIP), HOSTILE)
    root = ElementTree.fromstring(svg)
    assert "<script" not in svg and "\x00" not in svg and "\x1b" not in svg
    assert any('"><script>alert(1)</script>&' in (element.text or "") for element in root.iter(f"{SVG}text"))
    assert any("<b>&amp;.py:3" in (element.text or "") for element in root.iter(f"{SVG}text"))


def test_the_same_report_gives_the_same_bytes() -> None:
    program = (
        "import sys; from kgen.virtual.memory import read_hivm; from kgen.virtual.memory.picture import picture;"
        "sys.stdout.write(picture(read_hivm(sys.stdin.read())))"
    )
    text, outputs = text_of(*LINES), set()
    for seed in ("0", "1", "77"):
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, input=text, capture_output=True, text=True, check=True,
            env={"PYTHONHASHSEED": seed},
        )  # fmt: skip
        outputs.add(done.stdout)
    assert outputs == {picture(read_hivm(text))}


def test_numbers_are_short() -> None:
    assert not re.search(r"\d\.\d{3,}", re.sub(r">[^<]*<", "><", picture(read_hivm(text_of(*LINES), CHIP))))


KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def rows(a, b, c, n, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    for i in range(n):
        pa = tl.make_block_ptr(a, (n * M, K), (K, 1), (i * M, 0), (M, K), (1, 0))
        pb = tl.make_block_ptr(b, (n * K, N), (N, 1), (i * K, 0), (K, N), (1, 0))
        pc = tl.make_block_ptr(c, (n * M, N), (N, 1), (i * M, 0), (M, N), (1, 0))
        tl.store(pc, tl.exp(tl.dot(tl.load(pa), tl.load(pb))))
"""


@pytest.mark.toolchain
@pytest.mark.parametrize("target, facts", [("Ascend910B2", "Ascend910B2"), ("Ascend950PR_9589", "Ascend950PR")])
def test_a_real_kernel(toolchain: Toolchain, tmp_path: Path, target: str, facts: str) -> None:
    """What the report says of a compiled kernel is what the compiler was asked for, and what the picture shows."""
    source = tmp_path / "kernels.py"
    source.write_text(KERNEL, encoding="utf-8")
    signature = {"a": "*bf16", "b": "*bf16", "c": "*fp32", "n": "i32"}
    request = CompileRequest(source, "rows", signature, {"M": 64, "N": 128, "K": 64}, target)
    with Compiler(toolchain, jobs=1) as compiler:
        result = compiler.compile(request, keep_ir=True)
    assert result.verdict == "fits" and result.final_ir is not None
    report = read_hivm(result.final_ir, Limits.of(load_target(facts)))
    sizes = (result.ub_bytes, result.l1_bytes, result.l0c_bytes)
    assert (report.peak("ub"), report.peak("cbuf"), report.peak("cc")) == sizes
    cube, vector = report.functions
    assert cube.double_buffering == "kept"
    (l1,) = (found for found in cube.loop_buffers if found.groups)
    # Two copies of each operand: 64 x 64 and 64 x 128 bf16.
    assert sorted(b.bytes for group in l1.groups for b in group if b.space == "cbuf") == [8192, 8192, 16384, 16384]
    accumulator = cube.space("cc")
    assert accumulator is not None and {b.bytes for b in accumulator.buffers} == {64 * 128 * 4}
    lines = KERNEL.splitlines()
    assert accumulator.live_place is not None and "tl.dot" in lines[accumulator.live_place.line - 1]
    assert vector.spaces[0].space == "ub" and vector.spaces[0].live_bytes >= 32 * 128 * 4
    check(report, picture(report))
