"""The memories that a core sees: its own, poisoned at start, and global memory.

Poison is a 16-bit pattern that is NaN in fp32, fp16 and bf16, and a large odd number as an integer of 16 bits or more:
a small one like -1 would pass a bound or a clamp unseen. Every view is checked against the memory that it lies in, so
that nothing is read or written outside it.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kgen.virtual.execute.errors import ExecutionError
from kgen.virtual.hivm.types import SPACE_NAMES
from kgen.virtual.launch import Buffer, Launch
from kgen.virtual.machine.views import WORKSPACE, Base, View

Array = NDArray[Any]
POISON = 0x7FFF

STORAGE: dict[str, np.dtype[Any]] = {
    name: np.dtype(kind)
    for name, kind in {
        "bf16": "<u2", "f16": "<f2", "f32": "<f4", "f64": "<f8", "i8": "i1", "ui8": "u1", "i16": "<i2", "ui16": "<u2",
        "i32": "<i4", "ui32": "<u4", "i64": "<i8", "ui64": "<u8", "index": "<i8",
    }.items()
}  # fmt: skip


class GlobalMemory:
    """The launch's tensors by their position, and the workspace."""

    def __init__(self, launch: Launch, workspace_bytes: int) -> None:
        """Tensors must bring their `data`, a contiguous writable numpy array."""
        self.memories: dict[Base, Array] = {WORKSPACE: poisoned(workspace_bytes)}
        self.names: dict[Base, str] = {WORKSPACE: "the workspace"}
        for position, argument in enumerate(launch.arguments):
            if isinstance(argument, Buffer):
                if argument.data is None:
                    raise ExecutionError(f"the tensor {argument.name} has no data", hint="give it a numpy array")
                self.memories[position] = argument.data.reshape(-1).view(np.uint8)
                self.names[position] = argument.name


class CoreMemory:
    """One core's UB, L1 and L0C beside global memory."""

    def __init__(self, shared: GlobalMemory, ub: int, l1: int, l0c: int) -> None:
        own: dict[Base, Array] = {"ub": poisoned(ub), "cbuf": poisoned(l1), "cc": poisoned(l0c)}
        self._memories = shared.memories | own
        self._names = shared.names | {space: SPACE_NAMES[str(space)] for space in own}

    def array(self, view: View, element: str) -> Array:
        """A view as a numpy array on the memory itself; bf16 as its bits, i1 not at all (see `bits`).

        A view without elements lies nowhere, whatever its address says.
        """
        base, address, sizes, strides = view
        kind = STORAGE[element]
        width = kind.itemsize
        memory = self._memory(base)
        try:
            array: Array = np.ndarray(sizes, kind, memory, address // 8, tuple([s * width for s in strides]))
            return array
        except (TypeError, ValueError):
            if 0 in sizes:
                return np.empty(sizes, kind)
            raise self._outside(view, width, memory) from None

    def bits(self, view: View) -> NDArray[np.bool_]:
        """A view of i1, packed one bit an element from the lowest bit on, as a boolean array of its own."""
        if 0 in view[2]:
            return np.empty(view[2], np.bool_)
        packed, start = self._packed(view)
        mask: NDArray[np.bool_] = np.ndarray(
            view[2], np.bool_, np.unpackbits(packed, bitorder="little"), start, view[3]
        )
        return mask

    def put_bits(self, view: View, values: Array) -> None:
        """Write a view of i1; bits beside it keep what they are."""
        if 0 in view[2]:
            return
        packed, start = self._packed(view)
        unpacked = np.unpackbits(packed, bitorder="little")
        np.ndarray(view[2], np.bool_, unpacked, start, view[3])[...] = values
        packed[...] = np.packbits(unpacked, bitorder="little")

    def load(self, view: View, element: str, indices: tuple[int, ...]) -> int | float:
        """One element."""
        one = self._one(view, element, indices)
        if element == "i1":
            return int(self.bits(one).reshape(-1)[0])
        value: int | float = self.array(one, element).reshape(-1)[0].item()
        return _from_bf16(int(value)) if element == "bf16" else value

    def store(self, view: View, element: str, indices: tuple[int, ...], value: float) -> None:
        """One element."""
        one = self._one(view, element, indices)
        if element == "i1":
            self.put_bits(one, np.array([bool(value)]))
        else:
            self.array(one, element)[...] = _to_bf16(value) if element == "bf16" else value

    def _one(self, view: View, element: str, indices: tuple[int, ...]) -> View:
        base, address, _, strides = view
        bits = 1 if element == "i1" else 8 * STORAGE[element].itemsize
        return base, address + bits * sum(i * s for i, s in zip(indices, strides, strict=True)), (1,), (1,)

    def _memory(self, base: Base) -> Array:
        found = self._memories.get(base)
        if found is None:
            raise ExecutionError(f"a view lies in {base!r}, which is no memory of this launch")
        return found

    def _packed(self, view: View) -> tuple[Array, int]:
        """The bytes that a view of i1 lies in, on the memory itself, and its first bit in them."""
        base, address, sizes, strides = view
        reach = [(size - 1) * stride for size, stride in zip(sizes, strides, strict=True)]
        low, high = address + sum(r for r in reach if r < 0), address + sum(r for r in reach if r > 0)
        memory = self._memory(base)
        if low < 0 or high >= 8 * memory.size:
            raise self._outside(view, 0, memory)
        first = low >> 3
        return memory[first : (high >> 3) + 1], address - 8 * first

    def _outside(self, view: View, width: int, memory: Array) -> ExecutionError:
        """What is said of a view that isn't all in its memory; a `width` of 0 bytes is one bit."""
        base, address, sizes, strides = view
        bits = 8 * width or 1
        last = address + bits * (1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)))
        return ExecutionError(
            f"bytes {address // 8} to {-(-last // 8)} of {self._names[base]}, which has {memory.size}",
            code="execute-out-of-bounds",
            hint="the compiled kernel reaches past a tensor or a memory: a bound is missing, or is on the wrong axis",
        )


def poisoned(size: int) -> Array:
    """Bytes that nobody has written yet."""
    return np.full(-(-size // 2), POISON, "<u2").view(np.uint8)[:size]


def _from_bf16(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])


def _to_bf16(value: float) -> int:
    bits = int(struct.unpack("<I", struct.pack("<f", value))[0])
    if math.isnan(value):
        return bits >> 16 | 0x40
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
