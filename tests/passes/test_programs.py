"""Small programs other than gdn's, lowered and run: what is emitted must compute what the program says.

The reference is the program level's evaluator, which walks the parsed program in fp64. Sequences of 5, 0, 33 and 16
rows, or two of 21, and dims that tiles don't divide make every tail and void lane count.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kgen.ir.tasks import task_count
from kgen.passes import PASSES
from kgen.spec.models import DimKind, Tensor
from kgen.verify.program import evaluate

from .conftest import Small
from .numpy_triton import Pointer, run, tl

DIMS = {"H": 1, "HV": 2, "K": 20, "V": 12, "BT": 16}
TILES = {"BK": 16, "BV": 8}
STARTS = (0, 5, 5, 38, 54)  # rows at which sequences start, and the end


class Launch:
    """One small program on fixed random tensors."""

    def __init__(self, small: Small, varlen: bool, flags: dict[str, bool], absent: set[str], whole: bool) -> None:
        self.small, self.varlen, self.flags, self.absent = small, varlen, flags, absent
        self.starts = STARTS if varlen else (0, 21, 42)
        self.lengths = np.diff(self.starts)
        chunks = -(-self.lengths // DIMS["BT"])
        self.dims = {**DIMS, "T": self.starts[-1], "N": len(self.lengths), "NT": int(chunks.sum())}
        self.tiles = {"BK": 32, "BV": 16} if whole else TILES
        random = np.random.default_rng(7)
        self.tensors = {p: self._tensor(p, random) for p in small.parse().params}

    def _tensor(self, param: str, random: np.random.Generator) -> np.ndarray | None:
        t = self.small.context.tensor(param)
        if self.small.context.optional(param) and param in self.absent:
            return None
        shape = tuple(self.dims[d] for d in t.dims)
        if param in self.small.context.entry.outputs:
            return np.full(shape, np.nan)
        values = random.uniform(0.1, 1.0, shape)
        if t.dims[-1] == "BT":  # a chunk's own columns are zero past its end
            for start, rows in zip(self.starts, self.lengths, strict=False):
                for first in range(0, rows, DIMS["BT"]):
                    values[start + first : start + rows, ..., rows - first :] = 0.0
        return -np.sort(values, 0) if t.decay else values

    def expected(self) -> dict[str, np.ndarray | None]:
        out = {p: None if t is None else t.copy() for p, t in self.tensors.items()}
        evaluate(
            self.small.parse(), self.small.spec, out, dims={k: v for k, v in self.dims.items() if k not in ("N", "NT")},
            tiles={k[1:]: v for k, v in self.tiles.items()}, scalars={"scale": 0.5}, flags=self.flags,
            cu_seqlens=self.starts if self.varlen else None, batch=1 if self.varlen else 2,
        )  # fmt: skip
        return out

    # ------------------------------------------------------------ as the kernel sees it

    def layout(self, t: Tensor) -> tuple[str, ...]:
        return next((s for f, s in t.store_if.items() if self.flags.get(f)), t.store or t.dims)

    def stored(self, param: str, value: np.ndarray) -> np.ndarray:
        """In memory order; fixed-length rows inside a head lie by batch."""
        t = self.small.context.tensor(param)
        layout = self.layout(t)
        data = value.transpose([t.dims.index(d) for d in layout])
        if not self.varlen and layout[0] != "T" and "T" in layout:
            data = data.reshape(data.shape[0], 2, -1, *data.shape[2:]).swapaxes(0, 1)
        return np.ascontiguousarray(data).reshape(-1)

    def loaded(self, param: str, flat: np.ndarray) -> np.ndarray:
        """Back from memory order."""
        t = self.small.context.tensor(param)
        index = np.arange(flat.size, dtype=np.float64).reshape([self.dims[d] for d in t.dims])
        back = np.empty(flat.size)
        back[self.stored(param, index).astype(int)] = flat
        return back.reshape(index.shape)

    def made(self, without: str = "") -> dict[str, np.ndarray | None]:
        kernel = self.small.parse()
        for step in PASSES:
            kernel = step(kernel, self.small.context) if step.__name__ != without else kernel
        flat = {p: None if t is None else self.stored(p, t) for p, t in self.tensors.items()}
        chunks = [(n, c) for n, rows in enumerate(self.lengths) for c in range(-(-rows // DIMS["BT"]))]
        offsets = np.cumsum([0, *(-(-self.lengths // DIMS["BT"]))])
        tables = {"cu_seqlens": self.starts, "chunk_indices": np.array(chunks).reshape(-1), "chunk_offsets": offsets}
        count = type("X", (), {"dims": self.dims, "chunks_in_all": self.dims["NT"]})
        tasks = eval(task_count(self.small.spec, kernel), {"x": count, "tiles": self.tiles})
        runtime = {"T": self.starts[-1] if self.varlen else 21, "NT": 2, "task_num": tasks, "num_core": 2}
        arguments: dict[str, Any] = {
            **{p: None if v is None else Pointer(v) for p, v in flat.items()},
            **{n: Pointer(np.array(v, dtype=np.int64)) for n, v in tables.items()},
            **self.dims, **self.tiles, **runtime, "scale": 0.5,
            "IS_VARLEN": self.varlen, "TAIL_MODE": 2, "BLOCK_PTR": True,
            **{f.upper(): self.flags.get(f, False) for f in self.small.spec.flags},
            **{f"USE_{p.upper()}": t is not None for p, t in self.tensors.items()},
        }  # fmt: skip
        run(kernel, arguments)
        return {p: None if v is None else self.loaded(p, v) for p, v in flat.items()}


def compare(
    source: str, varlen: bool = True, flags: dict[str, bool] | None = None, absent: str = "", without: str = ""
) -> None:
    small = Small(source)
    launch = Launch(small, varlen, flags or {}, set(absent.split()), bool(small.stages()["signature"].whole))
    expected, made = launch.expected(), launch.made(without)
    for name in small.context.entry.outputs:
        want, got = expected.get(name), made.get(name)
        if want is not None and got is not None:
            assert not np.isnan(want).all()
            np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-12, err_msg=name)


PROGRAMS = {
    "two outputs": """
        def p(k, beta, P, z):
            for t in tasks(chunks(T), heads(HV)):
                a, s = zeros(t, t), zeros(t)
                for bk in tiles(K):
                    a += dot(k[t, bk], k[t, bk].T)
                    s += sum(k[t, bk] * k[t, bk], 1)
                P[t] = a * beta[t][:, None]
                if z:
                    z[t] = s - beta[t]
        """,
    "nested ifs and choices": """
        def p(g, beta, h0, z, P):
            for t in tasks(chunks(T), heads(HV)):
                x = (g[t] if reverse else exp2(g[t])) if g else beta[t]
                y = zeros(t)
                if g:
                    if reverse:
                        y += g[last(t)]
                    else:
                        y -= exp(g[t] - g[last(t)])
                elif reverse:
                    y += 2.0
                if z:
                    z[t] = x * (x if g else 3.0) + y
                P[t] = zeros(t, t) + sum(y) * (1.0 if g else beta[t][:, None] * beta[t][None, :])
        """,
    "online maximum": """
        def p(k, z):
            for t in tasks(chunks(T), heads(HV)):
                m, s = full(-inf, t), zeros(t)
                for bk in tiles(K):
                    x = -3.0 * k[t, bk]
                    old = m
                    m = maximum(m, max(x, 1))
                    s = s * exp(old - m) + sum(exp(x - m[:, None]), 1)
                if z:
                    z[t] = where(m == 0.0, 1.0, m + log(s))
        """,
    "carry in a tiles loop": """
        def p(q, k, v, o):
            for t in tasks(chunks(T), heads(HV)):
                for bv in tiles(V):
                    acc = v[t, bv]
                    for bk in tiles(K):
                        a = dot(q[t, bk], k[t, bk].T)
                        acc += dot(a, v[t, bv])
                    o[t, bv] = acc
        """,
    "reverse scan with a state": """
        def p(k, u, ht, o, h0):
            for n, bv in tasks(seqs(N), tiles(V), heads(HV)):
                S = h0[n, :, bv] if h0 else zeros(K, bv)
                for t in scan(chunks(n), reverse=True):
                    x = u[t, bv]
                    for bk in tiles(K):
                        x -= 0.1 * dot(k[t, bk], S[bk])
                    o[t, bv] = x
                    for bk in tiles(K):
                        S[bk] = S[bk] * 0.5 + 0.1 * dot(k[t, bk].T, x)
                if ht:
                    ht[n, :, bv] = S
        """,
    "tiles by tiles": """
        def p(k, beta, P):
            for t in tasks(chunks(T), heads(HV)):
                a = zeros(t, t)
                for bk in tiles(K):
                    x = k[t, bk]
                    for bj in tiles(K):
                        a += dot(x, x.T) * sum(k[t, bj], 1)[:, None]
                    a += dot(x, k[t, bk].T)
                P[t] = a
        """,
    "slices": """
        def p(A, P):
            for s in tasks(parts(T, 16), heads(HV)):
                a = A[s, s]
                m = eye(s)
                for i in range(1, 16):
                    j = i - 1
                    m[i, 0:i] = -sum(a[i, 0:i][:, None] * m[0:i, 0:i], 0)
                    m[i, 0:j] += 0.1 * a[j, 0:j]
                m[0, :] = 2.0
                P[s, s] = tril(m, -1) + a[:, 0][:, None] * 0.5
        """,
    "rows of a wide tile": """
        def p(v, o):
            for t, bv in tasks(chunks(T), tiles(V), heads(HV)):
                x = v[t, bv]
                o[t, bv] = x * x[0, :][None, :]
        """,
    "names that a pass would like": """
        def p(g, beta, M, v, o, y, P, z):
            for t in tasks(chunks(T), heads(HV)):
                m = M[t] * beta[t][None, :]
                m_v, m_lower, b_m = m * 2.0, tril(m), m * 3.0
                for bv in tiles(V):
                    o[t, bv] = dot(m, v[t, bv]) + dot(m_v, v[t, bv])
                    y[t, bv] = dot(b_m, v[t, bv]) + dot(m_lower, v[t, bv]) + dot(m, v[t, bv])
                P[t] = m_lower + tril(b_m, -1)
                if g:
                    g_last, b_g = g[last(t)] * 2.0, g[t] * 0.5
                    if z:
                        z[t] = g_last * b_g + g[last(t)] - g[t]
        """,
    "left operands": """
        def p(M, v, o, P):
            for t in tasks(chunks(T), heads(HV)):
                e, m, w = eye(t), M[t], M[t] * 2.0
                n = w
                a = dot(m, e) + dot(e, m) + dot(m.T, w)
                for bv in tiles(V):
                    o[t, bv] = dot(m, v[t, bv]) + dot(n, v[t, bv])
                P[t] = a + w + e + dot(eye(t), m)
        """,
    "masks": """
        def p(loose, beta, v, P, o, z):
            for t in tasks(chunks(T), heads(HV)):
                d = loose[t][:, None] - loose[t][None, :]
                P[t] = tril(exp2(300.0 * d), 1) * 0.0 + tril(exp2(d)) + exp(beta[t])[:, None] * exp(beta[t])[None, :]
                e = log(beta[t])
                for bv in tiles(V):
                    o[t, bv] = dot(e[:, None] * e[None, :], exp(v[t, bv]))
                if z:
                    z[t] = cumsum(exp(beta[t]), 0, reverse=reverse) + sum(rsqrt(beta[t])) + max(beta[t], 0)
        """,
    "cast under a flag": """
        def p(g, v, o):
            for t in tasks(chunks(T), heads(HV)):
                if g:
                    e = exp2(g[t])[:, None] * (zeros(t, t) + 1.0)
                for bv in tiles(V):
                    x = v[t, bv]
                    if g:
                        x += dot(e, v[t, bv])
                    o[t, bv] = x
        """,
    "value heads read key heads, whole dims and a row": """
        def p(q, k, h, o):
            for n, bv in tasks(seqs(N), tiles(V), heads(HV)):
                for t in scan(chunks(n)):
                    x = q[t, :] * k[last(t), :][None, :] + k[start(n), :][None, :]
                    o[t, bv] = dot(x, h[t, :, bv])
        """,
}  # fmt: skip
SETTINGS = {
    "varlen": {"varlen": True},
    "fixed": {"varlen": False, "flags": {"reverse": True, "state_v_first": True}},
    "absent": {"varlen": True, "absent": "g h0 ht z", "flags": {"reverse": True}},
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("title", PROGRAMS)
def test_emitted_statements_compute_the_program(title: str, setting: str) -> None:
    options: dict[str, Any] = SETTINGS[setting]
    compare(PROGRAMS[title], **options)


SHOWN = {  # pass: a program whose run shows that it was deleted
    "left_copies": ("left operands", "nan location mismatch"),
    "tails": ("two outputs", "an address outside the tensor"),
}


@pytest.mark.parametrize("name", SHOWN)
def test_deleting_a_pass_makes_the_emulated_fault(name: str) -> None:
    title, message = SHOWN[name]
    with pytest.raises(AssertionError, match=message):
        compare(PROGRAMS[title], without=name)


def test_an_unclipped_exponent_overflows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gate that falls by thousands within a chunk: above the diagonal its exponential is infinite, unless clipped."""
    source = """
        def p(g, P):
            for t in tasks(chunks(T), heads(HV)):
                a = zeros(t, t) + 1.0
                if g:
                    a *= exp2(g[t][:, None] - g[t][None, :])
                P[t] = tril(a, -1)
        """
    seen: list[float] = []
    exp = tl.exp
    monkeypatch.setattr(tl, "exp", staticmethod(lambda x: (seen.append(float(np.max(x))), exp(x))[1]))

    def largest(without: str) -> float:
        launch = Launch(Small(source), True, {}, set(), False)
        launch.tensors["g"] = -np.arange(launch.dims["T"] * 2.0).reshape(-1, 2) * 100
        seen.clear()
        made = launch.made(without)["P"]
        assert made is not None and np.isfinite(made).all()  # `tril` selects where it can't prove finite values
        return max(seen)

    assert largest("") <= 0.0
    assert largest("clip_exponents") > np.log(np.finfo(np.float64).max)


def test_dims_are_of_every_kind() -> None:
    kinds = {d.kind for d in Small(PROGRAMS["masks"]).spec.dims.values()}
    assert kinds == set(DimKind)
