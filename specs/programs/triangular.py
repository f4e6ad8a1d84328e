"""Inverse of I + A for a strictly lower triangular A, one chunk a matrix.

Forward substitution inside 16 x 16 diagonal blocks, then a merge by products: with D the inverses of the diagonal blocks,
D (I + A) = I + N, where N is strictly lower by blocks, and with at most four blocks N^4 = 0:
(I + A)^-1 = (I + N^2)(I - N) D. Everything in fp32: a Neumann or doubling series over the whole chunk explodes on equal keys.
"""

from kgen.lang import *


def solve_diag(A, D):
    for s in tasks(parts(T, 16), heads(HV)):
        a = A[s, s]
        m = eye(s)
        for i in range(1, 16):
            m[i, 0:i] = -sum(a[i, 0:i][:, None] * m[0:i, 0:i], 0)
        D[s, s] = m


def solve_merge(A, D, M):
    for t in tasks(chunks(T), heads(HV)):
        d = D[t]
        n = dot(d, A[t], exact=True) + d - eye(t)
        y = d - dot(n, d, exact=True)
        M[t] = y + dot(dot(n, n, exact=True), y, exact=True)
