"""The table of a compile: a row a kernel and target, with the worst of its variants."""

from __future__ import annotations

from typing import Any

from kgen.search.compile_report import COLUMNS, REASONS, kernel_rows, reason_rows
from kgen.spec.targets import load_target

TARGETS = [load_target("Ascend910B2"), load_target("Ascend950PR")]


def row(kernel: str = "k", **change: Any) -> dict[str, Any]:
    plain = {
        "kernel": kernel, "target": "Ascend910B2", "verdict": "fits", "ub_bytes": 98304, "l1_bytes": 0, "l0c_bytes": 0,
        "idle_vector_core": None, "modelled_us": 10.0, "modelled_shape": "B1 T64",
        "modelled_warnings": [], "unknown_operations": {}, "message": "",
    }  # fmt: skip
    return {**plain, **change}


def test_variants_come_to_one_row_with_the_worst_of_each() -> None:
    rows = [row(), row(ub_bytes=49152, l1_bytes=131072, modelled_us=12.34), row("other")]
    first, second = kernel_rows(rows, TARGETS)
    assert (first["variants"], first["UB"], first["L1"], first["L0C"]) == (2, "96.0 KiB, 50%", "128.0 KiB, 25%", "")
    assert (first["modelled us"], first["flags"]) == ("10.0 to 12.3", "")
    assert (second["kernel"], second["modelled us"]) == ("other", "10.0")
    assert set(first) == set(COLUMNS)


def test_capacity_is_the_target_s() -> None:
    _, other = kernel_rows([row(), row(target="Ascend950PR", ub_bytes=126976)], TARGETS)
    assert (other["target"], other["UB"]) == ("Ascend950PR", "124.0 KiB, 50%")


def test_what_there_is_to_look_at_is_counted() -> None:
    rows = [
        row(verdict="degraded"), row(idle_vector_core=True), row(modelled_warnings=["sampled: 8 of 24 blocks"]),
        row(modelled_us=None, unknown_operations={"vsort": 2}), row(modelled_us=None, message="divides by zero"),
        row(verdict="overflows", ub_bytes=None, modelled_us=None, message="ub overflow"),
    ]  # fmt: skip
    (found,) = kernel_rows(rows, TARGETS)
    assert found["flags"] == ("1 not fitting, 1 single-buffered, 1 idle vector core, 2 without a time, 1 sampled")
    assert found["UB"] == "96.0 KiB, 50%"


def test_times_that_nobody_asked_for_are_no_flag() -> None:
    quiet = row(modelled_us=None, modelled_shape=None, unknown_operations={"llvm.add": 3})
    (found,) = kernel_rows([quiet], TARGETS)
    assert not list(reason_rows([quiet]))
    assert (found["modelled us"], found["flags"]) == ("", "")


def test_why_there_is_no_time_is_told_once_for_all_variants() -> None:
    unknown = row(modelled_us=None, unknown_operations={"vsort": 2, "llvm.add": 7})
    rows = [row(), unknown, unknown, row(modelled_us=None, message="the cores wait for each other for ever")]
    found = list(reason_rows([*rows, row(verdict="overflows", modelled_us=None, message="ub overflow")]))
    assert [(r["variants"], r["no modelled time"]) for r in found] == [
        (2, "operations that kgen does not know: vsort (2x), llvm.add (7x)"),
        (1, "the cores wait for each other for ever"),
    ]
    assert all(set(r) == set(REASONS) for r in found)
