"""The gated delta rule forward and its stages, in fp64, from the definitions.

Source: Yang, Kautz and Hatamizadeh, "Gated Delta Networks: Improving Mamba2 with Delta Rule" (2024), in fla's layouts:
q, k `[B, T, H, K]`; v `[B, T, HV, V]`; g, beta `[B, T, HV]`; a state `[N, HV, K, V]`, or `[N, HV, V, K]` with
`state_v_first`. Value head i reads key head `i // (HV // H)`. With `cu_seqlens` (`[N + 1]`, B == 1) N sequences are
packed along T, empty ones too; without, N == B. Chunks count from the start of each sequence. Inputs may be of any
float type and are widened; results are fp64.

Public g is the natural logarithm of the decay, or None for a decay of 1. Between stages g is its base-2 cumulative sum
within each chunk: `chunk_local_cumsum(g, BT, scale=1 / ln 2)`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor


class Chunk(NamedTuple):
    """Rows `start:end` of batch `batch`, in sequence `sequence`; `ordinal` is the chunk's place on h's NT dim."""

    sequence: int
    batch: int
    ordinal: int
    start: int
    end: int


def sequences(batches: int, rows: int, cu_seqlens: Tensor | None) -> list[tuple[int, int, int]]:
    """(batch, start, end) of each sequence, in the order of the states' N dim."""
    if cu_seqlens is None:
        return [(batch, 0, rows) for batch in range(batches)]
    bounds = cu_seqlens.tolist()
    return [(0, start, end) for start, end in itertools.pairwise(bounds)]


def chunks(batches: int, rows: int, size: int, cu_seqlens: Tensor | None) -> Iterator[Chunk]:
    """Chunks in order. Their ordinals restart with each batch, but run on over packed sequences."""
    ordinal = 0
    for sequence, (batch, first, last) in enumerate(sequences(batches, rows, cu_seqlens)):
        if cu_seqlens is None:
            ordinal = 0
        for start in range(first, last, size):
            yield Chunk(sequence, batch, ordinal, start, min(start + size, last))
            ordinal += 1


def count_chunks(rows: int, size: int, cu_seqlens: Tensor | None) -> int:
    """NT: chunks of one batch, or of all packed sequences."""
    return sum(1 for _ in chunks(1, rows, size, cu_seqlens))


def per_value_head(x: Tensor, value_heads: int) -> Tensor:
    """`[B, T, H, D]` to fp64 `[B, T, HV, D]`."""
    return x.double().repeat_interleave(value_heads // x.shape[2], dim=2)


def start_states(v: Tensor, keys: int, initial_state: Tensor | None, count: int, v_first: bool) -> Tensor:
    """The states before the first row, `[N, HV, K, V]`: the given ones, or zeros."""
    if initial_state is None:
        return torch.zeros(count, v.shape[2], keys, v.shape[3], dtype=torch.float64)
    return initial_state.double().mT.clone() if v_first else initial_state.double().clone()


def recurrent_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    state_v_first: bool = False,
) -> tuple[Tensor, Tensor]:
    """The definition, token by token: o `[B, T, HV, V]` and the final states.

    S <- S exp(g_t);  u = beta_t (v_t - S^T k_t);  S <- S + k_t u^T;  o_t = scale S^T q_t, scale 1 / sqrt(K) by default.
    """
    spans = sequences(v.shape[0], v.shape[1], cu_seqlens)
    keys, values = per_value_head(k, v.shape[2]), v.double()
    queries = per_value_head(q, v.shape[2]) * (k.shape[-1] ** -0.5 if scale is None else scale)
    states = start_states(v, k.shape[-1], initial_state, len(spans), state_v_first)
    o = torch.zeros_like(values)
    for n, (b, first, last) in enumerate(spans):
        state = states[n]  # [HV, K, V]
        for t in range(first, last):
            if g is not None:
                state = state * g[b, t].double().exp()[:, None, None]
            error = values[b, t] - torch.einsum("hkv,hk->hv", state, keys[b, t])
            u = beta[b, t].double()[:, None] * error
            state = state + keys[b, t][:, :, None] * u[:, None, :]
            o[b, t] = torch.einsum("hkv,hk->hv", state, queries[b, t])
        states[n] = state
    return o, states.mT.contiguous() if state_v_first else states


def chunked_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    state_v_first: bool = False,
    chunk_size: int = 64,
) -> tuple[Tensor, Tensor]:
    """The same by another road: one triangular system a chunk (the paper's WY form), natural exponents.

    With G the sums of g from the chunk's start, the corrections u of all its rows solve
    (I + tril(beta_i e^(G_i - G_j) k_i.k_j, -1)) u = beta (v - e^G k S).
    """
    queries, keys = (per_value_head(x, v.shape[2]).transpose(1, 2) for x in (q, k))  # [B, HV, T, K]
    values, betas = v.double().transpose(1, 2), beta.double().transpose(1, 2)[..., None]
    gates = torch.zeros_like(betas) if g is None else g.double().transpose(1, 2)[..., None]
    scale = k.shape[-1] ** -0.5 if scale is None else scale
    count = len(sequences(v.shape[0], v.shape[1], cu_seqlens))
    states = start_states(v, k.shape[-1], initial_state, count, state_v_first)
    o = torch.zeros_like(values)
    for c in chunks(v.shape[0], v.shape[1], chunk_size, cu_seqlens):
        rows, n = (c.batch, slice(None), slice(c.start, c.end)), c.sequence
        sums = gates[rows].cumsum(1)  # [HV, C, 1]
        decay = (sums - sums.mT).tril().exp().tril()
        system = (betas[rows] * decay * (keys[rows] @ keys[rows].mT)).tril(-1)
        right = betas[rows] * (values[rows] - sums.exp() * (keys[rows] @ states[n]))
        u = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
        o[rows] = scale * (sums.exp() * (queries[rows] @ states[n]) + (decay * (queries[rows] @ keys[rows].mT)) @ u)
        last = sums[:, -1:]
        states[n] = last.exp() * states[n] + (keys[rows] * (last - sums).exp()).mT @ u
    return o.transpose(1, 2).contiguous(), states.mT.contiguous() if state_v_first else states


# Stages. From here on g is the base-2 sum within the chunk, except in chunk_local_cumsum, which makes it.


def chunk_local_cumsum(
    g: Tensor,
    chunk_size: int,
    reverse: bool = False,
    scale: float | None = None,
    cu_seqlens: Tensor | None = None,
) -> Tensor:
    """Sums of g `[B, T, HV]` from its chunk's first row (or, reversed, to its last), both included, times scale."""
    out = torch.zeros_like(g, dtype=torch.float64)
    for c in chunks(g.shape[0], g.shape[1], chunk_size, cu_seqlens):
        part = g[c.batch, c.start : c.end].double()
        out[c.batch, c.start : c.end] = part.flip(0).cumsum(0).flip(0) if reverse else part.cumsum(0)
    return out if scale is None else out * scale


def _decay(g: Tensor | None, c: Chunk, value_heads: int) -> Tensor:
    """exp2(g_i - g_j) for j <= i, else 0: `[HV, C, C]`. The difference is masked first, since it may overflow above."""
    size = c.end - c.start
    if g is None:
        return torch.ones(value_heads, size, size, dtype=torch.float64).tril()
    sums = g[c.batch, c.start : c.end].double().T  # [HV, C]
    return (sums[:, :, None] - sums[:, None, :]).tril().exp2().tril()


def _exp2_rows(g: Tensor | None, rows: Tensor) -> Tensor:
    """exp2(g) `[B, T, HV, 1]`, or ones."""
    return torch.ones_like(rows[..., :1]) if g is None else g.double().exp2()[..., None]


def chunk_scaled_dot_kkt_fwd(
    k: Tensor, g: Tensor | None, beta: Tensor, cu_seqlens: Tensor | None = None, chunk_size: int = 64
) -> Tensor:
    """A `[B, T, HV, BT]`: beta_i exp2(g_i - g_j) k_i.k_j for j < i, j a place in row i's own chunk; else 0."""
    value_heads = beta.shape[2]
    keys = per_value_head(k, value_heads)
    out = torch.zeros(*beta.shape, chunk_size, dtype=torch.float64)
    for c in chunks(k.shape[0], k.shape[1], chunk_size, cu_seqlens):
        k_c = keys[c.batch, c.start : c.end].transpose(0, 1)  # [HV, C, K]
        beta_c = beta[c.batch, c.start : c.end].double().T[..., None]
        a = (beta_c * _decay(g, c, value_heads) * (k_c @ k_c.mT)).tril(-1)
        out[c.batch, c.start : c.end, :, : c.end - c.start] = a.transpose(0, 1)
    return out


def solve_tril(A: Tensor, cu_seqlens: Tensor | None = None) -> Tensor:
    """(I + A)^-1 of each chunk's strictly lower A `[B, T, HV, BT]`, in A's layout, zero past the chunk's end."""
    out = torch.zeros_like(A, dtype=torch.float64)
    for c in chunks(A.shape[0], A.shape[1], A.shape[3], cu_seqlens):
        size = c.end - c.start
        a = A[c.batch, c.start : c.end, :, :size].double().transpose(0, 1)  # [HV, C, C]
        identity = torch.eye(size, dtype=torch.float64).expand_as(a)
        inverse = torch.linalg.solve_triangular(a, identity, upper=False, unitriangular=True)
        out[c.batch, c.start : c.end, :, :size] = inverse.transpose(0, 1)
    return out


def recompute_w_u_fwd(
    k: Tensor, v: Tensor, beta: Tensor, A: Tensor, g: Tensor | None = None, cu_seqlens: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """w `[B, T, HV, K]` = A (k beta exp2(g)) and u `[B, T, HV, V]` = A (v beta), A from `solve_tril`."""
    keys = per_value_head(k, v.shape[2]) * beta.double()[..., None]
    right_w, right_u = keys * _exp2_rows(g, keys), v.double() * beta.double()[..., None]
    w, u = torch.zeros_like(right_w), torch.zeros_like(right_u)
    for c in chunks(v.shape[0], v.shape[1], A.shape[3], cu_seqlens):
        rows = (c.batch, slice(c.start, c.end))
        inverse = A[rows].double()[..., : c.end - c.start]  # [C, HV, C]
        w[rows] = torch.einsum("ihj,jhk->ihk", inverse, right_w[rows])
        u[rows] = torch.einsum("ihj,jhv->ihv", inverse, right_u[rows])
    return w, u


def chunk_gated_delta_rule_fwd_h(
    k: Tensor,
    w: Tensor,
    u: Tensor,
    g: Tensor | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    chunk_size: int = 64,
    save_new_value: bool = True,
    cu_seqlens: Tensor | None = None,
    state_v_first: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The states: h `[B, NT, HV, K, V]` before each chunk, v_new `[B, T, HV, V]` and the final ones `[N, HV, K, V]`.

    v_new = u - w S;  S <- S exp2(g_last) + k^T (v_new exp2(g_last - g)). `state_v_first` swaps K and V in all states.
    """
    batches, rows_, value_heads, values = u.shape
    spans = sequences(batches, rows_, cu_seqlens)
    states = start_states(u, k.shape[-1], initial_state, len(spans), state_v_first)
    keys, v_new = per_value_head(k, value_heads), torch.zeros_like(u, dtype=torch.float64)
    count = count_chunks(rows_, chunk_size, cu_seqlens)
    h = torch.zeros(batches, count, value_heads, k.shape[-1], values, dtype=torch.float64)
    for c in chunks(batches, rows_, chunk_size, cu_seqlens):
        rows, state = (c.batch, slice(c.start, c.end)), states[c.sequence]
        h[c.batch, c.ordinal] = state
        v_new[rows] = u[rows].double() - torch.einsum("ihk,hkv->ihv", w[rows].double(), state)
        sums = torch.zeros(c.end - c.start, value_heads, dtype=torch.float64) if g is None else g[rows].double()
        scaled = v_new[rows] * (sums[-1] - sums).exp2()[..., None]
        states[c.sequence] = state * sums[-1].exp2()[:, None, None] + torch.einsum("ihk,ihv->hkv", keys[rows], scaled)
    if state_v_first:
        h, states = h.mT.contiguous(), states.mT.contiguous()
    return h, v_new if save_new_value else None, states if output_final_state else None


def chunk_fwd_o(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    h: Tensor,
    g: Tensor | None = None,
    scale: float | None = None,
    cu_seqlens: Tensor | None = None,
    chunk_size: int = 64,
    state_v_first: bool = False,
) -> Tensor:
    """o `[B, T, HV, V]` = scale ((q exp2(g)) h + tril(q k^T exp2(g_i - g_j)) v), v being `v_new`, h from the states."""
    value_heads = v.shape[2]
    scale = k.shape[-1] ** -0.5 if scale is None else scale
    queries, keys, states = per_value_head(q, value_heads), per_value_head(k, value_heads), h.double()
    decayed, o = queries * _exp2_rows(g, queries), torch.zeros_like(v, dtype=torch.float64)
    for c in chunks(v.shape[0], v.shape[1], chunk_size, cu_seqlens):
        rows = (c.batch, slice(c.start, c.end))
        state = states[c.batch, c.ordinal]
        inter = torch.einsum("ihk,hkv->ihv", decayed[rows], state.mT if state_v_first else state)
        scores = torch.einsum("ihk,jhk->hij", queries[rows], keys[rows]) * _decay(g, c, value_heads)
        o[rows] = scale * (inter + torch.einsum("hij,jhv->ihv", scores, v[rows].double()))
    return o


def forward_by_stages(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    state_v_first: bool = False,
    chunk_size: int = 64,
) -> dict[str, Tensor | None]:
    """Every tensor of the chain, by name: g_cumsum, A, A_inverse, w, u, h, v_new, final_state, o."""
    sums = None if g is None else chunk_local_cumsum(g, chunk_size, scale=1 / math.log(2), cu_seqlens=cu_seqlens)
    a = chunk_scaled_dot_kkt_fwd(k, sums, beta, cu_seqlens, chunk_size)
    inverse = solve_tril(a, cu_seqlens)
    w, u = recompute_w_u_fwd(k, v, beta, inverse, sums, cu_seqlens)
    h, v_new, final_state = chunk_gated_delta_rule_fwd_h(
        k, w, u, sums, initial_state, True, chunk_size, True, cu_seqlens, state_v_first
    )
    assert v_new is not None
    o = chunk_fwd_o(q, k, v_new, h, sums, scale, cu_seqlens, chunk_size, state_v_first)
    return {
        "g_cumsum": sums, "A": a, "A_inverse": inverse, "w": w, "u": u,
        "h": h, "v_new": v_new, "final_state": final_state, "o": o,
    }  # fmt: skip
