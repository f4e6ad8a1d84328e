"""The memory report: what a function puts on chip, when, for how long, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgen.spec.targets import load_target
from kgen.virtual.hivm import HivmError
from kgen.virtual.memory import Buffer, FunctionMemory, Limits, MemoryReport, read_hivm
from kgen.virtual.memory.report import live_curve, live_peak
from kgen.virtual.memory.text import memory_text

UB, L1, L0C = "#hivm.address_space<ub>", "#hivm.address_space<cbuf>", "#hivm.address_space<cc>"
CHIP = Limits.of(load_target("Ascend910B2"))


def text_of(*lines: str, core: str = "AIV", mixed: bool = False, name: str = "k", arguments: str = "%arg0: i64") -> str:
    """A device function with a body."""
    part = ", hivm.part_of_mix" if mixed else ""
    header = f"func.func @{name}({arguments}) attributes {{hacc.entry, hivm.func_core_type = "
    return "\n".join([f"{header}#hivm.func_core_type<{core}>{part}}} {{", *lines, "return", "}"])


def report_of(*lines: str, core: str = "AIV", mixed: bool = False, degraded: bool = False) -> MemoryReport:
    return read_hivm(text_of(*lines, core=core, mixed=mixed), CHIP, degraded=degraded)


def function_of(*lines: str, core: str = "AIV", mixed: bool = False, degraded: bool = False) -> FunctionMemory:
    return report_of(*lines, core=core, mixed=mixed, degraded=degraded).functions[0]


def buffer(name: str, address: int, kind: str = "64xf32", space: str = UB) -> str:
    """A buffer at a constant address."""
    at = f"{name}_at"
    return f"{at} = arith.constant {address} : i64\n{name} = hivm.hir.pointer_cast({at}) : {type_(kind, space)}"


def type_(kind: str, space: str = UB) -> str:
    return f"memref<{kind}, {space}>"


def call(callee: str, *values: str, kind: str = "64xf32", space: str = UB) -> str:
    """A call of a template; the types say nothing that the report needs."""
    types = ", ".join([type_(kind, space)] * len(values))
    return f"func.call @{callee}({', '.join(values)}) : ({types}) -> ()"


def loop(variable: str, *lines: str, carried: str = "", attributes: str = "") -> str:
    """A loop from 0 to 4; needs `BOUNDS`."""
    head = f"scf.for {variable} = %zero to %four step %one{carried} {{"
    return "\n".join([head, *lines, "}" + attributes])


BOUNDS = "\n".join(f"%{n} = arith.constant {v} : index" for n, v in (("zero", 0), ("one", 1), ("four", 4)))


def life(function: FunctionMemory, name: str) -> list[str]:
    """What a buffer lives through: the callees from its first operation to its last."""
    found = next(b for b in function.buffers if b.name == name)
    if found.first is None or found.last is None:
        return []
    operations = function.operations[found.first : found.last + 1]
    return [o.callee for o in operations if type(o).__name__ == "Call"]


# ------------------------------------------------------------ sizes and addresses


def test_sizes_are_rounded_to_the_allocators_blocks_and_i1_is_packed() -> None:
    report = report_of(
        buffer("%a", 96, "3xf32"), buffer("%b", 0, "300xi1", L1), buffer("%c", 1024, "5xf32", L0C), core="AIC"
    )
    assert (report.peak("ub"), report.peak("cbuf"), report.peak("cc"), report.peak("ca")) == (128, 64, 1536, 0)
    assert [(b.space, b.bytes, b.shape, b.element) for b in report.functions[0].buffers] == [
        ("ub", 32, (3,), "f32"), ("cbuf", 64, (300,), "i1"), ("cc", 512, (5,), "f32"),
    ]  # fmt: skip


def test_blocks_and_capacities_are_the_targets() -> None:
    limits = replace(CHIP, align={"ub": 256})
    space = read_hivm(text_of(buffer("%a", 0, "3xf32")), limits).functions[0].spaces[0]
    assert (space.peak_bytes, space.capacity_bytes) == (256, 196_608)
    assert read_hivm(text_of(buffer("%a", 0, "3xf32"))).functions[0].spaces[0].capacity_bytes is None
    assert Limits.of(load_target("Ascend950PR")).capacity["ub"] == 253_952


def test_several_addresses_are_copies() -> None:
    function = function_of(
        "%p = arith.constant 0 : i64\n%q = arith.constant 512 : i64",
        f"%a = hivm.hir.pointer_cast(%p, %q) : {type_('64xf32')}",
        call("vexp_1d_float", "%a"),
    )
    assert function.peak_bytes == {"ub": 768}
    assert function.spaces[0].live_bytes == 512  # the gap between them is no one's
    assert function.buffers[0].ranges == ((0, 256), (512, 768))


def test_dynamic_sizes_are_constants() -> None:
    lines = ("%p = arith.constant 64 : i64", "%n = arith.constant 10 : index")
    function = function_of(*lines, f"%a = hivm.hir.pointer_cast(%p) [%n] : {type_('?x8xf32')}")
    assert (function.buffers[0].shape, function.peak_bytes) == ((10, 8), {"ub": 64 + 320})


def test_an_address_that_is_no_constant_is_an_error() -> None:
    with pytest.raises(HivmError, match=r"line 2: %arg0 is not a constant"):
        report_of(f"%a = hivm.hir.pointer_cast(%arg0) : {type_('8xf32')}")


def test_buffers_that_share_memory() -> None:
    function = function_of(
        buffer("%a", 0), buffer("%b", 128), buffer("%c", 256), buffer("%d", 0, space=L1), buffer("%e", 0, "0xf32")
    )
    names = {b.name: [o.name for o in function.sharing(b)] for b in function.buffers}
    assert names == {"%a": ["%b"], "%b": ["%a", "%c"], "%c": ["%b"], "%d": [], "%e": []}


# ------------------------------------------------------------ lifetimes


def test_a_buffer_lives_from_its_first_use_to_its_last() -> None:
    function = function_of(
        buffer("%a", 0), buffer("%b", 256), buffer("%idle", 4096),
        call("load_gm_to_ubuf_1d_float", "%a"), call("vexp_1d_float", "%a", "%b"),
        call("store_ubuf_to_gm_1d_float", "%b"),
    )  # fmt: skip
    assert life(function, "%a") == ["load_gm_to_ubuf_1d_float", "vexp_1d_float"]
    assert life(function, "%b") == ["vexp_1d_float", "store_ubuf_to_gm_1d_float"]
    assert life(function, "%idle") == []
    space = function.spaces[0]
    assert (space.peak_bytes, space.live_bytes) == (4096 + 256, 512)  # what nothing touches is reserved, never live
    assert (space.live_operation, [b.name for b in space.live_buffers]) == ("vexp_1d_float", ["%a", "%b"])
    assert {b.name: b.kind for b in function.buffers} == {"%a": "loaded", "%b": "stored", "%idle": "temporary"}


VIEWS = {
    "cast": f"%v = memref.cast %a : {type_('64xf32')} to memref<?xf32, strided<[?], offset: ?>, {UB}>",
    "subview": f"%v = memref.subview %a[8] [8] [1] : {type_('64xf32')} to memref<8xf32, strided<[1], offset: 8>, {UB}>",
    "expand": f"%v = memref.expand_shape %a [[0, 1]] output_shape [8, 8] : {type_('64xf32')} into {type_('8x8xf32')}",
    "collapse": f"%v = memref.collapse_shape %a [[0]] : {type_('64xf32')} into {type_('64xf32')}",
    "base": f"%v, %o, %s, %t = memref.extract_strided_metadata %a : {type_('64xf32')} -> memref<f32, {UB}>, index, "
    "index, index",
    "view": f"%v = memref.view %a[%zero][] : {type_('64xf32')} to {type_('8xf32')}",
    "reinterpret": f"%v = memref.reinterpret_cast %a to offset: [0], sizes: [8], strides: [1] : {type_('64xf32')} to "
    f"memref<8xf32, strided<[1]>, {UB}>",
    "select": f"%v = arith.select %true, %other, %a : {type_('64xf32')}",
    "if": f"%v = scf.if %true -> ({type_('64xf32')}) {{\nscf.yield %a : {type_('64xf32')}\n}} else {{\n"
    f"scf.yield %other : {type_('64xf32')}\n}}",
    "for": loop(
        "%i", f"scf.yield %x : {type_('64xf32')}", carried=f" iter_args(%x = %a) -> ({type_('64xf32')})"
    ).replace("scf.for", "%v = scf.for", 1),
    "yielded": loop(
        "%i", f"scf.yield %a : {type_('64xf32')}", carried=f" iter_args(%x = %other) -> ({type_('64xf32')})"
    ).replace("scf.for", "%v = scf.for", 1),
    "not run": loop(
        "%i", f"scf.yield %other : {type_('64xf32')}", carried=f" iter_args(%x = %a) -> ({type_('64xf32')})"
    ).replace("scf.for", "%v = scf.for", 1),
    "while": f"%v = scf.while (%x = %a) : ({type_('64xf32')}) -> {type_('64xf32')} {{\n"
    f"scf.condition(%true) %x : {type_('64xf32')}\n}} do {{\n^bb0(%y: {type_('64xf32')}):\n"
    f"scf.yield %y : {type_('64xf32')}\n}}",
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_a_use_counts_through_what_lies_in_a_buffer(view: str) -> None:
    function = function_of(
        BOUNDS, "%true = arith.constant true", buffer("%a", 0), buffer("%other", 512), call("vexp_1d_float", "%a"),
        view, call("vabs_1d_float", "%other"), call("vln_1d_float", "%v"),
    )  # fmt: skip
    assert life(function, "%a") == ["vexp_1d_float", "vabs_1d_float", "vln_1d_float"]


def test_elements_and_scalar_stores_are_uses() -> None:
    function = function_of(
        BOUNDS, "%f = arith.constant 1.0 : f32", buffer("%a", 0), buffer("%b", 256),
        f"memref.store %f, %a[%zero] : {type_('64xf32')}", call("vexp_1d_float", "%b"),
        f"%x = memref.load %a[%zero] : {type_('64xf32')}",
    )  # fmt: skip
    assert life(function, "%a") == ["vexp_1d_float"]


def test_what_is_allocated_outside_a_loop_lives_to_its_end() -> None:
    function = function_of(
        BOUNDS, buffer("%outer", 0), call("vbrc_1d_float", "%outer"),
        loop(
            "%i", buffer("%middle", 256), call("vadd_1d_float", "%outer", "%middle"),
            loop(
                "%j", buffer("%inner", 512), call("vmul_1d_float", "%middle", "%inner"),
                call("vexp_1d_float", "%inner"), call("vabs_1d_float", "%arg0"),
            ),
            call("vln_1d_float", "%arg0"),
        ),
        call("vsub_1d_float", "%arg0"),
    )  # fmt: skip
    inside = ["vmul_1d_float", "vexp_1d_float", "vabs_1d_float"]
    assert life(function, "%outer") == ["vbrc_1d_float", "vadd_1d_float", *inside, "vln_1d_float"]
    assert life(function, "%middle") == ["vadd_1d_float", *inside]  # the inner loop's end
    assert life(function, "%inner") == ["vmul_1d_float", "vexp_1d_float"]


def test_what_a_loop_hands_on_lives_through_the_hand_over() -> None:
    """A buffer that the loop's body makes and yields is read at the beginning of the next turn."""
    function = function_of(
        BOUNDS, buffer("%a", 0), call("vbrc_1d_float", "%a"),
        loop(
            "%i", buffer("%b", 256), call("vexp_1d_float", "%x"), call("vabs_1d_float", "%b"),
            call("vln_1d_float", "%arg0"),
            f"scf.yield %b : {type_('64xf32')}", carried=f" iter_args(%x = %a) -> ({type_('64xf32')})",
        ),
    )  # fmt: skip
    assert life(function, "%b") == ["vexp_1d_float", "vabs_1d_float", "vln_1d_float"]


def test_memory_that_is_merged_in_place_counts_once() -> None:
    function = function_of(
        buffer("%a", 0), buffer("%b", 0), call("vbrc_1d_float", "%a"), call("vexp_1d_float", "%a", "%b"),
        call("vabs_1d_float", "%b"),
    )  # fmt: skip
    assert (function.peak_bytes["ub"], function.spaces[0].live_bytes) == (256, 256)


def test_the_peak_says_where_it_is() -> None:
    place = '#loc1 = loc("/src/kernels.py":17:4)\n'
    lines = (
        buffer("%a", 0),
        buffer("%b", 256),
        call("vbrc_1d_float", "%a"),
        call("vadd_1d_float", "%a", "%b") + " loc(#loc1)",
    )
    space = read_hivm(place + text_of(*lines), CHIP).functions[0].spaces[0]
    assert space.live_place is not None and (space.live_place.file, space.live_place.line) == ("kernels.py", 17)
    assert (space.live_bytes, space.live_operation) == (512, "vadd_1d_float")
    assert "kernels.py:17 vadd_1d_float" in memory_text(read_hivm(place + text_of(*lines), CHIP))


# ------------------------------------------------------------ against counting byte by byte


def a_buffer(index: int, addresses: Sequence[int], size: int, life: tuple[int, int] | None) -> Buffer:
    first, last = (min(life), max(life)) if life is not None else (None, None)
    return Buffer(
        f"%{index}", "ub", tuple(addresses), size, (size,), "i8", "temporary", index, None, first, last, None, 0
    )


lives = st.one_of(st.none(), st.tuples(st.integers(0, 20), st.integers(0, 20)))
some_buffers = st.lists(
    st.tuples(st.lists(st.integers(0, 60), min_size=1, max_size=2), st.integers(0, 20), lives), max_size=12
).map(lambda rows: [a_buffer(i, *row) for i, row in enumerate(rows)])


def held(buffers: Sequence[Buffer], position: int) -> int:
    """Bytes that hold something at a position, one by one."""
    return len({
        byte
        for b in buffers
        if b.first is not None and b.last is not None and b.first <= position <= b.last
        for address in b.addresses
        for byte in range(address, address + b.bytes)
    })  # fmt: skip


@given(some_buffers)
def test_live_bytes_are_what_counting_finds(buffers: list[Buffer]) -> None:
    counted = [held(buffers, position) for position in range(22)]
    most, where = live_peak(buffers)
    assert most == max(counted)
    assert where == (counted.index(most) if most else None)
    assert most <= max((b.end for b in buffers), default=0)
    curve = dict(live_curve(buffers))
    size = 0
    for position in range(22):
        size = curve.get(position, size)
        assert size == counted[position]
