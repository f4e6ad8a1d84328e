"""The front end's side of the compiler: runs inside the tool chain's interpreter, never inside kgen's own.

Started by path (`python -I worker.py`) and kept up. Reads one JSON request a line on stdin and writes one JSON reply a
line on what was stdout when it started; file descriptor 1 then points at stderr, so that no print of Triton's can break
the protocol. Needs the stdlib and triton-ascend only: the environment has no torch, and kgen isn't importable here.

A request holds `path` and `source` (the text of a generated kernels module), `function`, `signature`, `constants`,
`arch` and `a5`. A reply holds either `linalg` (text for the compiler) and `args` (run-time arguments in order), or
`error` (one line for people), `detail` (all of it) and `stage` (`load`, `request`, `ttir` or `linalg`).
"""

# mypy: disable-error-code="import-untyped, import-not-found"
# Triton has no type information, and where kgen is checked it may not be installed at all.

import importlib.abc
import importlib.util
import json
import linecache
import os
import platform
import subprocess
import sys
import traceback
import types
from typing import Any, TextIO

import triton
import triton.backends.ascend.compiler as ascend
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler.code_generator import get_jit_fn_file_line
from triton.compiler.errors import CompilationError
from triton.runtime import driver
from triton.runtime.jit import JITFunction

Request = dict[str, Any]
Reply = dict[str, Any]


class StandInDriver:
    """What Triton asks of a device driver while a module is imported; nothing is ever launched."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("npu", "Ascend910B2", 0)

    def get_current_device(self) -> int:
        return 0

    def get_benchmarker(self) -> Any:
        # `@triton.autotune` fetches one when it decorates a kernel.
        return lambda *_args, **_kwargs: 0.0


class RequestError(Exception):
    """The request doesn't fit the kernel; `stage` says when that was found."""

    def __init__(self, message: str, stage: str = "request") -> None:
        super().__init__(message)
        self.stage = stage


_MODULE_NAME = "kgen_kernels"  # the same for all, since helpers that aren't inlined carry it in their symbol
_MODULES_KEPT = 32
_modules: dict[tuple[str, str], types.ModuleType] = {}


class TextLoader(importlib.abc.SourceLoader):
    """Loads a module from text under the path that its messages should name."""

    def __init__(self, path: str, source: str) -> None:
        self._path = path
        self._source = source

    def get_filename(self, _name: str) -> str:
        return self._path

    def get_data(self, _path: str | bytes) -> bytes:
        return self._source.encode()


def load_module(path: str, source: str) -> types.ModuleType:
    """Execute a kernels module from the text that the caller hashed, so that a file changed meanwhile can't slip in."""
    key = (path, source)
    if key not in _modules:
        if len(_modules) >= _MODULES_KEPT:
            _modules.clear()
        spec = importlib.util.spec_from_loader(_MODULE_NAME, TextLoader(path, source))
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        # Triton reads a kernel's source through `inspect`; an entry without a time is never checked against the file.
        linecache.cache[path] = (len(source), None, source.splitlines(True), path)
        sys.modules[_MODULE_NAME] = module
        spec.loader.exec_module(module)
        _modules[key] = module
    return _modules[key]


def kernel_of(module: types.ModuleType, function: str) -> JITFunction:
    """The jitted function itself, without autotune or heuristics around it."""
    kernel = getattr(module, function, None)
    while kernel is not None and not isinstance(kernel, JITFunction):
        kernel = getattr(kernel, "fn", None)
    if kernel is None:
        raise RequestError(f"there is no Triton kernel named {function!r} in {os.path.basename(str(module.__file__))}")
    return kernel


def bind(kernel: JITFunction, request: Request) -> tuple[dict[str, str], dict[str, Any]]:
    """Signature in the kernel's own order and constants, as the run time would build them at a launch."""
    signature: dict[str, str] = request["signature"]
    constants: dict[str, Any] = dict(request["constants"])
    names = [parameter.name for parameter in kernel.params]
    unknown = sorted((set(signature) | set(constants)) - set(names))
    if unknown:
        raise RequestError(f"kernel {request['function']} has no parameter {', '.join(unknown)}")
    for parameter in kernel.params:
        if parameter.name in signature or parameter.name in constants:
            continue
        if not parameter.has_default:
            raise RequestError(f"kernel {request['function']} needs a value or a type for {parameter.name!r}")
        constants[parameter.name] = parameter.default
    typed = [p.name for p in kernel.params if p.is_constexpr and p.name not in constants]
    if typed:
        raise RequestError(
            f"{', '.join(typed)} of kernel {request['function']} is constexpr and needs a value, not a type"
        )
    return {name: signature[name] for name in names if name in signature and name not in constants}, constants


def attributes(kernel: JITFunction, signature: dict[str, str]) -> Any:
    """`tt.divisibility = 16` on pointers, which a launch with torch's allocations always finds.

    Integers get none: their values aren't known here, and generated kernels list them in `do_not_specialize`.
    """
    descriptor = ascend.AscendAttrsDescriptor()
    descriptor.arg_properties["tt.divisibility"] = [
        parameter.num
        for parameter in kernel.params
        if signature.get(parameter.name, "").startswith("*")
        and not parameter.do_not_specialize
        and not parameter.do_not_specialize_on_alignment
    ]
    descriptor._init_slots()
    return descriptor


def lower(request: Request) -> Reply:
    """Kernel source to the linalg text that `bishengir-compile` takes."""
    kernel = kernel_of(load_module(request["path"], request["source"]), request["function"])
    signature, constants = bind(kernel, request)
    target = GPUTarget("npu", request["arch"], 0)
    backend = ascend.AscendBackend(target)
    options = backend.parse_options({"compile_on_910_95": True} if request["a5"] else {})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    source = ASTSource(kernel, signature, constants, attributes(kernel, signature))
    module = source.make_ir(options, backend.get_codegen_implementation(), backend.get_module_map(), context)
    metadata = {"hash": "none", "target": target, **options.__dict__}
    module = ascend.make_ttir(module, metadata, options)
    linalg = ascend.ttir_to_linalg(module, metadata, options, named_ops=True)
    # The launch code strips one attribute that the compiler does not know; do what it does.
    text, _ = ascend._parse_linalg_metadata(linalg, {})
    return {"linalg": text, "args": list(signature)}


def innermost(error: BaseException) -> BaseException:
    """The compilation error of the jitted helper that failed, under those of its callers."""
    while isinstance(error.__cause__, BaseException):
        error = error.__cause__
    return error


def describe(error: BaseException, request: Request) -> Reply:
    """One line for people, all the text for a report, and where it happened."""
    detail = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    if isinstance(error, RequestError):
        return {"error": str(error), "detail": str(error), "stage": error.stage}
    if isinstance(error, CompilationError):
        return {"error": compilation_message(error, request), "detail": f"{error}\n\n{detail}", "stage": "ttir"}
    if isinstance(error, subprocess.CalledProcessError):
        text = (error.stderr or b"").decode("utf-8", "replace")
        lines = [line for line in text.splitlines() if "error:" in line] or text.splitlines()
        first = lines[0].partition("error:")[2].strip() or lines[0] if lines else f"exit code {error.returncode}"
        return {"error": f"triton-adapter-opt: {first}", "detail": f"{text}\n\n{detail}", "stage": "linalg"}
    return {"error": f"{type(error).__name__}: {first_line(str(error))}", "detail": detail, "stage": "ttir"}


def compilation_message(error: CompilationError, request: Request) -> str:
    """`kernels.py:12: message`; Triton counts lines from the `def` of the function."""
    cause = innermost(error)
    text = (cause.error_message if isinstance(cause, CompilationError) else str(cause)) or type(cause).__name__
    line: int | None = getattr(error.node, "lineno", None)
    module = _modules.get((request["path"], request["source"]))
    if line is not None and module is not None:
        line += get_jit_fn_file_line(kernel_of(module, request["function"]))[1] - 1
    place = os.path.basename(request["path"]) + (f":{line}" if line is not None else "")
    return f"{place}: {first_line(text)}"


def first_line(text: str) -> str:
    """The first line that isn't empty."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "no message")


def answer(request: Request) -> Reply:
    """The reply to one request; whatever goes wrong becomes a reply, so that the worker stays up."""
    try:
        return lower(request)
    except Exception as error:
        reply = describe(error, request)
        if reply["stage"] == "ttir" and (request["path"], request["source"]) not in _modules:
            reply["stage"] = "load"
        return reply


def take_over_stdout() -> TextIO:
    """A private writer on the original stdout; descriptor 1 becomes a copy of stderr."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return channel


def main() -> None:
    """Say hello, then answer until stdin ends."""
    channel = take_over_stdout()
    driver.set_active(StandInDriver())
    hello = {"ready": True, "python": platform.python_version(), "triton": triton.__version__}
    print(json.dumps(hello), file=channel, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(answer(request)), file=channel, flush=True)


if __name__ == "__main__":
    main()
