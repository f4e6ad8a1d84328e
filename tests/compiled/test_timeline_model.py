"""The modelled time of a launch, worked out by hand from the constants: moves, products, scalars, floors, honesty."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import pytest

from kgen.errors import KgenError
from kgen.spec.targets import load_target, target_names
from kgen.virtual.hivm import parse_module
from kgen.virtual.hivm.nodes import Module, Place
from kgen.virtual.launch import Buffer, Launch
from kgen.virtual.machine.decisive import decisive_loads
from kgen.virtual.timeline import Costs, Timeline, evaluate, model, record, trace_file
from kgen.virtual.timeline.engine import Block
from kgen.virtual.timeline.events import Access, Barrier, Issue
from kgen.virtual.timeline.model import _schedule, run_block
from kgen.virtual.timeline.price import TICKS, Prices
from kgen.virtual.timeline.recording import _nearest, _spread
from kgen.virtual.timeline.text import timeline_text
from kgen.virtual.timeline.trace_file import trace_events

TARGETS = Path(__file__).parents[2] / "specs" / "targets"
REAL = Costs.of(load_target("Ascend910B2"))
# Round numbers, each of its own, so that a wrong one shows; 1 GHz, so that 1000 cycles are a microsecond.
COSTS = replace(
    REAL, clock_ghz=1.0, cube_cores=2, vector_cores=4, vector_bytes=256, vector_cycles=2, vector_cheap_cycles=1,
    vector_drain_cycles=25, mma_cycles=1, mma_fp32_cycles=2, mma_start_cycles=10, mma_latency_cycles=20,
    l0_start_cycles=50, l1_to_l0a=256, l1_to_l0b=128, dma_issue_cycles=20, dma_burst_cycles=4,
    dma_element_load_cycles=22, dma_element_store_cycles=95, dma_line_bytes=512, dma_row_cycles=6, gm_to_ub=64,
    ub_to_gm=32, gm_to_l1=16, l0c_to_gm=8, fixpipe_elements=16, read_latency_cycles=300, write_latency_cycles=110,
    fixpipe_latency_cycles=200, scalar_cycles=2, scalar_divide_cycles=16, scalar_flag_cycles=1,
    scalar_vector_call_cycles=12, scalar_dma_call_cycles=30, scalar_mma_call_cycles=80, scalar_gm_cycles=370,
    scalar_hit_cycles=13, scalar_line_bytes=64, scalar_cache_lines=4, scalar_load_cycles=14, scalar_store_cycles=21,
    queue_depth=32, flag_cycles=20, cross_core_flag_cycles=200, hbm_tb_per_s=1.0, l2_tb_per_s=4.0, launch_us=8.0,
    launch_cube_us=9.0,
    block_us=1.0,
)  # fmt: skip

GM, UB, L1, CC = (f"#hivm.address_space<{space}>" for space in ("gm", "ub", "cbuf", "cc"))
GRID = "%gx: i32, %gy: i32, %gz: i32"
F32 = f"memref<?xf32, {GM}>"


def typed(shape: str, element: str = "f32", strides: str | None = None, offset: str = "?", space: str = GM) -> str:
    layout = f"strided<[{strides}], offset: {offset}>, " if strides is not None else ""
    return f"memref<{shape + 'x' if shape else ''}{element}, {layout}{space}>"


def function(name: str, core: str, lines: Sequence[str], arguments: str, mixed: bool = False) -> str:
    part = "hivm.part_of_mix, " * mixed
    head = f"func.func @{name}({arguments}) attributes {{{part}hivm.func_core_type = #hivm.func_core_type<{core}>}} {{"
    return "\n".join([head, *lines, "return", "}"])


def vector(*lines: str, arguments: str = GRID) -> Module:
    """A kernel for vector cores alone."""
    return parse_module(function("k", "AIV", lines, arguments))


def mixed(cube: Sequence[str], aiv: Sequence[str], arguments: str = GRID) -> Module:
    """A kernel for cube and vector cores."""
    return parse_module(
        function("k_mix_aic", "AIC", cube, arguments, True) + "\n" + function("k_mix_aiv", "AIV", aiv, arguments, True)
    )


def cube(*lines: str, arguments: str = GRID) -> Module:
    return parse_module(function("k", "AIC", lines, arguments))


def launch(*arguments: Buffer | int | float, blocks: int = 1) -> Launch:
    return Launch((blocks, 1, 1), arguments)


def cycles(module: Module, launched: Launch | None = None, costs: Costs = COSTS) -> float:
    """Cycles of the cores for one block."""
    found = model(module, launched or launch(), costs)
    assert found.us is not None
    return found.core_us * 1e3 * costs.clock_ghz


def constants(*values: int) -> list[str]:
    return [f"%n{value} = arith.constant {value} : i64" for value in values]


def buffer(name: str, address: int, kind: str) -> list[str]:
    """An on-chip buffer at an address."""
    return [f"%{name}_at = arith.constant {address} : i64", f"%{name} = hivm.hir.pointer_cast(%{name}_at) : {kind}"]


def call(name: str, *operands: tuple[str, str]) -> str:
    names, kinds = ", ".join(o for o, _ in operands), ", ".join(k for _, k in operands)
    return f"func.call @{name}({names}) : ({kinds}) -> ()"


def load(source: str, source_type: str, target: str, target_type: str, rank: int, element: str = "float") -> str:
    return call(f"load_gm_to_ubuf_{rank}d_{element}", (source, source_type), (target, target_type))


def store(source: str, source_type: str, target: str, target_type: str, rank: int, element: str = "float") -> str:
    return call(f"store_ubuf_to_gm_{rank}d_{element}", (source, source_type), (target, target_type))


# ------------------------------------------------------------ moves

ROW, ROW_UB = typed("1024", strides="1"), typed("1024", space=UB)
COPY = [
    *buffer("u", 0, ROW_UB),
    "%b = hivm.hir.get_block_idx -> i64",
    "%k = arith.constant 1024 : i64",
    "%at = arith.muli %b, %k : i64",
    "%i = arith.index_cast %at : i64 to index",
    f"%x = memref.reinterpret_cast %p to offset: [%i], sizes: [1024], strides: [1] : {F32} to {ROW}",
    f"%y = memref.reinterpret_cast %q to offset: [%i], sizes: [1024], strides: [1] : {F32} to {ROW}",
    load("%x", ROW, "%u", ROW_UB, 1),
    "hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_MTE3>, <EVENT_ID0>]",
    "hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_MTE3>, <EVENT_ID0>]",
    store("%u", ROW_UB, "%y", ROW, 1),
    "hivm.hir.pipe_barrier[<PIPE_ALL>]",
]
COPY_ARGUMENTS = f"%p: {F32}, %q: {F32}, {GRID}"


def copies(blocks: int, count: int | None = None) -> Launch:
    count = 1024 * blocks if count is None else count
    return launch(Buffer("p", "f32", count), Buffer("q", "f32", count), blocks=blocks)


def query_cycles() -> float:
    """Of `get_block_idx`, which a test of its own is for."""
    return cycles(vector("%b = hivm.hir.get_block_idx -> i64"))


def copy_cycles() -> float:
    """get_block_idx, a product; the call; 4 KiB in; a flag; 4 KiB out."""
    return query_cycles() + 2 + 30 + (20 + 4096 / 64 + 300) + 20 + (20 + 4096 / 32 + 110)


def test_a_copy_kernel_by_hand() -> None:
    found = model(vector(*COPY, arguments=COPY_ARGUMENTS), copies(4), COSTS)
    assert found.core_us == pytest.approx(copy_cycles() / 1e3)
    assert (found.read_bytes, found.written_bytes) == (4 * 4096, 4 * 4096)
    assert found.hbm_us == pytest.approx(8 * 4096 / 1e12 * 1e6)
    assert found.l2_us == pytest.approx(8 * 4096 / 4e12 * 1e6)
    assert found.us == pytest.approx(8.0 + copy_cycles() / 1e3)
    assert (found.bound, found.blocks, found.cores, found.recorded_blocks) == ("core", 4, 4, 4)
    assert found.warnings == ()
    assert found.unknown == {}
    (use,) = found.uses
    assert use.core == "aiv"
    assert use.busy["MTE2"] == pytest.approx(84 / copy_cycles())
    assert use.busy["MTE3"] == pytest.approx(148 / copy_cycles())
    assert use.stalled["MTE3"] == pytest.approx((20 + 64 + 300 + 20 - 1 - 1) / copy_cycles())
    first, second, *_ = found.costs
    assert (first.label, first.pipe, first.count) == ("store_ubuf_to_gm_1d_float", "MTE3", 1)
    assert (second.label, second.pipe, second.us) == ("load_gm_to_ubuf_1d_float", "MTE2", pytest.approx(84e-3))


def test_blocks_over_the_cores_are_queued() -> None:
    found = model(vector(*COPY, arguments=COPY_ARGUMENTS), copies(10), COSTS)
    assert found.core_us == pytest.approx(3 * copy_cycles() / 1e3 + 2)
    assert [w for w in found.warnings if "10 blocks on 4 cores" in w]


def test_each_tensor_counts_once_for_hbm_and_all_traffic_for_l2() -> None:
    """Eight blocks read the same 4 KiB and write over the same 4 KiB."""
    lines = [line.replace("arith.constant 1024", "arith.constant 0") for line in COPY]
    found = model(vector(*lines, arguments=COPY_ARGUMENTS), copies(8, 1024), COSTS)
    assert (found.read_bytes, found.written_bytes) == (8 * 4096, 8 * 4096)
    assert found.hbm_us == pytest.approx(2 * 4096e-6)
    assert found.l2_us == pytest.approx(16 * 4096 / 4e6)


def test_a_tensor_that_is_read_and_written_counts_for_both() -> None:
    lines = [line.replace("%q", "%p") for line in COPY]
    data = launch(Buffer("p", "f32", 1024 * 4), blocks=4)
    found = model(vector(*lines, arguments=f"%p: {F32}, {GRID}"), data, COSTS)
    assert found.hbm_us == pytest.approx(2 * 4 * 4096e-6)
    wide = model(vector(*COPY, arguments=COPY_ARGUMENTS), copies(4, 1 << 20), COSTS)
    assert wide.hbm_us == pytest.approx(2 * 4 * 4096e-6)  # no more than is moved


@pytest.mark.parametrize("hbm, l2, bound", [(1e-6, 1.0, "hbm"), (1.0, 1e-6, "l2"), (1.0, 1.0, "core")])
def test_floors_bound_the_time(hbm: float, l2: float, bound: str) -> None:
    costs = replace(COSTS, hbm_tb_per_s=hbm, l2_tb_per_s=l2)
    found = model(vector(*COPY, arguments=COPY_ARGUMENTS), copies(4), costs)
    assert found.bound == bound
    assert found.us == pytest.approx(8 + max(found.core_us, found.hbm_us, found.l2_us))


def test_the_workspace_is_traffic_but_no_tensor() -> None:
    role = "{hacc.arg_type = #hacc.arg_type<workspace>}"
    tile = typed("1024")
    module = vector(
        *buffer("u", 0, ROW_UB), "%z = arith.constant 0 : index",
        f"%x = memref.view %w[%z][] : memref<?xi8, {GM}> to {tile}", load("%x", tile, "%u", ROW_UB, 1),
        arguments=f"%w: memref<?xi8, {GM}> {role}, {GRID}",
    )  # fmt: skip
    found = model(module, launch(), COSTS)
    assert (found.read_bytes, found.hbm_us) == (4096, 0)


def moved(sizes: str, gm: str, ub: str, *, offset: int = 0, out: bool = False, element: str = "f32") -> Module:
    """One load or store of a tile with these strides."""
    name = {"f32": "float", "bf16": "bfloat16_t"}[element]
    shape = sizes.replace(", ", "x")
    rank = shape.count("x") + 1
    far, near = typed(shape, element, gm), typed(shape, element, ub, "0", UB)
    move = store("%u", near, "%x", far, rank, name) if out else load("%x", far, "%u", near, rank, name)
    kind = typed("?", element)
    return vector(
        *buffer("u", 0, near),
        f"%x = memref.reinterpret_cast %p to offset: [{offset}], sizes: [{sizes}], strides: [{gm}] : {kind} to {far}",
        move,
        arguments=f"%p: {kind}, {GRID}",
    )


DATA = launch(Buffer("p", "f32", 1 << 20))
MOVES = [
    # sizes, strides in GM, in UB, store, cycles on the pipe, bytes
    ("64", "1", "1", False, 20 + 256 / 64, 256),
    ("4", "1", "1", False, 20 + 32 / 64, 32),  # no less than a granule
    ("16, 32", "32, 1", "32, 1", False, 20 + 2048 / 64, 2048),  # dense: one run
    ("16, 32", "64, 1", "32, 1", False, 20 + 16 * 4, 2048),  # bursts of 128 bytes
    ("16, 32", "64, 1", "32, 1", True, 20 + max(16 * 4, 2048 / 32), 2048),
    ("1, 32", "64, 1", "32, 1", False, 20 + 128 / 64, 128),
    ("16, 33", "64, 1", "40, 1", False, 20 + max(16 * 4, 16 * 33 * 4 / 64), 16 * 33 * 4),
    # rows of four lines that begin anywhere on 4 bytes touch nearly one more
    ("16, 512", "513, 1", "512, 1", False, 20 + (1 + 2044 / 512) / 4 * 32768 / 64, 32768),
    ("2, 16, 512", "65536, 1024, 1", "8192, 512, 1", False, 2 * 20 + 65536 / 64, 65536),
    ("64", "32", "8", False, 20 + 64 * 22, 64 * 32),  # elements, each a burst of its own
    ("64", "32", "8", True, 20 + 64 * 95, 64 * 32),
    ("64, 1", "32, 1", "8, 1", False, 20 + 64 * 22, 64 * 32),
    ("64, 2", "32, 1", "8, 1", False, 20 + 64 * 22, 64 * 32),
    ("0", "1", "1", False, 0, 0),
    ("0, 8", "64, 1", "8, 1", True, 0, 0),
]  # fmt: skip


@pytest.mark.parametrize("sizes, gm, ub, out, pipe, size", MOVES)
def test_moves_by_hand(sizes: str, gm: str, ub: str, out: bool, pipe: float, size: float) -> None:
    module = moved(sizes, gm, ub, out=out)
    found = model(module, DATA, COSTS)
    latency = (110 if out else 300) if size else 0
    assert found.core_us * 1e3 == pytest.approx(30 + pipe + latency, abs=1 / TICKS)
    assert (found.read_bytes, found.written_bytes) == ((0, size) if out else (size, 0))
    small = any("small bursts" in warning for warning in found.warnings)
    assert small == (" * 22" in str(pipe) or pipe > 1400)


def fractals(rows: int, columns: int, pitch: int) -> Timeline:
    """Rows of bf16 brought to L1."""
    far = typed(f"{rows}x{columns}", "bf16", f"{pitch}, 1")
    near = typed(f"{columns // 16 or 1}x{rows // 16}x16x16", "bf16", space=L1)
    strides, kind = f"[{pitch}, 1]", typed("?", "bf16")
    module = cube(
        *buffer("u", 0, near),
        f"%x = memref.reinterpret_cast %p to offset: [0], sizes: [{rows}, {columns}], strides: {strides} : "
        f"{kind} to {far}",
        call("nd2nz_bfloat16_t", ("%x", far), ("%u", near)),
        arguments=f"%p: {kind}, {GRID}",
    )
    return model(module, launch(Buffer("p", "bf16", 1 << 20)), COSTS)


def test_rows_off_the_lines_cost_what_was_measured() -> None:
    """asc-devkit, data_copy, a matrix of 12287 columns against one of 12288: 259 us against 203 for rows of 2 KB, 422.5
    against 214.5 for rows of 512 bytes brought to L1."""
    halves = launch(Buffer("p", "bf16", 1 << 20))
    on, off = (cycles(moved("64, 1024", f"{n}, 1", "1024, 1", element="bf16"), halves) - 350 for n in (12288, 12287))
    assert off / on == pytest.approx(259 / 203, rel=0.03)
    on, off = (fractals(64, 256, n).core_us * 1e3 - 350 for n in (12288, 12287))
    assert off / on == pytest.approx(422.5 / 214.5, rel=0.03)


@pytest.mark.parametrize("out, near", [(False, 21), (True, 14)])
@pytest.mark.parametrize("sizes, gm, ub", [("64", "7", "1"), ("8, 8", "100, 3", "8, 1"), ("8, 8", "1, 100", "8, 1")])
def test_elements_that_are_apart_in_gm_and_together_in_ub_go_one_by_one(
    sizes: str, gm: str, ub: str, out: bool, near: int
) -> None:
    found = model(moved(sizes, gm, ub, out=out), DATA, COSTS)
    assert found.core_us * 1e3 == pytest.approx(30 + 64 * (near + 370))
    (warning,) = found.warnings
    assert "strided gather: for 100% of" in warning.replace("for 99%", "for 100%")
    assert (found.written_bytes if out else found.read_bytes) == 64 * 32
    (use,) = found.uses
    assert use.busy == {"S": 1.0}
    assert found.costs[0].pipe == "S"
    assert found.costs[0].us == pytest.approx((30 + 64 * (near + 370)) / 1e3)  # with the call itself


def test_one_element_is_no_gather() -> None:
    assert cycles(moved("1", "7", "1"), DATA) == pytest.approx(30 + 20 + 0.5 + 300)


@pytest.mark.parametrize(
    "rows, columns, pitch, busy",
    [(64, 256, 256, 20 + 64 * 512 / 16), (64, 64, 64, 20 + 64 * 128 / 16), (64, 64, 80, 20 + 512 * (1 + 96 / 512)),
     (64, 64, 65, 20 + 512 * (1 + 126 / 512)), (64, 8, 64, 20 + 64 * 6)],
)  # fmt: skip
def test_fractals_by_hand(rows: int, columns: int, pitch: int, busy: float) -> None:
    found = fractals(rows, columns, pitch)
    assert found.core_us * 1e3 == pytest.approx(30 + busy + 300)
    assert found.read_bytes == rows * columns * 2
    assert found.cores == 2


# ------------------------------------------------------------ the vector unit


def vectors(name: str, *sizes: str, element: str = "f32", times: int = 1) -> Module:
    lines = []
    for number, size in enumerate(sizes):
        lines += buffer(f"u{number}", 4096 * number, typed(size, element, space=UB))
    one = call(name, *((f"%u{i}", typed(size, element, space=UB)) for i, size in enumerate(sizes)))
    return vector(*lines, *[one] * times)


@pytest.mark.parametrize(
    "name, sizes, busy",
    [
        ("vadd_1d_float", ("512", "512", "512", "0"), 8 * 2),
        ("vadd_1d_float", ("65", "65", "65", "0"), 2 * 2),
        ("vexp_1d_float", ("512", "512", "0"), 8 * 2),
        ("vcast_float_to_bfloat16_t_1d_with_mode", ("512", "512"), 8),
        ("vdiv_1d_float", ("512", "512", "512", "0"), 8 * COSTS.vector_divide_cycles),
        ("vabs_1d_float", ("64", "64", "0"), 1),
        ("vadd_1d_float", ("0", "0", "0", "0"), 0),
    ],
)
def test_vector_templates_by_hand(name: str, sizes: tuple[str, ...], busy: float) -> None:
    drain = 25 if busy else 0
    found = model(vectors(name, *sizes), launch(), COSTS)
    assert found.core_us * 1e3 in (12 + busy + drain, 12 + 25 + busy)
    assert found.us is not None
    assert cycles(vectors(name, *sizes, times=40)) == max(12 * 40 + busy, 12 + 40 * busy) + 25


def test_more_rows_and_wider_rows_never_cost_less() -> None:
    for name in ("vadd", "vmul", "vexp", "vdiv", "vsel_vv", "vcmp_lt", "broadcast_last_axis_align", "reduce_sum_ar",
                 "reduce_sum_ra", "transpose_with_last_axis", "cumsum_ra", "broadcast_first_axis_align"):  # fmt: skip
        for sizes in (("8x64", "16x64", "64x64", "64x128", "64x520"), ("1x8", "2x8", "16x8", "16x16", "16x1000")):
            times = [cycles(vectors(f"{name}_2d_float", size, size, size)) for size in sizes]
            assert times == sorted(times), (name, sizes, times)


# ------------------------------------------------------------ products


def mma(
    m: int, n: int, k: int, *, element: str = "bf16", last: str = "", unit: int = 0, accumulator: int = 0
) -> list[str]:
    """A product of tiles in L1, with the lines that it needs; `last`: the events."""
    name = {"bf16": "bfloat16_t", "f32": "float"}[element]
    a, b = typed("4x4x16x16", element, space=L1), typed("4x4x16x16", element, space=L1)
    c = typed("4x4x16x16", "f32", space=CC)
    events = (last or "-1 -1 -1 -1 0 -1 -1").split()
    lines = [*buffer("a", 0, a), *buffer("b", 65536, b), *buffer(f"c{accumulator}", accumulator, c)]
    lines += [f"%e{i} = arith.constant {value} : i64" for i, value in enumerate(events)]
    lines += [f"%{axis} = arith.constant {size} : index" for axis, size in (("m", m), ("k", k), ("n", n))]
    lines += ["%init = arith.constant true", f"%unit = arith.constant {unit} : i8"]
    operands = [("%a", a), ("%b", b), ("%init", "i1"), ("%m", "index"), ("%k", "index"), ("%n", "index")]
    operands += [(f"%c{accumulator}", c), *((f"%e{i}", "i64") for i in range(7)), ("%unit", "i8")]
    return [*lines, call(f"mma_tile_{name}_to_float", *operands)]


def renamed(lines: Sequence[str], number: int) -> list[str]:
    return [line.replace("%", f"%x{number}_") for line in lines]


@pytest.mark.parametrize(
    "m, n, k, element, load, multiply, steps",
    [
        (16, 16, 16, "bf16", 100 + 512 / 256 + 512 / 128, 10 + 1, 1),
        (64, 128, 64, "bf16", 100 + 8192 / 256 + 16384 / 128, 10 + 4 * 8 * 4, 1),
        (60, 120, 50, "bf16", 100 + 64 * 50 * 2 / 256 + 128 * 50 * 2 / 128, 10 + 4 * 8 * 4, 1),
        (64, 64, 64, "f32", 100 + 16384 / 256 + 16384 / 128, 10 + 4 * 4 * 8 * 2, 1),
        (128, 128, 128, "f32", 100 + 32768 / 256 + 32768 / 128, 10 + 8 * 8 * 8 * 2, 2),  # half of k fits in half of L0
        (128, 128, 256, "bf16", 100 + 32768 / 256 + 32768 / 128, 10 + 8 * 8 * 8, 2),
    ],
)
def test_products_by_hand(m: int, n: int, k: int, element: str, load: float, multiply: float, steps: int) -> None:
    """Two halves of L0: the loads of the second part go on while the first is multiplied."""
    expected = 80 + load + max(load * (steps - 1), multiply * (steps - 1) if load < multiply else 0)
    expected += 20 + multiply + 20
    assert cycles(cube(*mma(m, n, k, element=element))) == pytest.approx(expected, abs=0.2)


@pytest.mark.parametrize("m, n, k", [(0, 64, 64), (64, 0, 64), (64, 64, 0)])
def test_a_product_of_nothing_has_only_its_flags(m: int, n: int, k: int) -> None:
    """`mma_tile` with m, k or n of 0 (a tail) executes the flags of its operands and leaves the accumulator alone."""
    found = model(cube(*mma(m, n, k)), launch(), COSTS)
    assert "M" not in found.uses[0].busy
    assert "MTE1" not in found.uses[0].busy


def test_products_that_differ_in_their_count_of_iterations_are_alike() -> None:
    """It chooses the half of L0 to begin with and costs nothing, and rounds of a loop are looked up by their events."""
    lines = [line for line in mma(16, 16, 16) if "%e4 =" not in line]
    lines[-1:] = [*constants(0, 1, 9), "scf.for %e4 = %n0 to %n9 step %n1 : i64 {", lines[-1], "}"]
    recording = record(cube(*lines), launch(), COSTS)
    assert sum(isinstance(event, Issue) for event in recording.table.events) == 1
    issued = [e for e in recording.classes[0][0].events if isinstance(recording.table.events[e], Issue)]
    assert len(issued) == 9


def test_a_product_waits_for_the_event_of_its_operand_and_frees_it() -> None:
    far, near = typed("64x64", "bf16", "64, 1"), typed("4x4x16x16", "bf16", space=L1)
    kind = typed("?", "bf16")
    lines = [
        *buffer("l", 0, near),
        f"%x = memref.reinterpret_cast %p to offset: [0], sizes: [64, 64], strides: [64, 1] : {kind} to {far}",
        call("nd2nz_bfloat16_t", ("%x", far), ("%l", near)),
        "hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_MTE1>, <EVENT_ID3>]",
        *mma(64, 64, 64, last="3 -1 5 -1 0 -1 -1"),
        "hivm.hir.wait_flag[<PIPE_MTE1>, <PIPE_MTE2>, <EVENT_ID5>]",
        call("nd2nz_bfloat16_t", ("%x", far), ("%l", near)),
    ]
    data = launch(Buffer("p", "bf16", 4096))
    move, product = 20 + 8192 / 16, 100 + 8192 / 256 + 8192 / 128
    found = model(cube(*lines, arguments=f"%p: {kind}, {GRID}"), data, COSTS)
    assert found.core_us * 1e3 == pytest.approx(30 + move + 300 + 20 + product + 20 + 20 + move + 300)
    assert found.warnings == ()
    wrong = [line.replace("EVENT_ID3", "EVENT_ID4") for line in lines]
    found = model(cube(*wrong, arguments=f"%p: {kind}, {GRID}"), data, COSTS)
    assert any("unmatched flags: 1" in warning for warning in found.warnings)


def accumulate(unit: int, accumulators: Sequence[int]) -> Module:
    """Products and fixpipes, one after the other."""
    far, kind = typed("64x64", "bf16", "64, 1"), typed("?", "bf16")
    lines = [f"%y = memref.reinterpret_cast %p to offset: [0], sizes: [64, 64], strides: [64, 1] : {kind} to {far}"]
    for number, at in enumerate(accumulators):
        made = renamed(mma(64, 64, 64, unit=unit, accumulator=at), number)
        pre = f"%x{number}_"
        c = typed("4x4x16x16", "f32", space=CC)
        operands = ((f"{pre}c{at}", c), ("%y", far), (f"{pre}e0", "i64"), (f"{pre}e0", "i64"), (f"{pre}init", "i1"))
        lines += [*made, call("fixpipe_nz2nd_float_to_bfloat16_t_4d_to_2d", *operands, (f"{pre}unit", "i8"))]
    return cube(*lines, arguments=f"%p: {kind}, {GRID}")


def test_the_unit_flag_makes_products_and_fixpipes_take_turns() -> None:
    data = launch(Buffer("p", "bf16", 4096))
    load, multiply, out = 100 + 8192 / 256 + 8192 / 128, 10 + 64, 20 + 8192 / 8
    first = 80 + load + 20 + 10 + 64 - multiply + 4  # when the last pass has written its first block
    assert cycles(accumulate(3, [0]), data) == pytest.approx(first + out + 200)
    two = cycles(accumulate(3, [0, 0]), data)
    assert two == pytest.approx(first + out + 4 + out + 200)  # the product waits for the fixpipe, which follows it
    assert cycles(accumulate(3, [0, 16384]), data) == pytest.approx(first + out + out + 200)
    # without it nothing here holds the fixpipe back
    assert cycles(accumulate(0, [0]), data) == pytest.approx(80 + 30 + out + 200)


# ------------------------------------------------------------ the scalar unit


def test_scalar_operations_count() -> None:
    one = "%a{0} = arith.addi %gx, %gx : i32"
    assert cycles(vector(*[one.format(i) for i in range(10)])) == 20
    assert cycles(vector("%a = arith.divsi %gx, %gx : i32", "%b = arith.remsi %gx, %gx : i32")) == 32
    assert cycles(vector("%a = arith.extsi %gx : i32 to i64", "%b = arith.index_cast %a : i64 to index")) == 0
    assert cycles(vector("%a = hivm.hir.get_block_idx -> i64")) == 2
    loop = ["%c0 = arith.constant 0 : index", "%c1 = arith.constant 1 : index",
            "%n = arith.index_cast %gx : i32 to index",
            "scf.for %i = %c0 to %n step %c1 {", "%m = arith.muli %i, %i : index", "}"]  # fmt: skip
    assert cycles(vector(*loop), launch(blocks=4)) == 4 * (2 + 1) * 2


def test_scalar_operations_before_a_query_count_as_well() -> None:
    """Every real kernel divides and adds before it asks for its block again."""
    lines = ["%a = arith.divsi %gx, %gx : i32", "%b = arith.addi %a, %a : i32", "%c = hivm.hir.get_block_idx -> i64"]
    assert cycles(vector(*lines)) == 16 + 2 + 2
    assert cycles(vector(*lines, "%d = arith.addi %b, %b : i32")) == 16 + 2 + 2 + 2


def scalar_loads(places: Sequence[int], element: str = "f32") -> Module:
    kind = typed("?", element)
    lines = [line for i, at in enumerate(places) for line in (f"%i{i} = arith.constant {at} : index",
                                                              f"%v{i} = memref.load %p[%i{i}] : {kind}")]  # fmt: skip
    return vector(*lines, arguments=f"%p: {kind}, {GRID}")


@pytest.mark.parametrize(
    "places, misses, hits",
    [
        ((0,), 1, 0),
        (range(16), 1, 15),  # a line of 64 bytes
        (range(20), 2, 18),
        ((0, 16, 32, 48, 0), 4, 1),
        ((0, 16, 32, 48, 64, 0), 6, 0),  # the oldest of four lines made room
        ((0, 16, 32, 48, 0, 64, 0, 16), 6, 2),  # what was used lately stays
    ],
)
def test_the_scalar_units_data_cache(places: Sequence[int], misses: int, hits: int) -> None:
    data = launch(Buffer("p", "f32", 1000))
    assert cycles(scalar_loads(places), data) == pytest.approx(misses * 370 + hits * 13)
    found = model(scalar_loads(places), data, COSTS)
    assert found.read_bytes == 0 or found.read_bytes == misses * 64


def test_a_cache_is_a_cores_own_and_empty_in_each_block() -> None:
    recording = record(scalar_loads([0, 1]), launch(Buffer("p", "f32", 10), blocks=3), COSTS)
    assert len(recording.classes) == 1
    (trace,) = recording.classes[0]
    events = [recording.table.events[e] for e in trace.events]
    assert [e.hit for e in events if isinstance(e, Access)] == [False, True]


def test_elements_of_ub() -> None:
    kind = typed("8", space=UB)
    lines = [*buffer("u", 0, kind), "%i = arith.constant 1 : index", f"%v = memref.load %u[%i] : {kind}",
             f"memref.store %v, %u[%i] : {kind}"]  # fmt: skip
    assert cycles(vector(*lines)) == 14 + 21


def table_kernel() -> Module:
    """A loop whose bound is read from a table."""
    kind = typed("?", "i32")
    return vector(
        "%b = hivm.hir.get_block_idx -> i64", "%i = arith.index_cast %b : i64 to index",
        "%c0 = arith.constant 0 : i32", "%c1 = arith.constant 1 : i32",
        f"%n = memref.load %p[%i] : {kind}", "scf.for %j = %c0 to %n step %c1 : i32 {",
        *buffer("u", 0, typed("64", space=UB)), call("vexp_1d_float", ("%u", typed("64", space=UB))), "}",
        arguments=f"%p: {kind}, {GRID}",
    )  # fmt: skip


def test_loops_follow_the_tables_of_a_launch() -> None:
    found = model(table_kernel(), launch(Buffer("p", "i32", 3, values=(0, 5, 2)), blocks=3), COSTS)
    assert found.warnings == ()
    recording = record(table_kernel(), launch(Buffer("p", "i32", 3, values=(0, 5, 2)), blocks=3), COSTS)
    issued = [sum(isinstance(recording.table.events[e], Issue) for e in recording.classes[c][0].events)
              for c in recording.blocks]  # fmt: skip
    assert issued == [0, 5, 2]


def test_there_is_no_time_where_what_is_done_hangs_on_an_integer_that_nobody_gave() -> None:
    found = model(table_kernel(), launch(Buffer("p", "i32", 3), blocks=3), COSTS)
    assert (found.us, found.undecided, found.unknown) == (None, ("i32 read from global memory",), {})
    assert "i32 read from global memory" in "\n".join(timeline_text(found))
    short = model(table_kernel(), launch(Buffer("p", "i32", 1, values=(1,)), blocks=3), COSTS)
    assert short.us is None


TILE = typed("64", space=UB)


@pytest.mark.parametrize(
    ("lines", "decides"),
    [
        (["scf.for %i = %c0 to %n step %c1 : i32 {", "}"], True),
        (["%x = arith.addi %n, %c1 : i32", "%y = affine.max #map(%x)", "scf.for %i = %c0 to %y step %c1 : i32 {", "}"],
         True),
        (["%t = arith.cmpi sgt, %n, %c1 : i32", "scf.if %t {", "}"], True),
        (["%r = scf.for %i = %c0 to %c1 step %c1 iter_args(%a = %c0) -> (i32) : i32 {", "scf.yield %n : i32", "}",
          "scf.for %i = %c0 to %r step %c1 : i32 {", "}"], True),
        (["%x = arith.index_cast %n : i32 to index",
          f"%s = memref.subview %u[0] [%x] [1] : {TILE} to {typed('?', strides='1', space=UB)}"], True),
        (["%x = arith.index_cast %n : i32 to index",
          f"%s = memref.subview %u[%x] [8] [1] : {TILE} to {typed('8', strides='1', space=UB)}"], False),
        (["%x = arith.addi %n, %c1 : i32"], False),
    ],
)  # fmt: skip
def test_which_integers_decide(lines: list[str], decides: bool) -> None:
    kind = typed("?", "i32")
    found = parse_module(
        "#map = affine_map<(d0) -> (d0 * 2)>\n"
        + function(
            "k", "AIV",
            ["%i0 = arith.constant 0 : index", "%c0 = arith.constant 0 : i32", "%c1 = arith.constant 1 : i32",
             *buffer("u", 0, typed("64", space=UB)), f"%n = memref.load %p[%i0] : {kind}", *lines],
            f"%p: {kind}, {GRID}",
        )
    )  # fmt: skip
    assert (model(found, launch(Buffer("p", "i32", 3)), COSTS).us is None) == decides
    assert bool(decisive_loads(found.functions[0])) == decides


def test_an_integer_that_only_an_address_hangs_on_is_noted() -> None:
    kind, row = typed("?", "i32"), typed("64", strides="1")
    lines = [
        "%i0 = arith.constant 0 : index", f"%n = memref.load %p[%i0] : {kind}",
        "%o = arith.index_cast %n : i32 to index",
        f"%x = memref.reinterpret_cast %q to offset: [%o], sizes: [64], strides: [1] : {F32} to {row}",
        *buffer("u", 0, typed("64", space=UB)), load("%x", row, "%u", typed("64", space=UB), 1),
    ]  # fmt: skip
    found = model(
        vector(*lines, arguments=f"%p: {kind}, %q: {F32}, {GRID}"),
        launch(Buffer("p", "i32", 3), Buffer("q", "f32", 640)), COSTS,
    )  # fmt: skip
    assert found.us is not None
    assert [w for w in found.warnings if "data-dependent" in w and "i32 read from global memory" in w]
    assert model(scalar_loads([0]), launch(Buffer("p", "f32", 9)), COSTS).warnings == ()


# ------------------------------------------------------------ cores together


def flag(what: str, core: str, pipe: str, number: int | str) -> str:
    return f"hivm.hir.sync_block_{what}[<{core}>, <PIPE_{pipe}>, <PIPE_S>] flag = {number}"


def test_a_mixed_kernel_has_a_cube_core_and_two_vector_cores() -> None:
    exp = [*buffer("u", 0, typed("64", space=UB)), call("vexp_1d_float", ("%u", typed("64", space=UB)))]
    module = mixed(
        [*mma(16, 16, 16), flag("set", "CUBE", "M", 2), flag("wait", "VECTOR", "V", 3)],
        [flag("wait", "CUBE", "M", 2), *exp, flag("set", "VECTOR", "V", 3)],
    )
    found = model(module, launch(blocks=2), COSTS)
    there = 80 + 106 + 20 + 11 + 20 + 200
    assert found.core_us * 1e3 == pytest.approx(there + 12 + 2 + 25 + 200)
    assert [use.core for use in found.uses] == ["aic", "aiv0", "aiv1"]
    assert (found.cores, found.blocks) == (2, 2)
    assert found.uses[1].stalled["S"] == pytest.approx((there - 1) / (found.core_us * 1e3))


def test_the_vector_cores_know_which_they_are() -> None:
    module = mixed(
        [flag("wait", "VECTOR", "V", 1)],
        ["%s = hivm.hir.get_sub_block_idx -> i64", "%n = hivm.hir.get_sub_block_num -> i64",
         "%z = arith.constant 0 : i64", "%o = arith.constant 1 : i64",
         "scf.for %i = %s to %n step %o : i64 {", "hivm.hir.pipe_barrier[<PIPE_V>]", "}",
         flag("set", "VECTOR", "V", 1)],
    )  # fmt: skip
    recording = record(module, launch(), COSTS)
    assert recording.kinds == ("aic", "aiv", "aiv")
    met = [[recording.table.events[e] for e in trace.events] for trace in recording.classes[0]]
    assert [sum(isinstance(event, Barrier) for event in events) for events in met] == [0, 2, 1]


def test_a_cross_core_flag_may_stand_for_every_pipe() -> None:
    """It comes when the slowest of them is done."""
    after = [flag("wait", "CUBE", "ALL", 2), flag("set", "VECTOR", "V", 3)]
    before = [flag("set", "CUBE", "ALL", 2), flag("wait", "VECTOR", "V", 3)]
    slow = model(mixed([*mma(16, 16, 16), *before], after), launch(), COSTS)
    alone = model(mixed([*mma(16, 16, 16), flag("set", "CUBE", "M", 2), before[1]], after), launch(), COSTS)
    assert slow.core_us == alone.core_us


def test_a_kernel_for_vector_cores_alone_has_one_part() -> None:
    lines = [
        "%n = hivm.hir.get_sub_block_num -> i64", "%z = arith.constant 0 : i64", "%o = arith.constant 1 : i64",
        "scf.for %i = %z to %n step %o : i64 {", "hivm.hir.pipe_barrier[<PIPE_V>]", "}",
    ]  # fmt: skip
    recording = record(vector(*lines), launch(), COSTS)
    (trace,) = recording.classes[0]
    assert sum(isinstance(recording.table.events[e], Barrier) for e in trace.events) == 1


def test_a_deadlock_is_an_error_for_people() -> None:
    module = mixed([flag("wait", "VECTOR", "V", 1)], [flag("set", "VECTOR", "V", 2)])
    with pytest.raises(KgenError) as caught:
        model(module, launch(), COSTS)
    assert caught.value.code == "timeline-deadlock"
    with pytest.raises(KgenError) as caught:
        trace_events(record(module, launch(), COSTS), COSTS, "k")
    assert caught.value.code == "timeline-deadlock"


def loops_that_do_not_correspond() -> Module:
    """The cube core sets all flags in one loop, the vector cores take them in another, of another length."""
    head = ["%c0 = arith.constant 0 : i64", "%c1 = arith.constant 1 : i64", "%c6 = arith.constant 6 : i64",
            "%c3 = arith.constant 3 : i64"]  # fmt: skip
    return mixed(
        [*head, "scf.for %i = %c0 to %c6 step %c1 : i64 {", *mma(16, 16, 16), flag("set", "CUBE", "M", 2), "}",
         flag("wait", "VECTOR", "V", 3)],
        [*head, "scf.for %i = %c0 to %c3 step %c1 : i64 {", flag("wait", "CUBE", "M", 2), flag("wait", "CUBE", "M", 2),
         "%a = arith.muli %i, %i : i64", "}", flag("set", "VECTOR", "V", 3)],
    )  # fmt: skip


def loops_that_need_a_later_round() -> Module:
    """The vector cores are an iteration behind the first wait of the cube core: rounds alone don't get to an end."""
    head = ["%c0 = arith.constant 0 : i64", "%c1 = arith.constant 1 : i64", "%c6 = arith.constant 6 : i64"]
    return mixed(
        [*head, "scf.for %i = %c0 to %c6 step %c1 : i64 {", flag("wait", "VECTOR", "V", 3), *mma(16, 16, 16), "}"],
        [*head, "%x = arith.divsi %c6, %c6 : i64", "scf.for %i = %c0 to %c6 step %c1 : i64 {",
         "%c = arith.cmpi sgt, %i, %c0 : i64", "scf.if %c {", flag("set", "VECTOR", "V", 3), "}", "}",
         flag("set", "VECTOR", "V", 3)],
    )  # fmt: skip


@pytest.mark.parametrize("module", [loops_that_do_not_correspond(), loops_that_need_a_later_round()])
def test_rounds_give_what_the_whole_gives(module: Module) -> None:
    recording = record(module, launch(), COSTS)
    prices = Prices(recording.table, COSTS)
    (traces,) = recording.classes
    whole = Block(recording.kinds, prices.steps, COSTS.queue_depth)
    whole.run([trace.events for trace in traces])
    pieces = run_block(recording.kinds, traces, prices, COSTS)
    assert pieces.finish() == whole.finish()
    for a, b in zip(pieces.cores, whole.cores, strict=True):
        assert (a.clock, a.stalled, a.unmatched, a.scalar_busy) == (b.clock, b.stalled, b.unmatched, b.scalar_busy)


# ------------------------------------------------------------ blocks


def brute(times: Sequence[float], cores: int, start: float) -> float:
    """Each block, in order, on the core that is free first; a start for each but a core's first."""
    free, ran = [0.0] * cores, [0] * cores
    for time in times:
        core = min(range(cores), key=lambda c: free[c])
        free[core] += time + (start if ran[core] else 0.0)
        ran[core] += 1
    return max(free)


@pytest.mark.parametrize("cores", [1, 2, 3, 7, 100])
def test_blocks_are_queued_in_order(cores: int) -> None:
    for times in (
        [1.0],
        [5.0, 1.0, 1.0, 1.0],
        [1.0, 1.0, 1.0, 9.0],
        [3.0] * 20,
        [float(7 * i % 11 + 1) for i in range(50)],
    ):
        assert _schedule(times, cores, 0.5) == pytest.approx(brute(times, cores, 0.5))


def test_blocks_that_do_nothing_still_have_to_be_started() -> None:
    assert _schedule([0.0] * 10, 2, 1.0) == brute([0.0] * 10, 2, 1.0) == 4.0
    found = model(vector(), launch(blocks=4 * 100), COSTS)
    assert found.core_us == pytest.approx(99.0)


def test_a_grid_of_nothing_is_an_error() -> None:
    with pytest.raises(KgenError) as caught:
        model(vector(), Launch((4, 0, 1), ()), COSTS)
    assert caught.value.code == "launch-grid"


def test_the_grid_is_flat_and_its_sizes_are_arguments() -> None:
    lines = ["%b = hivm.hir.get_block_idx -> i64", "%n = hivm.hir.get_block_num -> i64",
             "%z = arith.constant 0 : index", "%i = arith.index_cast %b : i64 to index",
             "%t = arith.index_cast %gy : i32 to index",
             "scf.for %j = %z to %i step %t {", "%x = arith.muli %j, %j : index", "}"]  # fmt: skip
    recording = record(vector(*lines), Launch((2, 3, 4), ()), COSTS)
    assert len(recording.blocks) == 24
    assert len(recording.classes) == 9  # every third block has an iteration more
    assert recording.blocks == (0, *(1 + i // 3 for i in range(23)))


def test_blocks_are_sampled_over_the_budget() -> None:
    """Block 0 has 12 events here; the others take after the nearest that was recorded."""
    module = table_kernel()
    values = [0] * 50 + [5] * 50
    data = launch(Buffer("p", "i32", 100, values=values), blocks=100)
    assert record(module, data, COSTS).recorded == 100
    sampled = record(module, data, COSTS, budget=1)
    assert sampled.recorded == 6
    assert len(sampled.blocks) == 100
    gap = max(b - a for a, b in itertools.pairwise(sorted(list(_spread(100))[:6])))
    assert abs(sampled.blocks.count(0) - 50) <= gap / 2  # where the kinds change lies between two that were recorded
    assert sampled.blocks == tuple(sorted(sampled.blocks))
    assert (sampled.blocks[0], sampled.blocks[-1]) == (0, 1)
    found = evaluate(sampled, COSTS)
    assert [w for w in found.warnings if "sampled: 6 of 100 blocks" in w]
    assert (found.recorded_blocks, found.blocks) == (6, 100)
    whole = record(module, data, COSTS, budget=10**6)
    assert not [w for w in evaluate(whole, COSTS).warnings if "sampled" in w]


@pytest.mark.parametrize("recorded", [[0], [0, 9], [0, 1, 9], [0, 4, 5, 9], [0, 7, 9], [0, 3, 6, 9]])
def test_a_block_that_was_not_recorded_is_as_its_nearest(recorded: list[int]) -> None:
    found = _nearest(10, recorded, {block: block for block in recorded})
    assert [abs(other - block) for block, other in enumerate(found)] == [
        min(abs(other - block) for other in recorded) for block in range(10)
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 8, 9, 10, 48, 100, 4096, 65535])
def test_blocks_are_recorded_in_an_order_that_is_spread_from_its_beginning(count: int) -> None:
    order = list(_spread(count))
    assert sorted(order) == list(range(count))
    assert order[:2] == [0, count - 1][: min(2, count)]
    for some in (8, 24, 100):
        gaps = [b - a for a, b in itertools.pairwise(sorted(order[:some]))]
        assert max(gaps, default=0) <= max(1, 3 * count / some)
    if count == 4096:  # blocks of two kinds by turns, as heads make them: both are met
        assert {block % 2 for block in order[:8]} == {0, 1}


def test_an_idle_first_block_doesn_t_open_the_budget() -> None:
    values = [0] + [500] * 99
    data = launch(Buffer("p", "i32", 100, values=values), blocks=100)
    most = record(table_kernel(), data, COSTS, budget=10**9)
    per_block = max(len(t.events) for traces in most.classes for t in traces)
    assert record(table_kernel(), data, COSTS, budget=20 * per_block).recorded <= 23


def test_blocks_that_are_alike_are_run_once() -> None:
    recording = record(vector(*COPY, arguments=COPY_ARGUMENTS), copies(50), COSTS)
    assert len(recording.classes) == 1
    assert recording.blocks == (0,) * 50


# ------------------------------------------------------------ what isn't known

UNKNOWN = {
    "template whose cost isn't known": (call("vfrobnicate_1d_float", ("%gx", "i32")), "vfrobnicate 1d f32"),
    "call that is no template": (call("frobnicate", ("%gx", "i32")), "@frobnicate"),
    "operation": ("hivm.hir.frobnicate %gx : i32", "hivm.hir.frobnicate"),
    "query": ("%q = hivm.hir.get_frobs -> i64", "hivm.hir.get_frobs"),
    "arithmetic": ("%q = math.cos %gx : f32", "cos on f32"),
    "call with results": ("%q = func.call @f(%gx) : (i32) -> i32", "call @f with results"),
    "block label": ("cf.br ^bb1\n^bb1:", "cf.br"),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_unknown_things_leave_no_time_and_are_listed(what: str) -> None:
    line, name = UNKNOWN[what]
    known = ["%a = arith.addi %gx, %gx : i32"]
    found = model(vector(*known, line, *known[0:0]), launch(), COSTS)
    assert found.us is None
    assert found.unknown[name] == 1
    text = "\n".join(timeline_text(found))
    assert "no modelled time" in text
    assert f"{name} (1x)" in text


LOOP = ["%c0 = arith.constant 0 : i32", "%c1 = arith.constant 1 : i32", "%c5 = arith.constant 5 : i32"]


@pytest.mark.parametrize("what", UNKNOWN)
def test_unknown_things_in_a_loop_are_counted(what: str) -> None:
    line, name = UNKNOWN[what]
    found = model(vector(*LOOP, "scf.for %i = %c0 to %c5 step %c1 : i32 {", line, "}"), launch(), COSTS)
    assert found.us is None
    assert found.unknown[name] == 5


@pytest.mark.parametrize("what", UNKNOWN)
def test_unknown_things_in_a_branch_not_taken_do_not_matter(what: str) -> None:
    line, _ = UNKNOWN[what]
    lines = [*LOOP, "%c = arith.cmpi sgt, %gx, %c5 : i32", "scf.if %c {", line, "}"]
    found = model(vector(*lines), launch(), COSTS)
    assert found.us is not None
    assert found.unknown == {}


@pytest.mark.parametrize("what", UNKNOWN)
def test_unknown_things_are_counted_over_all_blocks(what: str) -> None:
    """The same for each kind of thing, whether blocks are alike or not."""
    line, name = UNKNOWN[what]
    assert model(vector(line), launch(blocks=3), COSTS).unknown[name] == 3


def test_an_unknown_buffer_is_told_not_a_crash() -> None:
    """`memref.alloc` or what a next compiler writes: every operation that uses it must come through."""
    kind, part = typed("64", space=UB), typed("8", strides="1", space=UB)
    lines = [
        f"%u = memref.alloc() : {kind}",
        f"%v = memref.cast %u : {kind} to {typed('?', space=UB)}",
        call("vexp_1d_float", ("%v", typed("?", space=UB))),
        load("%p", F32, "%v", typed("?", space=UB), 1),
        f"%w = memref.subview %u[8] [8] [1] : {kind} to {part}",
        call("vexp_1d_float", ("%w", part)),
    ]
    for count in (3, 4, 6):
        found = model(vector(*lines[:count], arguments=f"%p: {F32}, {GRID}"), launch(Buffer("p", "f32", 64)), COSTS)
        assert found.us is None
        assert found.unknown["memref.alloc"] == 1


@pytest.mark.parametrize(
    "ways",
    [
        ["%s = arith.select %c, %u, %w : KIND"],
        ["%s = arith.select %c, %w, %u : KIND"],
        ["%s = scf.if %c -> (KIND) {", "scf.yield %w : KIND", "} else {", "scf.yield %u : KIND", "}"],
        ["%s = scf.for %i = %z to %o step %o iter_args(%x = %u) -> (KIND) {", "scf.yield %x : KIND", "}"],
        ["%s = scf.for %i = %z to %o step %o iter_args(%x = %w) -> (KIND) {", "scf.yield %u : KIND", "}"],
        ["%s = scf.while (%x = %u) : (KIND) -> KIND {", "scf.condition(%false) %x : KIND", "} do {", "^bb0(%y: KIND):",
         "scf.yield %y : KIND", "}"],
        ["%s = scf.while (%x = %u) : (KIND) -> KIND {",
         "%q = memref.subview %x[8] [8] [1] : KIND to PART", "func.call @vexp_1d_float(%q) : (PART) -> ()",
         "scf.condition(%false) %w : KIND", "} do {", "^bb0(%y: KIND):", "scf.yield %y : KIND", "}"],
    ],
)  # fmt: skip
def test_an_unknown_buffer_on_one_of_several_ways_is_no_crash(ways: list[str]) -> None:
    kind, part = typed("64", space=UB), typed("8", strides="1", space=UB)
    lines = [
        f"%u = memref.alloc() : {kind}", *buffer("w", 0, kind), "%z = arith.constant 0 : index",
        "%o = arith.constant 1 : index", "%zero = arith.constant 0 : i32", "%false = arith.constant false",
        "%c = arith.cmpi eq, %gx, %zero : i32",
        *(line.replace("KIND", kind).replace("PART", part) for line in ways),
        f"%v = memref.subview %s[8] [8] [1] : {kind} to {part}", call("vexp_1d_float", ("%v", part)),
    ]  # fmt: skip
    try:
        found = model(vector(*lines), launch(), COSTS)
    except KgenError:  # it may as well refuse
        return
    assert found.us is None
    assert found.unknown["memref.alloc"] == 1


@pytest.mark.parametrize("name", ["mma_tile_bfloat16_t_to_float", "batch_mma_tile_half_to_float"])
def test_a_product_of_another_form_is_unknown(name: str) -> None:
    a, c = typed("1x1x16x16", "bf16", space=L1), typed("1x1x16x16", "f32", space=CC)
    lines = [*buffer("a", 0, a), *buffer("c", 0, c), call(name, ("%a", a), ("%a", a), ("%c", c))]
    found = model(cube(*lines), launch(), COSTS)
    assert found.us is None
    assert sum(found.unknown.values()) == 1


def test_a_move_with_too_few_operands_is_unknown() -> None:
    found = model(vector(call("load_gm_to_ubuf_1d_float", ("%gx", "i32"))), launch(), COSTS)
    assert found.us is None


@pytest.mark.parametrize("what", ["hivm.hir.pipe_barrier[<PIPE_MTE9>]",
                                  "hivm.hir.set_flag[<PIPE_MTE9>, <PIPE_V>, <EVENT_ID0>]"])  # fmt: skip
def test_a_pipe_that_nobody_knows_is_an_error_for_people(what: str) -> None:
    with pytest.raises(KgenError):
        model(vector(what), launch(), COSTS)


@pytest.mark.parametrize(
    "lines",
    [
        ["%q = arith.divsi %gx, %n : i32"],
        ["%q = arith.remsi %gx, %n : i32"],
        ["%c0 = arith.constant 0 : i32", "scf.for %i = %c0 to %gx step %n : i32 {", "}"],
    ],
)
def test_a_zero_that_a_launch_may_not_have_is_an_error_for_people(lines: list[str]) -> None:
    with pytest.raises(KgenError) as caught:
        model(vector(*lines, arguments=f"%n: i32, {GRID}"), launch(0), COSTS)
    assert caught.value.code == "launch-arguments"
    assert model(vector(*lines, arguments=f"%n: i32, {GRID}"), launch(1), COSTS).us is not None


def test_unmatched_flags_are_told() -> None:
    found = model(vector("hivm.hir.wait_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]"), launch(), COSTS)
    assert found.warnings == ("unmatched flags: 1 waits for a flag that nothing had set",)


# ------------------------------------------------------------ constants


def test_a_recording_does_not_depend_on_times() -> None:
    module, data = vector(*COPY, arguments=COPY_ARGUMENTS), copies(6)
    recording = record(module, data, COSTS)
    for name in Costs.constants():
        other = record(module, data, COSTS.scaled(name, 3))
        assert other.table.events == recording.table.events
        assert (other.classes, other.blocks) == (recording.classes, recording.blocks)
        costs = COSTS.scaled(name, 3)
        assert evaluate(recording, costs) == model(module, data, costs)


@pytest.mark.parametrize("factor", [0.01, 0.5, 2.0])
def test_every_constant_can_be_scaled_and_only_it_changes(factor: float) -> None:
    assert set(Costs.constants()) < {field.name for field in fields(Costs)}
    assert "queue_depth" in Costs.constants()
    for name in Costs.constants():
        scaled = REAL.scaled(name, factor)
        changed = {f.name for f in fields(Costs) if getattr(scaled, f.name) != getattr(REAL, f.name)}
        assert changed == {name}
        value = getattr(scaled, name)
        if name == "queue_depth":
            assert type(value) is int
            assert value == max(1, round(32 * factor))
        else:
            assert value == pytest.approx(getattr(REAL, name) * factor)
        assert model(vector(*COPY, arguments=COPY_ARGUMENTS), copies(6), scaled).us is not None


@pytest.mark.parametrize("name", sorted(target_names(TARGETS)))
def test_costs_of_each_target(name: str) -> None:
    target = load_target(name)
    if target.family == "cuda":
        with pytest.raises(KgenError) as caught:
            Costs.of(target)
        assert caught.value.code == "target-cost"
        assert name in caught.value.message
        return
    costs = Costs.of(target)
    for field in fields(Costs):
        value = getattr(costs, field.name)
        if field.name == "borrowed_by":
            continue
        assert isinstance(value, int | float)
        assert value > 0
        assert math.isfinite(value)
    assert isinstance(costs.queue_depth, int)
    assert costs.cube_cores == target.cores.cube.value
    assert costs.l0a_bytes == target.memory.l0a_bytes.value
    found = model(vector(*COPY, arguments=COPY_ARGUMENTS), copies(6), costs)
    assert found.us is not None
    assert any("every cost constant" in w for w in found.warnings) == (name != "Ascend910B2")


# ------------------------------------------------------------ telling it


def located() -> Timeline:
    lines = [line + " loc(#loc3)" if line.startswith("func.call") else line for line in COPY]
    text = function("k", "AIV", lines, COPY_ARGUMENTS)
    text += '\n#loc1 = loc("/x/helpers.py":28:0)\n#loc2 = loc("/x/kernels.py":212:4)\n'
    text += "#loc3 = loc(callsite(#loc1 at #loc2))\n"
    return model(parse_module(text), copies(6), COSTS)


def test_costs_stand_at_their_place_in_the_source() -> None:
    found = located()
    assert {line.place for line in found.costs if line.label.startswith(("load", "store"))} == {
        Place("kernels.py", 212, 28)
    }
    assert {line.ir_line for line in found.costs if line.label.startswith("load")} == {10}
    text = "\n".join(timeline_text(found))
    assert "kernels.py:212 (28)" in text
    assert "modelled" in text
    assert "warning: grid over the cores: 6 blocks on 4 cores" in text
    assert "IR line" in text  # the barrier, which has no location


def test_a_trace_file_holds_what_the_pipes_did() -> None:
    recording = record(vector(*COPY, arguments=COPY_ARGUMENTS), copies(2), COSTS)
    made = json.loads(json.dumps(trace_events(recording, COSTS, "copy", 1)))
    spans = [e for e in made["traceEvents"] if e["ph"] == "X"]
    scalar = sum(e["dur"] for e in spans if e["tid"] == 0)
    (use,) = evaluate(recording, COSTS).uses
    whole = evaluate(recording, COSTS).core_us
    assert scalar == pytest.approx(use.busy["S"] * whole, rel=1e-3)
    moves = [e for e in spans if e["tid"] != 0]
    assert [(e["name"], e["tid"]) for e in moves] == [("load_gm_to_ubuf_1d_float", 4), ("store_ubuf_to_gm_1d_float", 5)]
    first, second = moves
    begin = (query_cycles() + 2 + 30) / 1e3
    assert (first["ts"], first["dur"]) == (pytest.approx(begin), pytest.approx(0.084))
    assert second["ts"] == pytest.approx(begin + 0.084 + 0.3 + 0.02)
    assert made["otherData"]["left_out_intervals"] == 0
    assert "complete_until_us" not in made["otherData"]
    threads = {e["args"]["name"] for e in made["traceEvents"] if e["name"] == "thread_name"}
    assert threads == {"S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX"}


def test_a_trace_file_that_is_full_leaves_out_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = record(vector(*COPY, arguments=COPY_ARGUMENTS), copies(2), COSTS)
    whole = [e for e in trace_events(recording, COSTS, "copy")["traceEvents"] if e["ph"] == "X"]
    assert [e["ts"] for e in whole] == sorted(e["ts"] for e in whole)
    monkeypatch.setattr(trace_file, "LIMIT", len(whole) - 1)
    made = trace_events(recording, COSTS, "copy")
    assert [e for e in made["traceEvents"] if e["ph"] == "X"] == whole[:-1]
    assert made["otherData"]["left_out_intervals"] == 1
    assert made["otherData"]["complete_until_us"] == whole[-1]["ts"]


def test_shares_of_a_pipe_add_up_to_its_use_whatever_the_number_of_cores() -> None:
    recording = record(vector(*COPY, arguments=COPY_ARGUMENTS), copies(2), COSTS)
    twice = replace(recording, kinds=("aiv", "aiv"), classes=tuple((t, t) for (t,) in recording.classes))
    for each in (recording, twice):
        found = evaluate(each, COSTS)
        for pipe, share in found.uses[0].busy.items():
            assert sum(c.share for c in found.costs if c.pipe == pipe) == pytest.approx(share)
    assert {c.count for c in evaluate(twice, COSTS).costs} == {2 * c.count for c in evaluate(recording, COSTS).costs}


def test_one_block_can_be_recorded_alone() -> None:
    data = launch(Buffer("p", "i32", 100, values=[0] * 99 + [5]), blocks=100)
    sampled = record(table_kernel(), data, COSTS, budget=1)
    alone = record(table_kernel(), data, COSTS, budget=1, only=98)
    whole = record(table_kernel(), data, COSTS)
    assert sampled.classes[sampled.blocks[98]] != whole.classes[whole.blocks[98]]  # its neighbour stands for it
    assert alone.classes[alone.blocks[98]] == whole.classes[whole.blocks[98]]
