"""What a handler is given, and how operands lie in UB's blocks of 32 bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kgen.virtual.execute.memory import CoreMemory
from kgen.virtual.hivm.types import MemRef, Scalar, Type
from kgen.virtual.machine.protocol import Operand
from kgen.virtual.machine.views import View

Handler = Callable[[CoreMemory, Sequence[Operand]], None]
BLOCK_BITS = 256  # a block of UB: what DMA pads to, and what the library's fast paths must be aligned to


def view_of(operand: Operand) -> View:
    """An operand that is a memref."""
    assert isinstance(operand, tuple)
    return operand


def number_of(operand: Operand) -> float:
    """An operand that is a scalar."""
    assert not isinstance(operand, tuple)
    return operand


def element_names(types: Sequence[Type]) -> list[str]:
    """HIVM's element names of the operands."""
    return [t.element if isinstance(t, MemRef | Scalar) else "" for t in types]


def is_empty(view: View) -> bool:
    """Whether a view has no elements; the library does nothing then (`is_no_op`)."""
    return 0 in view[2]


def is_vector_like(view: View, bits: int) -> bool:
    """The library's `is_memref_aligned`: starts on a block, contiguous, rows that are whole blocks apart."""
    _, address, sizes, strides = view
    if address % BLOCK_BITS:
        return False
    if all(size == 1 for size in sizes):
        return True
    return strides[-1] == 1 and (len(strides) < 2 or strides[-2] * bits % BLOCK_BITS == 0)


def is_dma_like(view: View, bits: int) -> bool:
    """The library's `check_*d_ubuf_stride_align`: every stride is 1 or whole blocks, or its size is 1."""
    pairs = zip(view[2], view[3], strict=True)
    return all(stride == 1 or size == 1 or stride * bits % BLOCK_BITS == 0 for size, stride in pairs)
