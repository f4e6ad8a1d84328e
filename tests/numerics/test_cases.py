"""The cover shows every pair, deterministically; inputs are what they are said to be; the error metric counts."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kgen.verify.cases import GDN_FACTORS, GdnCase, gdn_cases, make_inputs, widened
from kgen.verify.error_metric import max_abs, rel_rms
from kgen.verify.pairwise import pairwise

ROOT = Path(__file__).parents[2]


def pairs_of(rows: Sequence[Mapping[str, Any]]) -> set[tuple[Any, ...]]:
    """All (factor, value, factor, value) that rows show."""
    return {(*a, *b) for row in rows for a, b in itertools.combinations(row.items(), 2)}


def all_rows(factors: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(factors, values, strict=True)) for values in itertools.product(*factors.values())]


@given(st.lists(st.integers(1, 4), min_size=2, max_size=5), st.integers(0, 12), st.integers(0, 40))
@settings(max_examples=60, deadline=None)
def test_the_cover_is_complete_under_any_constraint(sizes: list[int], forbidden: int, minimum: int) -> None:
    factors = {f"f{i}": tuple(range(size)) for i, size in enumerate(sizes)}

    def allowed(row: dict[str, int]) -> bool:  # never says no to a row that could still be completed
        return len(row) < len(factors) or sum(row.values()) * 5 % 13 != forbidden

    everything = [row for row in all_rows(factors) if allowed(row)]
    rows = pairwise(factors, allowed, minimum)
    assert pairs_of(rows) == pairs_of(everything)
    assert all(map(allowed, rows))
    assert len({tuple(row.items()) for row in rows}) == len(rows) >= min(minimum, len(everything))


def test_the_cover_is_small() -> None:
    assert len(pairwise({f"f{i}": range(2) for i in range(10)})) <= 10
    assert len(pairwise({f"f{i}": range(3) for i in range(4)})) == 9
    assert len(pairwise({"a": range(6), "b": range(5), "c": range(2), "d": range(2)})) == 30


def test_one_factor_and_impossible_pairs() -> None:
    assert pairwise({"a": (1, 2)}) == [{"a": 1}, {"a": 2}]
    assert pairwise({"a": (1, 2), "b": (1, 2)}, lambda row: row.get("a") == row.get("b", row.get("a"))) == [
        {"a": 1, "b": 1},
        {"a": 2, "b": 2},
    ]


def test_gdn_cases_show_every_allowed_pair() -> None:
    cases = gdn_cases()
    assert 60 <= len(cases) <= 80
    assert len({case.name for case in cases}) == len(cases)
    shown = pairs_of([{name: getattr(case, name) for name in GDN_FACTORS} for case in cases])
    for a, b in itertools.combinations(GDN_FACTORS, 2):
        for x, y in itertools.product(GDN_FACTORS[a], GDN_FACTORS[b]):
            if {a, b} == {"layout", "index_dtype"} and (x == "fixed") != (y is None):
                continue
            assert (a, x, b, y) in shown


def test_gdn_cases_are_the_same_in_any_process() -> None:
    script = "from kgen.verify.cases import gdn_cases; print([case.name for case in gdn_cases()])"
    expected = str([case.name for case in gdn_cases()])
    for seed in "1", "2":
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", script]
        result = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=120)
        assert result.stdout.strip() == expected


@pytest.mark.parametrize("case", gdn_cases(), ids=lambda case: case.name)
def test_inputs_are_as_promised(case: GdnCase) -> None:
    inputs, again = make_inputs(case), make_inputs(case)
    (heads, value_heads), (keys, values) = case.heads, case.dims
    q, k, v, beta, g = (inputs[name] for name in ("q", "k", "v", "beta", "g"))
    assert q is not None and k is not None and v is not None and beta is not None
    assert q.shape == k.shape == (case.B, case.T, heads, keys)
    assert v.shape == (case.B, case.T, value_heads, values)
    assert torch.allclose(q.double().norm(dim=-1), torch.ones(case.B, case.T, heads, dtype=torch.float64), atol=1e-2)
    assert ((beta > 0) & (beta <= 1)).all()
    assert (g is not None) == case.gate and (g is None or bool((g <= 0).all()))
    assert (inputs["initial_state"] is not None) == case.initial_state
    cu_seqlens = inputs["cu_seqlens"]
    if cu_seqlens is not None:
        assert case.B == 1 and cu_seqlens[0] == 0 and cu_seqlens[-1] == case.T
        assert cu_seqlens.diff().tolist() == list(case.lengths)
    for name, tensor in inputs.items():
        other = again[name]
        assert (tensor is None) == (other is None)
        assert tensor is None or (other is not None and torch.equal(tensor, other))
    assert widened(inputs)["q"].dtype == torch.float64  # type: ignore[union-attr]


def test_varlen_cases_hold_empty_single_and_unaligned_sequences() -> None:
    lengths = [case.lengths for case in gdn_cases() if case.varlen]
    assert any(0 in case for case in lengths)
    assert any(1 in case and len(case) > 1 for case in lengths)
    assert any(length > 64 and length % 32 for case in lengths for length in case)
    assert any(case.B == 2 for case in gdn_cases())


def test_rel_rms_and_max_abs() -> None:
    reference = torch.tensor([3.0, 4.0])
    assert rel_rms(reference, reference) == 0.0 == max_abs(reference, reference)
    assert math.isclose(rel_rms(reference * 1.1, reference), 0.1, rel_tol=1e-6)
    assert math.isclose(max_abs(torch.tensor([3.0, 4.5]), reference), 0.5)
    empty, zero, nan = torch.empty(0, 3), torch.zeros(2), torch.tensor([3.0, float("nan")])
    assert rel_rms(empty, empty) == 0.0 == max_abs(empty, empty)
    assert rel_rms(zero, zero) == 0.0 and rel_rms(reference, zero) == math.inf
    assert rel_rms(nan, reference) == math.inf == max_abs(nan, reference)
    with pytest.raises(ValueError, match="shapes differ"):
        rel_rms(zero, empty)
