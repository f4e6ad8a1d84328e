"""Compile generated kernels for an Ascend chip on a machine that has none, and say whether they fit.

Two steps a kernel: a front-end worker lowers the Triton source to linalg, then `bishengir-compile` takes it to the
final HIVM IR, from which the memory report is read. Everything runs in a private temporary folder with a minimal
environment.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import queue
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from kgen.errors import KgenBug, KgenError
from kgen.virtual.blame import OPTIONS as BLAME_OPTIONS
from kgen.virtual.blame import blamed
from kgen.virtual.cache import ResultCache, code_hash, content_key
from kgen.virtual.frontend import FrontEnd, WorkerDiedError, WorkerTimeoutError
from kgen.virtual.hivm import HivmError
from kgen.virtual.interrupts import held_back
from kgen.virtual.process import Finished, Limit, minimal_environment, run_limited
from kgen.virtual.result import CompileResult, judged, readers_hash, restored, unreadable, with_report
from kgen.virtual.standin import KEEP_VARIABLE, write_stand_ins
from kgen.virtual.toolchain import Toolchain
from kgen.virtual.verdict import bounded, overflowed_space, read_outcome

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
# Debug information puts source lines into the final IR and changes nothing else in it.
_OWN_OPTIONS = ("--mlir-disable-threading", "--enable-debug-info=true")
DRIVER = ("worker.py", "frontend.py", "standin.py", "verdict.py", "blame.py")
_ROOM_BYTES = 16 << 20  # a compile that fails with less than this left under TMPDIR says nothing of its kernel
_NO_ROOM = re.compile(r"No space left on device|[Cc]annot allocate memory|std::bad_alloc|Disk quota exceeded")
_LOOK_EVERY_S = 0.1  # how soon an interrupt is seen
_LOCATION = re.compile(r'loc\("[^"\n]*/([^"/\n]+)"')
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
class LinalgRequest:
    """One kernel that a front end elsewhere has lowered already."""

    function: str
    linalg: str
    target: str
    options: tuple[str, ...] = ()


Request = CompileRequest | LinalgRequest


Progress = Callable[[int, int], None]
T = TypeVar("T")
R = TypeVar("R")


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

    def compile(self, request: Request, keep_ir: bool = False) -> CompileResult:
        """Compile one kernel, or take the result from the cache; `keep_ir` asks for the final IR's text as well."""
        source = _text(request)
        key = self._key(request, source)
        found = self._remembered(key, keep_ir)
        if found is None:
            started = time.monotonic()
            found, lasting = self._compile(request, source)
            found = replace(found, seconds=time.monotonic() - started, toolchain=dict(self.toolchain.versions))
            if lasting:
                self._keep(key, found)
        return judged(found if keep_ir else replace(found, final_ir=None))

    def _remembered(self, key: str, keep_ir: bool) -> CompileResult | None:
        """A result that was kept, its final IR with it where that is asked for. What other code has read from the IR
        is read again."""
        stored = restored(self._cache.get(key))
        if stored is None or not stored.usable:
            return stored
        current = stored.readers == readers_hash()
        if current and not keep_ir:
            return stored
        text = self._cache.text(key)
        if text is None:
            return None
        if current:
            return replace(stored, final_ir=text)
        try:
            again = with_report(stored, text)
        except HivmError:
            return None
        self._keep(key, again)
        return again

    def _keep(self, key: str, result: CompileResult) -> None:
        fields = asdict(replace(result, final_ir=None))
        self._cache.put(key, fields, result.final_ir)

    def key(self, request: Request) -> str:
        """What the result of a request is stored under: equal keys, equal results."""
        return self._key(request, _text(request))

    def compile_many(
        self, requests: Sequence[Request], progress: Progress | None = None, keep_ir: bool = False
    ) -> list[CompileResult]:
        """Compile in parallel; results in the order of the requests. `progress(done, total)` is called from this thread
        as each one is done."""
        return self.map(lambda request: self.compile(request, keep_ir), requests, progress)

    def map(self, work: Callable[[T], R], items: Sequence[T], progress: Progress | None = None) -> list[R]:
        """`work(item)` for each, `jobs` at a time; results in the items' order."""
        results: dict[int, R] = {}
        done: queue.SimpleQueue[Future[R]] = queue.SimpleQueue()
        interrupted = threading.Event()
        with held_back(interrupted), ThreadPoolExecutor(max_workers=self.jobs) as pool:
            try:
                places = {pool.submit(work, item): place for place, item in enumerate(items)}
                for future in places:
                    future.add_done_callback(done.put)
                while len(results) < len(items):
                    future = _next(done, interrupted)
                    results[places[future]] = future.result()
                    if progress is not None:
                        progress(len(results), len(items))
            except BaseException:
                # What is running is killed too, so that an interrupt doesn't wait for the slowest kernel.
                self._cancelled.set()
                pool.shutdown(wait=True, cancel_futures=True)
                self._cancelled.clear()
                raise
        return [results[place] for place in range(len(items))]

    def _key(self, request: Request, source: str) -> str:
        """Over everything a result depends on; where the file lies is not among it, what its text is called is."""
        common: dict[str, Any] = {
            "source": hashlib.sha256(source.encode()).hexdigest(),
            "function": request.function,
            "target": request.target,
            "options": compiler_options(request),
            "toolchain": dict(self.toolchain.versions),
            "driver": driver_hash(),
        }
        if isinstance(request, LinalgRequest):
            return content_key({**common, "lowered": True})
        own = {
            "name": request.source.name,
            "signature": request.signature,
            # repr tells 1, 1.0 and True apart, which compile differently and JSON or equality would merge.
            "constants": {name: repr(value) for name, value in request.constants.items()},
        }
        return content_key({**common, **own})

    def _compile(self, request: Request, source: str) -> tuple[CompileResult, bool]:
        """The result without its time, and whether it would be the same next time (worth keeping)."""
        if self._private is None:
            raise KgenBug("Compiler is used outside its `with` block")
        if isinstance(request, LinalgRequest):
            return self._compile_linalg(request, source, Limit(self.timeout_s, self._cancelled))
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
            self._refuse_without_room(lowered.detail)
            return CompileResult("error", lowered.error, bounded(lowered.detail)), True
        return self._compile_linalg(request, lowered.linalg, limit)

    def _refuse_without_room(self, output: str) -> None:
        """A failure on a full disk or without memory is the machine's, and never kept as the kernel's."""
        assert self._private is not None
        found = _NO_ROOM.search(output)
        if found is not None or shutil.disk_usage(self._private).free < _ROOM_BYTES:
            raise KgenError(
                f"a compile failed for want of room: {found[0] if found else 'the disk is full'}",
                code="no-room",
                hint=f"free space in {tempfile.gettempdir()}, set TMPDIR to another folder, or lower --jobs",
            )

    def _compile_linalg(self, request: Request, linalg: str, limit: Limit) -> tuple[CompileResult, bool]:
        """From the front end's text on."""
        with tempfile.TemporaryDirectory(dir=self._private) as folder:
            finished, final_ir = self._run_compiler(request, linalg, Path(folder), limit)
        result, lasting = self._result(finished, final_ir)
        if result.verdict == "overflows":
            result = self._with_blame(result, request, linalg, limit)
        return result, lasting

    def _with_blame(self, result: CompileResult, request: Request, linalg: str, limit: Limit) -> CompileResult:
        """Compile once more for the IR in which tiles could not be placed, and name the largest of them."""
        again = replace(request, options=(*request.options, *BLAME_OPTIONS))
        with tempfile.TemporaryDirectory(dir=self._private) as folder:
            finished, _ = self._run_compiler(again, linalg, Path(folder), limit)
        tiles = blamed(finished.output, overflowed_space(finished.output) or "ub")
        return replace(result, message=f"{result.message}; largest tiles: {tiles}") if tiles else result

    def _run_compiler(self, request: Request, linalg: str, folder: Path, limit: Limit) -> tuple[Finished, str | None]:
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
        # Folders of this machine mean nothing to a reader, and the private one differs in every run.
        output = _LOCATION.sub(r'loc("\1"', finished.output.replace(f"{folder}/", ""))
        finished = replace(finished, output=output)
        return finished, kept.read_text(encoding="utf-8", errors="replace") if kept.is_file() else None

    def _result(self, finished: Finished, final_ir: str | None) -> tuple[CompileResult, bool]:
        """Verdict and memory report of a run."""
        reading = read_outcome(finished, final_ir is not None, self.timeout_s)
        result = CompileResult(
            reading.verdict, reading.message, bounded(finished.output), required_bytes=reading.required_bytes
        )
        lasting = finished.returncode is not None and finished.returncode >= 0
        if result.verdict == "error":
            self._refuse_without_room(finished.output)
        if not result.usable or final_ir is None:
            return result, lasting
        try:
            return with_report(result, final_ir), lasting
        except HivmError as error:
            return unreadable(result, error), False

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


def _next(done: queue.SimpleQueue[Future[R]], interrupted: threading.Event) -> Future[R]:
    """The next that is done; an interrupt is raised from here."""
    while True:
        if interrupted.is_set():
            raise KeyboardInterrupt
        with contextlib.suppress(queue.Empty):
            return done.get(timeout=_LOOK_EVERY_S)


def is_a5(target: str) -> bool:
    """Whether a target belongs to the 950 family, which has a compiler and a front-end option of its own."""
    return _A5_TARGET.match(target) is not None


def compiler_options(request: Request) -> list[str]:
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


def _text(request: Request) -> str:
    """What is compiled: linalg, or the text of the kernels module."""
    if isinstance(request, LinalgRequest):
        return request.linalg
    path = request.source
    try:
        return _blank_header(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise KgenError(
            f"cannot read the kernels of {path}: {error}", code="kernels-unreadable", hint="run `kgen build` first"
        ) from error


def _blank_header(text: str) -> str:
    """The source with its leading comments blank: they say nothing to a compiler, and hold a hash that changes with
    things that it never sees. Lines keep their numbers."""
    lines = text.split("\n")  # as Python's own reader does: `splitlines` ends a comment at a form feed as well
    count = next(i for i, line in enumerate([*lines, ""]) if not line.startswith("#"))
    return "\n".join(["#"] * count + lines[count:])


@functools.cache
def driver_hash() -> str:
    """A hash of the code between a request and the compiler's verdict: what it said is kept for this code alone."""
    here = Path(__file__).parent
    return code_hash([here / name for name in DRIVER])
