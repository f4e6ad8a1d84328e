"""`kgen build` as people and CI run it: written whole, unchanged when nothing changed, drift found, mistakes exit 2."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
FILES = {"__init__.py", "_runtime.py", "kernels.py", "launchers.py", "tiles.py"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of its own: specs and the recorded plan, nothing generated."""
    shutil.copytree(ROOT / "specs", tmp_path / "specs")
    plan = ROOT / "generated" / "gdn" / "plan.json"
    if plan.is_file():
        (tmp_path / "generated" / "gdn").mkdir(parents=True)
        shutil.copy(plan, tmp_path / "generated" / "gdn")
    return tmp_path


def kgen(project: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kgen.cli", *arguments],
        cwd=project,
        env={**os.environ, "KGEN_HOME": str(project / "home"), "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def snapshot(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file() and p.name != "plan.json"}


def test_build_writes_the_committed_package(project: Path) -> None:
    done = kgen(project, "build", "specs/gdn.yaml")
    assert done.returncode == 0, done.stderr
    assert "generated/gdn: written, 5 files" in done.stdout
    built = snapshot(project / "generated" / "gdn")
    assert set(built) == FILES
    assert built == snapshot(ROOT / "generated" / "gdn")


def test_a_second_build_is_unchanged_and_touches_nothing(project: Path) -> None:
    kgen(project, "build", "specs/gdn.yaml")
    before = {p: p.stat().st_mtime_ns for p in (project / "generated" / "gdn").iterdir()}
    done = kgen(project, "build", "specs/gdn.yaml")
    assert done.stdout == "generated/gdn: unchanged\n"
    assert {p: p.stat().st_mtime_ns for p in (project / "generated" / "gdn").iterdir()} == before


@pytest.mark.parametrize("what", ["spec", "program", "output", "extra", "missing"])
def test_any_change_ends_unchanged(project: Path, what: str) -> None:
    kgen(project, "build", "specs/gdn.yaml")
    package = project / "generated" / "gdn"
    if what == "spec":
        path = project / "specs" / "gdn.yaml"
        path.write_text(path.read_text().replace("tokens of all sequences", "tokens of every sequence"))
    elif what == "program":
        path = project / "specs" / "programs" / "rows.py"
        path.write_text(path.read_text() + "\n# a remark\n")
    elif what == "output":
        (package / "kernels.py").write_text((package / "kernels.py").read_text() + "# edited\n")
    elif what == "extra":
        (package / "extra.py").write_text("x = 1\n")
    else:
        (package / "tiles.py").unlink()
    done = kgen(project, "build", "specs/gdn.yaml")
    assert done.returncode == 0, done.stderr
    assert "5 files" in done.stdout  # it was built again
    assert set(snapshot(package)) == FILES


def test_check_finds_drift_and_names_the_repair(project: Path) -> None:
    kgen(project, "build", "specs/gdn.yaml")
    assert kgen(project, "build", "specs/gdn.yaml", "--check").returncode == 0
    path = project / "generated" / "gdn" / "kernels.py"
    path.write_text(path.read_text().replace("m_strict > 0.0", "m_strict > 2.0"))
    done = kgen(project, "build", "specs/gdn.yaml", "--check")
    assert done.returncode == 1
    assert "m_strict > 2.0" in done.stdout
    assert "kgen build specs/gdn.yaml" in done.stderr
    assert "m_strict > 2.0" in path.read_text()  # --check writes nothing


def test_check_needs_no_tool_chain(project: Path) -> None:
    kgen(project, "build", "specs/gdn.yaml")
    done = kgen(project, "build", "specs/gdn.yaml", "--check", KGEN_TOOLCHAIN="/nonexistent", PATH="/nonexistent")
    assert done.returncode == 0, done.stderr


def test_an_edited_plan_is_checked_like_a_spec(project: Path) -> None:
    (project / "generated" / "gdn").mkdir(parents=True, exist_ok=True)
    (project / "generated" / "gdn" / "plan.json").write_text('{"schema": 1, "operator": "x; import os"}')
    done = kgen(project, "build", "specs/gdn.yaml")
    assert done.returncode == 2
    assert "error[plan-broken]" in done.stderr
    assert "kgen plan" in done.stderr
    assert not (project / "generated" / "gdn" / "kernels.py").exists()


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="root writes anywhere")
def test_an_unwritable_output_is_one_clear_error(project: Path) -> None:
    target = project / "file"
    target.write_text("not a folder")
    done = kgen(project, "build", "specs/gdn.yaml", "--out", str(target / "gdn"))
    assert done.returncode == 2
    assert "error[output-unwritable]" in done.stderr
    assert "--out" in done.stderr
    assert not list(project.glob(".gdn*"))


def test_a_folder_that_is_not_kgens_is_left_alone(project: Path) -> None:
    mine = project / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    done = kgen(project, "build", "specs/gdn.yaml", "--out", "mine")
    assert done.returncode == 2
    assert "error[output-not-ours]" in done.stderr
    assert (mine / "thesis.txt").read_text() == "years of work"


def test_a_failed_write_leaves_the_old_package(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kgen.emit import write
    from kgen.errors import KgenError

    kgen(project, "build", "specs/gdn.yaml")
    package = project / "generated" / "gdn"
    before = snapshot(package)

    def full(self: Path, *args: object, **kwargs: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(write.Path, "write_text", full)
    with pytest.raises(KgenError, match="No space left"):
        write.write_package(package, {"kernels.py": "# Generated by kgen\n"})
    monkeypatch.undo()
    assert snapshot(package) == before
    assert not [p for p in package.parent.iterdir() if p.name.startswith(".")]


def test_a_wrong_spec_exits_2_and_writes_nothing(project: Path) -> None:
    path = project / "specs" / "gdn.yaml"
    path.write_text(path.read_text().replace("bound: cube", "bound: cub", 1))
    done = kgen(project, "build", "specs/gdn.yaml", "--out", "out")
    assert done.returncode == 2
    assert "specs/gdn.yaml:" in done.stderr
    assert "cube" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (project / "out").exists()


def test_output_is_the_same_for_any_hash_seed(project: Path) -> None:
    built = []
    for seed in ("0", "4242"):
        done = kgen(project, "build", "specs/gdn.yaml", "--out", f"out{seed}", PYTHONHASHSEED=seed)
        assert done.returncode == 0, done.stderr
        built.append(snapshot(project / f"out{seed}"))
    assert built[0] == built[1]


def test_a_program_is_parsed_and_never_run(project: Path) -> None:
    path = project / "specs" / "programs" / "rows.py"
    path.write_text(f"import pathlib\npathlib.Path({str(project / 'owned')!r}).touch()\n" + path.read_text())
    done = kgen(project, "build", "specs/gdn.yaml", "--out", "out")
    assert done.returncode == 2
    assert "error[program-syntax]" in done.stderr
    assert not (project / "owned").exists()
