"""How the interpreter meets the language: builtins bound once, reductions guarded, kernels launched over their grid.

Imported by `interpreter.activate` only, once TRITON_INTERPRET is set.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import math
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from kgen.errors import KgenError
from kgen.verify.interpreter_builder import refuse

stock: Any = importlib.import_module("triton.runtime.interpreter")
tl: Any = importlib.import_module("triton.language")


class _NoScope:
    """What `_patch_lang` returns from now on: nothing was patched, so nothing is to be restored."""

    def restore(self) -> None:
        return None


def install() -> None:
    """Patch `triton.language` for the rest of the process, and how kernels and device functions are called."""
    _bind_builtins()
    _guard_reductions()
    _allow_any_tile_size()
    _remember_shapes()
    stock._patch_lang = lambda fn: _NoScope()
    stock.GridExecutor.__call__ = _launch
    stock.InterpretedFunction.__call__ = _call_device_function
    rewriter = stock.FunctionRewriter
    rewriter._compile_and_exec = _compiling_cleanly(rewriter._compile_and_exec)


def _bind_builtins() -> None:
    """Give every builtin the interpreter's semantics. Upstream does this again for each call of a device function."""
    scope = stock._LangPatchScope()
    for owner in (tl, tl.core, tl.math, tl.core.tensor, tl.core.tensor_descriptor_base):
        for name, member in inspect.getmembers(owner):
            if tl.core.is_builtin(member):
                bound = _refusing_bf16(name, member) if _is_arithmetic(name) else member
                setattr(owner, name, _bound(bound))
    for name in _MATH & set(vars(tl.core.tensor)):  # x.exp2(): upstream forgets the methods
        setattr(tl.core.tensor, name, getattr(tl.math, name))
    stock._patch_lang_tensor(tl.core.tensor, scope)
    for module in (tl, tl.core):
        stock._patch_lang_core(module, scope)


def _bound(member: Callable[..., Any]) -> Callable[..., Any]:
    semantic = stock.interpreter_semantic

    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs["_semantic"] = semantic
        return member(*args, **kwargs)

    return call


# Builtins that widen bf16 silently (/, %, minimum), or whose own complaint doesn't say which function was called.
_PROMOTING = frozenset(("minimum", "maximum", "clamp", "__truediv__", "__rtruediv__", "__mod__", "__rmod__"))
_MATH = frozenset(name for name, member in inspect.getmembers(tl.math) if tl.core.is_builtin(member))


def _is_arithmetic(name: str) -> bool:
    return name in _MATH or name in _PROMOTING


def _tensor_is_bf16(value: object) -> bool:
    return isinstance(value, tl.core.tensor) and value.type.scalar.name == "bf16"


def _refusing_bf16(name: str, member: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse a bf16 operand unless another operand is fp32: then Triton widens it, exactly, before the operation."""

    def call(*args: Any, **kwargs: Any) -> Any:
        values = [value for value in (*args, *kwargs.values()) if isinstance(value, tl.core.tensor)]
        if any(map(_tensor_is_bf16, values)):
            mixed = name in _PROMOTING and any(value.type.scalar.name == "fp32" for value in values)
            if not mixed:
                raise refuse(name.strip("_"))
        return member(*args, **kwargs)

    return call


def _guard_reductions() -> None:
    """Refuse bf16 in sums, scans and the like, which upstream runs on bit patterns, or widens without being asked."""
    original = stock.ReduceScanOpInterface.apply

    def apply(self: Any, values: Any) -> Any:
        for value in values if isinstance(values, tuple) else (values,):
            if _tensor_is_bf16(value):
                raise refuse(_reduction_name(self))
        return original(self, values)

    def promote(value: Any, _semantic: Any = None) -> Any:
        if _tensor_is_bf16(value):
            raise refuse(sys._getframe(1).f_code.co_name)
        return value

    stock.ReduceScanOpInterface.apply = apply
    tl.core._promote_bfloat16_to_float32 = promote


def _reduction_name(operation: Any) -> str:
    kind = "reduce" if isinstance(operation, stock.ReduceOps) else "scan"
    return f"{kind} with {getattr(operation.combine_fn, '__name__', 'a function')}"


def _allow_any_tile_size() -> None:
    """Ascend takes tiles of any positive size; `tl.arange` keeps its power of two there, and here."""
    limit = importlib.import_module("triton._utils").TRITON_MAX_TENSOR_NUMEL

    def validate_block_shape(shape: Any) -> int:
        numel = 1
        for position, size in enumerate(shape):
            if not isinstance(size, int) or size < 1:
                raise TypeError(f"Shape element {position} must be a positive `constexpr[int]`, got {size!r}")
            numel *= size
        if numel > limit:
            raise ValueError(f"numel ({numel}) exceeds triton maximum tensor numel ({limit})")
        return numel

    tl.core.validate_block_shape = validate_block_shape


def _remember_shapes() -> None:
    """Build a shape's objects once, for tensors and for block types: making them took a third of the time.

    They are immutable in practice; upstream makes new ones for every value.
    """
    constexpr, core = tl.constexpr, tl.core

    @functools.cache
    def of_tensor(sizes: tuple[int, ...]) -> tuple[Any, Any]:
        return constexpr(math.prod(sizes)), core.tuple([constexpr(size) for size in sizes])

    @functools.cache
    def of_block(sizes: tuple[int, ...]) -> tuple[Any, int, str]:
        if not sizes:
            raise TypeError("0d block_type is forbidden")
        shape = core.tuple(list(sizes))
        return shape, core.validate_block_shape(list(sizes)), str(shape)

    def initialise_tensor(self: Any, handle: Any, type: Any) -> None:
        self.handle = handle
        self.type = type
        self.dtype = type.scalar
        self.numel, self.shape = of_tensor(tuple(type.shape) if type.is_block() else ())

    def initialise_block(self: Any, element_ty: Any, shape: Any) -> None:
        sizes = tuple([size.value if isinstance(size, constexpr) else size for size in shape])
        self.element_ty = element_ty
        self.shape, self.numel, text = of_block(sizes)
        self.name = f"<{text}, {element_ty}>"

    core.tensor.__init__ = initialise_tensor
    core.block_type.__init__ = initialise_block


def _call_device_function(self: Any, *args: Any, **kwargs: Any) -> Any:
    """A `@triton.jit` function called from a kernel."""
    return self.rewrite()(*args, **kwargs)


def _compiling_cleanly(original: Callable[..., Any]) -> Callable[..., Any]:
    """Upstream copies its own module's names into the kernel's, which hides undefined ones; the rewriting needs one."""

    def compile_function(self: Any, tree: Any) -> Any:
        module_globals = self.fn.__globals__
        known = {*module_globals, "interpreter_semantic"}
        function = original(self, tree)
        for name in set(module_globals) - known:
            del module_globals[name]
        return function

    return compile_function


def _launch(self: Any, *args: Any, **kwargs: Any) -> None:
    """Run a kernel for each program of its grid, x outermost. Tensors must be on the CPU and are written in place."""
    parameters = inspect.signature(self.fn).parameters
    kwargs = {name: value for name, value in kwargs.items() if name in parameters}  # drops launch options
    for hook in self.pre_run_hooks:
        hook(*args, **kwargs)
    bound = inspect.getcallargs(self.fn, *args, **kwargs)
    _check_devices(bound)
    values = {name: v if name in self.constexprs else stock._implicit_cvt(v) for name, v in bound.items()}
    grid = tuple(self.grid(values) if callable(self.grid) else self.grid)
    if not 1 <= len(grid) <= 3:
        raise KgenError(f"a grid has one to three dimensions, got {grid}", code="interpreter-grid")
    grid += (1,) * (3 - len(grid))
    builder = stock.interpreter_builder
    builder.set_grid_dim(*grid)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="tl.make_block_ptr is deprecated")
        for index in itertools.product(*map(range, grid)):
            builder.set_grid_idx(*index)
            self.fn(**values)


def _check_devices(arguments: dict[str, Any]) -> None:
    for name, value in arguments.items():
        device = getattr(value, "device", None)
        if hasattr(value, "data_ptr") and getattr(device, "type", "cpu") != "cpu":
            raise KgenError(
                f"the interpreter reads CPU tensors, `{name}` is on {device}",
                code="interpreter-device",
                hint=f"pass {name}.cpu()",
            )
