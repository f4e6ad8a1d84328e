"""The memory report: double buffering kept or lost, an idle vector core, calls by class, and the 950's blocks."""

from __future__ import annotations

import pytest

from kgen.virtual.hivm import HivmError
from kgen.virtual.memory import read_hivm
from kgen.virtual.memory.text import memory_text
from tests.compiled.test_memory_report import BOUNDS, buffer, call, function_of, life, loop, report_of, text_of, type_

# ------------------------------------------------------------ double buffering

TURN = """%two = arith.constant 2 : index
%turn = arith.remsi %i, %two : index
%odd = arith.cmpi eq, %turn, %one : index"""
PAIR = (buffer("%a", 0), buffer("%b", 256))


def alternating(*lines: str) -> str:
    """A loop that loads into one of two buffers by turns."""
    chosen = f"%c = arith.select %odd, %b, %a : {type_('64xf32')}"
    return loop("%i", TURN, chosen, call("load_gm_to_ubuf_1d_float", "%c"), call("vexp_1d_float", "%c"), *lines)


def test_buffers_chosen_by_turns_are_double_buffered() -> None:
    function = function_of(BOUNDS, *PAIR, alternating(), call("vabs_1d_float", "%arg0"))
    (found,) = function.loop_buffers
    assert [[b.name for b in group] for group in found.groups] == [["%a", "%b"]] and not found.single
    assert function.double_buffering == "kept"
    assert "2 copies of UB 64xf32" in memory_text(read_hivm(text_of(BOUNDS, *PAIR, alternating())))


def test_a_pair_lives_where_its_loop_chooses_it() -> None:
    """The compiler lifts a pair out of its loop, and reuses its memory in the rest of the loop."""
    function = function_of(BOUNDS, *PAIR, alternating(call("vabs_1d_float", "%arg0")))
    assert life(function, "%a") == ["load_gm_to_ubuf_1d_float", "vexp_1d_float"]


def test_four_copies_are_one_group() -> None:
    select = "%{} = arith.select %odd, %{}, %{} : " + type_("64xf32")
    lines = (TURN, select.format("e", "a", "b"), select.format("f", "c", "e"), select.format("g", "d", "f"))
    copies = [buffer(name, 256 * i) for i, name in enumerate(("%a", "%b", "%c", "%d"))]
    function = function_of(BOUNDS, *copies, loop("%i", *lines, call("load_gm_to_ubuf_1d_float", "%g")))
    assert [[b.name for b in g] for found in function.loop_buffers for g in found.groups] == [["%a", "%b", "%c", "%d"]]


def test_a_choice_of_the_kernels_own_is_no_pair() -> None:
    """It is between two values, each of which something has written."""
    written = (call("vexp_1d_float", "%a"), call("vexp_1d_float", "%b"))
    function = function_of(BOUNDS, *PAIR, *written, alternating())
    assert function.double_buffering == "none" and not any(found.groups for found in function.loop_buffers)


@pytest.mark.parametrize(
    "core, mixed, degraded, mover, state",
    [
        ("AIC", True, True, "nd2nz_half", "lost"),
        ("AIV", False, True, "load_gm_to_ubuf_1d_float", "lost"),
        ("AIV", False, True, "store_ubuf_to_gm_1d_float", "lost"),
        ("AIV", False, True, "vexp_1d_float", "none"),
        ("AIV", True, True, "load_gm_to_ubuf_1d_float", "none"),  # it has one of each anyway
        ("AIC", True, False, "nd2nz_half", "none"),
    ],
)
def test_double_buffering_that_was_given_up_is_lost(
    core: str, mixed: bool, degraded: bool, mover: str, state: str
) -> None:
    lines = (BOUNDS, loop("%i", buffer("%a", 0), call(mover, "%a")))
    report = report_of(*lines, core=core, mixed=mixed, degraded=degraded)
    assert report.double_buffering() == state
    single = [b.name for found in report.functions[0].loop_buffers for b in found.single]
    assert single == ([] if mover.startswith("v") else ["%a"])
    assert ("one copy of UB 64xf32" in memory_text(report)) == (state == "lost")


def test_a_function_outside_loops_has_no_double_buffering_to_lose() -> None:
    assert (
        report_of(buffer("%a", 0), call("load_gm_to_ubuf_1d_float", "%a"), degraded=True).double_buffering() == "none"
    )


# ------------------------------------------------------------ an idle vector core

NUMBER = "%number = hivm.hir.get_sub_block_idx -> i64"
WORK = call("vexp_1d_float", "%arg0")
IDLE = {
    "absent": ((WORK,), True),
    "guard": ((NUMBER, "%z = arith.constant 0 : i64", "%g = arith.cmpi eq, %number, %z : i64", WORK), True),
    "guard of a cast": (
        (NUMBER, BOUNDS, "%n = arith.index_cast %number : i64 to index", "%g = arith.cmpi eq, %n, %zero : index", WORK),
        True,
    ),
    "unused": ((NUMBER, WORK), True),
    "offset": ((NUMBER, "%n = arith.index_cast %number : i64 to index", "%h = arith.muli %n, %n : index", WORK), False),
    "other comparison": (
        (NUMBER, "%z = arith.constant 0 : i64", "%g = arith.cmpi slt, %number, %z : i64", WORK),
        False,
    ),
    "bound of a loop": (
        (
            NUMBER,
            BOUNDS,
            "%n = arith.index_cast %number : i64 to index",
            "scf.for %i = %n to %four step %one {\n}",
            WORK,
        ),
        False,
    ),
    "950, guard": (
        (NUMBER, '%z = llvm.mlir.constant(0 : i64) : i64\n%g = llvm.icmp "eq" %number, %z : i64', WORK),
        True,
    ),
    "950, cast and guard": (
        (NUMBER, '%n = llvm.trunc %number : i64 to i32\n%g = llvm.icmp "eq" %n, %n : i32', WORK),
        True,
    ),
    "950, offset": ((NUMBER, "%n = llvm.trunc %number : i64 to i32\n%h = llvm.mul %n, %n : i32", WORK), False),
}


@pytest.mark.parametrize("lines, idle", IDLE.values(), ids=IDLE.keys())
def test_a_vector_core_whose_number_chooses_nothing_is_idle(lines: tuple[str, ...], idle: bool) -> None:
    report = report_of(*lines, mixed=True)
    assert report.idle_vector_core() is idle
    assert ("vector cores is idle" in memory_text(report)) is idle


def test_only_vector_halves_that_do_something_can_leave_a_core_idle() -> None:
    assert report_of(WORK).idle_vector_core() is None  # no mixed kernel
    assert report_of(mixed=True).idle_vector_core() is None
    assert (
        report_of(call("fixpipe_nz2nd_float_to_float_4d_to_2d", "%arg0"), core="AIC", mixed=True).idle_vector_core()
        is None
    )


# ------------------------------------------------------------ calls


def test_calls_by_class() -> None:
    vector = text_of(
        *(
            call(name, "%arg0")
            for name in ("vadd_1d_float", "helper_vf", "load_gm_to_ubuf_1d_float", "no_such_template")
        ),
        *(call(name, "%arg0") for name in ("store_ubuf_to_gm_2d_half", "copy_ubuf_to_cbuf_1d_half")),
        "hivm.hir.pipe_barrier[<PIPE_V>]",
        "hivm.hir.set_flag[<PIPE_V>, <PIPE_MTE2>, <EVENT_ID0>]",
        "hivm.hir.sync_block_set[<VECTOR>, <PIPE_MTE3>, <PIPE_S>] flag = 4",
        name="k_mix_aiv",
    )
    cube = text_of(
        *(call(name, "%arg0") for name in ("nd2nz_half", "set_l1_2d_half", "mma_tile_half_to_float_tb")),
        call("batch_mma_tile_half", "%arg0"),
        call("fixpipe_nz2nd_float_to_half_4d_to_2d", "%arg0"),
        "hivm.hir.wait_flag[<PIPE_M>, <PIPE_FIX>, <EVENT_ID0>]",
        core="AIC",
        name="k_mix_aic",
    )  # fmt: skip
    helper = text_of(name="helper_vf").replace("hacc.entry", "hivm.vector_function")
    report = read_hivm("\n".join([cube, vector, helper]))
    assert [function.name for function in report.functions] == ["k_mix_aic", "k_mix_aiv"]
    assert report.calls() == {
        "vector": 3, "mte2": 2, "mte3": 2, "nd2nz": 1, "mma": 2, "fixpipe": 1, "barrier": 1, "sync": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    "line, core, named",
    [
        (call("vadd_1d_float", "%arg0"), "AIC", "vadd_1d_float"),
        (call("teleport_1d_float", "%arg0"), "AIC", "teleport_1d_float"),
        ("hivm.hir.teleport ins(%arg0 : memref<4xf32>)", "AIV", "hivm.hir.teleport"),
    ],
)
def test_what_no_known_unit_runs_is_an_error(line: str, core: str, named: str) -> None:
    with pytest.raises(HivmError, match=f"line 2: .*{named}"):
        report_of(line, core=core)


def test_ir_without_a_device_function_is_an_error() -> None:
    with pytest.raises(HivmError, match="no device function"):
        read_hivm("module {\n}\n")


# ------------------------------------------------------------ the 950's blocks

BLOCKS = (
    "%p = llvm.mlir.constant(0 : i64) : i64\n%q = llvm.mlir.constant(256 : i64) : i64",
    f"%a = hivm.hir.pointer_cast(%p) : {type_('64xf32')}\n%b = hivm.hir.pointer_cast(%q) : {type_('64xf32')}",
    "%sa = builtin.unrealized_conversion_cast %a : memref<64xf32> to !llvm.struct<(ptr<6>, ptr<6>, i64)>",
    "%sb = builtin.unrealized_conversion_cast %b : memref<64xf32> to !llvm.struct<(ptr<6>, ptr<6>, i64)>",
    f"%x = hivm.hir.pointer_cast(%r) : {type_('64xf32')}",
    call("vbrc_1d_float", "%x"),
    f"cf.br ^bb1(%p, %x : i64, {type_('64xf32')})",
    f"^bb1(%i: i64, %y: {type_('64xf32')}):  // 2 preds: ^bb0, ^bb2",
    "%more = arith.cmpi slt, %i, %q : i64",
    "cf.cond_br %more, ^bb2, ^bb3",
    "^bb2:  // pred: ^bb1",
    '%turn = llvm.urem %i, %q : i64\n%odd = llvm.icmp "eq" %turn, %p : i64',
    "%s = llvm.select %odd, %sa, %sb : i1, !llvm.struct<(ptr<6>, ptr<6>, i64)>",
    f"%c = builtin.unrealized_conversion_cast %s : !llvm.struct<(ptr<6>, ptr<6>, i64)> to {type_('64xf32')}",
    call("load_gm_to_ubuf_1d_float", "%c"),
    call("vadd_1d_float", "%c", "%y"),
    call("vabs_1d_float", "%arg0"),
    f"cf.br ^bb1(%i, %y : i64, {type_('64xf32')}) loc(#loc1)",
    "^bb3:  // pred: ^bb1",
    call("vln_1d_float", "%arg0"),
)


def test_a_branch_back_is_a_loop() -> None:
    lines = ("%r = llvm.mlir.constant(512 : i64) : i64", *BLOCKS)
    function = read_hivm('#loc1 = loc("kernels.py":9:0)\n' + text_of(*lines)).functions[0]
    assert function.peak_bytes == {"ub": 768}
    (found,) = function.loops
    assert found.place is not None and found.place.line == 9
    assert function.double_buffering == "kept"
    assert [[b.name for b in group] for group in function.loop_buffers[0].groups] == [["%a", "%b"]]
    assert life(function, "%a") == ["load_gm_to_ubuf_1d_float", "vadd_1d_float"]
    assert life(function, "%x") == ["vbrc_1d_float", "load_gm_to_ubuf_1d_float", "vadd_1d_float", "vabs_1d_float"]


# ------------------------------------------------------------ buffers that nothing writes

AB = (buffer("%a", 0), buffer("%b", 256), buffer("%d", 512))
CHOICE = f"%c = arith.select %odd, %b, %a : {type_('64xf32')}"


@pytest.mark.parametrize(
    ("lines", "lost"),
    [
        ((*AB, call("vexp_1d_float", "%a", "%b")), ["%a"]),
        ((*AB, call("load_gm_to_ubuf_1d_float", "%arg0", "%a"), call("vexp_1d_float", "%a", "%b")), []),
        # order isn't looked at, nor how much is written
        ((*AB, call("vexp_1d_float", "%a", "%b"), call("vexp_1d_float", "%b", "%a")), []),
        ((*AB, call("vadd_1d_float", "%b", "%b", "%b", "%a")), []),  # in place: it is a target too
        ((*AB, call("vadd_1d_float", "%a", "%a", "%b", "%a")), ["%a"]),
        ((buffer("%a", 0), call("broadcast_scalar_float_to_1d", "%arg0", "%a")), []),  # written, never read
        ((*AB, call("vadds_vs_1d_float", "%b", "%arg0", "%b", "%a")), []),  # %a is scratch
        ((*AB, call("a_template_of_tomorrow", "%a", "%b")), []),  # what it writes isn't known
        ((BOUNDS, *AB, loop("%i", TURN, CHOICE, call("vexp_1d_float", "%c", "%d"))), ["%a", "%b"]),
        ((BOUNDS, *AB, loop("%i", TURN, CHOICE, call("vexp_1d_float", "%d", "%c"))), ["%d"]),
    ],
)
def test_a_buffer_that_nothing_writes_is_found(lines: tuple[str, ...], lost: list[str]) -> None:
    report = report_of(*lines)
    assert [found.buffer.name for found in report.unwritten()] == lost
    assert ("MISCOMPILED" in memory_text(report)) == bool(lost)


def test_what_is_read_through_a_view_or_one_by_one_counts() -> None:
    collapsed = f"%c = memref.collapse_shape %a [[0, 1]] : {type_('8x8xf32')} into {type_('64xf32')}"
    two = buffer("%a", 0, "8x8xf32")
    (found,) = report_of(two, buffer("%b", 256), collapsed, call("vexp_1d_float", "%c", "%b")).unwritten()
    assert (found.buffer.name, found.reader) == ("%a", "vexp_1d_float")
    (found,) = report_of(BOUNDS, buffer("%a", 0), f"%x = memref.load %a[%zero] : {type_('64xf32')}").unwritten()
    assert (found.buffer.name, found.reader) == ("%a", "memref.load")


def test_one_unknown_operation_on_a_buffer_may_write_it() -> None:
    unknown = f'"hivm.tomorrow"(%a) : ({type_("64xf32")}) -> ()'
    assert not report_of(*AB, unknown, call("vexp_1d_float", "%a", "%b")).unwritten()


@pytest.mark.parametrize("address, lost", [(0, []), (128, []), (256, ["%a"])])
def test_what_the_other_core_writes_at_the_same_place_counts(address: int, lost: list[str]) -> None:
    """As on the 950, where a product goes from L0C straight into a vector core's UB."""
    vector = text_of(buffer("%a", 0), buffer("%b", 512), call("vexp_1d_float", "%a", "%b"), mixed=True, name="k_aiv")
    product = call("fixpipe_nz2nd_float_to_float_4d_to_2d_ubuf", "%arg0", "%c")
    cube = text_of(buffer("%c", address), product, core="AIC", mixed=True, name="k_aic")
    assert [f.buffer.name for f in read_hivm(f"{vector}\n{cube}").unwritten()] == lost
