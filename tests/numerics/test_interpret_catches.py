"""Faults put by hand into the emitted text: the interpret level must see each of them, and in the stage that has it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kgen.spec.load import load_spec
from kgen.verify.cases import GdnCase
from kgen.verify.interpret_level import run_case
from kgen.verify.package import load_package
from kgen.verify.rows import Row

ROOT = Path(__file__).parents[2]
SPEC, FOLDER = load_spec(ROOT / "specs" / "gdn.yaml").spec, ROOT / "generated" / "gdn"
RAGGED = GdnCase(
    T=75, heads=(1, 2), dims=(60, 48), gate=True, layout="unaligned", index_dtype="int32", initial_state=True,
    final_state=True, state_v_first=False, chunk_size=32, dtype="bf16", side_dtype="fp32",
)  # fmt: skip
EXACT = replace(RAGGED, dtype="fp32")
WHOLE = replace(EXACT, T=64, layout="fixed", index_dtype=None, chunk_size=64)
CUMSUM, KKT, SOLVE, WU = "chunk_local_cumsum", "chunk_scaled_dot_kkt_fwd", "solve_tril", "recompute_w_u_fwd"
STATES, OUT, ALL = "chunk_gated_delta_rule_fwd_h", "chunk_fwd_o", "chunk_gated_delta_rule"


@dataclass(frozen=True)
class Fault:
    """Text to replace in a file, from `after` on where that is given, and the function whose rows must fail."""

    title: str
    old: str
    new: str
    stage: str
    case: GdnCase = RAGGED
    after: str = ""
    file: str = "kernels.py"
    problem: str = ""


LAST = "tl.minimum((i_t + 1) * BT, T_cur) - 1"
FAULTS = [
    Fault("no triangle", "tl.where(m_strict > 0.0, b_a * b_beta[:, None], 0.0)", "b_a * b_beta[:, None]", KKT),
    Fault("no triangle in the output", "tl.where(m_lower > 0.0, b_a, 0.0).to(", "b_a.to(", OUT),
    Fault("a diagonal too many", "m_strict = tl.minimum(", "m_strict = 1.0 - tl.minimum(", KKT),
    Fault("an output triangle the wrong way", "m_lower > 0.0, b_a,", "tl.trans(m_lower) > 0.0, b_a,", OUT),
    Fault("beta of columns", "b_beta[:, None]", "b_beta[None, :]", KKT),
    Fault("decay of the first row", LAST, "i_t * BT", STATES),
    Fault("decay of the chunk's last row, there or not", LAST, "tl.minimum((i_t + 1) * BT, T) - 1", STATES),
    Fault("no decay of the state", "b_S *= tl.exp(", "b_S += 0.0 * tl.exp(", STATES),
    Fault("an exponent in the wrong base", "BLOCK_PTR) * LN2", "BLOCK_PTR)", OUT, after="def chunk_fwd_o_kernel"),
    Fault("no scale", " * scale", "", OUT, after="def chunk_fwd_o_kernel"),
    Fault("no scale of the sums", " * scale", "", CUMSUM),
    Fault("always forward", "reverse=REVERSE", "reverse=False", CUMSUM),
    Fault("rows of the next sequence", "i_n + 1).to(tl.int64)", "i_n + 1).to(tl.int64) * 0 + T", STATES),
    Fault("gates at the first sequence's place", "tl.int64) * T + bos", "tl.int64) * T", KKT, after=f"def {KKT[:-4]}"),
    Fault("one key head for all", "i_h = i_hv // (HV // H)", "i_h = 0", KKT, replace(RAGGED, heads=(2, 4))),
    Fault("the order of heads and rows", "(bos * HV + i_hv) * V", "(i_hv * HV + bos) * V", OUT, after="fwd_o_kernel"),
    Fault("a batch left out", "bos = tl.cast(i_n, tl.int64) * T", "bos = tl.cast(0, tl.int64)", SOLVE, WHOLE),
    Fault("chunks counted anew in each sequence", "(boh + i_t) * HV", "(boh + i_t * 0) * HV", STATES),
    Fault("a sum that should be a difference", "(-b_x).to(", "b_x.to(", STATES, replace(EXACT, gate=False)),
    Fault("a block one row late", "i_t * BT, i_k * BK, BT, BK, T", "i_t * BT + 1, i_k * BK, BT, BK, T", KKT),
    Fault("no beta in w and u", "b_M.to(tl.float32) * b_beta[None, :]", "b_M.to(tl.float32) * 1.0", WU),
    Fault("beta of rows", "b_M.to(tl.float32) * b_beta[None, :]", "b_M.to(tl.float32) * b_beta[:, None]", WU),
    Fault("sums never written", "store_row(\n            o + bos_hv", "store_row(\n            s + bos_hv", CUMSUM),
    Fault("half a substitution", "tl.static_range(1, 16)", "tl.static_range(1, 8)", SOLVE, EXACT),
    Fault("no second order", "m_eye + tl.dot(b_n, b_n", "m_eye + 0.0 * tl.dot(b_n, b_n", SOLVE, WHOLE),
    Fault("dots in TF32", 'input_precision="ieee"', "allow_tf32=True", OUT, EXACT, after="def chunk_fwd_o_kernel"),
    Fault("an initial state ignored", "if USE_H0:", "if USE_H0 and STATE_V_FIRST:", STATES),
    Fault("a final state never written", "if USE_HT:", "if USE_HT and STATE_V_FIRST:", STATES, problem="NaN"),
    Fault("new values never written", "v_new + (bos * HV + i_hv) * V, b_", "u + (bos * HV + i_hv) * V, b_", STATES,
          problem="changed its argument u"),
    Fault("tasks skipped", "task_num, num_core)", "task_num - 1, num_core)", OUT, after="fwd_o_kernel", problem="NaN"),
    Fault("zeros left out", ', "fp32", zero=True)', ', "fp32")', SOLVE, file="launchers.py", problem="NaN"),
    Fault("an argument overwritten", "D + (bos * HV + i_hv) * BT, b_m", "A + (bos * HV + i_hv) * BT, b_m", SOLVE,
          problem="changed its argument A"),
    Fault("arithmetic in bf16", "b_M.to(tl.float32) * b_beta", "b_M * b_M * b_beta", WU, problem="bf16"),
    Fault("an output of another dtype", 'o = x.new(("T", "HV", "V"), "io")', 'o = x.new(("T", "HV", "V"), "fp32")', OUT,
          file="launchers.py", problem="dtype"),
    Fault("no result", "return w, u", "return w", WU, file="launchers.py", problem="1 results, expected 2"),
    Fault("a final state for nobody", "if output_final_state else None", "if True else None", STATES,
          replace(RAGGED, final_state=False), file="launchers.py", problem="one side only"),
    Fault("another shape", 'h = x.new(("NT", "HV", "V", "K") if state_v_first else ("NT", "HV", "K", "V"), "io")',
          'h = x.new(("NT", "HV", "V", "K"), "io")', STATES, file="launchers.py", problem="shape"),
]  # fmt: skip


def rows_of(folder: Path, fault: Fault | None, case: GdnCase) -> list[Row]:
    """The level's rows on a copy of the package, with a fault in it."""
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    if fault is not None:
        path = folder / fault.file
        head, mark, tail = path.read_text().rpartition(fault.after) if fault.after else ("", "", path.read_text())
        assert fault.old in tail, f"the emitted text has changed; mend this fault: {fault.old}"
        path.write_text(head + mark + tail.replace(fault.old, fault.new))
    return run_case(SPEC, load_package(folder), case)


@pytest.mark.parametrize("case", [RAGGED, EXACT, WHOLE], ids=lambda case: case.name)
def test_without_a_fault_all_pass(case: GdnCase, tmp_path: Path) -> None:
    rows = rows_of(tmp_path / "gdn", None, case)
    assert rows and all(row.passed for row in rows)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.title.replace(" ", "-"))
def test_a_fault_is_caught_in_its_stage(fault: Fault, tmp_path: Path) -> None:
    failed = [row for row in rows_of(tmp_path / "gdn", fault, fault.case) if not row.passed]
    found = [row for row in failed if row.kernel == fault.stage]
    assert found, failed
    assert any(fault.problem in row.problem for row in found), found


def test_the_faults_of_one_stage_dont_spread_to_others(tmp_path: Path) -> None:
    """Stages get the references' intermediates, so only the stage at fault and the operator fail."""
    failed = {row.kernel for row in rows_of(tmp_path / "gdn", FAULTS[0], RAGGED) if not row.passed}
    assert failed == {KKT, ALL}
