"""The other commands: what they print, and how they fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kgen.cli import app
from kgen.verify import run
from kgen.verify.rows import Row

ROOT = Path(__file__).resolve().parent.parent.parent


def kgen(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kgen.cli", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_no_command_shows_help() -> None:
    done = kgen()
    assert "build" in done.stdout + done.stderr


def test_help_brings_nothing_heavy() -> None:
    told = "import sys, kgen.cli; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", told], cwd=ROOT, capture_output=True, text=True, check=True)
    heavy = {"torch", "triton", "sympy", "pydantic", "jinja2", "rich", "ruamel", "kgen.pipeline", "kgen.spec"}
    assert not heavy & set(done.stdout.split())


def test_show_prints_each_pass_once_and_marks_the_idle_ones() -> None:
    done = kgen("show", "specs/gdn.yaml", "chunk_local_cumsum", "--after", "all")
    assert done.returncode == 0, done.stderr
    headings = [line for line in done.stdout.splitlines() if line.startswith("# ")]
    assert headings[0] == "# 00 parse"
    assert "# 01 whole_slabs (unchanged)" in headings
    assert any(h.endswith("signature") for h in headings)


def test_show_one_pass() -> None:
    done = kgen("show", "specs/gdn.yaml", "chunk_scaled_dot_kkt", "--after", "clip_exponents")
    assert done.returncode == 0, done.stderr
    assert "minimum(" in done.stdout


def test_show_names_the_nearest_pass_and_kernel() -> None:
    assert "clip_exponents" in kgen("show", "specs/gdn.yaml", "chunk_fwd_o", "--after", "clip_exponent").stderr
    done = kgen("show", "specs/gdn.yaml", "chunk_fwd_oo")
    assert done.returncode == 2
    assert "chunk_fwd_o" in done.stderr


def test_schema_is_json_schema() -> None:
    done = kgen("schema")
    assert json.loads(done.stdout)["additionalProperties"] is False


def test_explain_shows_expressions_the_peak_and_the_rivals() -> None:
    done = kgen("plan", "specs/gdn.yaml", "--explain", "chunk_fwd_o")
    assert done.returncode == 0, done.stderr
    for text in ("side by side", "largest live sum", "live at the peak", "rejected"):
        assert text in done.stdout


def test_plan_rows_have_the_fields_others_rely_on() -> None:
    done = kgen("plan", "specs/gdn.yaml", "--json", KGEN_TOOLCHAIN="/nonexistent")
    assert done.returncode == 0, done.stderr
    fields = (
        "kernel", "variant", "target", "dtype", "tiles", "grid", "tail_modes", "ub_expression", "ub_predicted_bytes",
        "ub_bytes", "verdict", "rejected",
    )  # fmt: skip
    rows = json.loads(done.stdout)
    assert rows
    assert all(set(fields) <= set(row) for row in rows)
    assert all(set(r) == {"tiles", "reason"} for row in rows for r in row["rejected"])


def test_a_missing_tool_chain_is_one_clear_error(tmp_path: Path) -> None:
    done = kgen("compile", "specs/gdn.yaml", KGEN_TOOLCHAIN="", KGEN_HOME=str(tmp_path))
    assert done.returncode == 2
    assert "error[toolchain-missing]" in done.stderr
    assert "kgen doctor --fix" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_tool_chain_setting_that_leads_nowhere_is_one_clear_error() -> None:
    done = kgen("compile", "specs/gdn.yaml", KGEN_TOOLCHAIN="/nonexistent")
    assert done.returncode == 2
    assert "KGEN_TOOLCHAIN is '/nonexistent'" in done.stderr


def test_a_missing_spec_is_one_clear_error() -> None:
    done = kgen("build", "specs/nosuch.yaml")
    assert done.returncode == 2
    assert done.stderr.startswith("error[spec-unreadable]")


def test_an_unknown_target_is_one_clear_error() -> None:
    done = kgen("compile", "specs/gdn.yaml", "--target", "Ascend910B9")
    assert done.returncode == 2
    assert "Ascend910B2" in done.stderr


def test_verify_shows_what_could_not_be_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(*_: object) -> Iterator[Row]:
        for kernel, error in (("chunk_fwd_o", 1e-9), ("chunk_fwd_o", float("inf")), ("solve_tril", 1e-3)):
            yield Row(kernel, "o", "a-case", "interpret", error, error, 1e-2, "" if error < 1 else "not finite")

    monkeypatch.setattr(run, "verify_rows", rows)
    done = CliRunner().invoke(app, ["verify", str(ROOT / "specs" / "gdn.yaml")])
    assert done.exit_code == 1, done.output
    assert "2 of 3 passed" in done.output
    assert "inf" in done.output and "not finite" in done.output
