"""The interpreter's operations: dots, casts, constants, comparisons and padding replaced, other bf16 work refused.

Imported by `interpreter.activate` only, once TRITON_INTERPRET is set. The stock builder represents a value as a
`TensorHandle(data: numpy array, dtype: triton scalar type)`; bf16 data are uint16 bit patterns, of which numpy knows
nothing, so every operation that isn't pure data movement has to be told.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from kgen.errors import KgenError
from kgen.verify import bf16

stock: Any = importlib.import_module("triton.runtime.interpreter")
tl: Any = importlib.import_module("triton.language")
ir: Any = importlib.import_module("triton._C.libtriton").ir

Handle = Any  # triton.runtime.interpreter.TensorHandle

# Operations that move bf16 bits and don't look at them, or that this module replaces; all others are refused. They are
# named without the `create_` prefix.
BF16_ALLOWED = frozenset((
    "load", "store", "masked_load", "masked_store", "tensor_pointer_load", "tensor_pointer_store", "make_block_ptr",
    "advance", "make_tensor_descriptor", "descriptor_load", "descriptor_store", "descriptor_gather",
    "descriptor_scatter", "select", "reshape", "trans", "expand_dims", "broadcast", "cat", "join", "split", "splat",
    "unsplat", "gather", "bitcast", "addptr", "int_to_ptr", "ptr_to_int", "atomic_cas", "print", "assert", "assume",
    "barrier", "get_program_id", "get_num_programs", "make_range", "dot", "fp_ext", "fp_trunc", "fp_to_fp",
))  # fmt: skip

_COMPARISONS: dict[str, Callable[..., Any]] = {
    "LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal, "EQ": np.equal, "NE": np.not_equal,
}  # fmt: skip


def is_bf16(value: object) -> bool:
    """Whether a handle (or anything else) holds bf16 values; pointers to bf16 don't."""
    dtype = getattr(value, "dtype", None)
    return isinstance(dtype, tl.dtype) and dtype.scalar.name == "bf16"


def refuse(operation: str) -> KgenError:
    """The error for bf16 arithmetic that isn't a dot."""
    return KgenError(
        f"bf16 arithmetic: `{operation}` on a bf16 value",
        code="interpreter-bf16",
        hint="widen first, `x.to(tl.float32)`: Ascend's vector unit has no bf16 arithmetic",
    )


def install() -> None:
    """Replace and guard the methods of the stock builder class; the one builder instance sees it at once."""
    builder = stock.InterpreterBuilder
    stock._get_np_dtype = _numpy_dtype
    _guard(builder)
    _install_comparisons(builder)
    builder.cast_impl = _cast
    for name in ("fp_ext", "fp_trunc", "si_to_fp", "ui_to_fp", "fp_to_si", "fp_to_ui"):
        setattr(builder, f"create_{name}", _cast)
    builder.create_fp_to_fp = _cast_with_rounding(builder.create_fp_to_fp)
    builder.create_dot = _dot(builder.create_dot)
    builder.create_maxnumf = lambda self, lhs, rhs: self.binary_op(lhs, rhs, np.fmax)
    builder.create_minnumf = lambda self, lhs, rhs: self.binary_op(lhs, rhs, np.fmin)
    for name in ("maxnumf", "minnumf"):
        setattr(builder, f"create_{name}", _refusing(name, getattr(builder, f"create_{name}")))
    builder.create_fadd = _add(builder.create_fadd)
    builder.create_tensor_pointer_load = _block_load
    builder.get_bf16 = _bf16_constant


def _guard(builder: Any) -> None:
    """Refuse bf16 in every operation that isn't listed, those of later Triton versions included."""
    for attribute in dir(builder):
        name = attribute.removeprefix("create_")
        if attribute.startswith("create_") and name not in BF16_ALLOWED:
            setattr(builder, attribute, _refusing(name, getattr(builder, attribute)))


def _refusing(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        for arg in args:
            if is_bf16(arg):
                raise refuse(name)
        return original(self, *args, **kwargs)

    return guarded


def _add(refusing: Callable[..., Any]) -> Callable[..., Any]:
    """`x + 0.0` is how a tile is copied (K201): exact, and so the one bf16 sum that is let through."""

    def add(self: Any, lhs: Handle, rhs: Handle) -> Handle:
        if is_bf16(lhs) and is_bf16(rhs) and not rhs.data.any():
            return stock.TensorHandle(lhs.data.copy(), lhs.dtype)
        return refusing(self, lhs, rhs)

    return add


def _install_comparisons(builder: Any) -> None:
    """Comparisons give int1; stock labels them with the operands' type. Names are `icmpSLT`, `fcmpOEQ` and the like."""
    for attribute in dir(builder):
        if attribute.startswith(("create_icmp", "create_fcmp")):
            name = attribute.removeprefix("create_")
            setattr(builder, attribute, _refusing(name, _comparison(_COMPARISONS[name[-2:]])))


def _comparison(operation: Callable[..., Any]) -> Callable[..., Any]:
    def compare(self: Any, lhs: Handle, rhs: Handle) -> Handle:
        return stock.TensorHandle(operation(lhs.data, rhs.data), tl.int1)

    return compare


_NUMPY_DTYPES = {
    "int1": np.bool_, "fp16": np.float16, "fp32": np.float32, "fp64": np.float64, "bf16": np.uint16,
    "int8": np.int8, "uint8": np.uint8, "int16": np.int16, "uint16": np.uint16, "int32": np.int32, "uint32": np.uint32,
    "int64": np.int64, "uint64": np.uint64, "fp8e5": np.uint8, "fp8e5b16": np.uint8, "fp8e4nv": np.uint8,
    "fp8e4b8": np.uint8, "fp8e4b15": np.uint8,
}  # fmt: skip
_NUMPY_DTYPES_BY_NAME = {name: np.dtype(kind) for name, kind in _NUMPY_DTYPES.items()}
_POINTER = np.dtype(np.uint64)


def _numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """The numpy dtype of a triton scalar, pointer or block type; stock builds its table on each call."""
    element = dtype.scalar
    return _POINTER if element.is_ptr() else _NUMPY_DTYPES_BY_NAME[element.name]


def _cast(self: Any, src: Handle, dst_type: Any, is_signed: bool | None = None) -> Handle:
    """Value conversion between any two number types; to bf16 nearest even, rounded once."""
    source, target = src.dtype.scalar.name, dst_type.scalar.name
    data = src.data
    if source == target:
        return src
    if target == "bf16":
        return stock.TensorHandle(_to_bf16(data, source), dst_type.scalar)
    if source == "bf16":
        if target != "fp32":
            raise refuse(f"cast to {target}")
        return stock.TensorHandle(bf16.to_float32(data), dst_type.scalar)
    return stock.TensorHandle(data.astype(_numpy_dtype(dst_type)), dst_type.scalar)


def _to_bf16(data: Any, source: str) -> bf16.Bits:
    if source == "fp32":
        return bf16.from_float32(data)
    if source.startswith("fp8"):
        raise refuse(f"cast from {source}")
    return bf16.from_float64(data.astype(np.float64))


def _cast_with_rounding(original: Callable[..., Any]) -> Callable[..., Any]:
    """`create_fp_to_fp`: fp8, or a cast with an explicit rounding mode."""

    def cast(self: Any, src: Handle, dst_type: Any, rounding_mode: Any) -> Handle:
        if dst_type.scalar.name == "bf16" and rounding_mode == ir.ROUNDING_MODE.RTZ and src.data.dtype == np.float32:
            return stock.TensorHandle(bf16.from_float32_toward_zero(src.data), dst_type.scalar)
        if is_bf16(src) or dst_type.scalar.name == "bf16":
            return _cast(self, src, dst_type)
        return original(self, src, dst_type, rounding_mode)

    return cast


def _dot(original: Callable[..., Any]) -> Callable[..., Any]:
    """`a [.., M, K] @ b [.., K, N] + d [.., M, N]`: operands widened, products and sums in fp32, then d's type."""

    def dot(self: Any, a: Handle, b: Handle, d: Handle, input_precision: Any, max_num_imprecise_acc: int) -> Handle:
        if a.dtype.scalar.name not in ("bf16", "fp16", "fp32"):
            return original(self, a, b, d, input_precision, max_num_imprecise_acc)
        lhs, rhs = bf16.widen(a.data), bf16.widen(b.data)
        if a.dtype.scalar.name == "fp32" and input_precision == ir.INPUT_PRECISION.TF32:
            lhs, rhs = bf16.round_to_tf32(lhs), bf16.round_to_tf32(rhs)
        total = np.matmul(lhs, rhs) + d.data.astype(np.float32, copy=False)
        return stock.TensorHandle(total.astype(d.data.dtype, copy=False), d.dtype.scalar)

    return dot


def _bf16_constant(self: Any, value: float) -> Handle:
    return stock.TensorHandle(bf16.from_float64(np.array([value], dtype=np.float64)), tl.bfloat16)


def _block_load(
    self: Any, ptr: Any, boundary_check: Any, padding: Any, cache_modifier: Any, eviction_policy: Any, is_volatile: bool
) -> Handle:
    """Load through a block pointer; lanes outside the checked dims hold zero, or NaN if asked."""
    pointers, mask = ptr.materialize_pointers(boundary_check)
    element = pointers.get_element_ty()
    fill: Any = 0
    if padding == ir.PADDING_OPTION.PAD_NAN:
        fill = 0x7FC0 if element.name == "bf16" else np.nan
    other = stock.TensorHandle(np.full(pointers.data.shape, fill, dtype=_numpy_dtype(element)), element)
    mask_handle = stock.TensorHandle(mask, tl.int1)
    return self.create_masked_load(pointers, mask_handle, other, cache_modifier, eviction_policy, is_volatile)
