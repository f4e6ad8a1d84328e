"""Children that print for ever, close their output, leave others running, or end: all within their limit."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from kgen.errors import KgenError
from kgen.virtual import frontend, process
from kgen.virtual.frontend import FrontEnd, WorkerDiedError, WorkerTimeoutError
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


# ------------------------------------------------------------ the front end

READY = "os.write(1, b'{\"ready\": true}\\n')\n"
ASKED = READY + "sys.stdin.readline()\n"


def front_end(folder: Path, code: str) -> FrontEnd:
    """A front end whose worker does what `code` says."""
    python = folder / "python"
    python.write_text(f"#!{sys.executable} -S\nimport os, sys, time\n{code}", encoding="utf-8")
    python.chmod(0o755)
    return FrontEnd(python, folder)


@pytest.mark.parametrize(
    "code",
    [ASKED + "while True: os.write(1, b'x' * 100)", ASKED + "while True: os.write(1, b'x' * 60_000)",
     ASKED + "time.sleep(60)", READY + "time.sleep(60)"],
    ids=["prints by little", "prints for ever", "says nothing", "takes no request"],
)  # fmt: skip
def test_a_worker_is_waited_for_no_longer_than_its_limit(
    tmp_path: Path, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frontend, "MOST_OUTPUT", 1 << 40)
    worker, start = front_end(tmp_path, code), time.perf_counter()
    with pytest.raises(WorkerTimeoutError):
        worker.lower({"source": "x" * (1 << 20)}, Limit(1.0))
    assert time.perf_counter() - start < 5


def test_a_worker_that_prints_without_bound_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontend, "MOST_OUTPUT", 1 << 20)
    with pytest.raises(WorkerDiedError, match="printed more than 1 MiB"):
        front_end(tmp_path, ASKED + "while True: os.write(1, b'x' * 60_000)").lower({}, Limit(20.0))


def test_a_worker_that_closes_its_output_is_not_waited_for(tmp_path: Path) -> None:
    worker, start = front_end(tmp_path, ASKED + "os.close(1); time.sleep(60)"), time.perf_counter()
    with pytest.raises(WorkerDiedError, match="closed its output"):
        worker.lower({}, Limit(20.0))
    assert time.perf_counter() - start < 10


@pytest.mark.parametrize(
    "reply",
    [b"hello", b"[1]", b"{}", b"null", b"[" * 100_000, b"\xff\xfe", b'{"linalg": 3, "args": []}', b'{"linalg": "x"}',
     b'{"linalg": "x", "args": [1]}', b'{"error": "x"}', b'{"error": 1, "detail": "x"}', b"9" * 5000],
    ids=lambda reply: repr(reply[:30]),
)  # fmt: skip
def test_a_reply_that_is_none_is_the_workers_fault(tmp_path: Path, reply: bytes) -> None:
    worker = front_end(tmp_path, ASKED + f"os.write(1, {reply!r} + b'\\n'); time.sleep(60)")
    with pytest.raises(WorkerDiedError, match=r"^gave a reply that kgen does not know"):
        worker.lower({}, Limit(20.0))


def test_a_worker_that_begins_with_other_words_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(KgenError) as caught:
        front_end(tmp_path, "print('hello', flush=True); time.sleep(60)").lower({}, Limit(20.0))
    assert caught.value.code == "toolchain-broken"
