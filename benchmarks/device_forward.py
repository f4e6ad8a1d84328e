"""The generated forward on a CUDA GPU: the cases of the interpret level, on the device, against the fp64 recurrence.

    PYTHONPATH=. python benchmarks/device_forward.py

Run from the repository's root with torch and a triton that compiles for the device. Tiles are those of the plan's
`cuda_sm90` entries: a GPU is an oracle for the emitted source here, not what kgen plans for. A case that the plan has
no tile for is said to be out of range, which is no failure; a wrong number is. Exits 1 on one.
"""

from __future__ import annotations

import inspect
import sys
import time
import warnings

import torch
import triton

import generated.gdn as package
from kgen.verify.cases import gdn_cases, make_inputs, widened
from kgen.verify.error_metric import rel_rms
from kgen.verify.references.gdn import recurrent_gated_delta_rule

TOLERANCE = {torch.bfloat16: 0.005, torch.float16: 0.002, torch.float32: 1e-5}
OUT_OF_RANGE = ("no tile of", "OutOfResources")


def main() -> int:
    """Prints a line a case and a summary."""
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}")
    warnings.simplefilter("ignore")
    takes = inspect.signature(recurrent_gated_delta_rule).parameters
    counts = {"passed": 0, "failed": 0, "out of range": 0}
    worst: dict[str, float] = {}
    start = time.perf_counter()
    for case in gdn_cases():
        inputs = make_inputs(case)
        moved = {n: v.cuda() if isinstance(v, torch.Tensor) else v for n, v in inputs.items()}
        flags = {"state_v_first": case.state_v_first}
        try:
            o, state = package.chunk_gated_delta_rule(
                **moved, **flags, chunk_size=case.chunk_size, output_final_state=case.final_state
            )
        except Exception as error:
            known = any(text in f"{type(error).__name__} {error}" for text in OUT_OF_RANGE)
            counts["out of range" if known else "failed"] += 1
            print(
                f"{'range' if known else 'FAIL '} {case.name}: {type(error).__name__}: {str(error)[:120]}", flush=True
            )
            continue
        given = {n: v for n, v in widened(inputs).items() if n in takes}
        want_o, want_state = recurrent_gated_delta_rule(**given, **flags)  # type: ignore[arg-type]
        errors = [rel_rms(o.cpu(), want_o), *([rel_rms(state.cpu(), want_state)] if state is not None else [])]
        good = max(errors) <= TOLERANCE[o.dtype]
        counts["passed" if good else "failed"] += 1
        worst[case.dtype] = max(worst.get(case.dtype, 0.0), *errors)
        print(f"{'ok   ' if good else 'FAIL '} {case.name}: {max(errors):.1e}", flush=True)
    print(f"worst relative rms: {', '.join(f'{d} {e:.1e}' for d, e in sorted(worst.items()))}")
    print(f"{', '.join(f'{n} {what}' for what, n in counts.items())}, {time.perf_counter() - start:.0f} s")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
