"""Children that print for ever, close their output, leave others running, or end: all within their limit."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from kgen.virtual import process
from kgen.virtual.process import Finished, Limit, run_limited


def run(folder: Path, code: str, seconds: float = 20.0) -> tuple[Finished, float]:
    start = time.perf_counter()
    environment = {"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    found = run_limited([sys.executable, "-S", "-c", code], env=environment, cwd=folder, limit=Limit(seconds))
    return found, time.perf_counter() - start


def gone(pid: int) -> bool:
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if Path(f"/proc/{pid}/stat").read_text().split(") ")[1].startswith("Z"):  # killed, and nobody's to reap
            return True
        time.sleep(0.02)
    return False


def test_all_of_the_output_and_the_exit_code(tmp_path: Path) -> None:
    found, took = run(
        tmp_path, "import sys; print('x' * 300_000, flush=True); print('y', file=sys.stderr); sys.exit(3)"
    )
    assert found.returncode == 3
    assert found.output.split() == ["x" * 300_000, "y"]
    assert took < 5
    assert run(tmp_path, "import os; os.kill(os.getpid(), 11)")[0].returncode == -11
    assert run(tmp_path, "import os; os.write(1, b'\\xff\\xfe')")[0].output == "\ufffd\ufffd"


@pytest.mark.parametrize(
    "code",
    ["while True: print('noise' * 1000)", "import os, time; os.close(1); os.close(2); time.sleep(60)",
     "import time; print('begun', flush=True); time.sleep(60)"],
)  # fmt: skip
def test_the_limit_holds_while_output_is_read_and_after_it_was_closed(
    tmp_path: Path, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "MOST_OUTPUT", 1 << 40)
    found, took = run(tmp_path, code, 1.0)
    assert took < 4
    assert "noise" in code or found.returncode is None


def test_output_without_bound_is_stopped_and_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MOST_OUTPUT", 1 << 20)
    found, took = run(tmp_path, "while True: print('noise' * 1000)")
    assert found.returncode == 1 and took < 10
    assert found.output.endswith("error: stopped after it had printed 1 MiB") and len(found.output) < 30_000


@pytest.mark.parametrize("redirect", ["", ", stdout=-3, stderr=-3"])
def test_what_a_child_leaves_running_is_neither_waited_for_nor_left(tmp_path: Path, redirect: str) -> None:
    code = f"import subprocess; print(subprocess.Popen(['sleep', '60']{redirect}).pid)"
    found, took = run(tmp_path, code)
    assert found.returncode == 0 and took < 5
    assert gone(int(found.output))


def test_a_child_that_is_past_its_limit_takes_its_own_with_it(tmp_path: Path) -> None:
    code = "import subprocess, time; print(subprocess.Popen(['sleep', '60']).pid, flush=True); time.sleep(60)"
    found, took = run(tmp_path, code, 1.0)
    assert found.returncode is None and took < 4
    assert gone(int(found.output))
