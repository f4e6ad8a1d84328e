"""The memories that a core sees: its own, poisoned at start, and global memory.

Poison is a byte that makes NaN in fp32, fp16 and bf16, and -1 as an integer. Every view is checked against the memory
that it lies in, so that nothing is read or written outside it.
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
POISON = 0xFF

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
        """A view as a numpy array on the memory itself; bf16 as its bits, i1 not at all (see `bits`)."""
        base, address, sizes, strides = view
        kind = STORAGE[element]
        width = kind.itemsize
        memory = self._memory(base)
        try:
            array: Array = np.ndarray(sizes, kind, memory, address // 8, tuple([s * width for s in strides]))
            return array
        except (TypeError, ValueError):
            raise self._outside(view, width, memory) from None

    def bits(self, view: View) -> NDArray[np.bool_]:
        """A view of i1, packed one bit an element from the lowest bit on, as a boolean array of its own."""
        places = self._bit_places(view)
        memory = self._memory(view[0])
        mask: NDArray[np.bool_] = (memory[places >> 3] >> (places & 7).astype(np.uint8) & 1).astype(np.bool_)
        return mask

    def put_bits(self, view: View, values: Array) -> None:
        """Write a view of i1."""
        places = self._bit_places(view).reshape(-1)
        memory = self._memory(view[0])
        flat = np.broadcast_to(values, view[2]).reshape(-1).astype(np.uint8)
        whole = _whole_bytes(places)
        if whole is not None:
            memory[whole : whole + len(places) // 8] = np.packbits(flat, bitorder="little")
            return
        for place, value in zip(places.tolist(), flat.tolist(), strict=True):
            byte, bit = place >> 3, place & 7
            memory[byte] = (int(memory[byte]) & ~(1 << bit)) | (value << bit)

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

    def _bit_places(self, view: View) -> NDArray[np.int64]:
        base, address, sizes, strides = view
        places = np.full(sizes, address, np.int64)
        for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
            places += (np.arange(size) * stride).reshape([-1 if a == axis else 1 for a in range(len(sizes))])
        memory = self._memory(base)
        if places.size and (places.min() < 0 or places.max() >= 8 * memory.size):
            raise self._outside(view, 0, memory)
        return places

    def _outside(self, view: View, width: int, memory: Array) -> ExecutionError:
        base, address, sizes, strides = view
        last = sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)) * width + max(width, 1)
        return ExecutionError(
            f"bytes {address // 8} to {address // 8 + last} of {self._names[base]}, which has {memory.size}",
            code="execute-out-of-bounds",
            hint="the compiled kernel reaches past a tensor or a memory: a bound is missing, or is on the wrong axis",
        )


def poisoned(size: int) -> Array:
    """Bytes that are NaN as floats."""
    return np.full(size, POISON, np.uint8)


def _whole_bytes(places: NDArray[np.int64]) -> int | None:
    """The first byte, where the bits are whole bytes one after another."""
    count = len(places)
    if count and count % 8 == 0 and places[0] % 8 == 0 and places[-1] - places[0] == count - 1:
        return int(places[0]) >> 3
    return None


def _from_bf16(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])


def _to_bf16(value: float) -> int:
    bits = int(struct.unpack("<I", struct.pack("<f", value))[0])
    if math.isnan(value):
        return bits >> 16 | 0x40
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
