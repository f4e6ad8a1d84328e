"""The execute level over the generated gated delta rule: every kernel, as it was compiled, on every case."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgen.verify.cases import compiled_cases
from kgen.verify.run import verify_rows
from kgen.virtual import Toolchain

ROOT = Path(__file__).resolve().parents[2]


def test_the_cases_cover_what_a_kernel_can_meet() -> None:
    cases = compiled_cases()
    assert {case.dtype for case in cases} == {"bf16", "fp32"}
    assert {case.gate for case in cases} == {True, False}
    for dtype in ("bf16", "fp32"):
        for gate in (True, False):
            here = [c for c in cases if (c.dtype, c.gate) == (dtype, gate)]
            assert {c.T for c in here if c.layout == "fixed"} >= {64, 128, 100, 1}
            assert any(c.layout != "fixed" for c in here)


@pytest.mark.toolchain
@pytest.mark.slow
def test_every_kernel_gives_the_right_numbers_as_compiled(toolchain: Toolchain) -> None:
    rows = list(verify_rows(ROOT / "specs" / "gdn.yaml", ROOT / "generated" / "gdn", ("execute",)))
    assert [row for row in rows if not row.passed] == []
    stages = {row.kernel for row in rows}
    assert len(rows) >= 200 and len(stages) >= 7, (len(rows), stages)
