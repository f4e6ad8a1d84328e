"""The `program` level of `kgen verify`: a chain of tile programs evaluated in fp64 against its references.

The maths is right, void rows don't matter and every output is written once, before anything has been lowered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from kgen.errors import KgenBug
from kgen.ir.nodes import Kernel
from kgen.spec.models import DimKind, ParamKind, Spec, Step, Tensor
from kgen.verify.cases import GdnCase, make_inputs, widened
from kgen.verify.error_metric import max_abs, rel_rms
from kgen.verify.program import evaluate
from kgen.verify.program_memory import layout
from kgen.verify.references import gdn
from kgen.verify.rows import Row

TOLERANCE = 1e-12  # rel rms in fp64
BLOCK = 16  # rows of the diagonal blocks that D inverts

Values = dict[str, npt.NDArray[np.float64] | None]  # by the spec's tensor names, dims in order, rows packed


@dataclass(frozen=True)
class Setting:
    """How a chain runs: `dims` in elements (all packed rows), `flags` and `scalars` of the operator, `tiles` a kernel.

    `wanted` names the optional results that the operator's switches ask for. A kernel without an entry in `tiles` takes
    the spec's smallest candidates, so that slabs and void lanes are met.
    """

    dims: Mapping[str, int]
    flags: Mapping[str, bool]
    scalars: Mapping[str, float]
    wanted: frozenset[str]
    cu_seqlens: tuple[int, ...] | None = None
    batch: int = 1
    tiles: Mapping[str, Mapping[str, int]] | None = None


def run_chain(spec: Spec, kernels: Mapping[str, Kernel], inputs: Values, setting: Setting) -> Values:
    """Every tensor of the operator's chain; `inputs` by the spec's names. Those of skipped steps are None."""
    values: Values = dict(inputs)
    for step in spec.operator.chain:
        names = spec.stages[step.stage].kernels
        if step.when is not None and values.get(step.when) is None:
            values.update({t: None for name in names for t in outputs_of(spec, name)})
            continue
        for name in names:
            _run(spec, kernels[name], values, step, setting)
    return values


def outputs_of(spec: Spec, kernel: str) -> tuple[str, ...]:
    """The spec's names of what a kernel writes."""
    entry = spec.kernels[kernel]
    return tuple(entry.bind.get(p, p) for p in entry.outputs)


def _run(spec: Spec, kernel: Kernel, values: Values, step: Step, setting: Setting) -> None:
    """One kernel: its outputs are allocated into `values`, then filled."""
    entry = spec.kernels[kernel.name]
    switched = {p.to or p.name for p in spec.operator.params if p.kind is ParamKind.SWITCH}
    sizes = layout(spec, setting.dims, {}, setting.cu_seqlens, setting.batch).dims
    for name in outputs_of(spec, kernel.name):
        tensor = spec.tensors[name]
        shape = tuple(sizes[d] for d in tensor.dims)
        absent = tensor.optional and name in switched and name not in setting.wanted
        values[name] = None if absent else np.full(shape, 0.0 if tensor.zeroed else np.nan)
    tiles = (setting.tiles or {}).get(kernel.name, {dim: min(sizes_) for dim, sizes_ in entry.tiles.items()})
    evaluate(
        kernel,
        spec,
        {p: values.get(entry.bind.get(p, p)) for p in kernel.params},
        dims=setting.dims,
        tiles=tiles,
        scalars={**setting.scalars, **step.scalars},
        flags={**setting.flags, **step.flags},
        cu_seqlens=setting.cu_seqlens,
        batch=setting.batch,
    )


def packed(tensor: Tensor, public: torch.Tensor, spec: Spec, flags: Mapping[str, bool]) -> npt.NDArray[np.float64]:
    """A tensor in its public layout, `[B, T, ...]`, `[B, NT, ...]` or `[N, ...]`, as programs index it: rows packed."""
    stored = next((s for flag, s in tensor.store_if.items() if flags.get(flag)), tensor.dims)
    data = public.detach().double().cpu()
    if spec.dims[tensor.dims[0]].kind in {DimKind.ROWS, DimKind.CHUNKS}:
        data = data.flatten(0, 1)
    array: npt.NDArray[np.float64] = data.permute([stored.index(d) for d in tensor.dims]).numpy()
    return array


# ---------------------------------------------------------------- the gated delta rule

GDN_STAGES = {
    "g": "g_cumsum", "A": "A", "D": "D", "M": "A_inverse", "w": "w", "u": "u", "h": "h", "v_new": "v_new",
    "ht": "final_state", "o": "o",
}  # fmt: skip


def gdn_setting(spec: Spec, case: GdnCase, tiles: Mapping[str, Mapping[str, int]] | None = None) -> Setting:
    """A case of the cover as a setting of the chain."""
    (heads, value_heads), (keys, values) = case.heads, case.dims
    lengths = case.lengths if case.varlen else ()
    bounds = tuple(sum(lengths[:i]) for i in range(len(lengths) + 1)) if case.varlen else None
    return Setting(
        dims={"T": case.B * case.T, "H": heads, "HV": value_heads, "K": keys, "V": values, "BT": case.chunk_size},
        flags={"state_v_first": case.state_v_first},
        scalars={"scale": keys**-0.5},
        wanted=frozenset({"ht"} if case.final_state else ()),
        cu_seqlens=bounds,
        batch=case.B,
        tiles=tiles,
    )


def gdn_references(case: GdnCase, inputs: Mapping[str, torch.Tensor | None]) -> dict[str, torch.Tensor | None]:
    """Every stage's output by the spec's names, in public layouts; o and the final state from the recurrence."""
    named = {k: v for k, v in inputs.items() if k != "cu_seqlens"}
    table = inputs["cu_seqlens"]
    arguments: dict[str, Any] = {**named, "cu_seqlens": table, "state_v_first": case.state_v_first}
    stages = gdn.forward_by_stages(**arguments, chunk_size=case.chunk_size)
    stages["o"], final = gdn.recurrent_gated_delta_rule(**arguments)
    stages["final_state"] = final if case.final_state else None
    a = stages["A"]
    if a is None:
        raise KgenBug("the references hold no A")
    blocks = torch.zeros_like(a)
    for c in gdn.chunks(case.B, case.T, case.chunk_size, table):
        row = torch.arange(c.end - c.start) // BLOCK
        same = row[:, None, None] == torch.arange(case.chunk_size)[None, None, :] // BLOCK
        blocks[c.batch, c.start : c.end] = a[c.batch, c.start : c.end] * same
    stages["D"] = gdn.solve_tril(blocks, table)
    return {ours: stages[theirs] for ours, theirs in GDN_STAGES.items()}


def verify_gdn(
    spec: Spec, kernels: Mapping[str, Kernel], case: GdnCase, tiles: Mapping[str, Mapping[str, int]] | None = None
) -> list[Row]:
    """The chain on one case: a row for each tensor that any kernel writes and the case has."""
    inputs = widened(make_inputs(case))
    setting = gdn_setting(spec, case, tiles)
    given = {p.to or p.name: inputs.get(p.name) for p in spec.operator.params if p.kind is ParamKind.TENSOR}
    start = {n: None if x is None else packed(spec.tensors[n], x, spec, setting.flags) for n, x in given.items()}
    return compare(spec, run_chain(spec, kernels, start, setting), gdn_references(case, inputs), setting, case.name)


def compare(
    spec: Spec, values: Values, references: Mapping[str, torch.Tensor | None], setting: Setting, case: str
) -> list[Row]:
    """Each written tensor against its reference; one that only one side has is a mistake of kgen's own."""
    out: list[Row] = []
    for kernel, name in written(spec, [s.stage for s in spec.operator.chain]):
        value, reference = values.get(name), references[name]
        if value is None and reference is None:
            continue
        if value is None or reference is None:
            raise KgenBug(f"{name!r} is there on one side only")
        expected = torch.from_numpy(packed(spec.tensors[name], reference, spec, setting.flags).copy())
        actual = torch.from_numpy(value)
        error = rel_rms(actual, expected), max_abs(actual, expected)
        out.append(Row(kernel, name, case, "program", *error, TOLERANCE))
    return out


def written(spec: Spec, stages: Sequence[str]) -> list[tuple[str, str]]:
    """(kernel, tensor) of all that these stages write, in order."""
    return [(k, t) for stage in stages for k in spec.stages[stage].kernels for t in outputs_of(spec, k)]
