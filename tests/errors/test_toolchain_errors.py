"""What goes wrong round the tool chain, one mistake a test: each has its code and a next step, none hangs."""

from __future__ import annotations

import fcntl
import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from kgen.errors import KgenError
from kgen.virtual import PINNED, Compiler, CompileRequest, Toolchain, create_environment, doctor, find_toolchain
from kgen.virtual.toolchain import own_environment

KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def helper(x):
    return x + missing_name


@triton.jit
def copy(x, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i))


@triton.jit
def wrong(x, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, helper(i))


@triton.jit
def hoisted(x, y):
    p = tl.make_block_ptr(x, (64, 64), (64, 1), (0, 0), (64, 64), (1, 0))
    acc = tl.dot(tl.load(p), tl.load(p))
    for t in range(4):
        total = acc + tl.dot(tl.load(p), tl.load(p))
        tl.store(tl.make_block_ptr(y, (256, 64), (64, 1), (t * 64, 0), (64, 64), (1, 0)), total)
"""


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    """The real tool chain; without one, tests are skipped unless KGEN_REQUIRE_TOOLCHAIN=1 makes that a failure."""
    try:
        return find_toolchain()
    except KgenError as error:
        if os.environ.get("KGEN_REQUIRE_TOOLCHAIN") == "1":
            pytest.fail(f"KGEN_REQUIRE_TOOLCHAIN=1, and {error.message}: {error.hint}")
        pytest.skip(f"{error.message} ({error.hint})")


@pytest.fixture
def request_of_copy(tmp_path: Path) -> CompileRequest:
    """A kernel that compiles."""
    source = tmp_path / "kernels.py"
    source.write_text(KERNEL, encoding="utf-8")
    return CompileRequest(source, "copy", {"x": "*fp32", "y": "*fp32"}, {"BLOCK": 64}, "Ascend910B2")


@pytest.fixture
def compiler(toolchain: Toolchain) -> Iterator[Compiler]:
    with Compiler(toolchain, jobs=1) as compiler:
        yield compiler


def script(path: Path, text: str) -> Path:
    """An executable shell script."""
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


# --- finding


@pytest.mark.parametrize("environ", [{}, {"KGEN_TOOLCHAIN": ""}])
def test_no_toolchain_says_how_to_make_one(tmp_path: Path, environ: dict[str, str]) -> None:
    with pytest.raises(KgenError) as caught:
        find_toolchain(environ={"KGEN_HOME": str(tmp_path), **environ})
    assert caught.value.code == "toolchain-missing"
    assert "kgen doctor --fix" in caught.value.hint and "KGEN_TOOLCHAIN" in caught.value.hint


def test_setting_without_an_interpreter_is_never_passed_over(tmp_path: Path) -> None:
    with pytest.raises(KgenError, match="no interpreter") as caught:
        find_toolchain(environ={"KGEN_TOOLCHAIN": str(tmp_path)})
    assert caught.value.code == "toolchain-missing"
    assert "KGEN_TOOLCHAIN" in caught.value.message


def test_interpreter_without_the_wheels_names_them() -> None:
    with pytest.raises(KgenError, match=r"lacks .*triton-ascend.*ascendnpu-ir") as caught:
        find_toolchain(sys.executable)
    assert caught.value.code == "toolchain-missing"


@pytest.mark.parametrize("body", ["exit 1", "echo not json", "exec /nonexistent"])
def test_interpreter_that_does_not_run(tmp_path: Path, body: str) -> None:
    with pytest.raises(KgenError, match="does not run") as caught:
        find_toolchain(str(script(tmp_path / "python", body)))
    assert caught.value.code == "toolchain-broken"


def test_interrupted_environment_does_not_count(tmp_path: Path) -> None:
    environ = {"KGEN_HOME": str(tmp_path)}
    script(_folder(own_environment(environ) / "bin") / "python", "exit 0")
    with pytest.raises(KgenError) as caught:
        find_toolchain(environ=environ)
    assert caught.value.code == "toolchain-missing"


def test_cann_asked_for_and_absent(tmp_path: Path) -> None:
    with pytest.raises(KgenError, match="no bishengir-compile on PATH") as caught:
        find_toolchain("cann", environ={"PATH": str(tmp_path)})
    assert caught.value.code == "toolchain-missing" and "set_env.sh" in caught.value.hint


@pytest.mark.parametrize("present", [False, True])
def test_wheel_whose_compiler_is_gone_or_not_executable(tmp_path: Path, present: bool) -> None:
    packages = ", ".join(f'"{name}": "{version}"' for name, version in PINNED.items())
    python = script(
        tmp_path / "python", f"""echo '{{"python": "3.11.1", "packages": {{{packages}}}, "bin": "{tmp_path}"}}'"""
    )
    if present:
        (tmp_path / "bishengir-compile").write_text("")
    with pytest.raises(KgenError, match="missing or not executable") as caught:
        find_toolchain(str(python))
    assert caught.value.code == "toolchain-broken"


def test_doctor_reports_a_missing_toolchain_and_goes_on(tmp_path: Path) -> None:
    rows = {row.name: row for row in doctor(environ={"KGEN_HOME": str(tmp_path)})}
    assert not rows["tool chain"].ok and "--fix" in rows["tool chain"].hint
    assert rows["npu"].ok and rows["python"].ok


# --- a tool chain of which something is broken


@pytest.mark.toolchain
def test_doctor_flags_another_version(toolchain: Toolchain, tmp_path: Path) -> None:
    """A wrapper that answers as the real interpreter, but with another version of one wheel."""
    change = f"""exec {toolchain.python} "$@" ;; esac; {toolchain.python} "$@" | sed 's/"1[.]2[.]0"/"1.3.0"/'"""
    wrapper = script(tmp_path / "python", f'case "$*" in *worker.py*) {change}')
    row = next(row for row in doctor(str(wrapper)) if row.name == "versions")
    assert not row.ok and "ascendnpu-ir is 1.3.0" in row.detail and "1.2.0" in row.detail


@pytest.mark.toolchain
def test_another_version_is_another_cache_entry(
    toolchain: Toolchain, tmp_path: Path, request_of_copy: CompileRequest
) -> None:
    cache = tmp_path / "cache"
    other = replace(toolchain, versions={**toolchain.versions, "ascendnpu-ir": "1.3.0"})
    for chain in (toolchain, other, toolchain):
        with Compiler(chain, jobs=1, cache_dir=cache) as compiler:
            assert compiler.compile(request_of_copy).toolchain == dict(chain.versions)
    assert len(list(cache.glob("*/*.json"))) == 2
    assert other.mismatches() != toolchain.mismatches()


@pytest.mark.toolchain
def test_front_end_that_does_not_import(toolchain: Toolchain, request_of_copy: CompileRequest) -> None:
    broken = replace(toolchain, python=Path(sys.executable))  # has upstream Triton at most
    with Compiler(broken, jobs=1) as compiler, pytest.raises(KgenError, match=r"does not start: .*Error") as caught:
        compiler.compile(request_of_copy)
    assert caught.value.code == "toolchain-broken" and "kgen doctor" in caught.value.hint


class Broken(NamedTuple):
    """A compiler that says nothing about the kernel."""

    body: str
    code: str


@pytest.mark.toolchain
@pytest.mark.parametrize(
    "case",
    [
        Broken("echo 'x: error while loading shared libraries: libz.so.1' >&2; exit 127", "toolchain-broken"),
        Broken('echo "/lib/libc.so.6: version \\`GLIBC_2.38\' not found" >&2; exit 1', "toolchain-broken"),
        Broken("echo \"c: Unknown command line argument '--mlir-disable-threading'\" >&2; exit 1", "compiler-option"),
    ],
)
def test_compiler_that_does_not_work_is_no_verdict(
    toolchain: Toolchain, tmp_path: Path, request_of_copy: CompileRequest, case: Broken
) -> None:
    broken = replace(toolchain, bishengir=script(tmp_path / "bishengir-compile", case.body))
    with Compiler(broken, jobs=1) as compiler, pytest.raises(KgenError) as caught:
        compiler.compile(request_of_copy)
    assert caught.value.code == case.code and caught.value.hint


@pytest.mark.toolchain
def test_compiler_for_another_machine(toolchain: Toolchain, tmp_path: Path, request_of_copy: CompileRequest) -> None:
    foreign = tmp_path / "bishengir-compile"
    foreign.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(57))
    foreign.chmod(0o755)
    with Compiler(replace(toolchain, bishengir=foreign), jobs=1) as compiler, pytest.raises(KgenError) as caught:
        compiler.compile(request_of_copy)
    assert caught.value.code == "toolchain-broken" and "x86-64 or aarch64" in caught.value.hint


@pytest.mark.toolchain
def test_target_without_a_compiler(toolchain: Toolchain, request_of_copy: CompileRequest) -> None:
    request = replace(request_of_copy, target="Ascend950PR_9589")
    with Compiler(replace(toolchain, bishengir_a5=None), jobs=1) as compiler, pytest.raises(KgenError) as caught:
        compiler.compile(request)
    assert caught.value.code == "toolchain-missing" and "Ascend950PR_9589" in caught.value.message


@pytest.mark.toolchain
def test_unknown_target(compiler: Compiler, request_of_copy: CompileRequest) -> None:
    with pytest.raises(KgenError, match="Ascend910Z9") as caught:
        compiler.compile(replace(request_of_copy, target="Ascend910Z9"))
    assert caught.value.code == "compiler-option"


# --- kernels that don't compile


@pytest.mark.toolchain
def test_front_end_error_has_the_line_and_the_innermost_message(
    compiler: Compiler, request_of_copy: CompileRequest
) -> None:
    result = compiler.compile(replace(request_of_copy, function="wrong"))
    assert result.verdict == "error"
    line = next(n for n, text in enumerate(KERNEL.splitlines(), 1) if "helper(i)" in text)
    assert result.message == f"kernels.py:{line}: NameError('missing_name is not defined')"
    assert "CompilationError" in result.detail
    assert compiler.compile(request_of_copy).verdict == "fits"  # the worker goes on


@pytest.mark.toolchain
def test_compiler_error_is_the_cause_and_not_the_pipeline(compiler: Compiler, request_of_copy: CompileRequest) -> None:
    request = replace(request_of_copy, function="hoisted", constants={}, signature={"x": "*bf16", "y": "*fp32"})
    result = compiler.compile(request)
    assert (result.verdict, result.message) == ("error", "'hivm.hir.copy' op Unsupported copy from cc to cc!")
    assert "Failed to run BiShengHIR pipeline" in result.detail
    assert "/" not in result.detail.replace("</", "")  # no path of this machine
    assert (result.ub_bytes, result.calls, result.final_ir) == (None, {}, None)


@pytest.mark.toolchain
@pytest.mark.parametrize(
    "change, message",
    [
        ({"function": "nothing"}, "there is no Triton kernel named 'nothing'"),
        ({"signature": {"x": "*fp32"}}, "kernel copy needs a value or a type for 'y'"),
        ({"constants": {"BLOCK": 64, "SIZE": 1}}, "kernel copy has no parameter SIZE"),
        (
            {"signature": {"x": "*fp32", "y": "*fp32", "BLOCK": "i32"}, "constants": {}},
            "BLOCK of kernel copy is constexpr and needs a value, not a type",
        ),
        ({"signature": {"x": "*fp99", "y": "*fp32"}}, "fp99"),
    ],
)
def test_request_that_does_not_fit_the_kernel(
    compiler: Compiler, request_of_copy: CompileRequest, change: dict[str, object], message: str
) -> None:
    result = compiler.compile(replace(request_of_copy, **change))  # type: ignore[arg-type]
    assert result.verdict == "error" and message in result.message


@pytest.mark.toolchain
@pytest.mark.parametrize("text", ["def broken(:\n", "import nothing_of_that_name\n", "raise SystemExit(3)\n"])
def test_kernels_module_that_does_not_load(compiler: Compiler, request_of_copy: CompileRequest, text: str) -> None:
    request_of_copy.source.write_text(text, encoding="utf-8")
    result = compiler.compile(request_of_copy)
    assert result.verdict == "error" and result.message
    request_of_copy.source.write_text(KERNEL, encoding="utf-8")
    assert compiler.compile(request_of_copy).verdict == "fits"


@pytest.mark.toolchain
def test_front_end_that_crashes_is_replaced(compiler: Compiler, request_of_copy: CompileRequest) -> None:
    request_of_copy.source.write_text(
        "import os, sys\nprint('last words')\nsys.stdout.flush()\nos.abort()\n", encoding="utf-8"
    )
    result = compiler.compile(request_of_copy)
    assert (result.verdict, result.message) == ("error", "the front end ended by SIGABRT")
    assert "last words" in result.detail
    request_of_copy.source.write_text(KERNEL, encoding="utf-8")
    assert compiler.compile(request_of_copy).verdict == "fits"


@pytest.mark.toolchain
def test_compiler_that_crashes(toolchain: Toolchain, tmp_path: Path, request_of_copy: CompileRequest) -> None:
    crashing = script(tmp_path / "bishengir-compile", "echo 'Assertion `x` failed.' >&2; kill -ABRT $$")
    with Compiler(replace(toolchain, bishengir=crashing), jobs=1, cache_dir=tmp_path / "cache") as compiler:
        result = compiler.compile(request_of_copy)
    assert (result.verdict, result.message) == ("error", "the compiler crashed (SIGABRT): Assertion `x` failed.")
    assert not (tmp_path / "cache").exists()  # it may not crash the next time


def test_kernels_file_that_is_missing(tmp_path: Path) -> None:
    chain = Toolchain(Path(sys.executable), tmp_path, None, {}, "setting")
    with Compiler(chain, jobs=1) as compiler, pytest.raises(KgenError, match="cannot read the kernels") as caught:
        compiler.compile(CompileRequest(tmp_path / "kernels.py", "k", {}, {}, "Ascend910B2"))
    assert caught.value.code == "kernels-unreadable"


# --- time and interrupts


@pytest.mark.toolchain
def test_timeout_kills_the_whole_process_group(
    toolchain: Toolchain, tmp_path: Path, request_of_copy: CompileRequest
) -> None:
    pids = tmp_path / "pids"
    slow = script(tmp_path / "bishengir-compile", f"sleep 600 & echo $! $$ > {pids}; echo working; wait")
    with Compiler(replace(toolchain, bishengir=slow), jobs=1, timeout_s=2, cache_dir=tmp_path / "cache") as compiler:
        result = compiler.compile(request_of_copy)
    assert (result.verdict, result.message) == ("timeout", "no result within 2 s")
    assert "working" in result.detail
    assert not any(_alive(int(pid)) for pid in pids.read_text().split())
    assert not (tmp_path / "cache").exists()  # a slower machine's limit is no fact about the kernel


@pytest.mark.toolchain
def test_timeout_in_the_front_end(toolchain: Toolchain, request_of_copy: CompileRequest) -> None:
    request_of_copy.source.write_text("import time\ntime.sleep(600)\n", encoding="utf-8")
    with Compiler(toolchain, jobs=1, timeout_s=1) as compiler:
        result = compiler.compile(request_of_copy)
        assert (result.verdict, result.message) == ("timeout", "the front end gave no result within 1 s")
        request_of_copy.source.write_text(KERNEL, encoding="utf-8")
        compiler.timeout_s = 60
        assert compiler.compile(request_of_copy).verdict == "fits"


@pytest.mark.toolchain
def test_interrupt_ends_running_compiles_at_once(
    toolchain: Toolchain, tmp_path: Path, request_of_copy: CompileRequest
) -> None:
    slow = script(
        tmp_path / "bishengir-compile", 'case "$1" in *copy.mlir) echo "error: no" >&2; exit 1;; esac; sleep 600'
    )
    other = replace(request_of_copy, function="hoisted", constants={}, signature={"x": "*bf16", "y": "*fp32"})

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    started = time.monotonic()
    with Compiler(replace(toolchain, bishengir=slow), jobs=2) as compiler, pytest.raises(KeyboardInterrupt):
        compiler.compile_many([other, request_of_copy, other, other], interrupt)
    assert time.monotonic() - started < 30


@pytest.mark.toolchain
def test_second_kgen_waits_and_takes_what_the_first_made(toolchain: Toolchain, tmp_path: Path) -> None:
    environ = {"KGEN_HOME": str(tmp_path), "PATH": ""}
    folder = own_environment(environ)
    said: list[str] = []
    found: list[Toolchain] = []
    with folder.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = threading.Thread(target=lambda: found.append(create_environment(said.append, environ=environ)))
        second.start()
        for _ in range(100):
            if said:
                break
            time.sleep(0.05)
        script(_folder(folder / "bin") / "python", f'exec {toolchain.python} "$@"')
        (folder / ".complete").write_text("{}")
    second.join(timeout=60)
    assert said == ["waiting for another kgen that is making the environment"]
    assert found[0].source == "own" and found[0].python == folder / "bin" / "python"


def _folder(path: Path) -> Path:
    """The folder, made if need be."""
    path.mkdir(parents=True, exist_ok=True)
    return path


def _alive(pid: int) -> bool:
    """Whether a process still runs; one that is dead and not yet reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
