"""Small kernels through the real compiler: verdicts, memory reports, the cache, and what a launch would pass."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kgen.errors import KgenError
from kgen.virtual import Compiler, CompileRequest, Toolchain, doctor, find_toolchain, read_hivm
from kgen.virtual.compile import compiler_options
from kgen.virtual.frontend import FrontEnd
from kgen.virtual.process import Limit

A2, A3, A5 = "Ascend910B2", "Ascend910_9391", "Ascend950PR_9589"
KIB = 1024

KERNELS = """\
import triton
import triton.language as tl


@triton.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.store(y + i, tl.load(x + i, mask=m, other=0.0), mask=m)


@triton.jit(do_not_specialize=["n"])
def loop(x, y, z, n, BLOCK: tl.constexpr):
    for r in range(0, n):
        i = (tl.program_id(0) * n + r) * BLOCK + tl.arange(0, BLOCK)
        a = tl.load(x + i)
        b = tl.load(y + i)
        tl.store(z + i, a * b + tl.exp(a))


@triton.jit
def matmul(a, b, c, bias, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, EXP: tl.constexpr = False):
    pa = tl.make_block_ptr(a, (M, K), (K, 1), (0, 0), (M, K), (1, 0))
    pb = tl.make_block_ptr(b, (K, N), (N, 1), (0, 0), (K, N), (1, 0))
    acc = tl.dot(tl.load(pa), tl.load(pb))
    if EXP:
        acc = tl.exp(acc)
    pc = tl.make_block_ptr(c, (M, N), (N, 1), (0, 0), (M, N), (1, 0))
    if bias is not None:
        acc += tl.load(pc)
    tl.store(pc, acc)


@triton.jit
def inner(x):
    return x + undefined_name


@triton.jit
def wrong(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, inner(i))


@triton.jit
def hoisted(a, b, c, T):
    p = tl.make_block_ptr(a, (64, 64), (64, 1), (0, 0), (64, 64), (1, 0))
    q = tl.make_block_ptr(b, (64, 64), (64, 1), (0, 0), (64, 64), (1, 0))
    acc = tl.dot(tl.load(p), tl.load(q))
    for t in range(T):
        sum = acc + tl.dot(tl.load(p), tl.load(q))
        tl.store(tl.make_block_ptr(c, (64, 64), (64, 1), (t * 64, 0), (64, 64), (1, 0)), sum)
"""
COPY = {"x": "*fp32", "y": "*fp32", "n": "i32"}
LOOP = {"x": "*fp32", "y": "*fp32", "z": "*fp32", "n": "i32"}
MATMUL = {"a": "*bf16", "b": "*bf16", "c": "*fp32"}


@pytest.fixture(scope="module")
def compiler(toolchain: Toolchain) -> Iterator[Compiler]:
    """One compiler without a cache for all tests of this file."""
    with Compiler(toolchain, jobs=2) as compiler:
        yield compiler


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernels above as a module."""
    path = tmp_path_factory.mktemp("kernels") / "kernels.py"
    path.write_text(KERNELS, encoding="utf-8")
    return path


def copy_of(kernels: Path, elements: int, target: str = A2) -> CompileRequest:
    """A masked copy of one block of fp32 elements."""
    return CompileRequest(kernels, "copy", COPY, {"BLOCK": elements}, target)


def matmul_of(
    kernels: Path, target: str, m: int = 64, n: int = 64, k: int = 64, **flags: bool | None
) -> CompileRequest:
    """A bf16 matmul of one tile without a bias, unless `bias` is typed by the caller."""
    constants: dict[str, int | float | bool | None] = {"M": m, "N": n, "K": k, "bias": None, **flags}
    return CompileRequest(kernels, "matmul", MATMUL, constants, target)


@pytest.mark.toolchain
@pytest.mark.parametrize("target", [A2, A3, A5])
def test_block_that_fits_is_reported_to_the_byte(compiler: Compiler, kernels: Path, target: str) -> None:
    result = compiler.compile(copy_of(kernels, 32768, target))
    assert (result.verdict, result.message) == ("fits", "")
    assert (result.ub_bytes, result.l1_bytes, result.l0c_bytes) == (128 * KIB, 0, 0)
    assert (result.calls["mte2"], result.calls["mte3"], result.calls["mma"]) == (1, 1, 0)
    assert result.idle_vector_core is None
    assert result.final_ir is None
    assert result.toolchain["triton-ascend"] and result.toolchain["ascendnpu-ir"] and result.toolchain["python"]


@pytest.mark.toolchain
@pytest.mark.parametrize("target, available", [(A2, 192 * KIB), (A3, 192 * KIB), (A5, 248 * KIB)])
def test_reported_case_masked_copy_overflow(compiler: Compiler, kernels: Path, target: str, available: int) -> None:
    result = compiler.compile(copy_of(kernels, 65536, target))
    assert result.verdict == "overflows"
    assert result.required_bytes == 2097152 // 8
    place = "" if target == A5 else ", kernels.py:9"  # the compiler for the 950 keeps no lines there
    tile = f"largest tiles: 65536xf32 (262144 bytes{place})"
    assert result.message == f"UB overflow: needs 262144 bytes, {available} available; {tile}"
    assert "requires 2097152 bits" in result.detail
    assert result.ub_bytes is None


@pytest.mark.toolchain
@pytest.mark.parametrize("target", [A2, A3])
def test_lost_double_buffering_is_degraded(compiler: Compiler, kernels: Path, target: str) -> None:
    whole = compiler.compile(CompileRequest(kernels, "loop", LOOP, {"BLOCK": 4096}, target))
    assert (whole.verdict, whole.ub_bytes) == ("fits", 6 * 16 * KIB)  # three buffers of 16 KiB, each twice
    result = compiler.compile(CompileRequest(kernels, "loop", LOOP, {"BLOCK": 16384}, target))
    assert (result.verdict, result.ub_bytes) == ("degraded", 2 * 64 * KIB)
    assert "enable-auto-multi-buffer to false" in result.message


@pytest.mark.toolchain
@pytest.mark.parametrize("m, k, space", [(256, 64, "L0C"), (128, 2048, "L1")])
def test_overflow_names_the_space(compiler: Compiler, kernels: Path, m: int, k: int, space: str) -> None:
    result = compiler.compile(matmul_of(kernels, A2, m, m, k))
    assert result.verdict == "overflows"
    assert result.message.startswith(f"{space} overflow")


@pytest.mark.toolchain
@pytest.mark.parametrize("target", [A2, A3, A5])
def test_matmul_alone_never_enters_ub(compiler: Compiler, kernels: Path, target: str) -> None:
    result = compiler.compile(matmul_of(kernels, target, 128, 128, 128))
    assert (result.verdict, result.ub_bytes, result.l1_bytes, result.l0c_bytes) == ("fits", 0, 64 * KIB, 64 * KIB)
    assert (result.calls["nd2nz"], result.calls["mma"], result.calls["fixpipe"]) == (2, 1, 1)
    assert result.calls["vector"] == 0 and result.idle_vector_core is None


@pytest.mark.toolchain
def test_mixed_kernel_uses_both_vector_cores(compiler: Compiler, kernels: Path) -> None:
    result = compiler.compile(matmul_of(kernels, A2, EXP=True))
    assert (result.ub_bytes, result.idle_vector_core) == (32 * 64 * 4, False)


@pytest.mark.toolchain
@pytest.mark.parametrize("target", [A2, A5])
def test_lost_split_is_an_idle_vector_core(compiler: Compiler, kernels: Path, target: str) -> None:
    """A kernel that loads from the pointer it stores to runs on one vector core."""
    request = matmul_of(kernels, target, bias=True)
    assert compiler.compile(request).idle_vector_core is True
    off = replace(matmul_of(kernels, target, EXP=True), options=("--enable-auto-bind-sub-block=False",))
    assert compiler.compile(off).idle_vector_core is True


@pytest.mark.toolchain
@pytest.mark.parametrize("target", [A2, A5])
def test_final_ir_is_kept_when_asked(compiler: Compiler, kernels: Path, target: str) -> None:
    result = compiler.compile(matmul_of(kernels, target, EXP=True), keep_ir=True)
    assert result.final_ir is not None
    names = {function.name: function.core for function in read_hivm(result.final_ir).functions}
    assert names == {"matmul_mix_aic": "aic", "matmul_mix_aiv": "aiv"}


@pytest.mark.toolchain
def test_pointers_are_marked_aligned_as_at_a_launch(compiler: Compiler, kernels: Path) -> None:
    """Torch's allocations are aligned, so a launch passes the attribute; integers with `do_not_specialize` get none."""
    result = compiler.compile(CompileRequest(kernels, "loop", LOOP, {"BLOCK": 256}, A2), keep_ir=True)
    assert result.final_ir is not None
    header = next(line for line in result.final_ir.splitlines() if "func.func @loop(" in line)
    assert header.count("tt.divisibility = 16") == 3


@pytest.mark.toolchain
def test_optional_pointer_may_be_typed_or_none(compiler: Compiler, kernels: Path) -> None:
    request = matmul_of(kernels, A2)
    typed = replace(request, signature={**MATMUL, "bias": "*i8"})
    assert replace(compiler.compile(request), seconds=0) == replace(compiler.compile(typed), seconds=0)


@pytest.mark.toolchain
def test_constants_keep_their_type(compiler: Compiler, tmp_path: Path) -> None:
    source = tmp_path / "k.py"
    head, body = KERNELS.split("@triton.jit\n", 1)[0], "    tl.store(x, V)\n"
    source.write_text(f"{head}@triton.jit\ndef store(x, V: tl.constexpr):\n{body}", encoding="utf-8")
    request = CompileRequest(source, "store", {"x": "*fp32"}, {"V": 1}, A2)
    assert len({compiler.key(replace(request, constants={"V": v})) for v in (1, 1.0, True)}) == 3
    for value in (1, 1.5, float("inf"), True):
        assert compiler.compile(replace(request, constants={"V": value})).verdict == "fits"


@pytest.mark.toolchain
def test_many_keep_their_order_and_report_progress(compiler: Compiler, kernels: Path) -> None:
    sizes = [256, 65536, 1024, 512]
    seen: list[tuple[int, int]] = []
    requests = [copy_of(kernels, size) for size in sizes]
    results = compiler.compile_many(requests, lambda done, total: seen.append((done, total)))
    assert [result.ub_bytes for result in results] == [1024, None, 4096, 2048]
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.toolchain
def test_changed_source_under_the_same_path_is_compiled_anew(compiler: Compiler, tmp_path: Path) -> None:
    source = tmp_path / "kernels.py"
    for factor, size in ((1, 1024), (2, 2048)):
        text = KERNELS.replace("tl.arange(0, BLOCK)\n    m =", f"tl.arange(0, BLOCK * {factor})\n    m =")
        source.write_text(text, encoding="utf-8")
        assert compiler.compile(copy_of(source, 256)).ub_bytes == size


@pytest.mark.toolchain
def test_result_comes_from_the_cache(toolchain: Toolchain, kernels: Path, tmp_path: Path) -> None:
    request = matmul_of(kernels, A2)
    with Compiler(toolchain, jobs=1, cache_dir=tmp_path) as compiler:
        first = compiler.compile(request)
    # A tool chain that can't run any more: only the cache can answer.
    with Compiler(replace(toolchain, python=tmp_path / "gone"), jobs=1, cache_dir=tmp_path) as compiler:
        assert compiler.compile(request) == first
        kept = compiler.compile(request, keep_ir=True)  # the final IR is stored beside the result
        assert kept.final_ir is not None and replace(kept, final_ir=None) == first
        for text in tmp_path.glob("*/*.ir.z"):
            text.write_bytes(b"cut")
        with pytest.raises(KgenError):
            compiler.compile(request, keep_ir=True)
        with pytest.raises(KgenError):
            compiler.compile(replace(request, target=A3))


@pytest.mark.toolchain
@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"key": "other", "result": {}}', '{"result": {"verdict": "fits"}}']
)
def test_corrupt_cache_entry_is_recomputed(toolchain: Toolchain, kernels: Path, tmp_path: Path, content: str) -> None:
    request = copy_of(kernels, 256)
    with Compiler(toolchain, jobs=1, cache_dir=tmp_path) as compiler:
        first = compiler.compile(request)
        (entry,) = tmp_path.glob("*/*.json")
        whole = entry.read_text()
        entry.write_text(content)
        assert compiler.compile(request).ub_bytes == first.ub_bytes
        assert json.loads(entry.read_text())["key"] == json.loads(whole)["key"]
    assert not list(tmp_path.glob("*/.*"))


@pytest.mark.toolchain
def test_nothing_is_left_behind(
    toolchain: Toolchain, kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with Compiler(toolchain, jobs=1) as compiler:
        compiler.compile(copy_of(kernels, 256))
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


@pytest.mark.toolchain
def test_verdict_ignores_the_callers_environment(
    toolchain: Toolchain, kernels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These make Triton-Ascend interpret kernels, or dump, or use another compiler."""
    for name in ("TRITON_INTERPRET", "TRITON_DEBUG", "TRITON_ENABLE_SANITIZER", "TRITON_ALL_BLOCKS_PARALLEL"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("PYTHONPATH", "/nonexistent")
    with Compiler(toolchain, jobs=1) as compiler:
        assert compiler.compile(copy_of(kernels, 256)).ub_bytes == 1024


@pytest.mark.toolchain
def test_front_end_needs_no_torch_and_its_prints_do_not_break_the_protocol(
    toolchain: Toolchain, tmp_path: Path
) -> None:
    source = (
        KERNELS + "\nimport os, sys\nprint('noise')\nos.write(1, b'more noise\\n')\nassert 'torch' not in sys.modules\n"
    )
    end = FrontEnd(toolchain.python, tmp_path)
    request = {
        "path": "kernels.py", "source": source, "function": "copy", "signature": COPY, "constants": {"BLOCK": 64},
        "arch": A2, "a5": False,
    }  # fmt: skip
    try:
        lowered = end.lower(request, Limit(60))
    finally:
        end.close()
    assert lowered.linalg is not None and lowered.args == ("x", "y", "n")


@pytest.mark.toolchain
def test_doctor_compiles_a_trial_kernel(toolchain: Toolchain) -> None:
    rows = {row.name: row for row in doctor(str(toolchain.python))}
    assert rows[f"compile for {A2}"].ok and rows[f"compile for {A5}"].ok
    assert all(row.ok for row in rows.values()), rows


@pytest.mark.toolchain
def test_setting_may_be_an_environment_or_an_interpreter(toolchain: Toolchain) -> None:
    folder = toolchain.python.parent.parent
    by_folder = find_toolchain(environ={"KGEN_TOOLCHAIN": str(folder)})
    by_interpreter = find_toolchain(environ={"KGEN_TOOLCHAIN": str(toolchain.python)})
    assert by_folder == by_interpreter == replace(toolchain, source="setting")


@pytest.mark.toolchain
def test_cann_is_used_only_when_asked_for(toolchain: Toolchain) -> None:
    environ = {"KGEN_TOOLCHAIN": str(toolchain.python), "PATH": str(toolchain.bishengir.parent)}
    assert find_toolchain(environ=environ).source == "setting"
    cann = find_toolchain("cann", environ=environ)
    assert (cann.source, cann.bishengir) == ("cann", toolchain.bishengir)
    assert cann.versions["bishengir-compile"].startswith("1.2.0 ")
    assert "/" not in cann.versions["bishengir-compile"]


def test_extra_option_replaces_a_default(tmp_path: Path) -> None:
    request = CompileRequest(
        tmp_path, "f", {}, {}, A2, ("--enable-auto-multi-buffer=False", "--set-workspace-multibuffer=2")
    )
    options = compiler_options(request)
    assert "--enable-auto-multi-buffer=False" in options and "--enable-auto-multi-buffer=True" not in options
    assert options[0] == f"--target={A2}" and options[-1] == "--set-workspace-multibuffer=2"


def test_virtual_imports_neither_torch_nor_triton() -> None:
    """kgen compiles from an environment that has none of them."""
    code = "import sys, kgen.virtual; print([m for m in ('torch', 'triton', 'sympy') if m in sys.modules])"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
