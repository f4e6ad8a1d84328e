"""What goes wrong round the peers' environment: each has its code and a next step, none hangs, none is a number."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kgen.cli import app
from kgen.errors import KgenError
from kgen.virtual.peers import Capture, find_peers, peers_check
from kgen.virtual.peers.environment import own_peers

READY = json.dumps({"ready": True})


def python(folder: Path, body: str) -> Path:
    """Something that stands for the environment's Python."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def answering(folder: Path, *answers: str) -> Path:
    """One that gives its answers in turn, the first unasked."""
    body = f"printf '%s\\n' '{answers[0]}'\n"
    body += "".join(f"read line; printf '%s\\n' '{answer}'\n" for answer in answers[1:])
    return python(folder, body + "read line")


def ask(python: Path, limit_s: float = 20.0) -> Any:
    with Capture(python, limit_s=limit_s) as capture:
        return capture.ask({"subject": "fla"})


def test_no_environment_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(KgenError, match="no peers' environment") as raised:
        find_peers({"KGEN_HOME": str(tmp_path)})
    assert raised.value.code == "peers-missing"
    assert "kgen doctor --fix --peers" in (raised.value.hint or "")


def test_an_interrupted_environment_does_not_count(tmp_path: Path) -> None:
    environ = {"KGEN_HOME": str(tmp_path)}
    folder = own_peers(environ) / "bin"
    folder.mkdir(parents=True)
    (folder / "python").symlink_to(sys.executable)
    with pytest.raises(KgenError, match="no peers' environment"):
        find_peers(environ)


def test_a_setting_is_never_passed_over(tmp_path: Path) -> None:
    with pytest.raises(KgenError, match=str(tmp_path)):
        find_peers({"KGEN_PEERS": str(tmp_path)})
    check = peers_check({"KGEN_PEERS": str(tmp_path)})
    assert not check.ok and "KGEN_PEERS" in (check.hint or "")


GOOD = {"torch": ("torch", "2.13.0"), "triton-ascend": ("triton/backends/ascend/compiler", "3.2.0")}
GOOD |= {"fla-core": ("fla", "0.6.0")}


def environment(folder: Path, packages: dict[str, tuple[str, str]]) -> dict[str, str]:
    """Variables that name an environment with these packages and no others: module and version by package."""
    (folder / "bin").mkdir()
    for package, (module, version) in packages.items():
        file = folder / f"{module}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("raise RuntimeError('libfla.so: no such file')" if version == "broken" else "")
        (folder / f"{package.replace('-', '_')}-{version}.dist-info").mkdir()
        metadata = folder / f"{package.replace('-', '_')}-{version}.dist-info" / "METADATA"
        metadata.write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    python(folder / "bin", f'shift; PYTHONPATH={folder} exec {sys.executable} -S "$@"')
    return {"KGEN_PEERS": str(folder), "PATH": os.environ["PATH"]}


def test_an_environment_with_everything_is_ok_and_says_what(tmp_path: Path) -> None:
    check = peers_check(environment(tmp_path, GOOD))
    assert check.ok, check
    assert "fla-core 0.6.0" in check.detail and "triton-ascend 3.2.0" in check.detail


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"fla-core": None}, "No module named 'fla'"),
        ({"fla-core": ("fla", "broken")}, "libfla.so"),
        ({"fla-core": ("fla", "0.5.1")}, "fla-core is 0.5.1, benches compare with 0.6.0"),
        ({"triton-ascend": None}, "triton-ascend: No module named 'triton'"),
        ({"triton-ascend": ("triton/__init__", "3.7.1")}, "triton-ascend: No module named 'triton.backends'"),
        ({"triton-ascend": ("triton/backends/ascend/compiler", "3.1.0")}, "triton-ascend is 3.1.0"),
        ({"torch": None}, "No module named 'torch'"),
    ],
)
def test_an_environment_that_lacks_something_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], told: str
) -> None:
    variables = environment(tmp_path, {n: p for n, p in {**GOOD, **change}.items() if p is not None})
    check = peers_check(variables)
    assert not check.ok and told in check.detail
    assert "KGEN_PEERS" in check.hint and "kgen doctor --fix --peers" in check.hint
    monkeypatch.setenv("KGEN_PEERS", variables["KGEN_PEERS"])
    monkeypatch.setattr("kgen.virtual.doctor", lambda _toolchain: [])
    done = CliRunner().invoke(app, ["doctor", "--peers"])
    assert done.exit_code == 1 and "FAIL peers" in done.output and told in done.output


@pytest.mark.parametrize("body", ["exit 3", "echo hello", "kill -SEGV $$", "echo '[]'", "echo '{}'"])
def test_a_python_that_answers_nothing_fails(tmp_path: Path, body: str) -> None:
    (tmp_path / "bin").mkdir()
    python(tmp_path / "bin", body)
    check = peers_check({"KGEN_PEERS": str(tmp_path)})
    assert not check.ok and check.detail and check.hint


def test_a_python_that_does_not_start_fails(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    python(tmp_path / "bin", "exit 0").chmod(0o644)
    check = peers_check({"KGEN_PEERS": str(tmp_path)})
    assert not check.ok and "does not start" in check.detail


def test_kgen_s_own_broken_environment_is_to_be_removed(tmp_path: Path) -> None:
    environ = {"KGEN_HOME": str(tmp_path)}
    folder = own_peers(environ)
    (folder / "bin").mkdir(parents=True)
    (folder / ".complete").touch()
    python(folder / "bin", "exit 3")
    check = peers_check(environ)
    assert not check.ok and f"remove {folder}" in check.hint


def test_one_that_does_not_run(tmp_path: Path) -> None:
    broken = python(tmp_path, "exit 0")
    broken.chmod(0o644)
    with pytest.raises(KgenError, match="does not start") as raised:
        ask(broken)
    assert raised.value.code == "peers-broken"


def test_one_that_ends_shows_what_it_printed(tmp_path: Path) -> None:
    with pytest.raises(KgenError, match="No module named 'fla'"):
        ask(python(tmp_path, "echo \"ModuleNotFoundError: No module named 'fla'\" >&2; exit 1"))
    with pytest.raises(KgenError, match="it printed nothing"):
        ask(answering(tmp_path, READY))


@pytest.mark.parametrize(
    "answer", ["Segmentation fault", "[]", "{}", '{"launches": [{}], "kernels": {}, "torch_ops": 0}', '{"launches": 3}']
)
def test_an_answer_that_is_none(tmp_path: Path, answer: str) -> None:
    with pytest.raises(KgenError) as raised:
        ask(answering(tmp_path, READY, answer))
    assert raised.value.code == "peers-broken"
    assert "kgen doctor" in (raised.value.hint or "")


def test_a_program_that_fails_is_told_in_its_words(tmp_path: Path) -> None:
    with pytest.raises(KgenError, match="head dim 300") as raised:
        ask(answering(tmp_path, READY, '{"error": "ValueError: head dim 300 is too wide"}'))
    assert raised.value.code == "capture-failed"


def test_one_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    marker = tmp_path / "alive"
    hanging = python(tmp_path, f"echo '{READY}'; (sleep 4; touch {marker}) & read line; sleep 60")
    begin = time.monotonic()
    with pytest.raises(KgenError, match="no answer within 1 s") as raised:
        ask(hanging, limit_s=1)
    assert raised.value.code == "capture-timeout"
    assert time.monotonic() - begin < 4
    time.sleep(max(0.0, begin + 6 - time.monotonic()))
    assert not marker.exists()


def test_what_was_captured_arrives(tmp_path: Path) -> None:
    entry = {
        "kernel": "k_kernel", "wrapper": "k_fwd", "key": "1", "grid": [24, 1, 1], "options": {"multibuffer": True},
        "constants": {"BT": "64"}, "config": None,
        "arguments": [
            {"name": "x", "kind": "tensor", "element": "bf16", "count": 64},
            {"name": "cu", "kind": "tensor", "element": "i64", "count": 2, "values": [0, 64]},
            {"name": "T", "kind": "int", "value": 64},
        ],
    }  # fmt: skip
    reply = {"launches": [entry], "kernels": {"1": {"linalg": "module {}"}}, "torch_ops": 3}
    captured = ask(answering(tmp_path, READY, json.dumps(reply)))
    (launch,) = captured.launches
    assert captured.torch_ops == 3
    assert (launch.grid, launch.linalg, launch.wrapper) == ((24, 1, 1), "module {}", "k_fwd")
    assert [a.values for a in launch.arguments] == [None, (0, 64), None]
    assert launch.arguments[2].value == 64
