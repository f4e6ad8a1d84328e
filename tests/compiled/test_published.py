"""The timeline against published measurements on a 910B, with fla-core's own kernels as input (ASCEND.md, section 4).

Every modelled time lies within 0.6 to 1.2 of the measured one, and every pair is in the measured order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from kgen.search.bench import captured_launch
from kgen.spec.targets import load_target
from kgen.virtual import Compiler, LinalgRequest, Toolchain
from kgen.virtual.hivm import parse_module
from kgen.virtual.launch_options import compiler_flags
from kgen.virtual.peers import Capture, CapturedLaunch, device_of
from kgen.virtual.timeline import Costs, Timeline, model

CONV = {"B": 1, "T": 8192, "D": 4096, "W": 4}
STATE = {"B": 8, "T": 2048, "H": 32}
# name, arguments, which of the captured launches, measured us
CASES: dict[str, tuple[str, dict[str, Any], int, float]] = {
    "conv fwd": ("causal_conv1d", {**CONV, "direction": "fwd"}, 0, 350),
    "conv bwd, one launch": ("causal_conv1d", {**CONV, "direction": "bwd", "one_launch": True}, 1, 916),
    "conv bwd, bulk": ("causal_conv1d", {**CONV, "direction": "bwd"}, 1, 759),
    "conv bwd, tail": ("causal_conv1d", {**CONV, "direction": "bwd"}, 2, 23),
    "state bwd D256 BV64": ("chunk_gated_delta_rule_bwd_dhu", {**STATE, "D": 256, "BV": 64}, 0, 15500),
    "state bwd D256 BV128": ("chunk_gated_delta_rule_bwd_dhu", {**STATE, "D": 256, "BV": 128}, 0, 11400),
    "state bwd D128 BV64": ("chunk_gated_delta_rule_bwd_dhu", {**STATE, "D": 128, "BV": 64}, 0, 6200),
    "state bwd D128 BV128": ("chunk_gated_delta_rule_bwd_dhu", {**STATE, "D": 128, "BV": 128}, 0, 3300),
}


@pytest.fixture(scope="module")
def compiler(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    with Compiler(toolchain, jobs=1, cache_dir=tmp_path_factory.mktemp("cache")) as found:
        yield found


def modelled(compiler: Compiler, launch: CapturedLaunch) -> Timeline:
    assert launch.linalg is not None, launch.lower_error
    request = LinalgRequest(launch.kernel, launch.linalg, "Ascend910B2", compiler_flags(launch.options))
    result = compiler.compile(request, keep_ir=True)
    assert result.final_ir is not None, result.message
    return model(parse_module(result.final_ir), captured_launch(launch), Costs.of(load_target("Ascend910B2")))


@pytest.mark.toolchain
@pytest.mark.slow
def test_published_measurements(capture: Capture, compiler: Compiler) -> None:
    times: dict[str, float] = {}
    for case, (name, arguments, number, _) in CASES.items():
        captured = capture.ask(
            {"subject": "call", "name": name, "arguments": arguments, **device_of(load_target("Ascend910B2"))}
        )
        timeline = modelled(compiler, captured.launches[number])
        assert timeline.us is not None and not timeline.unknown
        times[case] = timeline.us
    measured = {case: entry[3] for case, entry in CASES.items()}
    ratios = {case: times[case] / measured[case] for case in CASES}
    print({case: (round(times[case], 1), round(ratio, 2)) for case, ratio in ratios.items()})
    assert all(0.6 <= ratio <= 1.2 for ratio in ratios.values()), ratios
    for a, b in itertools.combinations(CASES, 2):
        assert (times[a] < times[b]) == (measured[a] < measured[b]), (a, times[a], b, times[b])
