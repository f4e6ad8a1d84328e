"""Argument checks, sequence tables, device facts and launches, shared by every operator of this package.

Copied here by kgen; needs torch and triton only. All checks run on the host before the first launch. The one that must
look at device memory, `cu_seqlens`, is made once for each tensor and remembered until the tensor is changed in place:
a second call costs no device sync and can be captured in a graph. A tensor made in inference mode doesn't tell when it
is changed, so it is read on each call, except while a graph is captured; pass `cu_seqlens_cpu` to save that.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
import weakref
from collections.abc import Iterable
from typing import Any

import torch

from . import tiles as _tiles

FLOATS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
NAMES = {v: k for k, v in FLOATS.items()}
INDICES = (torch.int32, torch.int64)


class Tables:
    """Where the sequences of one varlen batch lie, on its device: a snapshot of `values`, the entries of `cu_seqlens`.

    `cu_seqlens` int64 [N + 1]; `chunk_indices` int32 [NT, 2], a sequence and a chunk within it; `chunk_offsets` int64
    [N + 1], the number of chunks before each sequence.
    """

    __slots__ = ("chunk_indices", "chunk_offsets", "cu_seqlens", "total", "values", "version")

    def __init__(self, values: list[int], chunk: int, device: torch.device, version: int | None) -> None:
        counts = [-(-(b - a) // chunk) for a, b in itertools.pairwise(values)]
        pairs = [(n, i) for n, count in enumerate(counts) for i in range(count)]
        offsets = [0, *itertools.accumulate(counts)]
        # Never the caller's own tensor: its strides may be odd, and holding it would keep it alive for ever.
        self.cu_seqlens = torch.tensor(values, dtype=torch.int64, device=device)
        self.chunk_indices = torch.tensor(pairs, dtype=torch.int32, device=device).reshape(-1, 2)
        self.chunk_offsets = torch.tensor(offsets, dtype=torch.int64, device=device)
        self.total = offsets[-1]
        self.values, self.version = values, version


class _Memory:
    """Tables by the `cu_seqlens` tensor they were read from, and by chunk size; forgotten when the tensor dies.

    Single dict operations only, which are atomic: two threads may at worst both read the same tensor.
    """

    def __init__(self) -> None:
        self.entries: dict[int, tuple[weakref.ref[torch.Tensor], dict[int, Tables]]] = {}

    def of(self, tensor: torch.Tensor) -> dict[int, Tables]:
        key = id(tensor)
        entry = self.entries.get(key)
        if entry is not None and entry[0]() is tensor:
            return entry[1]

        def forget(reference: weakref.ref[torch.Tensor]) -> None:
            found = self.entries.get(key)
            if found is not None and found[0] is reference:  # else the id has gone to another tensor
                self.entries.pop(key, None)

        tables: dict[int, Tables] = {}
        self.entries[key] = (weakref.ref(tensor, forget), tables)
        return tables


_TABLES = _Memory()


class Arguments:
    """The arguments of one call: dims as they become known, dtypes, tables, launches.

    `where` names the function in messages. A stage is `strict`: it raises on a tensor that isn't contiguous, an
    operator makes it so.
    """

    def __init__(self, where: str, facts: dict[str, Any], *, strict: bool) -> None:
        self.where, self.facts, self.strict = where, facts, strict
        self.dims: dict[str, int] = {}
        self.dtypes: dict[str, torch.dtype] = {}
        self.device: torch.device | None = None
        self.target = ""
        self.tables: Tables | None = None
        self.origin: dict[str, str] = {}
        self.common: dict[str, Any] = {}

    def fail(self, message: str) -> ValueError:
        """The error for a wrong argument."""
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
        widened: bool = False,
    ) -> torch.Tensor | None:
        """Checks one tensor and gives it back as kernels take it.

        `dims`: T stands for [B, T], NT for [B, NT]. `dtype`: a dtype, or a class of the spec, whose tensors all have
        the same one of its dtypes. A `widened` tensor may have any float dtype and is fp32 for kernels; a
        `head_first` one is [B, T, HV] here and fp32 [B, HV, T] for kernels.
        """
        if value is None:
            if required:
                raise self.fail(f"{name} is missing; expected a tensor [{_shape_text(dims)}]")
            return None
        if not isinstance(value, torch.Tensor):
            raise self.fail(f"{name} is {type(value).__name__}; expected a tensor [{_shape_text(dims)}]")
        self._check_device(name, value)
        self._check_shape(name, value, dims)
        if head_first or widened:
            if value.dtype not in NAMES:
                raise self.fail(f"{name} is {value.dtype}; allowed: {_list(NAMES)}")
        else:
            self._check_dtype(name, value, dtype)
        if head_first:
            value = value.transpose(1, 2)  # one copy at most, none where a stage made it so or there is one head
            return value.to(torch.float32, memory_format=torch.contiguous_format).contiguous()
        if widened:
            value = value.to(torch.float32)
        if value.is_contiguous():
            return value
        if self.strict:
            raise self.fail(f"{name} isn't contiguous (strides {value.stride()}); pass {name}.contiguous()")
        return value.contiguous()

    def _check_device(self, name: str, value: torch.Tensor) -> None:
        if self.device is None:
            target = target_of(value.device)
            if target is None:
                raise self.fail(f"{name} is on {value.device}; expected {WHERE}")
            self.device, self.target = value.device, target
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
            expected = f"[{', '.join(wanted)}] with {dim} = {known}, as {first} has"
            raise self.fail(f"{name} has shape {shape}, so {dim} = {size}; expected {expected}")

    def _check_dtype(self, name: str, value: torch.Tensor, dtype: str) -> None:
        allowed = [FLOATS[d] for d in self.facts["dtypes"].get(dtype, (dtype,))]
        if value.dtype not in allowed:
            raise self.fail(f"{name} is {value.dtype}; allowed: {_list(allowed)}")
        known = self.dtypes.setdefault(dtype, value.dtype)
        if dtype in self.facts["shared"] and known != value.dtype:
            first = self.origin.get(f"dtype {dtype}", "the call")
            raise self.fail(f"{name} is {value.dtype}; expected {known}, as {first} is")
        self.origin.setdefault(f"dtype {dtype}", name)

    def unsupported(self, name: str, value: object, default: object) -> None:
        """Refuses an argument that the signature has and the kernels don't."""
        if isinstance(value, torch.Tensor):
            raise self.fail(f"{name} is a tensor; it isn't supported, leave it {default!r}")
        if value is not None and value != default:
            raise self.fail(f"{name} is {value!r}; it isn't supported, leave it {default!r}")

    def scalar(self, name: str, value: float | None, default: float) -> float:
        """A number that kernels take as fp32."""
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise self.fail(f"{name} is {_text(value)}; expected a finite number or None")
        return float(value)

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
                    raise self.fail(f"{name} requires grad and there is no backward yet; call it under torch.no_grad()")

    # ------------------------------------------------------------ dims

    def chunk(self, name: str, value: int) -> None:
        """The chunk size, where no tensor shows it."""
        if isinstance(value, bool) or not isinstance(value, int) or value not in self.facts["chunks"]:
            raise self.fail(f"{name} is {_text(value)}; supported: {_list(self.facts['chunks'])}")
        self._bind(name, self.facts["chunk"], value, (value,), [self.facts["chunk"]])

    def sequences(
        self,
        cu_seqlens: torch.Tensor | None,
        cu_seqlens_cpu: torch.Tensor | None = None,
        chunk_indices: torch.Tensor | None = None,
    ) -> None:
        """Fixes N and NT, and for a varlen batch the tables. Call it when B, T and the chunk size are known."""
        self._check_groups()
        batch, rows, chunk = self.dims["B"], self.dims["T"], self.dims[self.facts["chunk"]]
        if cu_seqlens is None:
            for name, value in (("cu_seqlens_cpu", cu_seqlens_cpu), ("chunk_indices", chunk_indices)):
                if value is not None:
                    raise self.fail(f"{name} is given without cu_seqlens; pass both or neither")
            self._count("N", batch, f"a batch of {batch}")
            self._count("NT", -(-rows // chunk), f"{rows} rows in chunks of {chunk}")
        else:
            if batch != 1:
                raise self.fail(f"cu_seqlens is given and B = {batch}; pack the sequences into one row, B = 1")
            self.tables = self._tables(cu_seqlens, cu_seqlens_cpu, rows, chunk)
            self._count("N", cu_seqlens.numel() - 1, "cu_seqlens")
            self._count("NT", self.tables.total, f"cu_seqlens in chunks of {chunk}")
            self._check_chunk_indices(chunk_indices)
        tables = self.tables
        self.common = {
            **self.dims,
            "cu_seqlens": tables and tables.cu_seqlens,
            "chunk_indices": tables and tables.chunk_indices,
            "chunk_offsets": tables and tables.chunk_offsets,
            "IS_VARLEN": tables is not None,
            "TAIL_MODE": 2 if tables is not None or rows % chunk else 0,
            "BLOCK_PTR": _tiles.block_pointers(self.target),
        }

    def _check_groups(self) -> None:
        for heads, keys in self.facts["groups"].items():
            for dim in (heads, keys):
                if self.dims.get(dim) == 0:
                    raise self.fail(f"{self.origin[dim]} has {dim} = 0; expected at least 1")
            if heads in self.dims and keys in self.dims and self.dims[heads] % self.dims[keys]:
                ours, theirs = (f"{self.origin[d]} has {d} = {self.dims[d]}" for d in (heads, keys))
                raise self.fail(f"{ours}, {theirs}; {heads} must be a multiple of {keys}")

    def _count(self, dim: str, size: int, source: str) -> None:
        known = self.dims.setdefault(dim, size)
        if known != size:
            raise self.fail(f"{self.origin[dim]} has {dim} = {known}; expected {size}, as {source} has")

    def _check_chunk_indices(self, value: torch.Tensor | None) -> None:
        total = self.dims["NT"]
        if value is not None and (not isinstance(value, torch.Tensor) or tuple(value.shape) != (total, 2)):
            raise self.fail(f"chunk_indices is {_text(value)}; expected [{total}, 2], as cu_seqlens has {total} chunks")

    def _tables(self, cu: torch.Tensor, host: torch.Tensor | None, rows: int, chunk: int) -> Tables:
        self._check_bounds("cu_seqlens", cu)
        if cu.device != self.device:
            raise self.fail(f"cu_seqlens is on {cu.device}; expected {self.device}, as {self.origin['device']} is")
        if host is not None:
            self._check_bounds("cu_seqlens_cpu", host)
            if host.device.type != "cpu":
                raise self.fail(f"cu_seqlens_cpu is on {host.device}; expected cpu")
            if host.numel() != cu.numel():
                raise self.fail(f"cu_seqlens_cpu has {host.numel()} entries; expected {cu.numel()}, as cu_seqlens has")
        known, recording = _TABLES.of(cu), capturing(cu.device)
        tables, version = known.get(chunk), None if cu.is_inference() else cu._version
        fresh = tables is not None and (tables.version == version if version is not None else recording)
        if host is not None:
            values = host.tolist()  # asks no device, so it can be compared on every call
        elif tables is not None and fresh:
            values = tables.values
        elif recording:
            raise self.fail("cu_seqlens is new while a graph is captured; call once with it before")
        else:
            values = cu.tolist()
        if tables is None or tables.values != values:
            self._check_values("cu_seqlens" if host is None else "cu_seqlens_cpu", values, rows)
            if recording:
                raise self.fail("cu_seqlens has changed while a graph is captured; call once with it before")
            tables = known[chunk] = Tables(values, chunk, cu.device, version)
        elif values[-1] != rows:
            self._check_values("cu_seqlens", values, rows)
        tables.version = version
        return tables

    def _check_bounds(self, name: str, value: torch.Tensor) -> None:
        if not isinstance(value, torch.Tensor) or value.dtype not in INDICES or value.dim() != 1 or value.numel() < 2:
            raise self.fail(f"{name} is {_text(value)}; expected int32 or int64 [N + 1], N at least 1")

    def _check_values(self, name: str, values: list[int], rows: int) -> None:
        if values[0] != 0:
            raise self.fail(f"{name} starts at {values[0]}; expected 0")
        for n, (a, b) in enumerate(itertools.pairwise(values)):
            if b < a:
                raise self.fail(f"{name} falls from {a} to {b} at entry {n + 1}; expected nondecreasing")
        if values[-1] != rows:
            raise self.fail(f"{name} ends at {values[-1]}; expected T = {rows}")

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
        kinds = [self.dtypes[c] for c in self.facts["shared"] if c in self.dtypes] or [torch.float32]
        return _tiles.choose(kernel, self.target, kinds[0].itemsize * 8, self.dims)

    def launch(self, kernel: Any, bound: str, tasks: int, arguments: dict[str, Any], constants: dict[str, Any]) -> None:
        """Runs `kernel` on as many cores as the pipe it is bound on has, at most one a task."""
        if tasks == 0:
            return
        assert self.device is not None
        count = min(tasks, cores(self.device, bound))
        known = {**self.common, **arguments, **constants, "task_num": tasks, "num_core": count}
        with device_guard(self.device):
            kernel[(count,)](**{name: known[name] for name in kernel.arg_names})


# ---------------------------------------------------------------- devices

WHERE = "an NPU or a CUDA GPU (the CPU only with TRITON_INTERPRET=1)"


@functools.cache
def interpreted() -> bool:
    """Whether Triton's interpreter runs the kernels."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "yes", "y")


@functools.cache
def target_of(device: torch.device) -> str | None:
    """The plan's target for a device, None where kernels can't run. To the interpreter the CPU is the default chip."""
    if device.type == "npu":
        return known_target(str(torch.npu.get_device_name(device)))
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        return known_target(f"cuda_sm{major}{minor}")
    return _tiles.DEFAULT_TARGET if device.type == "cpu" and interpreted() else None


def known_target(name: str) -> str:
    """The target of a device's name: a listed one, which the name may follow with a suffix (`Ascend910B2C`); any CUDA
    one for a GPU; else the name as it is, whose tiles come from the expressions."""
    listed = [t for t in _tiles.CAPACITY if name.startswith(t)]
    if not listed and name.startswith("cuda"):
        listed = [t for t in _tiles.CAPACITY if t.startswith("cuda")]
    return max(listed, key=len, default=name)


@functools.cache
def cores(device: torch.device, bound: str) -> int:
    """Programs that run at once: cube cores or vector cores of an NPU, multiprocessors of a GPU."""
    if device.type == "npu":
        from triton.runtime import driver

        properties = driver.active.utils.get_device_properties(device.index or 0)
        return int(properties["num_aicore" if bound == "cube" else "num_vectorcore"])
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).multi_processor_count)
    return _tiles.CORES[_tiles.DEFAULT_TARGET][bound]


def capturing(device: torch.device) -> bool:
    """Whether the current stream records a graph, so that nothing may be read back from the device."""
    if device.type == "cpu":
        return False
    asked = getattr(getattr(torch, device.type), "is_current_stream_capturing", None)
    return bool(asked is not None and asked())


def device_guard(device: torch.device) -> Any:
    """Makes the tensors' own device current, so that its current stream takes the launch."""
    if device.type == "cuda":
        return torch.cuda.device(device)
    if device.type == "npu":
        return torch.npu.device(device)
    return contextlib.nullcontext()


def _list(values: Iterable[object]) -> str:
    return ", ".join(str(v) for v in values)


def _text(value: object) -> str:
    """What a wrong argument is, without looking at device memory."""
    return f"{value.dtype} {tuple(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)[:80]


def _shape_text(dims: tuple[str, ...]) -> str:
    return ", ".join(f"B, {d}" if d in ("T", "NT") else d for d in dims)
