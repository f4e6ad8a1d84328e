"""The interpret level: Triton kernels on the CPU through the upstream interpreter, with its bfloat16 replaced.

    from kgen.verify import interpreter
    interpreter.activate()          # before anything imports triton
    from generated.gdn import kernels

What the stock interpreter (triton 3.7.1) gets wrong and `activate` replaces (tests/numerics/test_interpreter*.py):

- a dot of bf16 operands multiplies their bit patterns as integers; here operands are widened and summed in fp32;
- casts from fp32 to bf16 truncate, and integers, fp64 and constants become the bits of a wrong number; here all round
  to nearest even, and NaN stays NaN;
- other bf16 arithmetic works on bit patterns; here it is refused by name, since on the NPU it must be explicit fp32;
- `input_precision="tf32"`, the default, is ignored for fp32 dots; here operands are rounded to TF32, so that a kernel
  that needs `"ieee"` and forgets it fails its tolerance;
- comparisons label their result with the operands' type, so that `(a < b).to(tl.bfloat16)` reads a bool as fp32 bits;
- `padding_option="nan"` can't be stored in bf16; `tl.minimum` and `tl.maximum` propagate NaN whatever they are told;
- tiles must have powers of two as sizes: so on CUDA, not on Ascend (triton-ascend 3.2.0 checks only `tl.arange`);
- names of the interpreter's own module (`np`, `math`, `T`, ...) leak into the kernel's and hide undefined names;
- errors lose their type and place; here they propagate as they were raised.

It is also faster: upstream re-patches `triton.language` on every call of a device function (`tl.zeros`, `tl.sum`, ...).
"""

from __future__ import annotations

import functools
import importlib
import os
import sys

from kgen.errors import KgenError

SUPPORTED_TRITON = "3.7"


@functools.cache
def activate() -> None:
    """Make `@triton.jit` functions imported from now on run on the CPU with Ascend's bf16 semantics. Idempotent.

    Must come before the first import of triton, which decides between compiling and interpreting while it is imported.
    """
    loaded_before = "triton" in sys.modules
    os.environ["TRITON_INTERPRET"] = "1"
    _check_triton(loaded_before)
    importlib.import_module("kgen.verify.interpreter_builder").install()
    importlib.import_module("kgen.verify.interpreter_language").install()


def is_active() -> bool:
    """Whether this process interprets with the replaced semantics."""
    return activate.cache_info().currsize > 0


def _check_triton(loaded_before: bool) -> None:
    """Refuse a missing triton, one of another version, and one imported in compiled mode."""
    try:
        triton = importlib.import_module("triton")
        stock = importlib.import_module("triton.runtime.interpreter")
        language = importlib.import_module("triton.language")
    except ImportError as error:
        raise KgenError(
            f"the interpret level needs triton: {error}",
            code="interpreter-no-triton",
            hint="install the extra `test`: pip install 'kgen[test]'",
        ) from error
    version = str(getattr(triton, "__version__", "unknown"))
    if not version.startswith(SUPPORTED_TRITON + "."):
        raise KgenError(
            f"the interpreter is written against triton {SUPPORTED_TRITON}, found {version}",
            code="interpreter-triton-version",
            hint="install the extra `test`, which pins triton",
        )
    if loaded_before and not isinstance(language.zeros, stock.InterpretedFunction):
        raise KgenError(
            "triton was imported in compiled mode before the interpreter was activated",
            code="interpreter-too-late",
            hint="call kgen.verify.interpreter.activate() first, or set TRITON_INTERPRET=1 for the whole process",
        )
