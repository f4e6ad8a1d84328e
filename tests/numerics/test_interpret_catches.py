"""The interpret level is no formality: emitted kernels with one line wrong fail it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kgen.spec.load import load_spec
from kgen.verify.cases import GdnCase
from kgen.verify.interpret_level import run_case
from kgen.verify.package import load_package

ROOT = Path(__file__).parents[2]
SPEC = load_spec(ROOT / "specs" / "gdn.yaml").spec
CASE = GdnCase(
    T=75, heads=(2, 4), dims=(60, 48), gate=True, layout="unaligned", index_dtype="int32", initial_state=True,
    final_state=True, state_v_first=False, chunk_size=32, dtype="fp32", side_dtype="fp32",
)  # fmt: skip

# what is wrong: (in kernels.py, instead, how often it stands there)
MUTATIONS: dict[str, tuple[str, str]] = {
    "no triangle in kkt": ("b_a * b_beta[:, None] * m_strict", "b_a * b_beta[:, None]"),
    "the diagonal in kkt": ("o_t[:, None] - o_t[None, :], 0.0", "o_t[:, None] - o_t[None, :] + 1.0, 0.0"),
    "no triangle in the output": ("(b_a * m_lower).to(", "b_a.to("),
    "no beta in w and u": ("b_m = b_M.to(tl.float32) * b_beta[None, :]", "b_m = b_M.to(tl.float32) * 1.0"),
    "beta along the wrong axis": ("b_M.to(tl.float32) * b_beta[None, :]", "b_M.to(tl.float32) * b_beta[:, None]"),
    "the state before its decay": ("b_S *= tl.exp(b_g_last)", "b_S *= 1.0"),
    "the first row's gate for the last": ("tl.minimum((i_t + 1) * BT, T_cur) - 1", "tl.minimum(i_t * BT, T_cur)"),
    "the value head for the key head": ("i_h = i_hv // (HV // H)", "i_h = i_hv // HV"),
    "the chunk's number in its sequence for the one in all": ("(boh + i_t) * HV", "(boh + i_t * 0) * HV"),
    "no negation where a sum is a difference": ("(-b_x).to(", "b_x.to("),
    "a block that is one row late": ("i_t * BT, i_k * BK, BT, BK, TAIL", "i_t * BT + 1, i_k * BK, BT, BK, TAIL"),
    "an output that is not written": ("store_row(\n            o + bos_hv", "store_row(\n            s + bos_hv"),
}  # fmt: skip


@pytest.mark.parametrize("what", MUTATIONS)
def test_a_wrong_line_is_seen(what: str, tmp_path: Path) -> None:
    right, wrong = MUTATIONS[what]
    folder = tmp_path / "gdn"
    shutil.copytree(ROOT / "generated" / "gdn", folder, ignore=shutil.ignore_patterns("__pycache__"))
    text = (folder / "kernels.py").read_text()
    assert right in text, "the emitted text has changed: update this mutation"
    (folder / "kernels.py").write_text(text.replace(right, wrong))
    case = replace(CASE, gate=False) if "negation" in what else CASE
    rows = run_case(SPEC, load_package(folder), case)
    assert not all(row.passed for row in rows)


def test_the_unchanged_package_passes() -> None:
    rows = run_case(SPEC, load_package(ROOT / "generated" / "gdn"), CASE)
    assert all(row.passed for row in rows), [row for row in rows if not row.passed]
