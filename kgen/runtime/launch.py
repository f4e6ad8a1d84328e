"""Argument checks, sequence tables, device facts and launches, shared by every operator of this package.

Copied here by kgen; needs torch and triton only. All checks run on the host before the first launch. The one that must look
at device memory, `cu_seqlens`, is made once for each tensor and remembered, so that a call costs no device sync and can be
captured in a graph.
"""

from __future__ import annotations

import functools
import os
import weakref
from typing import Any

import torch

from . import tiles as _tiles

FLOATS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
NAMES = {v: k for k, v in FLOATS.items()}


class Tables:
    """Where the sequences of one varlen batch lie, on its device.

    `cu_seqlens` int64 [N + 1]; `chunk_indices` int32 [NT, 2] (sequence, chunk within it); `chunk_offsets` int64 [N + 1],
    the number of chunks before each sequence.
    """

    __slots__ = ("chunk_indices", "chunk_offsets", "cu_seqlens", "total", "version")

    def __init__(self, cu_seqlens: torch.Tensor, host: list[int], chunk: int) -> None:
        counts = [-(-(b - a) // chunk) for a, b in zip(host, host[1:], strict=False)]
        pairs = [(n, i) for n, count in enumerate(counts) for i in range(count)]
        offsets = [0]
        for count in counts:
            offsets.append(offsets[-1] + count)
        device = cu_seqlens.device
        self.cu_seqlens = cu_seqlens.to(torch.int64)
        self.chunk_indices = torch.tensor(pairs, dtype=torch.int32).reshape(-1, 2).to(device)
        self.chunk_offsets = torch.tensor(offsets, dtype=torch.int64).to(device)
        self.total = offsets[-1]
        self.version = cu_seqlens._version


_TABLES: dict[int, tuple[weakref.ref[torch.Tensor], dict[tuple[int, int], Tables]]] = {}


class Arguments:
    """The arguments of one call: dims as they become known, dtypes, tables, launches.

    `where` names the function in messages. A stage is `strict`: it raises on a tensor that isn't contiguous, an operator
    makes it so.
    """

    def __init__(self, where: str, facts: dict[str, Any], *, strict: bool) -> None:
        self.where, self.facts, self.strict = where, facts, strict
        self.dims: dict[str, int] = {}
        self.dtypes: dict[str, torch.dtype] = {}
        self.device: torch.device | None = None
        self.tables: Tables | None = None
        self.origin: dict[str, str] = {}

    def fail(self, message: str) -> ValueError:
        return ValueError(f"{self.where}: {message}")

    # ------------------------------------------------------------ tensors

    def tensor(
        self,
        name: str,
        value: torch.Tensor | None,
        dims: tuple[str, ...],
        dtype: str,
        *,
        required: bool = False,
        head_first: bool = False,
    ) -> torch.Tensor | None:
        """Checks one tensor and gives it back as kernels take it.

        `dims`: T stands for [B, T], NT for [B, NT]. `dtype`: a class of the spec, whose members all tensors of the class
        share, or one dtype. A `head_first` tensor is [B, T, HV] here and fp32 [B, HV, T] for kernels.
        """
        if value is None:
            if required:
                raise self.fail(f"{name} is missing; expected a tensor [{_shape_text(dims)}]")
            return None
        if not isinstance(value, torch.Tensor):
            raise self.fail(f"{name} is {type(value).__name__}; expected a tensor [{_shape_text(dims)}]")
        self._check_device(name, value)
        self._check_shape(name, value, dims)
        if head_first:
            return self._head_first(name, value)
        self._check_dtype(name, value, dtype)
        if value.is_contiguous():
            return value
        if self.strict:
            raise self.fail(f"{name} isn't contiguous (strides {value.stride()}); pass {name}.contiguous()")
        return value.contiguous()

    def _check_device(self, name: str, value: torch.Tensor) -> None:
        if self.device is None:
            self.device = value.device
            self.origin["device"] = name
        elif value.device != self.device:
            first = self.origin["device"]
            raise self.fail(f"{name} is on {value.device}, {first} is on {self.device}; all must be on one device")

    def _check_shape(self, name: str, value: torch.Tensor, dims: tuple[str, ...]) -> None:
        wanted: list[str] = []
        for dim in dims:
            wanted += ["B", dim] if dim in ("T", "NT") else [dim]
        if value.dim() != len(wanted):
            raise self.fail(f"{name} has shape {tuple(value.shape)}; expected [{', '.join(wanted)}]")
        for position, dim in enumerate(wanted):
            self._bind(name, dim, value.shape[position], tuple(value.shape), wanted)

    def _bind(self, name: str, dim: str, size: int, shape: tuple[int, ...], wanted: list[str]) -> None:
        known = self.dims.get(dim)
        if known is None:
            limit = self.facts["max"].get(dim)
            if limit is not None and not 1 <= size <= limit:
                raise self.fail(f"{name} has {dim} = {size}; supported: 1 to {limit}")
            if dim == self.facts["chunk"] and size not in self.facts["chunks"]:
                raise self.fail(f"{name} has {dim} = {size}; supported: {_list(self.facts['chunks'])}")
            self.dims[dim] = size
            self.origin[dim] = name
        elif known != size:
            first = self.origin.get(dim, "the call")
            raise self.fail(
                f"{name} has shape {shape}, so {dim} = {size}; expected [{', '.join(wanted)}] with {dim} = {known}, as {first} has"
            )

    def _check_dtype(self, name: str, value: torch.Tensor, dtype: str) -> None:
        allowed = [FLOATS[d] for d in self.facts["dtypes"].get(dtype, (dtype,))]
        if value.dtype not in allowed:
            raise self.fail(f"{name} is {value.dtype}; allowed: {_list(allowed)}")
        known = self.dtypes.setdefault(dtype, value.dtype)
        if dtype in self.facts["shared"] and known != value.dtype:
            first = self.origin.get(f"dtype {dtype}", "the call")
            raise self.fail(f"{name} is {value.dtype}; expected {known}, as {first} is")
        self.origin.setdefault(f"dtype {dtype}", name)

    def _head_first(self, name: str, value: torch.Tensor) -> torch.Tensor:
        if value.dtype not in NAMES:
            raise self.fail(f"{name} is {value.dtype}; allowed: {_list(NAMES)}")
        return value.transpose(1, 2).to(torch.float32).contiguous()

    def unsupported(self, name: str, value: object, default: object) -> None:
        """Refuses an argument that the signature has and the kernels don't."""
        if value is not None and value != default:
            raise self.fail(f"{name} isn't supported; leave it {default!r}")

    def output_dtype(self, name: str, value: torch.dtype | None, allowed: tuple[str, ...], default: str) -> torch.dtype:
        """The dtype asked for an output."""
        chosen = FLOATS[default] if value is None else value
        if chosen not in [FLOATS[d] for d in allowed]:
            raise self.fail(f"{name} is {chosen}; allowed: {_list(FLOATS[d] for d in allowed)}")
        return chosen

    def forward_only(self, **tensors: torch.Tensor | None) -> None:
        """Refuses tensors that want a gradient: this package has no backward."""
        if torch.is_grad_enabled():
            for name, value in tensors.items():
                if isinstance(value, torch.Tensor) and value.requires_grad:
                    raise self.fail(f"{name} requires grad, and no backward is generated yet; call under torch.no_grad()")

    # ------------------------------------------------------------ dims

    def chunk(self, name: str, value: int) -> None:
        """The chunk size, where no tensor shows it."""
        if value not in self.facts["chunks"]:
            raise self.fail(f"{name} is {value!r}; supported: {_list(self.facts['chunks'])}")
        self._bind(name, self.facts["chunk"], value, (value,), [self.facts["chunk"]])

    def sequences(
        self,
        cu_seqlens: torch.Tensor | None,
        cu_seqlens_cpu: torch.Tensor | None = None,
        chunk_indices: torch.Tensor | None = None,
    ) -> None:
        """Fixes N and NT, and for a varlen batch the tables. Call it when B, T and the chunk size are known."""
        for heads, keys in self.facts["groups"].items():
            if heads in self.dims and keys in self.dims and self.dims[heads] % max(self.dims[keys], 1):
                raise self.fail(f"{heads} = {self.dims[heads]} isn't a multiple of {keys} = {self.dims[keys]}")
        batch, rows, chunk = self.dims["B"], self.dims["T"], self.dims[self.facts["chunk"]]
        if cu_seqlens is None:
            counts = (batch, -(-rows // chunk))
        else:
            if batch != 1:
                raise self.fail(f"cu_seqlens is given and B = {batch}; pack the sequences into one row, B = 1")
            self.tables = self._tables(cu_seqlens, cu_seqlens_cpu, rows, chunk)
            counts = (cu_seqlens.numel() - 1, self.tables.total)
            if chunk_indices is not None and chunk_indices.shape[0] != self.tables.total:
                raise self.fail(
                    f"chunk_indices has {chunk_indices.shape[0]} rows; cu_seqlens has {self.tables.total} chunks of {chunk}"
                )
        for dim, size in zip(("N", "NT"), counts, strict=True):
            self._bind("cu_seqlens" if cu_seqlens is not None else "the batch", dim, size, (size,), [dim])

    def _tables(self, cu: torch.Tensor, host: torch.Tensor | None, rows: int, chunk: int) -> Tables:
        if not isinstance(cu, torch.Tensor) or cu.dtype not in (torch.int32, torch.int64) or cu.dim() != 1 or cu.numel() < 2:
            found = f"{cu.dtype} {tuple(cu.shape)}" if isinstance(cu, torch.Tensor) else type(cu).__name__
            raise self.fail(f"cu_seqlens is {found}; expected int32 or int64 [N + 1]")
        if self.device is not None and cu.device != self.device:
            raise self.fail(f"cu_seqlens is on {cu.device}; expected {self.device}, as {self.origin['device']} is")
        entry = _TABLES.get(id(cu))
        if entry is None or entry[0]() is not cu:
            key = id(cu)
            entry = (weakref.ref(cu, lambda _: _TABLES.pop(key, None)), {})
            _TABLES[key] = entry
        tables = entry[1].get((chunk, rows))
        if tables is None or tables.version != cu._version:
            values = (cu if host is None else host).tolist()
            self._check_cu_seqlens(values, rows, cu.numel())
            tables = entry[1][(chunk, rows)] = Tables(cu, values, chunk)
        return tables

    def _check_cu_seqlens(self, values: list[int], rows: int, count: int) -> None:
        if len(values) != count:
            raise self.fail(f"cu_seqlens_cpu has {len(values)} entries, cu_seqlens {count}")
        if values[0] != 0:
            raise self.fail(f"cu_seqlens starts at {values[0]}; expected 0")
        for n, (a, b) in enumerate(zip(values, values[1:], strict=False)):
            if b < a:
                raise self.fail(f"cu_seqlens falls from {a} to {b} at entry {n + 1}; expected nondecreasing")
        if values[-1] != rows:
            raise self.fail(f"cu_seqlens ends at {values[-1]}; expected T = {rows}")

    def new(self, dims: tuple[str, ...], dtype: str | torch.dtype, *, zero: bool = False) -> torch.Tensor:
        """An output: uninitialised, or zeros where kernels write only part of it."""
        shape: list[int] = []
        for dim in dims:
            if dim == "T":
                shape += [self.dims["B"], self.dims["T"]]
            elif dim == "NT":
                shape += [self.dims["B"], self.dims["NT"]]
            else:
                shape.append(self.dims[dim])
        kind = dtype if isinstance(dtype, torch.dtype) else self.dtypes.get(dtype) or FLOATS[dtype]
        return (torch.zeros if zero else torch.empty)(shape, dtype=kind, device=self.device)

    def head_first(self, dims: tuple[str, str]) -> torch.Tensor:
        """An fp32 gate [B, HV, T]."""
        return torch.empty(
            (self.dims["B"], self.dims[dims[0]], self.dims["T"]), dtype=torch.float32, device=self.device
        )

    # ------------------------------------------------------------ launches

    @property
    def chunks_in_all(self) -> int:
        """Chunks of all sequences of all batch rows."""
        return self.dims["NT"] if self.tables is not None else self.dims["B"] * self.dims["NT"]

    def tiles(self, kernel: str) -> dict[str, int]:
        """Tile sizes of a kernel for this call's dtype, chunk and widths."""
        assert self.device is not None
        bits = 32 if torch.float32 in self.dtypes.values() and self._wide() else 16
        return _tiles.choose(kernel, target_of(self.device), bits, self.dims)

    def _wide(self) -> bool:
        shared = [self.dtypes[d] for d in self.facts["shared"] if d in self.dtypes]
        return not shared or shared[0] == torch.float32

    def launch(self, kernel: Any, bound: str, tasks: int, arguments: dict[str, Any], constants: dict[str, Any]) -> None:
        """Runs `kernel` on as many cores as the pipe it is bound on has, at most one a task."""
        if tasks == 0:
            return
        assert self.device is not None
        rows, chunk = self.dims["T"], self.dims[self.facts["chunk"]]
        tables = self.tables
        ragged = tables is not None or rows % chunk != 0
        values: dict[str, Any] = {
            "cu_seqlens": tables and tables.cu_seqlens,
            "chunk_indices": tables and tables.chunk_indices,
            "chunk_offsets": tables and tables.chunk_offsets,
            "T": rows,
            "NT": self.dims["NT"],
            "task_num": tasks,
            "num_core": min(tasks, cores(self.device, bound)),
            "IS_VARLEN": tables is not None,
            "TAIL_MODE": 2 if ragged else 0,
            "BLOCK_PTR": block_pointers(self.device),
        }
        known = {**self.dims, **values, **arguments, **constants}
        with device_guard(self.device):
            kernel[(values["num_core"],)](**{name: known[name] for name in kernel.arg_names})


# ---------------------------------------------------------------- devices


@functools.cache
def interpreted() -> bool:
    """Whether Triton's interpreter runs the kernels."""
    return os.environ.get("TRITON_INTERPRET", "0") not in ("", "0")


@functools.cache
def target_of(device: torch.device) -> str:
    """The plan's target for a device: the NPU's model, `cuda_smXX`, or the default chip under the interpreter."""
    if device.type == "npu":
        return str(torch.npu.get_device_name(device))  # type: ignore[attr-defined]
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        return f"cuda_sm{major}{minor}"
    if device.type == "cpu" and interpreted():
        return _tiles.DEFAULT_TARGET
    raise ValueError(
        f"tensors are on {device}; these kernels run on an NPU or a CUDA GPU (on the CPU only with TRITON_INTERPRET=1)"
    )


@functools.cache
def cores(device: torch.device, bound: str) -> int:
    """Programs that run at once: cube cores or vector cores of an NPU, multiprocessors of a GPU."""
    if device.type == "npu":
        import triton.runtime.driver as driver

        properties = driver.active.utils.get_device_properties(device.index or 0)
        return int(properties["num_aicore" if bound == "cube" else "num_vectorcore"])
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).multi_processor_count)
    return _tiles.CORES[_tiles.DEFAULT_TARGET][bound]


@functools.cache
def block_pointers(device: torch.device) -> bool:
    """Whether kernels use block pointers on this device, or pointers and masks."""
    return _tiles.block_pointers(target_of(device))


def device_guard(device: torch.device) -> Any:
    """Makes the tensors' own device current, so that its current stream takes the launch."""
    if device.type == "cuda":
        return torch.cuda.device(device)
    if device.type == "npu":
        return torch.npu.device(device)  # type: ignore[attr-defined]
    return _Nothing()


class _Nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


def _list(values: Any) -> str:
    return ", ".join(str(v) for v in values)


def _shape_text(dims: tuple[str, ...]) -> str:
    return ", ".join(f"B, {d}" if d in ("T", "NT") else d for d in dims)
