"""What the parser takes and no pass lowers is refused at its place with a next step; it never breaks a pass."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest

from kgen.errors import KgenError

Refusal = Callable[[str], KgenError]


def program(parameters: str, body: str, tasks: str = "t in tasks(chunks(T), heads(HV))") -> str:
    lines = textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
    return f"def p({parameters}):\n    for {tasks}:\n{lines}\n"


SEQS = "n, bv in tasks(seqs(N), tiles(V), heads(HV))"
REFUSED = {  # title: program, line, part of the message
    "group": (program("v, o", "for _ in group(HV):\n    for bv in tiles(V):\n        o[t, bv] = v[t, bv]",
                      "t in tasks(chunks(T), heads(H))"), 3, "group(HV)"),
    "chunks and sequences": (program("beta, P", "P[t] = zeros(t, t)", "t, n in tasks(chunks(T), seqs(N), heads(HV))"),
                             2, "tasks over chunks and seqs"),
    "chunks by chunks": (program("beta, P", "P[t] = zeros(t, t)", "t, u in tasks(chunks(T), chunks(T), heads(HV))"),
                         2, "tasks over chunks and chunks"),
    "tiles of one dim twice": (program("ht", "if ht:\n    ht[n, bk, bv] = zeros(bk, bv)",
                                       "n, bk, bv, bw in tasks(seqs(N), tiles(K), tiles(V), tiles(V), heads(HV))"),
                               2, "tasks over V by V"),
    "one variable twice": (program("k, P", "for bk in tiles(K):\n    for bk in tiles(K):\n        P[t] = zeros(t, t)"),
                           4, "'bk' inside another"),
    "unrolled variable twice": (program("P", "for i in range(2):\n    for i in range(2):\n        P[t] = zeros(t, t)"),
                                4, "'i' inside another"),
    "scan in a scan": (program("v, o", "for t in scan(chunks(n)):\n    for u in scan(chunks(n)):\n"
                               "        o[u, bv] = v[u, bv]", SEQS), 4, "scan inside a scan"),
    "name of kgen's own": (program("P", "for i_t in range(2):\n    P[t] = zeros(t, t)"), 3, "'i_t'"),
    "another": (program("P", "for bos in range(2):\n    P[t] = zeros(t, t)"), 3, "'bos'"),
    "lane numbers": (program("beta, z", "if z:\n    z[t] = where(index(t) == 0, 1.0, beta[t])"), 4, "index(…)"),
    "tanh": (program("beta, z", "if z:\n    z[t] = tanh(beta[t])"), 4, "tanh(…)"),
    "row past the end": (program("k, ht", "if ht:\n    ht[n, :, bv] = k[end(n), :][:, None] * zeros(K, bv)", SEQS),
                         4, "end(n)"),
    "row of an empty sequence": (program("k, ht", "if ht:\n    ht[n, :, bv] = k[start(n), :][:, None] * zeros(K, bv)",
                                         SEQS), 4, "start(n)"),
    "integers": (program("slot, z", "if z:\n    z[t] = slot[t] + 1.0"), 4, "slot, a tensor of integers"),
    "scalar to a tile": (program("z", "if z:\n    z[t] = 1.0"), 4, "a scalar stored"),
    "sum of a scalar": (program("z", "if z:\n    z[t] = zeros(t) + sum(scale)"), 4, "sum of a scalar"),
    "slab of a task": (program("o", "S = zeros(t, V)\no[t, bv] = S[:, bv]",
                               "t, bv in tasks(chunks(T), tiles(V), heads(HV))"), 4, "slab"),
    "slab of a task assigned": (program("o", "S = zeros(t, V)\nS[:, bv] = zeros(t, bv)\no[t, bv] = zeros(t, bv)",
                                        "t, bv in tasks(chunks(T), tiles(V), heads(HV))"), 4, "slab"),
    "one element": (program("A, P", "a = A[t]\nP[t] = a * a[0, 0]"), 4, "one element"),
    "element of a vector": (program("beta, z", "b = beta[t]\nif z:\n    z[t] = b * b[3]"), 5, "one element"),
    "part of a vector assigned": (program("beta, z", "b = beta[t]\nb[0:3] = b[0:3] * 2.0\nif z:\n    z[t] = b"),
                                  4, ""),
    "column assigned": (program("A, P", "a = A[t]\na[:, 3] = zeros(t)\nP[t] = a"), 4, "row of a tile"),
    "block assigned": (program("A, P", "a = A[t]\na[0:4, 0:4] = a[0:4, 0:4] * 2.0\nP[t] = a"), 4, ""),
    "max over a slice": (program("A, P", "a = A[t]\nP[t] = a * max(a[3, 0:3], 0)"), 4, "max over a slice"),
    "sum over exp of a slice": (program("A, P", "a = A[t]\nx = exp(a[3, 0:3])\nP[t] = a * sum(x, 0)"), 5, "sum over"),
    "quotient of a slice": (program("A, P", "a = A[t]\na[3, 0:3] = a[2, 0:3] / a[1, 0:3]\nP[t] = a"), 4, "a quotient"),
    "slice of a name with two shapes": (
        program("A, k, P", "for bk in tiles(K):\n    x = k[t, bk]\nx = A[t]\nx[1, 0:1] = x[0, 0:1]\nP[t] = x"),
        6, "other axes elsewhere",
    ),
    "choice that stretches": (program("g, P", "P[t] = (g[t][:, None] if g else zeros(t, t)) + 1.0"), 3, "stretches"),
    "head-only tensor": (program("bias, z", "if z:\n    z[t] = zeros(t) + bias[t]"), 4, ""),
    "shifted rows": (program("beta, z", "if z:\n    z[t] = beta[t + 1]"), 4, "shifted rows"),
}  # fmt: skip


@pytest.mark.parametrize("title", REFUSED)
def test_refused(title: str, refusal: Refusal) -> None:
    source, line, message = REFUSED[title]
    error = refusal(source)
    assert message in error.message
    assert error.location is not None and error.location.line == line, error.render()
