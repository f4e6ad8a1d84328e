"""What a launch of a variant gets at a shape: grid, arguments and tables, as the generated launchers give them.

No tensor is made: the timeline needs sizes, and the content of the sequence tables only.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from kgen.errors import KgenBug, KgenError
from kgen.ir.nodes import Kernel
from kgen.search.variants import MODES, Variant
from kgen.spec.models import DimKind, Spec
from kgen.spec.targets import Target
from kgen.virtual.launch import Argument, Buffer, Launch

ELEMENTS = {"bf16": "bf16", "fp16": "f16", "fp32": "f32", "i8": "i8", "i32": "i32", "i64": "i64"}
REFERENCE_ROWS = 4096  # of the shape at which variants are modelled


@dataclass(frozen=True)
class Shape:
    """Rows of a batch, or of each packed sequence. Heads and widths are the variant's."""

    batch: int
    rows: int  # of each batch row; of all sequences when packed
    lengths: tuple[int, ...] | None = None

    @property
    def text(self) -> str:
        """`B1 T4096`, or `4096 rows in 8 sequences`."""
        if self.lengths is None:
            return f"B{self.batch} T{self.rows}"
        return f"{self.rows} rows in {len(self.lengths)} sequences"


def reference_shape(mode: str) -> Shape:
    """The shape at which a variant of a mode is modelled: some 4096 rows, ragged where the variant is for that."""
    varlen, tail = MODES[mode]
    if varlen:
        lengths = (1000, 64, 700, 1, 1024, 257, 650, 400)
        return Shape(1, sum(lengths), lengths)
    return Shape(1, REFERENCE_ROWS - (37 if tail else 0))


def launch_of(spec: Spec, kernel: Kernel, variant: Variant, shape: Shape, target: Target) -> Launch:
    """The launch of a variant: arguments in the order of the compiled signature, tensors with their sizes."""
    if target.cores is None:
        raise KgenError(f"{target.name} has no NPU cores", code="target-cores", hint="choose an Ascend target")
    constants = dict(variant.constants)
    sizes = _sizes(spec, variant, shape)
    tasks = _tasks(spec, kernel, sizes, dict(variant.tiles))
    cores = target.cores.cube.value if spec.kernels[kernel.name].bound.value == "cube" else target.cores.vector.value
    count = max(1, min(tasks, cores))
    known: dict[str, int] = {**sizes, "B": shape.batch, "task_num": tasks, "num_core": count}
    known[spec.one(DimKind.ROWS)] = shape.rows
    if shape.lengths is None:
        known[spec.one(DimKind.CHUNKS)] = -(-shape.rows // variant.chunk)
    arguments: list[Argument] = []
    for name, kind in variant.signature:
        if name in constants:
            continue
        if kind.startswith("*"):
            arguments.append(_buffer(spec, kernel, name, kind[1:], sizes, shape, variant.chunk))
        elif name in kernel.scalars:
            arguments.append(1.0)
        elif name in known:
            arguments.append(known[name])
        else:
            raise KgenBug(f"{kernel.name} takes {name!r} and nothing says what it is at a launch")
    return Launch((count, 1, 1), tuple(arguments))


def _sizes(spec: Spec, variant: Variant, shape: Shape) -> dict[str, int]:
    """Every dim's extent over the whole call: rows and chunks of all batch rows or sequences."""
    lengths = shape.lengths if shape.lengths is not None else (shape.rows,) * shape.batch
    sizes: dict[str, int] = {}
    for name, dim in spec.dims.items():
        if dim.kind is DimKind.ROWS:
            sizes[name] = sum(lengths)
        elif dim.kind is DimKind.SEQUENCES:
            sizes[name] = len(lengths)
        elif dim.kind is DimKind.CHUNKS:
            sizes[name] = sum(-(-rows // variant.chunk) for rows in lengths)
        elif dim.kind is DimKind.CHUNK:
            sizes[name] = variant.chunk
        else:
            sizes[name] = {**dict(variant.heads), **dict(variant.widths)}.get(name, dim.max or 1)
    return sizes


def _tasks(spec: Spec, kernel: Kernel, sizes: dict[str, int], tiles: dict[str, int]) -> int:
    """The product over the spaces of the program's `tasks(…)`."""
    chunks = sizes[spec.one(DimKind.CHUNKS)]
    count = 1
    for space in kernel.spaces:
        if space.kind == "chunks":
            count *= chunks
        elif space.kind == "parts":
            count *= chunks * (sizes[spec.chunk] // space.size)
        elif space.kind == "tiles":
            count *= -(-sizes[space.over] // tiles[f"B{space.over}"])
        else:
            count *= sizes[space.over]
    return count


def _buffer(
    spec: Spec, kernel: Kernel, name: str, dtype: str, sizes: dict[str, int], shape: Shape, chunk: int
) -> Buffer:
    """A tensor of the spec, or one of the sequence tables with its content."""
    element = ELEMENTS[dtype]
    if name in ("cu_seqlens", "chunk_indices", "chunk_offsets"):
        values = _table(name, shape.lengths or (), chunk)
        return Buffer(name, element, len(values), tuple(values))
    tensor = spec.tensors[spec.kernels[kernel.name].bind.get(name, name)]
    return Buffer(name, element, math.prod(sizes[dim] for dim in tensor.dims))


def _table(name: str, lengths: Sequence[int], chunk: int) -> list[int]:
    counts = [-(-rows // chunk) for rows in lengths]
    if name == "cu_seqlens":
        return [0, *itertools.accumulate(lengths)]
    if name == "chunk_offsets":
        return [0, *itertools.accumulate(counts)]
    return [x for n, count in enumerate(counts) for i in range(count) for x in (n, i)]
