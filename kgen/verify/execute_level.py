"""The `execute` level of `kgen verify`: a generated package whose kernels run as the compiler left them.

Each launch compiles its variant through the real compiler and runs the final IR on the CPU, at the compiler's own
addresses and in poisoned memories. Inputs, references and tolerances are the interpret level's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kgen.errors import KgenError
from kgen.spec.models import Spec
from kgen.spec.targets import Target
from kgen.storage import home_folder
from kgen.verify.cases import GdnCase
from kgen.verify.interpret_level import run_case as run_interpreted
from kgen.verify.package import load_package
from kgen.verify.rows import Row
from kgen.virtual import Compiler, CompileRequest, find_toolchain
from kgen.virtual.execute import Execution, Sizes, prepare
from kgen.virtual.launch import Argument, Buffer, Launch

LEVEL = "execute"

_TYPES = {
    torch.bfloat16: ("bf16", "bf16"), torch.float16: ("fp16", "f16"), torch.float32: ("fp32", "f32"),
    torch.int32: ("i32", "i32"), torch.int64: ("i64", "i64"), torch.int8: ("i8", "i8"),
}  # fmt: skip


def sizes_of(target: Target) -> Sizes:
    """The memories of a target's cores."""
    if target.memory is None:
        raise KgenError(f"{target.name} has no Ascend compiler", code="target-compile", hint="choose an Ascend target")
    return Sizes(target.memory.ub_bytes.value, target.memory.l1_bytes.value, target.memory.l0c_bytes.value)


class CompiledKernels:
    """A package's kernels, each launch compiled and executed; a context manager that keeps the compiler up."""

    def __init__(self, package: Path, target: str, sizes: Sizes, toolchain: str = "auto") -> None:
        self.package = load_package(package)
        self._source = package / "kernels.py"
        self._target = target
        self._sizes = sizes
        self._compiler = Compiler(find_toolchain(toolchain), jobs=1, cache_dir=home_folder() / "compiled")
        self._prepared: dict[str, Execution] = {}

    def __enter__(self) -> CompiledKernels:
        self._compiler.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._compiler.__exit__(*error)

    def run_case(self, spec: Spec, case: GdnCase) -> list[Row]:
        """The operator and each stage on one case, a row for each output."""
        with self._standing_in():
            rows = run_interpreted(spec, self.package, case, level=LEVEL)
        versions = dict(self._compiler.toolchain.versions)
        return [replace(row, toolchain=versions) for row in rows]

    @contextmanager
    def _standing_in(self) -> Iterator[None]:
        """While this is open, the package's launchers find compiled kernels in place of interpreted ones."""
        module = self.package.module.kernels
        kernels = {name: fn for name, fn in vars(module).items() if name.endswith("_kernel")}
        for name, fn in kernels.items():
            setattr(module, name, _StandIn(name, fn, self.launch))
        try:
            yield
        finally:
            for name, fn in kernels.items():
                setattr(module, name, fn)

    def launch(self, function: str, grid: tuple[int, ...], constants: dict[str, Any], values: dict[str, Any]) -> None:
        """Compile one launch's variant and run it; the tensors among `values` are read and written in place."""
        signature = {name: _type(value) for name, value in values.items()}
        request = CompileRequest(self._source, function, signature, constants, self._target)
        key = self._compiler.key(request)
        if key not in self._prepared:
            result = self._compiler.compile(request, keep_ir=True)
            if not result.usable or result.final_ir is None:
                raise RuntimeError(f"{function} does not compile: {result.verdict}: {result.message}")
            self._prepared[key] = prepare(result.final_ir, self._sizes)
        whole = (*grid, 1, 1, 1)
        arguments = tuple(_argument(name, value) for name, value in values.items())
        report = self._prepared[key].run(Launch((whole[0], whole[1], whole[2]), arguments))
        if report.faults:
            raise RuntimeError(f"{function}: {report.faults}")


class _StandIn:
    """What a launcher sees of a kernel: `arg_names`, and `kernel[grid](**arguments)`."""

    def __init__(self, name: str, kernel: Any, launch: Callable[..., None]) -> None:
        self.name = name
        self.arg_names = list(kernel.arg_names)
        self._launch = launch
        annotations = inspect.signature(kernel.fn).parameters
        self._constexpr = {n for n, p in annotations.items() if "constexpr" in str(p.annotation)}

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def run(**arguments: Any) -> None:
            fixed = {n: v for n, v in arguments.items() if n in self._constexpr or v is None}
            values = {n: arguments[n] for n in self.arg_names if n not in fixed}
            self._launch(self.name, grid, fixed, values)

        return run


def _type(value: Any) -> str:
    """A run-time argument's type as a launch would find it; no integer is specialised."""
    if isinstance(value, Tensor):
        return f"*{_TYPES[value.dtype][0]}"
    if isinstance(value, float):
        return "fp32"
    return "i32" if -(2**31) <= value < 2**31 else "i64"


def _argument(name: str, value: Any) -> Argument:
    """A tensor with its own memory, bf16 as its bits."""
    if not isinstance(value, Tensor):
        return value  # type: ignore[no-any-return]
    flat = value.view(torch.int16) if value.dtype == torch.bfloat16 else value
    return Buffer(name, _TYPES[value.dtype][1], value.numel(), data=flat.detach().reshape(-1).numpy())
