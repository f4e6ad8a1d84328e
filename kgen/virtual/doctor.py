"""What this machine has of what kgen needs, as rows that `kgen doctor` prints."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kgen.errors import KgenBug, KgenError
from kgen.virtual.compile import Compiler, CompileRequest
from kgen.virtual.toolchain import Toolchain, find_toolchain

_FIX = "run `kgen doctor --fix`"
_TRIAL_LIMIT_S = 120.0
_TRIAL_BYTES = 4 * 1024
_TRIAL_KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def copy(x, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i))
"""


@dataclass(frozen=True)
class Check:
    """One row. A part that is only needed elsewhere (torch, an NPU) is ok when absent; `detail` says so."""

    name: str
    ok: bool
    detail: str
    hint: str = ""


def doctor(toolchain: str = "auto", *, environ: Mapping[str, str] | None = None) -> list[Check]:
    """Check the interpreter, the tool chain (with a real compile) and what the current environment has."""
    variables = os.environ if environ is None else environ
    return [_python(), *_toolchain_checks(toolchain, variables), *_current_packages(), _npu()]


def _python() -> Check:
    """kgen's own interpreter."""
    ok = sys.version_info >= (3, 10)
    return Check("python", ok, platform.python_version(), "" if ok else "kgen needs Python 3.10 or later")


def _toolchain_checks(toolchain: str, variables: Mapping[str, str]) -> list[Check]:
    """Environment, versions, executables, and a trial compile for each family."""
    try:
        found = find_toolchain(toolchain, environ=variables)
    except KgenError as error:
        return [Check("tool chain", False, error.message, error.hint)]
    named = {"setting": "set by hand", "own": "kgen's own", "cann": "CANN"}[found.source]
    rows = [Check("tool chain", True, f"{found.python} ({named})"), _versions(found)]
    for compiler in (found.bishengir, found.bishengir_a5):
        if compiler is not None:
            ok = os.access(compiler, os.X_OK)
            rows.append(Check(compiler.name, ok, "executable" if ok else "not executable", "" if ok else _FIX))
    if found.bishengir_a5 is None:
        rows.append(Check("bishengir-compile-a5", True, "absent; needed only for the 950 family"))
    targets = ["Ascend910B2"] + (["Ascend950PR_9589"] if found.bishengir_a5 else [])
    return rows + [_trial(found, target) for target in targets]


def _versions(found: Toolchain) -> Check:
    """Versions against the pinned ones; others work, but recorded verdicts may not hold for them."""
    listed = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    wrong = found.mismatches()
    return Check("versions", not wrong, "; ".join(wrong) or listed, f"{_FIX} to get the pinned ones" if wrong else "")


def _trial(found: Toolchain, target: str) -> Check:
    """Compile a copy of 4 KiB up to the stand-in `hivmc`, and read its memory back."""
    name = f"compile for {target}"
    with tempfile.TemporaryDirectory(prefix="kgen-doctor-") as folder:
        source = Path(folder) / "trial.py"
        source.write_text(_TRIAL_KERNEL, encoding="utf-8")
        request = CompileRequest(source, "copy", {"x": "*fp32", "y": "*fp32"}, {"BLOCK": _TRIAL_BYTES // 4}, target)
        try:
            with Compiler(found, jobs=1, timeout_s=_TRIAL_LIMIT_S) as compiler:
                result = compiler.compile(request)
        except KgenError as error:
            return Check(name, False, error.message, error.hint)
        except KgenBug as error:
            return Check(name, False, f"the compiler's output is not understood: {error}", f"{_FIX}, or report it")
    if result.verdict == "fits" and result.ub_bytes == _TRIAL_BYTES:
        return Check(name, True, f"a trial kernel compiles in {result.seconds:.1f} s")
    found_bytes = f"{result.verdict}, {result.ub_bytes} bytes of UB in place of {_TRIAL_BYTES}"
    return Check(
        name, False, result.message or found_bytes, f"{_FIX}; if it stays, report it with `kgen doctor --json`"
    )


def _current_packages() -> list[Check]:
    """torch and triton beside kgen, by metadata only: importing them takes seconds and may touch a device."""
    rows = []
    for package in ("torch", "triton", "triton-ascend"):
        version = _version(package)
        rows.append(Check(package, True, version or "not installed here; not needed to build"))
    if _version("triton") and _version("triton-ascend"):
        rows[-1] = Check(
            "triton-ascend",
            False,
            "installed together with triton, and each overwrites the other's files",
            "keep them in separate environments; kgen's tool chain is one of its own",
        )
    return rows


def _version(package: str) -> str | None:
    """Installed version in this environment."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _npu() -> Check:
    """Whether generated kernels could run on an NPU from this environment."""
    present = importlib.util.find_spec("torch_npu") is not None
    return Check(
        "npu", True, "torch_npu is installed" if present else "no torch_npu here; needed only to run on an NPU"
    )
