"""How many of the template forms in fla-core's kernels the virtual machine knows, and which it doesn't.

    python benchmarks/coverage.py [--out benchmarks/results/coverage.json]

Captures the launches of fla-core 0.6.0's gated delta rule, convolution, norms and KDA (needs `kgen doctor --fix
--peers`), compiles each distinct kernel for an Ascend 910B2, and looks at every call in the final IR. Exits 1 below
99 %.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from kgen.spec.targets import load_target
from kgen.storage import home_folder
from kgen.virtual import Compiler, LinalgRequest, find_toolchain
from kgen.virtual.coverage import forms
from kgen.virtual.hivm import Module, parse_module
from kgen.virtual.launch_options import compiler_flags
from kgen.virtual.peers import Capture, device_of
from kgen.virtual.timeline import Costs

TARGET = "Ascend910B2"
DTYPES = ("bf16", "fp16", "fp32")
LENGTHS = [100, 256, 156]


def requests() -> list[tuple[str, dict[str, Any]]]:
    """Family and request of every call that is captured."""
    out: list[tuple[str, dict[str, Any]]] = []
    for width, heads, values in ((64, 16, 32), (128, 16, 16), (256, 8, 16)):
        for lengths in (None, LENGTHS):
            shape = {"B": 1, "T": 512, "H": heads, "HV": values, "K": width, "V": width}
            for dtype in DTYPES if width == 128 else ("bf16",):
                asked = {
                    "subject": "fla", "operator": "chunk_gated_delta_rule", "shape": shape, "lengths": lengths,
                    "dtype": dtype, "direction": "fwd+bwd", "initial_state": True, "final_state": True,
                }  # fmt: skip
                out.append(("gdn", asked))
                out.append(("kda", call("kda", **shape, lengths=lengths, dtype=dtype)))
    for width in (1024, 4096):
        for dtype in DTYPES:
            out.append(("conv", call("causal_conv1d", B=1, T=2048, D=width, W=4, direction="bwd", dtype=dtype)))
    for kind in ("l2norm", "rms_norm", "layer_norm"):
        for width in (128, 512, 1024):
            out += [("norm", call("norm", T=1024, D=width, kind=kind, dtype=dtype)) for dtype in DTYPES]
    return out


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """A request for one function."""
    return {"subject": "call", "name": name, "arguments": arguments}


def main() -> int:
    """Captures, compiles, counts and writes the record."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/coverage.json"))
    args = parser.parse_args()
    target = load_target(TARGET)
    costs = Costs.of(target)
    modules: dict[str, list[Module]] = {}
    failed: list[str] = []
    with Capture() as capture, Compiler(find_toolchain(), cache_dir=home_folder() / "compiled") as compiler:
        for family, request in requests():
            launches = capture.ask({**request, **device_of(target)}).launches
            asked = {
                (launch.linalg, compiler_flags(launch.options)): launch for launch in launches if launch.linalg
            }  # fmt: skip
            compiles = [LinalgRequest(x.kernel, text, TARGET, flags) for (text, flags), x in asked.items()]
            for compiled, result in zip(compiles, compiler.compile_many(compiles, keep_ir=True), strict=True):
                if result.final_ir is None:
                    failed.append(f"{family} {compiled.function}: {result.verdict}")
                else:
                    modules.setdefault(family, []).append(parse_module(result.final_ir))
    found = forms([m for each in modules.values() for m in each], costs)
    unknown = {f.name: f.count for f in found if not (f.executable and f.priced)}
    share = 1 - len(unknown) / len(found)
    record = {
        "kernels": {family: len(each) for family, each in modules.items()},
        "not_compiled": sorted(set(failed)),
        "forms": len(found),
        "known": len(found) - len(unknown),
        "share": round(share, 4),
        "unknown": unknown,
    }
    args.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record, indent=1))
    return 0 if share >= 0.99 else 1


if __name__ == "__main__":
    sys.exit(main())
