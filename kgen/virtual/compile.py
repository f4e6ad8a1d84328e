"""Compile generated kernels for an Ascend chip on a machine that has none, and say whether they fit.

Two steps a kernel: a front-end worker lowers the Triton source to linalg, then `bishengir-compile` takes it to the
final HIVM IR, from which the memory report is read. Everything runs in a private temporary folder with a minimal
environment.
"""

from __future__ import annotations

import hashlib
import os
import queue
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, get_args

from kgen.errors import KgenBug, KgenError
from kgen.virtual.cache import ResultCache, content_key
from kgen.virtual.frontend import FrontEnd, WorkerDiedError, WorkerTimeoutError
from kgen.virtual.hivm import read_hivm
from kgen.virtual.process import Finished, Limit, minimal_environment, run_limited
from kgen.virtual.standin import KEEP_VARIABLE, write_stand_ins
from kgen.virtual.toolchain import Toolchain
from kgen.virtual.verdict import Verdict, bounded, read_outcome

Constant = int | float | bool | None

# What Triton-Ascend 3.2.0 passes at a launch with its default options, for each family.
_DEFAULT_OPTIONS = {
    "enable-auto-multi-buffer": "True",
    "enable-auto-bind-sub-block": "True",
    "enable-hfusion-compile": "true",
    "enable-hivm-compile": "true",
    "enable-triton-kernel-compile": "true",
}
# Kernels are compiled in parallel as processes; threads inside each would only multiply with the number of cores.
_OWN_OPTIONS = ("--mlir-disable-threading",)
_A5_TARGET = re.compile(r"Ascend(950|910_95)")


@dataclass(frozen=True)
class CompileRequest:
    """One kernel for one target. Every parameter is either typed in `signature` or given a value in `constants`."""

    source: Path
    function: str
    signature: dict[str, str]  # parameter -> '*bf16', '*fp32', '*i32', 'i32', 'i64', 'fp32', ...
    constants: dict[str, Constant]
    target: str  # 'Ascend910B2', 'Ascend910_9391', 'Ascend950PR_9589', ...
    options: tuple[str, ...] = ()  # extra compiler options; one that repeats a default replaces it


@dataclass(frozen=True)
class CompileResult:
    """What the compiler made of a request. Sizes are peak bytes of one core; None where it did not get that far."""

    verdict: Verdict
    message: str  # one line for people; empty when it fits
    detail: str = ""  # what the front end or compiler printed, bounded
    ub_bytes: int | None = None
    l1_bytes: int | None = None
    l0c_bytes: int | None = None
    required_bytes: int | None = None  # bytes the compiler asked for in the space that overflowed
    calls: dict[str, int] = field(default_factory=dict)  # call sites by class, see hivm.CALL_CLASSES
    idle_vector_core: bool | None = None  # None where the kernel has no cube and vector halves
    seconds: float = 0.0  # wall time of the compile itself, also when the result came from the cache
    final_ir: str | None = None
    toolchain: dict[str, str] = field(default_factory=dict)


Progress = Callable[[int, int, CompileRequest, CompileResult], None]


class Compiler:
    """A pool of front-end workers over one tool chain; a context manager. `compile` may be called from many threads."""

    def __init__(
        self, toolchain: Toolchain, jobs: int | None = None, timeout_s: float = 120.0, cache_dir: Path | None = None
    ) -> None:
        """`jobs` kernels at a time (None: one a usable core), each at most `timeout_s`; no `cache_dir`, no cache."""
        self.toolchain = toolchain
        self.jobs = max(1, jobs if jobs is not None else len(os.sched_getaffinity(0)))
        self.timeout_s = timeout_s
        self._cache = ResultCache(cache_dir)
        self._private: Path | None = None
        self._idle: queue.LifoQueue[FrontEnd] = queue.LifoQueue()
        self._cancelled = threading.Event()

    def __enter__(self) -> Compiler:
        self._private = Path(tempfile.mkdtemp(prefix="kgen-compile-"))
        stand_ins = self._private / "bin"
        stand_ins.mkdir()
        write_stand_ins(stand_ins)
        for _ in range(self.jobs):
            self._idle.put(FrontEnd(self.toolchain.python, self._private))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while not self._idle.empty():
            self._idle.get_nowait().close()
        if self._private is not None:
            shutil.rmtree(self._private, ignore_errors=True)
            self._private = None

    def compile(self, request: CompileRequest, keep_ir: bool = False) -> CompileResult:
        """Compile one kernel, or take the result from the cache; `keep_ir` asks for the final IR's text as well."""
        source = _read_source(request.source)
        key = content_key(self._key_parts(request, source))
        stored = _restore(self._cache.get(key), keep_ir)
        if stored is not None:
            return stored
        started = time.monotonic()
        result, lasting = self._compile(request, source)
        result = replace(result, seconds=time.monotonic() - started, toolchain=dict(self.toolchain.versions))
        if lasting:
            self._cache.put(key, asdict(result if keep_ir else replace(result, final_ir=None)))
        return result if keep_ir else replace(result, final_ir=None)

    def compile_many(
        self, requests: Sequence[CompileRequest], progress: Progress | None = None, keep_ir: bool = False
    ) -> list[CompileResult]:
        """Compile in parallel; results in the order of the requests. `progress(done, total, request, result)` is called
        from this thread as each one is done."""
        results: dict[int, CompileResult] = {}
        with ThreadPoolExecutor(max_workers=self.jobs) as pool:
            places = {pool.submit(self.compile, request, keep_ir): place for place, request in enumerate(requests)}
            try:
                for future in as_completed(places):
                    place = places[future]
                    results[place] = future.result()
                    if progress is not None:
                        progress(len(results), len(requests), requests[place], results[place])
            except BaseException:
                # What is running is killed too, so that an interrupt doesn't wait for the slowest kernel.
                self._cancelled.set()
                pool.shutdown(wait=True, cancel_futures=True)
                self._cancelled.clear()
                raise
        return [results[place] for place in range(len(requests))]

    def _key_parts(self, request: CompileRequest, source: str) -> dict[str, Any]:
        """Everything a result depends on; where the file lies is not among it, what its text is called is."""
        return {
            "source": hashlib.sha256(source.encode()).hexdigest(),
            "name": request.source.name,
            "function": request.function,
            "signature": request.signature,
            # repr tells 1, 1.0 and True apart, which compile differently and JSON or equality would merge.
            "constants": {name: repr(value) for name, value in request.constants.items()},
            "target": request.target,
            "options": compiler_options(request),
            "toolchain": dict(self.toolchain.versions),
        }

    def _compile(self, request: CompileRequest, source: str) -> tuple[CompileResult, bool]:
        """The result without its time, and whether it would be the same next time (worth keeping)."""
        if self._private is None:
            raise KgenBug("Compiler is used outside its `with` block")
        front_end = self._idle.get()
        try:
            front_end.start()  # outside the limit: the first start may read the wheels from a cold disk
            limit = Limit(self.timeout_s, self._cancelled)
            lowered = front_end.lower(_worker_request(request, source), limit)
        except WorkerTimeoutError:
            return CompileResult("timeout", f"the front end gave no result within {self.timeout_s:g} s"), False
        except WorkerDiedError as error:
            text = str(error)
            return CompileResult("error", f"the front end {text.splitlines()[0]}", bounded(text)), False
        finally:
            self._idle.put(front_end)
        if lowered.linalg is None:
            return CompileResult("error", lowered.error, bounded(lowered.detail)), True
        with tempfile.TemporaryDirectory(dir=self._private) as folder:
            finished, final_ir = self._run_compiler(request, lowered.linalg, Path(folder), limit)
        return self._result(request, finished, final_ir)

    def _run_compiler(
        self, request: CompileRequest, linalg: str, folder: Path, limit: Limit
    ) -> tuple[Finished, str | None]:
        """Run `bishengir-compile`; returns how it ended and the final IR if it got there."""
        assert self._private is not None
        entry, kept = folder / f"{request.function}.mlir", folder / "final.mlir"
        entry.write_text(linalg, encoding="utf-8")
        environment = minimal_environment(folder, [str(self._private / "bin")]) | {KEEP_VARIABLE: str(kept)}
        compiler = str(self._compiler_for(request.target))
        command = [compiler, str(entry), *compiler_options(request), "-o", str(folder / "kernel")]
        try:
            finished = run_limited(command, env=environment, cwd=folder, limit=limit)
        except OSError as error:
            raise KgenError(
                f"the compiler {self.toolchain.bishengir.name} does not start: {error.strerror}",
                code="toolchain-broken",
                hint="run `kgen doctor`; the wheels need Linux on x86-64 or aarch64",
            ) from error
        # The private folder's name differs in every run and means nothing to a reader.
        finished = replace(finished, output=finished.output.replace(f"{folder}/", ""))
        return finished, kept.read_text(encoding="utf-8") if kept.is_file() else None

    def _result(self, request: CompileRequest, finished: Finished, final_ir: str | None) -> tuple[CompileResult, bool]:
        """Verdict and memory report of a run."""
        reading = read_outcome(finished, final_ir is not None, self.timeout_s)
        result = CompileResult(
            reading.verdict, reading.message, bounded(finished.output), required_bytes=reading.required_bytes
        )
        lasting = finished.returncode is not None and finished.returncode >= 0
        if reading.verdict not in ("fits", "degraded") or final_ir is None:
            return result, lasting
        report = read_hivm(final_ir)
        return replace(
            result,
            ub_bytes=report.peak("ub"),
            l1_bytes=report.peak("cbuf"),
            l0c_bytes=report.peak("cc"),
            calls=report.calls(),
            idle_vector_core=report.idle_vector_core(),
            final_ir=final_ir,
        ), lasting

    def _compiler_for(self, target: str) -> Path:
        """The compiler of the target's family."""
        if not is_a5(target):
            return self.toolchain.bishengir
        if self.toolchain.bishengir_a5 is None:
            raise KgenError(
                f"the tool chain has no compiler for {target}",
                code="toolchain-missing",
                hint="bishengir-compile-a5 comes with ascendnpu-ir 1.2.0; `kgen doctor` shows what is installed",
            )
        return self.toolchain.bishengir_a5


def is_a5(target: str) -> bool:
    """Whether a target belongs to the 950 family, which has a compiler and a front-end option of its own."""
    return _A5_TARGET.match(target) is not None


def compiler_options(request: CompileRequest) -> list[str]:
    """The compiler's options for a request; it refuses an option given twice, so the request's replace the defaults."""
    options = {name: f"--{name}={value}" for name, value in _DEFAULT_OPTIONS.items()}
    for option in (*_OWN_OPTIONS, *request.options):
        options[option.lstrip("-").partition("=")[0]] = option
    return [f"--target={request.target}", *options.values()]


def _worker_request(request: CompileRequest, source: str) -> dict[str, Any]:
    """The request in the worker's words."""
    return {
        "path": str(request.source),
        "source": source,
        "function": request.function,
        "signature": request.signature,
        "constants": request.constants,
        "arch": request.target,
        "a5": is_a5(request.target),
    }


def _read_source(path: Path) -> str:
    """The kernels module's text."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise KgenError(
            f"cannot read the kernels of {path}: {error}", code="kernels-unreadable", hint="run `kgen build` first"
        ) from error


def _restore(stored: dict[str, Any] | None, keep_ir: bool) -> CompileResult | None:
    """A result from the cache, unless it is of another shape or lacks the final IR that is asked for."""
    if stored is None:
        return None
    try:
        result = CompileResult(**stored)
    except TypeError:
        return None
    if result.verdict not in get_args(Verdict):
        return None
    if keep_ir and result.verdict in ("fits", "degraded") and result.final_ir is None:
        return None
    return result if keep_ir else replace(result, final_ir=None)
