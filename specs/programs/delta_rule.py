"""Tile programs of the chunked gated delta rule, forward.

With A = strictly lower (beta_i exp2(g_i - g_j) k_i.k_j) and M = (I + A)^-1 within each chunk, g the chunk's cumulative
log2 decay:  u = M (beta v),  w = M (beta exp2(g) k),  and over chunks  x = u - w S,  S' = exp2(g_last) S + k^T (exp2(g_last - g) x),
o = scale (exp2(g) q S + tril(q k^T exp2(g_i - g_j)) x).
"""

from kgen.lang import *


def kkt(k, g, beta, A):
    for t in tasks(chunks(T), heads(HV)):
        a = zeros(t, t)
        for bk in tiles(K):
            k_t = k[t, bk]
            a += dot(k_t, k_t.T)
        if g:
            a *= exp2(g[t][:, None] - g[t][None, :])
        A[t] = tril(a * beta[t][:, None], -1)


def recompute_w_u(k, v, beta, g, M, w, u):
    for t in tasks(chunks(T), heads(HV)):
        m = M[t] * beta[t][None, :]
        for bv in tiles(V):
            u[t, bv] = dot(m, v[t, bv])
        if g:
            m *= exp2(g[t])[None, :]
        for bk in tiles(K):
            w[t, bk] = dot(m, k[t, bk])


def chunk_delta_h(k, w, u, g, h0, h, v_new, ht):
    for n, bv in tasks(seqs(N), tiles(V), heads(HV)):
        S = h0[n, :, bv] if h0 else zeros(K, bv)
        for t in scan(chunks(n)):
            x = u[t, bv]
            for bk in tiles(K):
                h[t, bk, bv] = S[bk]
                x -= dot(w[t, bk], S[bk])
            if v_new:
                v_new[t, bv] = x
            if g:
                x *= exp2(g[last(t)] - g[t])[:, None]
            for bk in tiles(K):
                if g:
                    S[bk] *= exp2(g[last(t)])
                S[bk] += dot(k[t, bk].T, x)
        if ht:
            ht[n, :, bv] = S


def chunk_o(q, k, v, h, g, o):
    for t, bv in tasks(chunks(T), tiles(V), heads(HV)):
        acc, a = zeros(t, bv), zeros(t, t)
        for bk in tiles(K):
            q_t = q[t, bk]
            acc += dot(q_t, h[t, bk, bv])
            a += dot(q_t, k[t, bk].T)
        if g:
            acc *= exp2(g[t])[:, None]
            a *= exp2(g[t][:, None] - g[t][None, :])
        o[t, bv] = (acc + dot(tril(a), v[t, bv])) * scale
