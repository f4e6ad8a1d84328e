"""Text that no compiler writes is refused with its line, soon and by name, whatever it holds."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from kgen import pipeline
from kgen.search.compile_rows import open_compiler
from kgen.search.variants import variants
from kgen.virtual import CompileResult, Toolchain
from kgen.virtual.hivm import HivmError, parse_module
from kgen.virtual.hivm.places import read_places
from kgen.virtual.memory import read_hivm
from kgen.virtual.result import with_report
from tests.compiled.test_memory_report import BOUNDS, buffer, call, loop, text_of, type_

DIGITS = "9" * 5000  # more than Python's int takes
MAP = "#map = affine_map<(d0) -> ({})>"


def nested(depth: int) -> str:
    return "\n".join([f"scf.for %i{d} = %zero to %four step %one {{" for d in range(depth)] + ["}"] * depth)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (text_of(BOUNDS, nested(3000)), r"line \d+: regions nested more than 64 deep"),
        (text_of(BOUNDS, *["scf.if %zero {"] * 3000, *["}"] * 3000), r"line \d+: regions nested more than 64 deep"),
        (MAP.format("(" * 3000 + "d0" + ")" * 3000) + "\n" + text_of(), r"line 1: an affine map of more than"),
        (MAP.format("-" * 3000 + "d0") + "\n" + text_of(), r"line 1: an affine map of more than"),
        (MAP.format(" + ".join(["d0"] * 3000)) + "\n" + text_of(), r"line 1: an affine map of more than"),
        (MAP.format(DIGITS) + "\n" + text_of(), r"line 1: a number of more than 40 digits"),
        (text_of('%a:99999999999 = "some.thing"() : () -> ()'), r"line 2: expected from 1 to 1024 results"),
        (text_of('%a:0 = "some.thing"() : () -> ()'), r"line 2: expected from 1 to 1024 results"),
        (text_of(f"%a = arith.constant {DIGITS} : i64"), r"line 2: a number of more than 40 digits"),
        (text_of(f"%a = arith.constant -{DIGITS} : i64"), r"line 2: a number of more than 40 digits"),
        (text_of(buffer("%a", 0, f"{DIGITS}xf32")), r"line 3: a number of more than 40 digits"),
        (text_of(buffer("%a", 0), f"%b = arith.addi %a#{DIGITS}, %a : i64"), r"line 4: a number of more than 40"),
        (text_of(f"hivm.hir.set_flag[<PIPE_V>, <PIPE_S>, <EVENT_ID{DIGITS}>]"), r"line 2: a number of more than 40"),
        ("", "holds no device function"),
        ("module {\n}", "holds no device function"),
        ("\x00\ufffd", "line 1: unreadable text"),
    ],
    ids=lambda value: None if len(str(value)) > 60 else str(value),
)
def test_what_goes_past_every_measure_is_refused_with_its_line(text: str, told: str) -> None:
    start = time.perf_counter()
    with pytest.raises(HivmError) as caught:
        read_hivm(text)
    assert re.search(told, caught.value.message), caught.value.message[:300]
    assert len(caught.value.message) < 400
    assert time.perf_counter() - start < 2


UB = type_("64xf32")


def viewed(form: str) -> str:
    """A buffer, and a call that touches it through a view alone."""
    return text_of(buffer("%a", 0), form, call("vexp_1d_float", "%v"))


@pytest.mark.parametrize(
    "form",
    [
        f"%v = memref.collapse_shape %a [[1]] : {UB} into {UB}",
        f"%v = memref.collapse_shape %a [[-1]] : {UB} into {UB}",
        f"%v = memref.collapse_shape %a [[{'9' * 30}]] : {UB} into {UB}",
        f"%v = memref.collapse_shape %a [[], [0]] : {UB} into {type_('1x64xf32')}",
        f"%v = memref.collapse_shape %a [] : {UB} into {UB}",
        f"%v = memref.expand_shape %a [[0, 7]] output_shape [8, 8] : {UB} into {type_('8x8xf32')}",
        f"%v = memref.expand_shape %a [[1, 0]] output_shape [8, 8] : {UB} into {type_('8x8xf32')}",
        f"%v = memref.expand_shape %a [[0, 1]] output_shape [64] : {UB} into {type_('8x8xf32')}",
        f"%v = memref.subview %a[0] [8, 8] [1] : {UB} to {type_('8x8xf32')}",
        f"%v = memref.transpose %a (d0, d1) -> (d1, d0) : {UB} to {UB}",
        f"%v = memref.transpose %a (d0, d0) -> (d0, d0) : {UB} to {type_('8x8xf32')}",
        f"%v = memref.reinterpret_cast %a to offset: [0], sizes: [8, 8], strides: [1] : {UB} to {type_('8x8xf32')}",
        f"%v = memref.reinterpret_cast %a to offset: [0], sizes: [8], strides: [1] : {UB} to {type_('8x8xf32')}",
    ],
)
def test_a_view_that_contradicts_itself_is_refused(form: str) -> None:
    with pytest.raises(HivmError) as caught:
        read_hivm(viewed(form))
    assert caught.value.message.startswith("line 4: ")


@pytest.mark.parametrize(
    "form",
    [
        f"%v = memref.collapse_shape %a [[0, 1]] : {type_('8x8xf32')} into {UB}",
        f"%v = memref.expand_shape %a [[0], [1]] output_shape [8, 8] : {UB} into {type_('8x8xf32')}",
        f"%v = memref.expand_shape %a [] output_shape [1] : {UB} into {type_('1xf32')}",
        f"%v = memref.subview %a[0, 0] [8, 8] [1, 1] : {UB} to {type_('8x8xf32')}",
        f"%v = memref.transpose %a (d0, d1) -> (d1, d0) : {type_('8x8xf32')} to {type_('8x8xf32')}",
    ],
)
def test_a_view_of_other_dimensions_than_its_buffer_has_is_not_followed(form: str) -> None:
    """The buffer has one. It counts as touched as a whole."""
    (ub,) = read_hivm(viewed(form)).functions[0].spaces
    assert (ub.peak_bytes, ub.buffers[0].wasted_bytes) == (256, 0)


def test_views_of_memory_without_dimensions_are_read() -> None:
    none, one = type_("f32"), type_("1x1xf32")
    lines = (f"%b = memref.expand_shape %a [] output_shape [1, 1] : {none} into {one}",
             f"%c = memref.transpose %b (d0, d1) -> (d1, d0) : {one} to {one}",
             f"%v = memref.collapse_shape %c [] : {one} into {none}")  # fmt: skip
    report = read_hivm(text_of(buffer("%a", 0, "f32"), *lines, call("vexp_1d_float", "%v")))
    assert report.peak("ub") == 32


@pytest.mark.parametrize(
    "kind",
    ["64xf32, strided<[1, 2]>", "64xf32, strided<[]>", "64xf32, strided<[? ?]>", "64xf32, strided<[1 ?]>",
     "64xf32, strided<[,]>", "64xf32, strided<[1,]>", "64xf32, strided<[?]>", f"{'9' * 39}xf32",
     "9999999x9999999xf32", "x".join(["9" * 38] * 200) + "xf32", f"2xf32, strided<[{'9' * 39}]>"],
    ids=lambda kind: kind[:40],
)  # fmt: skip
def test_a_buffer_that_no_memory_holds_is_refused_with_its_line(kind: str) -> None:
    with pytest.raises(HivmError) as caught:
        read_hivm(text_of(buffer("%a", 0, kind)))
    assert caught.value.message.startswith("line 3: ")
    assert len(caught.value.message) < 400


def test_loops_of_branches_are_told_however_deep() -> None:
    labels = [f"^bb{i}:" for i in range(1500)]
    back = [f"cf.br ^bb{i}" for i in reversed(range(1500))]
    loops = read_hivm(text_of(*labels, *back)).functions[0].loops
    assert max(len(loop.chain()) for loop in loops) == 1500
    assert loops[1].chain() == (loops[0], loops[1])


def test_what_is_deep_and_within_measure_is_read() -> None:
    report = read_hivm(text_of(BOUNDS, nested(60)))
    assert len(report.functions[0].loops) == 60
    sums = " + ".join(["d0"] * 50)
    assert parse_module(MAP.format(sums) + "\n" + text_of())


def test_locations_that_lead_on_and_on_have_no_line() -> None:
    chain = [f"#loc{i} = loc(callsite(#loc{i + 1} at #loc{i + 1}))" for i in range(1, 3000)]
    text = "\n".join([*chain, '#loc3000 = loc("kernels.py":1:1)'])
    start = time.perf_counter()
    assert "#loc1" not in read_places(text) and "#loc3000" in read_places(text)
    assert "#loc1" in read_places("\n".join(reversed(text.split("\n"))))  # in the order in which compilers write them
    deep = "callsite(" * 3000 + '"a":1:1' + ' at "a":1:1)' * 3000
    assert read_places(f"#loc1 = loc({deep})\n#loc2 = loc(fused<{'>' * 30000}[#loc1])") == {}
    assert time.perf_counter() - start < 2


@pytest.mark.parametrize("space", ["ub", "cbuf", "cc"])
def test_on_chip_memory_from_an_unknown_operation_is_not_passed_over(space: str) -> None:
    kind = f"memref<64xf32, #hivm.address_space<{space}>>"
    with pytest.raises(HivmError, match=r"line 2: some\.alloc makes on-chip memory in a way that kgen does not know"):
        read_hivm(text_of(f'%a = "some.alloc"() : () -> {kind}'))
    aliased = f'%b = "some.cast"(%a) : ({type_("64xf32")}) -> {kind}'
    report = read_hivm(text_of(buffer("%a", 0), buffer("%c", 256), aliased, call("vexp_1d_float", "%b", "%c")))
    (ub,) = report.functions[0].spaces
    assert (ub.buffers[0].name, report.functions[0].operations[ub.buffers[0].last or 0].line) == ("%a", 7)


def test_unknown_operations_and_callees_are_counted_by_name() -> None:
    lines = ('"some.thing"() : () -> ()', '"some.thing"() : () -> ()', call("frobnicate"), call("vexp_1d_float"))
    report = read_hivm(text_of(BOUNDS, loop("%i", *lines)))
    assert report.unknown() == {"@frobnicate": 1, "some.thing": 2}


SAMPLE = text_of(
    BOUNDS, buffer("%a", 0), buffer("%b", 256), buffer("%c", 512),
    loop("%i", call("load_gm_to_ubuf_1d_float", "%arg0", "%a"), call("vexp_1d_float", "%a", "%b"),
         "hivm.hir.set_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]", '"some.thing"(%a) : (i32) -> ()',
         f"%x = memref.load %b[%i] : {type_('64xf32')}", call("store_ubuf_to_gm_1d_float", "%b", "%arg0")),
)  # fmt: skip
PIECE = re.compile(r"\s+|[\w.%]+|.", re.DOTALL)
STRANGE = ["((((", "<" * 40, "{", "}", "%a:3 =", "-", "0x", "1e999", "\u0661", '"', "loc(", "affine_map<", "memref<",
           "->", "#loc1", "^bb0:", "@", "x", "?", "9" * 60, "[[[[", "\n", "\x00"]  # fmt: skip


def torn(pieces: Sequence[str], rng: random.Random) -> str:
    """Text with a few of its pieces lost, swapped, said again, or replaced by what no compiler writes."""
    out = list(pieces)
    for _ in range(rng.randint(1, 4)):
        at, other = rng.randrange(len(out)), rng.randrange(len(out))
        what = rng.randrange(6)
        if what == 0:
            del out[at : at + rng.randint(1, 5)]
        elif what == 1:
            out[at:at] = [rng.choice(STRANGE)] * rng.choice([1, 1, 300])
        elif what == 2:
            out[at], out[other] = out[other], out[at]
        elif what == 3:
            out[at:at] = out[at : at + rng.randint(1, 60)] * rng.choice([1, 2, 50])
        elif what == 4:
            out[at] = out[other]
        else:
            out[at] = re.sub(r"\d+", rng.choice(["0", "-1", "7", "4294967296", "9" * 39, DIGITS]), out[at], count=1)
        out = out or [" "]
    return "".join(out)


def read_or_refused(text: str) -> None:
    """As a compile reads it: a result, or an error with a bounded message, soon."""
    start = time.perf_counter()
    try:
        found = with_report(CompileResult("fits", ""), text)
        assert found.ub_bytes is not None and found.ub_bytes < 1 << 42
    except HivmError as error:
        assert len(error.message) < 1000
    assert time.perf_counter() - start < 20


@pytest.mark.parametrize("seed", range(40))
def test_torn_text_is_read_or_refused(seed: int) -> None:
    rng, pieces = random.Random(seed), PIECE.findall(SAMPLE)
    for _ in range(40):
        read_or_refused(torn(pieces, rng))


@pytest.mark.toolchain
@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "times"), [("chunk_local_cumsum", 400), ("chunk_fwd_o", 120)])
def test_torn_ir_of_a_real_kernel_is_read_or_refused(toolchain: Toolchain, kernel: str, times: int) -> None:
    sources = pipeline.read(Path("specs/gdn.yaml"))
    kernels, plan = pipeline.planned(sources)
    files, target = pipeline.package(sources, kernels, plan), sources.targets[0]
    chosen = variants(sources.loaded.spec, kernels, plan, target.name, kernel)[0]
    with ExitStack() as stack:
        compiler, source = open_compiler(stack, files, jobs=1, toolchain=str(toolchain.python), cache=False)
        text = compiler.compile(chosen.request(source, sources.targets), keep_ir=True).final_ir
    assert text is not None
    rng, pieces = random.Random(kernel), PIECE.findall(text)
    for _ in range(times):
        read_or_refused(torn(pieces, rng))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    raw = bytes(range(256)) * 4
    (tmp_path / "final.mlir").write_bytes(raw)
    with pytest.raises(HivmError):
        read_hivm((tmp_path / "final.mlir").read_text(encoding="utf-8", errors="replace"))
