"""How much of fla-core's kernels the virtual machine knows: the count itself, and what the record says of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kgen.spec.targets import load_target
from kgen.virtual import Compiler, LinalgRequest, Toolchain
from kgen.virtual.coverage import forms
from kgen.virtual.hivm import parse_module
from kgen.virtual.launch_options import compiler_flags
from kgen.virtual.peers import Capture, device_of
from kgen.virtual.timeline import Costs

RECORD = Path(__file__).parents[2] / "benchmarks" / "results" / "coverage.json"
COSTS = Costs.of(load_target("Ascend910B2"))
TEXT = """
module {{
  func.func private @{name}(memref<16xf32, #hivm.address_space<ub>>, memref<16xf32, #hivm.address_space<ub>>)
  func.func @kernel() attributes {{hivm.func_core_type = #hivm.func_core_type<AIV>}} {{
    %c0 = arith.constant 0 : i64
    %a = hivm.hir.pointer_cast(%c0) : memref<16xf32, #hivm.address_space<ub>>
    call @{name}(%a, %a) : (memref<16xf32, #hivm.address_space<ub>>, memref<16xf32, #hivm.address_space<ub>>) -> ()
    {operation}
    return
  }}
}}
"""


@pytest.mark.parametrize(
    ("name", "operation", "known"),
    [
        ("vexp_1d_float", "", [True]),
        ("not_a_template_1d_float", "", [False]),
        ("vexp_1d_float", '"hivm.not_an_operation"() : () -> ()', [False, True]),
    ],
)
def test_what_is_not_known_is_counted(name: str, operation: str, known: list[bool]) -> None:
    found = forms([parse_module(TEXT.format(name=name, operation=operation))], COSTS)
    assert sorted(f.executable and f.priced for f in found) == known


def test_the_record() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    assert set(record["kernels"]) == {"gdn", "kda", "conv", "norm"}
    assert all(count > 0 for count in record["kernels"].values())
    assert record["known"] == record["forms"] - len(record["unknown"])
    assert record["known"] >= 0.99 * record["forms"]


@pytest.mark.toolchain
@pytest.mark.slow
def test_forms_of_two_families(capture: Capture, toolchain: Toolchain, tmp_path: Path) -> None:
    target = load_target("Ascend910B2")
    asked = [
        ("causal_conv1d", {"B": 1, "T": 2048, "D": 1024, "W": 4, "direction": "bwd", "dtype": "fp32"}),
        ("norm", {"T": 1024, "D": 512, "kind": "layer_norm", "dtype": "bf16"}),
    ]
    modules = []
    with Compiler(toolchain, jobs=1, cache_dir=tmp_path) as compiler:
        for name, arguments in asked:
            request = {"subject": "call", "name": name, "arguments": arguments, **device_of(target)}
            for launch in capture.ask(request).launches:
                assert launch.linalg is not None, launch.lower_error
                flags = compiler_flags(launch.options)
                compiled = LinalgRequest(launch.kernel, launch.linalg, target.name, flags)
                result = compiler.compile(compiled, keep_ir=True)
                assert result.final_ir is not None, result.message
                modules.append(parse_module(result.final_ir))
    found = forms(modules, COSTS)
    assert len(found) > 10
    assert [f.name for f in found if not (f.executable and f.priced)] == []
