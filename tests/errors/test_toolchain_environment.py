"""Making the environment, reading the compiler's output, keeping results: what goes wrong. Needs no tool chain."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from kgen.errors import KgenError
from kgen.virtual import create_environment
from kgen.virtual import environment as environment_module
from kgen.virtual.cache import ResultCache
from kgen.virtual.process import Finished
from kgen.virtual.toolchain import own_environment
from kgen.virtual.verdict import bounded, read_outcome


def script(path: Path, text: str) -> Path:
    """An executable shell script."""
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def _folder(path: Path) -> Path:
    """The folder, made if need be."""
    path.mkdir(parents=True, exist_ok=True)
    return path


# --- reading the compiler's output, without a compiler


def test_exit_code_alone_is_never_a_verdict() -> None:
    retried = "[NOTE] Ub overflow detected; automatically set enable-code-motion to false and retrying compilation.\n"
    overflow = "error: ub overflow, requires 2097152 bits while 1572864 bits available! (possible reason: ...)\n"
    assert read_outcome(Finished(0, ""), True, 1).verdict == "fits"
    assert read_outcome(Finished(0, ""), False, 1).verdict == "error"
    assert read_outcome(Finished(1, ""), True, 1).verdict == "error"
    assert read_outcome(Finished(0, retried), True, 1).verdict == "degraded"
    assert read_outcome(Finished(0, overflow), True, 1).verdict == "degraded"  # the 950 compiler has no note
    assert read_outcome(Finished(1, retried + overflow), False, 1).verdict == "overflows"
    assert read_outcome(Finished(None, overflow), True, 1).verdict == "timeout"


def test_long_output_keeps_its_head_and_tail() -> None:
    text = bounded("start" + "x" * 100_000 + "end")
    assert len(text) < 21_000 and text.startswith("start") and text.endswith("end") and "left out" in text


# --- the cache


def test_full_disk_in_the_cache_warns_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    cache = ResultCache(tmp_path)
    monkeypatch.setattr("os.replace", full)
    with pytest.warns(RuntimeWarning, match="No space left") as caught:
        cache.put("ab" * 32, {})
        cache.put("cd" * 32, {})
    assert len(caught) == 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_cache_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = ResultCache(tmp_path / "file" / "cache")
    with pytest.warns(RuntimeWarning):
        cache.put("ab" * 32, {})
    assert cache.get("ab" * 32) is None


# --- making the environment


def test_no_suitable_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    script(_folder(tmp_path / "bin") / "python3.11", "exit 127")  # a version manager's shim without that version
    with pytest.raises(KgenError, match=r"needs Python 3\.11 or 3\.10") as caught:
        create_environment(environ={"KGEN_HOME": str(tmp_path), "PATH": str(tmp_path / "bin")})
    assert caught.value.code == "python-missing" and "KGEN_TOOLCHAIN" in caught.value.hint


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10_000_000))
    monkeypatch.setattr(environment_module, "base_interpreter", lambda _: Path(sys.executable))
    with pytest.raises(KgenError, match="has 10 MB free") as caught:
        create_environment(environ={"KGEN_HOME": str(tmp_path)})
    assert caught.value.code == "disk-full" and "KGEN_HOME" in caught.value.hint


def test_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KgenError, match="cannot write") as caught:
        create_environment(environ={"KGEN_HOME": str(tmp_path / "file" / "kgen")})
    assert caught.value.code == "toolchain-unwritable"


def _pip_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> dict[str, str]:
    """An environment for `create_environment` in which pip does as the script says."""

    def fake(_python: Path, folder: Path, _variables: object) -> None:
        script(_folder(folder / "bin") / "python", body)

    monkeypatch.setattr(environment_module, "create_venv", fake)
    monkeypatch.setattr(environment_module, "base_interpreter", lambda _: Path(sys.executable))
    monkeypatch.setattr(environment_module, "_NEEDED_BYTES", 0)
    return {"KGEN_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}


@pytest.mark.parametrize(
    "said, code, hint",
    [
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
            "disk-full",
            "TMPDIR",
        ),
        ("ERROR: No matching distribution found for triton-ascend==3.2.0", "toolchain-install", "glibc"),
        (
            "WARNING: Retrying: Connection refused\nERROR: No matching distribution found for x",
            "toolchain-install",
            "proxy",
        ),
    ],
)
def test_pip_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, code: str, hint: str) -> None:
    environ = _pip_that(tmp_path, monkeypatch, f"cat <<'END'\n{said}\nEND\nexit 1")
    lines: list[str] = []
    with pytest.raises(KgenError, match="pip failed: ") as caught:
        create_environment(lines.append, environ=environ)
    assert caught.value.code == code and hint in caught.value.hint
    assert lines[-1] == said.splitlines()[-1]  # progress is passed on as it comes
    assert not own_environment(environ).exists()  # nothing half made is left


def test_wheels_that_do_not_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = 'case "$*" in *"-m pip"*) exit 0;; esac; echo "ImportError: no libtriton" >&2; exit 1'
    environ = _pip_that(tmp_path, monkeypatch, body)
    with pytest.raises(KgenError, match="ImportError: no libtriton") as caught:
        create_environment(environ=environ)
    assert caught.value.code == "toolchain-broken"
    assert not own_environment(environ).exists()


def test_python_without_its_venv_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "The virtual environment was not created successfully because ensurepip is not available."
    python = script(tmp_path / "python3.11", f'case "$*" in *venv*) echo "{said}"; exit 1;; esac')
    monkeypatch.setattr(environment_module, "base_interpreter", lambda _: python)
    monkeypatch.setattr(environment_module, "_NEEDED_BYTES", 0)
    with pytest.raises(KgenError, match="cannot make an environment") as caught:
        create_environment(environ={"KGEN_HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"})
    assert caught.value.code == "toolchain-install" and "python3-venv" in caught.value.hint
