"""Inverse of I + A for a strictly lower triangular A, one chunk a matrix.

Forward substitution inside 16 x 16 diagonal blocks, then a merge by products: with D the inverses of the diagonal blocks,
D (I + A) = I + N, where N is strictly lower by blocks, and with at most four blocks N^4 = 0:
(I + A)^-1 = (I + N^2)(I - N) D. Everything in fp32: a Neumann or doubling series over the whole chunk explodes on equal keys.
D goes into dots only, never into a sum: a loaded tile that serves both is lost between the cores (K204).
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
        n = dot(d, A[t] + eye(t), exact=True) - eye(t)
        y = dot(eye(t) - n, d, exact=True)
        M[t] = dot(eye(t) + dot(n, n, exact=True), y, exact=True)
