"""Rows of a bench from launches with known times: sums, ties, what has no time, and which rankings a constant flips."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kgen.search import modelled
from kgen.search.bench import Compared, Timed, flips, rows, variations
from kgen.search.modelled import Modelled
from kgen.spec.targets import load_target
from kgen.virtual import CompileResult
from kgen.virtual.hivm import HivmError
from kgen.virtual.launch import Launch
from kgen.virtual.peers import CapturedLaunch
from kgen.virtual.timeline import Costs

STAGES = ("kkt", "merge")


def compiled(verdict: str = "fits", message: str = "") -> CompileResult:
    return CompileResult(verdict, message, toolchain={"bishengir": "1.2.0"})  # type: ignore[arg-type]


def launch(kernel: str, stage: str, *us: float | None, verdict: str = "fits") -> Timed:
    times = tuple(Modelled(u, unknown={"hivm.hir.vsort": 2} if u is None else {}) for u in us)
    captured = CapturedLaunch(kernel, f"{kernel}_fwd", (1, 1, 1), (), {}, {}, None, "module {}")
    return Timed(captured, stage, compiled(verdict, "ub overflow" if verdict == "overflows" else ""), times)


def compared(ours: list[Timed], theirs: list[Timed]) -> Compared:
    return Compared("B1 T64", "fwd", tuple(ours), tuple(theirs), (3, 11))


def test_a_row_a_stage_and_the_total_with_launches_counted() -> None:
    ours = [launch("a", "kkt", 10.0)]
    theirs = [launch("b", "kkt", 20.0), launch("b", "kkt", 20.0), launch("c", "other", 10.0)]
    kkt, other, total = rows(compared(ours, theirs), STAGES)
    assert (kkt["kernel"], kkt["ours_us"], kkt["theirs_us"], kkt["ratio"]) == ("kkt", 10.0, 40.0, 0.25)
    assert kkt["launches"] == {"ours": 1, "theirs": 2}
    assert (other["kernel"], other["ours_us"], other["ratio"]) == ("other", None, None)
    assert (total["kernel"], total["ours_us"], total["theirs_us"]) == ("total", 10.0, 50.0)
    assert total["launches"] == {"ours": 1, "theirs": 3} and total["torch_ops"] == {"ours": 3, "theirs": 11}
    assert {r["basis"] for r in (kkt, other, total)} == {"modelled"}
    assert all(r["toolchain"] == {"bishengir": "1.2.0"} for r in (kkt, other, total))


@pytest.mark.parametrize(("ours", "tie"), [(100, True), (114, True), (116, False), (88, True), (86, False)])
def test_ties_lie_under_a_factor_of_1_15(ours: float, tie: bool) -> None:
    row = next(rows(compared([launch("a", "kkt", ours)], [launch("b", "kkt", 100)]), STAGES))
    assert row["tie"] is tie


def test_a_launch_without_a_time_leaves_none_to_the_sum() -> None:
    ours = [launch("a", "kkt", 10.0), launch("m", "merge", None)]
    kkt, merge, total = rows(compared(ours, [launch("b", "kkt", 10.0), launch("m", "merge", 5.0)]), STAGES)
    assert kkt["ratio"] == 1.0
    assert merge["ours_us"] is None and merge["ratio"] is None and merge["tie"] is False
    assert total["ours_us"] is None and total["theirs_us"] == 15.0
    assert any("hivm.hir.vsort" in p for p in total["problems"])


def test_a_kernel_that_overflows_or_does_not_lower_is_named() -> None:
    refused = replace(
        launch("x", "kkt"), launch=replace(launch("x", "kkt").launch, lower_error="tile too wide"), result=None
    )
    row = next(rows(compared([launch("a", "kkt", 1.0, verdict="overflows")], [refused]), STAGES))
    assert row["ours_us"] is None and row["theirs_us"] is None
    assert row["problems"] == ["a: overflows: ub overflow", "x: tile too wide"]


def test_a_long_list_of_unknown_operations_is_cut() -> None:
    many = replace(launch("m", "kkt"), times=(Modelled(None, unknown=dict.fromkeys("abcdefghij", 1)),))
    row = next(rows(compared([many], [launch("b", "kkt", 1.0)]), STAGES))
    assert row["problems"] == ["m: unknown operations: a, b, c, d, e, f and 4 more"]


@pytest.mark.parametrize("fails", [KeyError("x"), ZeroDivisionError("y"), HivmError("z"), RecursionError()])
def test_a_model_that_fails_gives_no_number(monkeypatch: pytest.MonkeyPatch, fails: Exception) -> None:
    def fail(_text: str) -> None:
        raise fails

    monkeypatch.setattr(modelled, "parse_module", fail)
    costs = [Costs.of(load_target("Ascend910B2"))] * 2
    found, lasting = modelled.model_text("module {}", Launch((1, 1, 1), ()), costs)
    assert [f.us for f in found] == [None, None] and all(f.problem for f in found)
    assert lasting is isinstance(fails, HivmError)


def test_flips_are_told_with_the_constant_that_makes_them() -> None:
    changes = [("hbm_tb_per_s", 0.5), ("hbm_tb_per_s", 2.0)]
    both = compared([launch("a", "kkt", 10.0, 30.0, 5.0)], [launch("b", "kkt", 20.0, 20.0, 20.0)])
    found = list(flips([both], STAGES, changes))
    kkt = [f for f in found if f["kernel"] == "kkt"]
    assert [(f["constant"], f["factor"], f["ratio"], f["ratio_changed"]) for f in kkt] == [
        ("hbm_tb_per_s", 0.5, 0.5, 1.5)
    ]
    totals = [f for f in found if f["kernel"] == "total"]
    assert [(f["flips"], f["change"]) for f in totals] == [(True, "ahead to behind"), (False, "ahead to ahead")]


def test_a_tie_that_stays_one_is_no_flip_and_one_that_ends_is() -> None:
    changes = [("flag_cycles", 0.5), ("flag_cycles", 2.0)]
    both = compared([launch("a", "kkt", 20.0, 19.0, 40.0)], [launch("b", "kkt", 19.5, 20.0, 20.0)])
    found = [(f["kernel"], f["factor"], f["change"]) for f in flips([both], STAGES, changes) if f["flips"]]
    assert found == [("kkt", 2.0, "tie to behind"), ("total", 2.0, "tie to behind")]


def test_every_constant_of_a_target_is_halved_and_doubled() -> None:
    target = load_target("Ascend910B2")
    costs = Costs.of(target)
    sets, changes = variations(costs)
    assert sets[0] == costs and len(sets) == 1 + len(changes) == 1 + 2 * len(Costs.constants())
    for changed, (name, factor) in zip(sets[1:], changes, strict=True):
        differing = [n for n in Costs.constants() if changed.scaled(n, 1.0) != costs and n == name]
        assert differing == [name] and changed == costs.scaled(name, factor)
