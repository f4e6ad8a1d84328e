"""References against each other: the recurrence, the chunked form, and the stages put together, in fp64."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kgen.verify.cases import GdnCase, gdn_cases, make_inputs, widened
from kgen.verify.error_metric import rel_rms
from kgen.verify.references import gdn

EXACT = 1e-12
Inputs = dict[str, Tensor | None]


def recurrence(inputs: Inputs, v_first: bool = False) -> tuple[Tensor, Tensor]:
    return gdn.recurrent_gated_delta_rule(**inputs, state_v_first=v_first)  # type: ignore[arg-type]


def assert_all_agree(inputs: Inputs, v_first: bool, chunk_size: int) -> None:
    o, state = recurrence(inputs, v_first)
    o_chunked, state_chunked = gdn.chunked_gated_delta_rule(
        **inputs, state_v_first=v_first, chunk_size=chunk_size  # type: ignore[arg-type]
    )  # fmt: skip
    stages = gdn.forward_by_stages(**inputs, state_v_first=v_first, chunk_size=chunk_size)  # type: ignore[arg-type]
    assert stages["o"] is not None and stages["final_state"] is not None
    for actual in o_chunked, stages["o"]:
        assert rel_rms(actual, o) <= EXACT
    for actual in state_chunked, stages["final_state"]:
        assert rel_rms(actual, state) <= EXACT


@pytest.mark.parametrize("case", gdn_cases(), ids=lambda case: case.name)
def test_three_forms_agree_on_the_cover(case: GdnCase) -> None:
    assert_all_agree(widened(make_inputs(case)), case.state_v_first, case.chunk_size)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Inputs, bool, int]:
    """Any lengths, heads and dims, with decays from none to total."""
    h, group, keys, values = (draw(st.integers(1, limit)) for limit in (3, 3, 9, 9))
    lengths = draw(st.lists(st.integers(0, 40), min_size=1, max_size=4))
    varlen, seed, strength = (
        draw(st.booleans()),
        draw(st.integers(0, 2**20)),
        draw(st.sampled_from([0.0, 0.1, 3.0, 80.0])),
    )
    generator = torch.Generator().manual_seed(seed)
    rows, batches = (sum(lengths), 1) if varlen else (lengths[0], 2)
    count = len(lengths) if varlen else batches

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    q, k = (torch.nn.functional.normalize(normal(batches, rows, h, keys), dim=-1) for _ in range(2))
    bounds = torch.tensor([0, *lengths]).cumsum(0) if varlen else None
    v_first = draw(st.booleans())
    state = normal(count, h * group, *((values, keys) if v_first else (keys, values)))
    inputs: Inputs = {
        "q": q, "k": k, "v": normal(batches, rows, h * group, values),
        "g": -strength * normal(batches, rows, h * group).abs() if draw(st.booleans()) else None,
        "beta": normal(batches, rows, h * group).sigmoid(),
        "initial_state": state if draw(st.booleans()) else None, "cu_seqlens": bounds,
    }  # fmt: skip
    return inputs, v_first, draw(st.sampled_from([1, 4, 16, 64]))


@given(problems())
@settings(max_examples=60, deadline=None)
def test_three_forms_agree_on_any_shape(problem: tuple[Inputs, bool, int]) -> None:
    assert_all_agree(*problem)


def example(rows: int = 70, size: int = 32) -> tuple[Inputs, dict[str, Tensor | None]]:
    bounds = torch.tensor([0, 0, 1, 1, rows - 5, rows])
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    inputs: Inputs = {
        "q": normal(1, rows, 2, 8), "k": torch.nn.functional.normalize(normal(1, rows, 2, 8), dim=-1),
        "v": normal(1, rows, 4, 6), "g": -normal(1, rows, 4).abs(), "beta": normal(1, rows, 4).sigmoid(),
        "initial_state": normal(5, 4, 8, 6), "cu_seqlens": bounds,
    }  # fmt: skip
    return inputs, gdn.forward_by_stages(**inputs, chunk_size=size)  # type: ignore[arg-type]


def test_an_empty_sequence_keeps_its_state() -> None:
    inputs, stages = example()
    initial, final = inputs["initial_state"], stages["final_state"]
    assert initial is not None and final is not None
    assert torch.equal(final[[0, 2]], initial[[0, 2]])
    _, without = recurrence({**inputs, "initial_state": None})
    assert not without[[0, 2]].any() and without[[1, 3, 4]].any()


def test_packed_sequences_are_independent() -> None:
    inputs, stages = example()
    bounds, state = inputs["cu_seqlens"], inputs["initial_state"]
    assert bounds is not None and state is not None and stages["o"] is not None
    for n, (start, end) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
        names = ("q", "k", "v", "g", "beta")
        alone: Inputs = {name: tensor[:, start:end] for name in names if (tensor := inputs[name]) is not None}
        o, final = recurrence({**alone, "initial_state": state[n : n + 1], "cu_seqlens": None})
        assert rel_rms(stages["o"][:, start:end], o) <= EXACT
        assert stages["final_state"] is not None and rel_rms(stages["final_state"][n : n + 1], final) <= EXACT


def test_h_holds_the_recurrence_at_chunk_starts() -> None:
    rows, size = 70, 32
    inputs, _ = example(rows)
    fixed: Inputs = {**inputs, "cu_seqlens": None, "initial_state": None}
    h = gdn.forward_by_stages(**fixed, chunk_size=size)["h"]  # type: ignore[arg-type]
    assert h is not None and h.shape == (1, 3, 4, 8, 6)
    for ordinal in range(3):
        cut: Inputs = {name: t if t is None else t[:, : ordinal * size] for name, t in fixed.items()}
        assert rel_rms(h[:, ordinal], recurrence(cut)[1]) <= EXACT


def test_cumsum_is_per_chunk_and_reversible() -> None:
    inputs, stages = example()
    g, bounds = inputs["g"], inputs["cu_seqlens"]
    assert g is not None and stages["g_cumsum"] is not None
    forward = gdn.chunk_local_cumsum(g, 32, cu_seqlens=bounds)
    backward = gdn.chunk_local_cumsum(g, 32, reverse=True, cu_seqlens=bounds)
    assert torch.allclose(stages["g_cumsum"] * math.log(2), forward, rtol=1e-14)
    starts = [0, 1, 33, 65]  # of the chunks in sequences 0:1, 1:65, 65:70
    assert torch.equal(forward[:, starts], g[:, starts])
    totals = forward + backward - g  # the chunk's sum, in each of its rows
    for start, end in zip(starts, [*starts[1:], 70], strict=True):
        assert torch.allclose(totals[:, start:end], g[:, start:end].sum(1, keepdim=True).expand(-1, end - start, -1))


def test_a_is_strictly_lower_and_its_inverse_inverts() -> None:
    _, stages = example()
    a, inverse = stages["A"], stages["A_inverse"]
    assert a is not None and inverse is not None
    for start, end in ((0, 1), (1, 33), (33, 65), (65, 70)):
        size = end - start
        block, other = (x[0, start:end].transpose(0, 1) for x in (a, inverse))  # [HV, C, BT]
        assert not block.triu().any() and not block[..., size:].any() and not other[..., size:].any()
        identity = torch.eye(size, dtype=torch.float64)
        assert torch.allclose((block[..., :size] + identity) @ other[..., :size], identity.expand(4, -1, -1))


def test_references_import_nothing_of_kgen() -> None:
    with open(gdn.__file__) as file:
        imports = [line for line in file if line.startswith(("import ", "from "))]
    assert not any("kgen" in line for line in imports)
