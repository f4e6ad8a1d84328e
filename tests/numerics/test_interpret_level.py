"""The interpret level: the whole forward and each stage of every case within the spec's tolerances; edges beyond the
cover."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kgen.errors import KgenError
from kgen.spec.load import load_spec
from kgen.verify.cases import GdnCase, gdn_cases, make_inputs, widened
from kgen.verify.interpret_level import run_call, run_case, stage_calls
from kgen.verify.package import load_package
from kgen.verify.program_level import gdn_references
from kgen.verify.references.gdn import recurrent_gated_delta_rule
from kgen.verify.rows import Row
from kgen.verify.run import LEVELS, select, verify_rows

ROOT = Path(__file__).parents[2]
SPEC_PATH, FOLDER = ROOT / "specs" / "gdn.yaml", ROOT / "generated" / "gdn"
SPEC, PACKAGE = load_spec(SPEC_PATH).spec, load_package(FOLDER)
CASES = {case.name: case for case in gdn_cases()}
RAGGED = GdnCase(
    T=75, heads=(1, 2), dims=(60, 48), gate=True, layout="unaligned", index_dtype="int32", initial_state=True,
    final_state=True, state_v_first=False, chunk_size=32, dtype="bf16", side_dtype="fp32",
)  # fmt: skip


def outputs(case: GdnCase) -> set[tuple[str, str]]:
    """(stage or operator, output) that a case must show."""
    low = {f"M:{case.dtype}"} if case.dtype != "fp32" else set()
    final = {"ht"} if case.final_state else set()
    found = {
        "chunk_gated_delta_rule": {"o"} | final,
        "chunk_scaled_dot_kkt_fwd": {"A"},
        "solve_tril": {"M"} | low,
        "recompute_w_u_fwd": {"w", "u"},
        "chunk_gated_delta_rule_fwd_h": {"h", "v_new"} | final,
        "chunk_fwd_o": {"o"},
    }
    if case.gate:
        found["chunk_local_cumsum"] = {"g", "g:reverse"}
    return {(stage, output) for stage, names in found.items() for output in names}


def assert_all_pass(rows: list[Row], case: GdnCase) -> None:
    assert {(row.kernel, row.output) for row in rows} == outputs(case)
    assert all(row.passed for row in rows), [row for row in rows if not row.passed]


@pytest.mark.parametrize("name", CASES)
def test_the_forward_and_each_stage_of_a_case(name: str) -> None:
    assert SPEC.tolerances == {"bf16": 0.005, "fp16": 0.002, "fp32": 1e-5}
    assert_all_pass(run_case(SPEC, PACKAGE, CASES[name]), CASES[name])


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
# a key head of width 1 is left out: unit keys are then all equal up to sign, a hard input of its own (0.0067 in bf16)
@pytest.mark.parametrize("dims", [(16, 16), (96, 192), (192, 96), (3, 7), (256, 256)])
@pytest.mark.parametrize("layout", ["fixed", "unaligned"])
def test_widths_that_no_tile_divides(dims: tuple[int, int], dtype: str, layout: str) -> None:
    index = None if layout == "fixed" else "int64"
    case = replace(RAGGED, dims=dims, dtype=dtype, layout=layout, index_dtype=index, chunk_size=16, T=33)
    assert_all_pass(run_case(SPEC, PACKAGE, case), case)


def test_widths_of_one() -> None:
    """In fp32: keys of one component are all equal, and 16-bit inverses of such chunks are off by half a percent."""
    case = replace(RAGGED, dims=(1, 1), dtype="fp32")
    assert_all_pass(run_case(SPEC, PACKAGE, case), case)


@pytest.mark.parametrize("target", ["cuda_sm90", "Ascend950PR", "an unknown chip"])
@pytest.mark.parametrize("chunk_size", [16, 32, 64])
def test_other_targets_tiles_and_access_modes(target: str, chunk_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = importlib.import_module(f"{PACKAGE.module.__name__}._runtime")
    monkeypatch.setattr(runtime, "target_of", lambda device: target)
    dims = (64, 64) if target == "cuda_sm90" else (60, 48)  # there tiles have powers of two as sizes, so have widths
    for layout, index in (("fixed", None), ("single", "int32")):
        case = replace(RAGGED, dims=dims, chunk_size=chunk_size, layout=layout, index_dtype=index, state_v_first=True)
        assert_all_pass(run_case(SPEC, PACKAGE, case), case)


def test_more_tasks_than_cores() -> None:
    case = replace(RAGGED, T=200, heads=(4, 8), dims=(16, 16), chunk_size=16)
    assert_all_pass(run_case(SPEC, PACKAGE, case), case)


@pytest.mark.parametrize("layout", ["fixed", "empty"])
@pytest.mark.parametrize("initial_state", [False, True])
def test_no_rows_at_all(layout: str, initial_state: bool) -> None:
    index = None if layout == "fixed" else "int64"
    case = replace(RAGGED, T=0, layout=layout, index_dtype=index, initial_state=initial_state)
    assert_all_pass(run_case(SPEC, PACKAGE, case), case)


def test_equal_keys_and_no_decay_stay_accurate() -> None:
    """Equal keys give the largest inverse; a Neumann series would explode on them."""
    case = replace(RAGGED, dtype="fp32", chunk_size=64, T=64, layout="fixed", index_dtype=None, gate=False)
    generator = torch.Generator().manual_seed(3)
    k = torch.nn.functional.normalize(torch.randn(60, generator=generator), dim=0)
    same = k.expand(2, 64, 1, 60).contiguous()
    beta = torch.full((2, 64, 2), 0.999)
    v = torch.randn(2, 64, 2, 48, generator=generator)
    o, _ = PACKAGE.function("chunk_gated_delta_rule")(same, same, v, None, beta, chunk_size=case.chunk_size)
    expected, _ = recurrent_gated_delta_rule(same, same, v, None, beta)
    assert (o - expected).square().mean().sqrt() <= 1e-5 * expected.square().mean().sqrt()


def test_the_recurrence_without_new_values() -> None:
    inputs = {}
    for call in stage_calls(SPEC, RAGGED, *prepared(RAGGED)):
        if call.function == "chunk_gated_delta_rule_fwd_h":
            expected = tuple(replace(e, reference=None) if e.output == "v_new" else e for e in call.expected)
            inputs = {**call.arguments, "save_new_value": False}
            rows = list(run_call(PACKAGE, replace(call, arguments=inputs, expected=expected)))
            assert [row.output for row in rows] == ["h", "ht"] and all(row.passed for row in rows), rows
    assert inputs


def prepared(case: GdnCase) -> tuple[dict[str, torch.Tensor | None], dict[str, torch.Tensor | None]]:
    """A case's inputs and references."""
    inputs = make_inputs(case)
    return inputs, gdn_references(case, widened(inputs))


def test_verify_rows_runs_both_levels() -> None:
    rows = list(verify_rows(SPEC_PATH, FOLDER, LEVELS, cases=2))
    assert {row.level for row in rows} == set(LEVELS)
    assert {row.case for row in rows} == set(list(CASES)[:2])
    for row in rows:
        found = row.as_dict()
        assert {"kernel", "case", "level", "rel_rms", "max_abs", "passed"} <= found.keys()
        assert found["passed"] is True


def test_a_row_without_a_number_is_json() -> None:
    row = Row("k", "o", "c", "interpret", float("inf"), float("inf"), 0.1)
    assert row.as_dict()["rel_rms"] is None and not row.passed
    assert not replace(row, rel_rms=0.0, problem="shape").passed


@pytest.mark.parametrize(
    ("levels", "cases", "only", "folder", "code"),
    [
        (("device",), None, None, FOLDER, "level-missing"),
        (("lint",), None, None, FOLDER, "level-missing"),
        (("program", "interprt"), None, None, FOLDER, "level-unknown"),
        (LEVELS, None, "T9999", FOLDER, "case-unknown"),
        (LEVELS, 0, None, FOLDER, "case-count"),
        (("interpret",), None, None, ROOT / "nowhere", "package-missing"),
        (("execute",), None, "T9999", FOLDER, "case-unknown"),
    ],
)
def test_wrong_requests_are_refused_at_once(
    levels: tuple[str, ...], cases: int | None, only: str | None, folder: Path, code: str
) -> None:
    with pytest.raises(KgenError) as caught:
        verify_rows(SPEC_PATH, folder, levels, cases, only)
    assert caught.value.code == code and caught.value.hint


def test_select_takes_names_by_part_and_knows_its_operators() -> None:
    assert all("bf16" in case.name for case in select(SPEC.operator.name, None, "bf16"))
    assert len(select(SPEC.operator.name, 3, None)) == 3
    with pytest.raises(KgenError) as caught:
        select("chunk_unheard_of", None, None)
    assert caught.value.code == "no-reference"


def test_packages_with_a_hole_or_that_break_are_told(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("raise RuntimeError('broken')\n")
    with pytest.raises(KgenError) as caught:
        load_package(tmp_path)
    assert caught.value.code == "package-import" and "broken" in caught.value.message
    (tmp_path / "__init__.py").write_text("")
    with pytest.raises(KgenError) as caught:
        load_package(tmp_path).function("solve_tril")
    assert caught.value.code == "package-function"
