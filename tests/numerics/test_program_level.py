"""The program level: every stage of the forward in fp64, at most 1e-12 from its reference; mutations are seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from kgen.errors import KgenError
from kgen.ir.nodes import Kernel
from kgen.ir.parse import parse_kernel
from kgen.spec.load import load_spec
from kgen.verify.cases import GdnCase, gdn_cases
from kgen.verify.program_level import TOLERANCE, verify_gdn

ROOT = Path(__file__).parents[2]
SPEC = load_spec(ROOT / "specs" / "gdn.yaml").spec
FILES = {f: (ROOT / "specs" / "programs" / f).read_text() for f in ("delta_rule.py", "rows.py", "triangular.py")}
CASES = {case.name: case for case in gdn_cases()}
RAGGED = GdnCase(
    T=200, heads=(1, 2), dims=(60, 32), gate=True, layout="unaligned", index_dtype="int32", initial_state=True,
    final_state=True, state_v_first=False, chunk_size=64, dtype="fp32", side_dtype="fp32",
)  # fmt: skip


def kernels(files: Mapping[str, str] = FILES) -> dict[str, Kernel]:
    """Every kernel of the spec, parsed from these program files."""
    out = {}
    for name, entry in SPEC.kernels.items():
        path = entry.program.partition(":")[0]
        out[name] = parse_kernel(SPEC, name, files[Path(path).name], path)
    return out


KERNELS = kernels()


@pytest.mark.parametrize("name", CASES)
def test_every_stage_of_a_case_is_its_reference(name: str) -> None:
    case = CASES[name]
    results = verify_gdn(SPEC, KERNELS, case)
    assert {r.output for r in results} == {"A", "D", "M", "w", "u", "h", "v_new", "o"} | (
        {"g"} if case.gate else set()
    ) | ({"ht"} if case.final_state else set())
    assert TOLERANCE == 1e-12
    assert all(r.passed for r in results), [r for r in results if not r.passed]


@pytest.mark.parametrize("chunk_size", [16, 32, 64])
@pytest.mark.parametrize("dims", [(60, 64), (96, 24), (192, 96), (16, 16)])
@pytest.mark.parametrize("tile", [16, 48, 64, 256])
def test_any_chunk_size_and_any_tiles(chunk_size: int, dims: tuple[int, int], tile: int) -> None:
    case = replace(RAGGED, chunk_size=chunk_size, dims=dims, T=75)
    tiles = {name: dict.fromkeys(entry.tiles, tile) for name, entry in SPEC.kernels.items()}
    results = verify_gdn(SPEC, KERNELS, case, tiles)
    assert all(r.passed for r in results), [r for r in results if not r.passed]


def test_no_rows_at_all() -> None:
    results = verify_gdn(SPEC, KERNELS, replace(RAGGED, T=0, layout="empty"))
    assert all(r.passed for r in results)


GATE = "a *= exp2(g[t][:, None] - g[t][None, :])"
MUTATIONS = [
    ("rows.py", "reverse=reverse", "reverse=True"),
    ("rows.py", " * scale", ""),
    ("rows.py", "cumsum(s[t], 0, reverse=reverse)", "s[t]"),
    ("delta_rule.py", "-1)", "0)"),
    ("delta_rule.py", "tril(a * beta[t][:, None], -1)", "a * beta[t][:, None]"),
    ("delta_rule.py", "tril(a * beta[t][:, None], -1)", "tril(a * beta[t][None, :], -1)"),
    ("delta_rule.py", "tril(a * beta[t][:, None], -1)", "tril(a, -1)"),
    ("delta_rule.py", f"{GATE}\n        A", "a *= 1.0\n        A"),
    ("delta_rule.py", f"{GATE}\n        o", "a *= 1.0\n        o"),
    ("delta_rule.py", "m = M[t] * beta[t][None, :]", "m = M[t] * beta[t][:, None]"),
    ("delta_rule.py", "m *= exp2(g[t])[None, :]", "m *= exp2(g[t])[:, None]"),
    ("delta_rule.py", "u[t, bv] = dot(m, v[t, bv])", "u[t, bv] = v[t, bv]"),
    ("delta_rule.py", "S = h0[n, :, bv] if h0 else zeros(K, bv)", "S = zeros(K, bv)"),
    ("delta_rule.py", "x -= dot(w[t, bk], S[bk])", "x += dot(w[t, bk], S[bk])"),
    ("delta_rule.py", "x *= exp2(g[last(t)] - g[t])[:, None]", "x *= exp2(-g[t])[:, None]"),
    ("delta_rule.py", "S[bk] *= exp2(g[last(t)])", "S[bk] *= exp(g[last(t)])"),
    ("delta_rule.py", "S[bk] += dot(k[t, bk].T, x)", "S[bk] = dot(k[t, bk].T, x)"),
    ("delta_rule.py", "ht[n, :, bv] = S", "ht[n, :, bv] = S * 0.5"),
    ("delta_rule.py", "            if v_new:\n                v_new[t, bv] = x\n", ""),
    ("delta_rule.py", "scan(chunks(n))", "scan(chunks(n), reverse=True)"),
    ("delta_rule.py", "acc *= exp2(g[t])[:, None]", "acc *= exp2(g[last(t)])"),
    ("delta_rule.py", "dot(tril(a), v[t, bv])", "dot(a, v[t, bv])"),
    ("delta_rule.py", "v[t, bv])) * scale", "v[t, bv]))"),
    ("delta_rule.py", "            a += dot(q_t, k", "            o[t, bv] = 0.0\n            a += dot(q_t, k"),
    ("triangular.py", "range(1, 16)", "range(2, 16)"),
    ("triangular.py", "range(1, 16)", "range(1, 15)"),
    ("triangular.py", "-sum(", "sum("),
    ("triangular.py", "m[0:i, 0:i], 0)", "m[0:i, 0:i], 1)"),
    ("triangular.py", "m = eye(s)", "m = zeros(s, s)"),
    ("triangular.py", " - eye(t)", ""),
    ("triangular.py", "y = dot(eye(t) - n, d", "y = dot(eye(t) + n, d"),
    ("triangular.py", "M[t] = dot(eye(t) + dot(n, n, exact=True), y, exact=True)", "M[t] = y"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "before", "after"), MUTATIONS)
def test_a_mutated_program_is_seen(file: str, before: str, after: str) -> None:
    assert before in FILES[file]
    mutated = kernels({**FILES, file: FILES[file].replace(before, after)})
    try:
        results = verify_gdn(SPEC, mutated, RAGGED)
    except KgenError:
        return
    assert not all(r.passed for r in results)
