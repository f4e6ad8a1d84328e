"""Test cases of the gated delta rule: the factors of its proof, a pairwise cover of them, and inputs for a case."""

from __future__ import annotations

import functools
import itertools
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from kgen.verify.pairwise import pairwise

__all__ = ["GDN_FACTORS", "GdnCase", "gdn_cases", "make_inputs", "pairwise", "widened"]

MINIMUM_CASES = 60
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
FIVE = (19, 0, 64, 37, 1)
INDEX_DTYPES = {"int32": torch.int32, "int64": torch.int64}

GDN_FACTORS: Mapping[str, Sequence[Any]] = {
    "T": (1, 17, 63, 64, 65, 200),
    "heads": ((2, 2), (1, 4)),  # H, HV
    "dims": ((64, 64), (128, 128), (64, 128), (60, 64), (256, 32)),  # K, V
    "gate": (True, False),
    "layout": ("fixed", "empty", "single", "unaligned"),  # the last three are varlen: see _lengths
    "index_dtype": (None, "int32", "int64"),  # of cu_seqlens; None when fixed
    "initial_state": (True, False),
    "final_state": (True, False),
    "state_v_first": (False, True),
    "chunk_size": (64, 32),
    "dtype": ("bf16", "fp16", "fp32"),
    "side_dtype": ("fp32", "same"),  # of g, beta and the initial state: fp32, or the dtype of q, k and v
}


@dataclass(frozen=True)
class GdnCase:
    """One row of the cover. Dims count elements; `index_dtype` is None if and only if the layout is fixed."""

    T: int
    heads: tuple[int, int]
    dims: tuple[int, int]
    gate: bool
    layout: str
    index_dtype: str | None
    initial_state: bool
    final_state: bool
    state_v_first: bool
    chunk_size: int
    dtype: str
    side_dtype: str

    @property
    def B(self) -> int:
        """Two batches when fixed, so that batch strides are met, except where one is long enough; varlen has one."""
        return 2 if self.layout == "fixed" and self.T < 200 else 1

    @property
    def varlen(self) -> bool:
        return self.layout != "fixed"

    @property
    def lengths(self) -> tuple[int, ...]:
        """Rows of each packed sequence; their sum is T."""
        return _lengths(self.layout, self.T)

    @property
    def name(self) -> str:
        """A short id, unique in the cover: what `pytest -k` selects by."""
        (h, hv), (k, v) = self.heads, self.dims
        flags = [
            "gate" if self.gate else "nogate",
            self.layout + (f"_{self.index_dtype}" if self.index_dtype else ""),
            "h0" * self.initial_state + "ht" * self.final_state or "stateless",
            "vk" if self.state_v_first else "kv",
            self.dtype + ("" if self.side_dtype == "fp32" else "_sides"),
        ]
        return f"T{self.T}-H{h}-HV{hv}-K{k}-V{v}-C{self.chunk_size}-" + "-".join(flags)


def _lengths(layout: str, rows: int) -> tuple[int, ...]:
    """How T rows are packed: with empty sequences at both ends and inside, length-1 ones, or unaligned pieces."""
    if layout == "empty":
        return (0, rows // 2, 0, rows - rows // 2, 0)
    if layout == "single":
        return (1, rows - 2, 1) if rows > 2 else (1,) * rows
    if layout == "five":  # an empty one, a whole chunk, a single row, and two that end inside a chunk
        return FIVE
    if layout == "unaligned":
        first, second = rows // 3, rows // 2
        return tuple(length for length in (first, second, rows - first - second) if length)
    return (rows,)


def _allowed(row: Mapping[str, Any]) -> bool:
    """cu_seqlens has a dtype if and only if there are any."""
    if "layout" in row and "index_dtype" in row:
        return bool((row["layout"] == "fixed") == (row["index_dtype"] is None))
    return True


@functools.cache
def gdn_cases() -> tuple[GdnCase, ...]:
    """The cover: every allowed pair of values of two factors is in some case, and there are at least 60 cases."""
    return tuple(GdnCase(**row) for row in pairwise(GDN_FACTORS, _allowed, MINIMUM_CASES))


@functools.cache
def compiled_cases() -> tuple[GdnCase, ...]:
    """The cases of the execute level, few since each runs compiled code in Python: every length that tells kernels
    apart, gate on and off, 16- and 32-bit operands; widths that fill a tile, that end inside one, and of two slabs."""
    dims = {64: (64, 64), 128: (128, 128), 100: (60, 64), 1: (64, 128), sum(FIVE): (64, 64)}
    return tuple(
        GdnCase(
            T=rows, heads=(1, 2), dims=dims[rows], gate=gate, layout="five" if rows == sum(FIVE) else "fixed",
            index_dtype="int64" if rows == sum(FIVE) else None, initial_state=True, final_state=True,
            state_v_first=False, chunk_size=64, dtype=dtype, side_dtype="fp32",
        )
        for dtype in ("bf16", "fp32")
        for gate in (True, False)
        for rows in (64, 128, 100, 1, sum(FIVE))
    )  # fmt: skip


def make_inputs(case: GdnCase) -> dict[str, Tensor | None]:
    """Inputs by the operator's names; seeded by the case, drawn in fp32, then rounded to the case's dtypes.

    q, k `[B, T, H, K]` of unit norm before rounding; v `[B, T, HV, V]` normal; beta in (0, 1) and g <= 0 (natural log)
    `[B, T, HV]`; initial_state `[N, HV, K, V]`, or `[N, HV, V, K]`; cu_seqlens `[N + 1]`. Absent ones are None.
    """
    generator = torch.Generator().manual_seed(zlib.crc32(case.name.encode()))
    (heads, value_heads), (keys, values), dtype = case.heads, case.dims, DTYPES[case.dtype]
    side = torch.float32 if case.side_dtype == "fp32" else dtype

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    q, k = (functional.normalize(normal(case.B, case.T, heads, keys), dim=-1).to(dtype) for _ in range(2))
    v = normal(case.B, case.T, value_heads, values).to(dtype)
    beta = normal(case.B, case.T, value_heads).sigmoid()
    g = functional.logsigmoid(3 + 1.5 * normal(case.B, case.T, value_heads))  # about -0.1 a step, at times -1
    count = len(case.lengths) if case.varlen else case.B
    state = normal(count, value_heads, keys, values)
    if case.state_v_first:
        state = state.mT.contiguous()
    return {
        "q": q, "k": k, "v": v,
        "g": g.to(side) if case.gate else None,
        "beta": beta.to(side),
        "initial_state": state.to(side) if case.initial_state else None,
        "cu_seqlens": _cu_seqlens(case),
    }  # fmt: skip


def _cu_seqlens(case: GdnCase) -> Tensor | None:
    if case.index_dtype is None:
        return None
    return torch.tensor([0, *itertools.accumulate(case.lengths)], dtype=INDEX_DTYPES[case.index_dtype])


def widened(inputs: Mapping[str, Tensor | None]) -> dict[str, Tensor | None]:
    """The same rounded inputs in fp64, for a reference; integers stay as they are."""
    return {
        name: tensor.double() if tensor is not None and tensor.is_floating_point() else tensor
        for name, tensor in inputs.items()
    }
