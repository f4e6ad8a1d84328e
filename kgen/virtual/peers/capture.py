"""Captures the launches that a host program makes: runs inside the peers' environment, never inside kgen's own.

Started by path (`python -I capture.py`) and kept up, one JSON request a line on stdin, one JSON reply a line on what
was stdout. Triton's launch is replaced: it binds arguments as a real launch would, notes them, lowers each distinct
kernel to the compiler's input, and runs nothing. Tensors lie on the CPU and are never filled; a stand-in says that the
device is the NPU asked for.

A request holds `subject` (`fla`, `package` or `call`), `target`, what the subject needs (see `subjects`), and a reply
`launches`, `kernels` (linalg text by key) and `torch_ops` (operations of torch between launches), or `error`.
"""

# mypy: disable-error-code="import-untyped, import-not-found, misc"
# The packages of the peers' environment have no type information here, or aren't installed.

import hashlib
import inspect
import json
import os
import sys
import traceback
import types
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]

import subjects
import torch
import triton.backends.ascend.compiler as ascend
import worker
from torch.utils._python_dispatch import TorchDispatchMode
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime import driver
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

Reply = dict[str, Any]
ELEMENTS = {
    torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32", torch.float64: "f64", torch.int64: "i64",
    torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "ui8", torch.bool: "i8",
}  # fmt: skip
MOST_VALUES = 1 << 20  # of an integer tensor whose content goes along


class Device(worker.StandInDriver):
    """The NPU that host code finds."""

    target = ""
    cores: ClassVar[dict[str, int]] = {}  # `num_aicore`, `num_vectorcore`: both are the request's

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("npu", self.target, 0)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        return torch.cpu

    class utils:
        """What launchers ask for the numbers of cores."""

        @staticmethod
        def get_device_properties(_device: int) -> dict[str, int]:
            return Device.cores


class Capture:
    """The launches of one request."""

    def __init__(self, target: str, unwritten: set[int]) -> None:
        """`unwritten`: storages, by address, that no torch operation has written."""
        self.target = GPUTarget("npu", target, 0)
        self._unwritten = unwritten
        self.launches: list[dict[str, Any]] = []
        self.kernels: dict[str, dict[str, Any]] = {}
        self.config: str | None = None

    def note(self, kernel: JITFunction, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any) -> None:
        """One launch: arguments bound and specialised as the run time does it."""
        kwargs = {k: v for k, v in kwargs.items() if k != "stream"}
        kwargs["debug"] = False
        kwargs.update(getattr(kernel, "bishengir_option", None) or {})
        backend = ascend.AscendBackend(self.target)
        if kernel.binder is None:
            kernel.create_binder(backend)
        bound, specialised, _, _, excess = kernel.binder(*args, **kwargs)
        options = backend.parse_options(kwargs)
        values = tuple(bound.values())
        names = [kernel.params[i].name for i in kernel.non_constexpr_indices]
        signature = {n: "*i8" if t == "none" else t for n, t in zip(names, specialised[: len(names)], strict=True)}
        attributes = backend.get_attrs_descriptor(kernel.params, values)
        fixed = attributes.get_constants()
        constants = {
            p.name: v
            for v, p in zip(values, kernel.params, strict=True)
            if p.is_constexpr or p.num in fixed or v is None
        }
        grid = grid(bound) if callable(grid) else grid
        asked = {k: v for k, v in excess.items() if k not in ("debug", "grid", "warmup")}
        key = self._lower(kernel, signature, constants, attributes, options)
        self.launches.append(
            {
                "kernel": kernel.fn.__name__, "wrapper": caller(), "grid": [*map(int, grid), 1, 1, 1][:3], "key": key,
                "options": {k: v for k, v in asked.items() if isinstance(v, bool | int)}, "config": self.config,
                "constants": {k: repr(v) for k, v in constants.items()},
                "arguments": [
                    argument(p.name, v, self._unwritten)
                    for v, p in zip(values, kernel.params, strict=True)
                    if p.name in signature and p.name not in constants
                ],
            }
        )  # fmt: skip

    def _lower(self, kernel: JITFunction, signature: Any, constants: Any, attributes: Any, options: Any) -> str:
        """The key of a kernel's linalg text, made once for each distinct specialisation."""
        parts = (
            kernel.fn.__module__, kernel.fn.__name__, sorted(signature.items()), sorted(map(repr, constants.items())),
            sorted((k, str(v)) for k, v in attributes.arg_properties.items()),
            sorted(map(repr, options.__dict__.items())),
        )  # fmt: skip
        key = hashlib.sha256(repr(parts).encode()).hexdigest()[:24]
        if key not in self.kernels:
            try:
                source = ASTSource(kernel, signature, constants, attributes)
                self.kernels[key] = {"linalg": lower(source, options, self.target)}
            except Exception as error:
                request = {"path": inspect.getfile(kernel.fn), "source": "", "function": kernel.fn.__name__}
                self.kernels[key] = {"error": worker.describe(error, request)["error"]}
        return key


def lower(source: ASTSource, options: Any, target: GPUTarget) -> str:
    """A bound kernel to the linalg text that the compiler takes."""
    backend = ascend.AscendBackend(target)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module = source.make_ir(options, backend.get_codegen_implementation(), backend.get_module_map(), context)
    metadata = {"hash": "none", "target": target, **options.__dict__}
    module = ascend.make_ttir(module, metadata, options)
    text, _ = ascend._parse_linalg_metadata(ascend.ttir_to_linalg(module, metadata, options, named_ops=True), {})
    return str(text)


def argument(name: str, value: Any, unwritten: set[int]) -> dict[str, Any]:
    """A run-time argument: a tensor by its size, and by its content, as it lies in memory, where it holds integers that
    someone has written: what a captured kernel would write isn't there."""
    if isinstance(value, torch.Tensor):
        storage = value.untyped_storage()
        whole = storage.nbytes() // value.element_size() - value.storage_offset()
        entry = {"name": name, "kind": "tensor", "element": ELEMENTS[value.dtype], "count": max(whole, value.numel())}
        known = not value.is_floating_point() and storage.data_ptr() not in unwritten
        if known and whole <= MOST_VALUES:
            entry["values"] = value.as_strided((whole,), (1,)).tolist()
        return entry
    return {"name": name, "kind": "float" if isinstance(value, float) else "int", "value": value}


def caller() -> str:
    """The nearest function of the host program that isn't private: whose launch it is."""
    frame = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        inside = subjects.is_host(code.co_filename)
        if inside and not code.co_name.startswith(("_", "<")) and code.co_name not in ("wrapper", "run", "launch"):
            return code.co_name
        frame = frame.f_back  # type: ignore[assignment]
    return "?"


class CountOps(TorchDispatchMode):
    """Counts operations of torch that do work: neither views nor allocations."""

    FREE = (
        "view", "reshape", "expand", "permute", "transpose", "t.", "slice", "select", "squeeze", "unsqueeze", "alias",
        "detach", "empty", "new_empty", "as_strided", "split", "unbind", "chunk", "narrow", "_unsafe_view",
        "_local_scalar_dense", "item", "is_pinned", "lift_fresh",
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.unwritten: set[int] = set()  # storages that were only allocated, by address

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func).removeprefix("aten.")
        works, allocates = not name.startswith(self.FREE), name.startswith(("empty", "new_empty"))
        self.count += works
        result = func(*args, **(kwargs or {}))
        if works or allocates:
            for made in result if isinstance(result, tuple | list) else (result,):
                if isinstance(made, torch.Tensor):
                    change = self.unwritten.add if allocates else self.unwritten.discard
                    change(made.untyped_storage().data_ptr())
        return result


@contextmanager
def capturing(capture: Capture) -> Any:
    """While this is open, launches are noted instead of made."""
    run, tune = JITFunction.run, Autotuner.run

    def noted(self: JITFunction, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> None:
        capture.note(self, args, kwargs, grid)

    def tuned(self: Autotuner, *args: Any, **kwargs: Any) -> None:
        """The first configuration that is left: nothing can be timed here."""
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        configs = self.prune_configs(kwargs) if len(self.configs) > 1 else self.configs
        capture.config = str(configs[0]) if len(configs) > 1 else None
        self.fn.run(*args, **kwargs, **configs[0].all_kwargs())
        capture.config = self.nargs = None

    JITFunction.run, Autotuner.run = noted, tuned
    try:
        yield
    finally:
        JITFunction.run, Autotuner.run = run, tune


def stand_in_npu() -> None:
    """`torch.npu` as far as host code asks it, and autocast decorators that take the device's name."""
    npu = types.ModuleType("torch.npu")
    properties = types.SimpleNamespace(name=Device.target, total_memory=64 << 30)
    answers: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True, "device_count": lambda: 1, "current_device": lambda: 0,
        "get_device_name": lambda *_: Device.target, "get_device_properties": lambda *_: properties,
        "synchronize": lambda *_: None, "device": lambda *_: nullcontext(),
        "is_current_stream_capturing": lambda: False,
    }  # fmt: skip
    for name, answer in answers.items():
        setattr(npu, name, answer)
    torch.npu = npu

    def plain(function: Any = None, **_kwargs: Any) -> Any:
        return (lambda f: f) if function is None else function

    torch.amp.custom_fwd = torch.amp.custom_bwd = plain


def answer(request: dict[str, Any]) -> Reply:
    """The reply to one request; whatever goes wrong becomes a reply, so that the process stays up."""
    ops = CountOps()
    capture = Capture(request["target"], ops.unwritten)
    Device.target, Device.cores = request["target"], request["cores"]
    try:
        run = subjects.prepare(request)
        with capturing(capture), ops:
            run()
    except Exception as error:
        detail = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        return {"error": f"{type(error).__name__}: {error}", "detail": detail, "launches": len(capture.launches)}
    return {"launches": capture.launches, "kernels": capture.kernels, "torch_ops": ops.count}


def main() -> None:
    """Say hello, then answer until stdin ends."""
    channel = worker.take_over_stdout()
    driver.set_active(Device())
    stand_in_npu()
    print(json.dumps({"ready": True, "torch": torch.__version__}), file=channel, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=channel, flush=True)


if __name__ == "__main__":
    main()
