"""Specs and programs from a stranger: free text never becomes code, names never take the place of what kgen emits."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
Edit = tuple[str, str]
HOSTILE = 'x""" \\\\ \'\'\' + __import__("pathlib").Path("owned").touch() + """ {{ 7 * 7 }} {% raw %} # "'


def build(folder: Path, *edits: Edit, program: tuple[str, Edit] | None = None) -> subprocess.CompletedProcess[str]:
    """`kgen build` on a copy of the specs with texts replaced."""
    shutil.copytree(ROOT / "specs", folder / "specs")
    files = [(folder / "specs" / "gdn.yaml", e) for e in edits]
    files += [(folder / "specs" / "programs" / program[0], program[1])] if program else []
    for path, (old, new) in files:
        text = path.read_text()
        assert old in text, old
        path.write_text(text.replace(old, new))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KGEN_HOME": str(folder / "home")}
    command = [sys.executable, "-m", "kgen.cli", "build", "specs/gdn.yaml"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=60)


DOCS: dict[str, Edit] = {
    "the spec's": ("doc: Gated delta rule, chunked forward\n", "doc: HOSTILE\n"),
    "a stage's": ("doc: Cumulative sum of g [B, T, HV] within each chunk, times scale.", "doc: HOSTILE"),
    "the operator's": ("doc: Gated delta rule over chunks, forward.", "doc: HOSTILE"),
    "a tensor's": ("doc: initial state}", "doc: HOSTILE}"),
    "a kernel's": ('doc: "Sum of a gate within each chunk, times scale."', "doc: HOSTILE"),
    "a dim's": ("doc: width of a key head}", "doc: HOSTILE}"),
    "a flag's": ("doc: sum from the chunk's last row to its first}", "doc: HOSTILE}"),
}


@pytest.mark.parametrize("ending", ["", " ", "\\n import os\\n", '\\"', "\\\\"], ids=repr)
@pytest.mark.parametrize("whose", DOCS)
def test_free_text_stays_text(whose: str, ending: str, tmp_path: Path) -> None:
    old, new = DOCS[whose]
    quoted = '"' + HOSTILE.replace("\\", "\\\\").replace('"', '\\"') + ending + '"'
    done = build(tmp_path, (old, new.replace("HOSTILE", quoted)))
    assert done.returncode == 0, done.stderr
    for path in (tmp_path / "generated" / "gdn").glob("*.py"):
        tree = ast.parse(path.read_text())
        calls = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
        assert "__import__" not in calls


NAMES: dict[str, tuple[Edit, ...]] = {
    "a flag like a mode": (("  reverse: {doc", "  is_varlen: {doc: x}\n  reverse: {doc"),),
    "a flag like an optional tensor's": (("  reverse: {doc", "  use_g: {doc: x}\n  reverse: {doc"),),
    "a flag like a dim": (("  reverse: {doc", "  bt: {doc: x}\n  reverse: {doc"),),
    "a tensor like a launcher's own": (("  q: {dims", "  x: {dims: [T, H, K], dtype: io}\n  q: {dims"),),
    "a tensor like a table": (("  q: {dims", "  cu_seqlens: {dims: [T, H, K], dtype: io}\n  q: {dims"),),
    "a tensor like a tile": (("  q: {dims", "  b_k: {dims: [T, H, K], dtype: io}\n  q: {dims"),),
    "a scalar like a tile size": (("  scale: {doc", "  BK: {doc: x}\n  scale: {doc"),),
    "a parameter like a launcher's own": (("{name: use_graph, kind", "{name: kernels, kind"),),
    "a stage like a class": (
        ("  solve_tril:\n    doc", "  Arguments:\n    doc"), ("{stage: solve_tril}", "{stage: Arguments}"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", NAMES)
def test_a_name_that_emitted_code_uses_is_refused(what: str, tmp_path: Path) -> None:
    done = build(tmp_path, *NAMES[what])
    assert done.returncode == 2, done.stdout
    assert "error[spec-name" in done.stderr
    assert "specs/gdn.yaml:" in done.stderr
    assert not (tmp_path / "generated").exists()


def test_a_programs_comment_cannot_hide_or_reorder_text(tmp_path: Path) -> None:
    line = "o[t] = cumsum(s[t], 0, reverse=reverse) * scale"
    done = build(tmp_path, program=("rows.py", (line, line + "  # \u202e \u2028 import os \x0c end")))
    if done.returncode == 0:
        text = (tmp_path / "generated" / "gdn" / "kernels.py").read_text()
        assert not set(text) & {"\u202e", "\u2028", "\x0c"}
        ast.parse(text)
    else:
        assert done.returncode == 2 and "error[program" in done.stderr
