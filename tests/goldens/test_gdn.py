"""The committed package is the expected text: kgen makes exactly those bytes, and they obey what every package must."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "generated" / "gdn"
TEMPLATES = sorted((ROOT / "templates").glob("*.j2"))
FILES = sorted(PACKAGE.glob("*.py"))
BUILD = """
import json
from pathlib import Path
from kgen.pipeline import build, read
_, files, _ = build(read(Path("specs/gdn.yaml")), Path("generated/gdn"))
print(json.dumps({"files": files}))
"""


def built(seed: str) -> dict[str, str]:
    """Files of the package, made in a process of its own."""
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", BUILD]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    files: dict[str, str] = json.loads(done.stdout)["files"]
    return files


def test_the_committed_package_is_what_kgen_makes(update_goldens: bool) -> None:
    """For two hash seeds. Repair with `kgen build specs/gdn.yaml`, or --update-goldens."""
    files = built("1")
    assert built("4242") == files
    if update_goldens:
        for name, text in files.items():
            (PACKAGE / name).write_text(text, encoding="utf-8", newline="\n")
    for name, text in files.items():
        assert (PACKAGE / name).read_text(encoding="utf-8") == text, f"{name}: run kgen build specs/gdn.yaml"
    assert {p.name for p in PACKAGE.glob("*.py")} == {n for n in files if n.endswith(".py")}


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_no_path_time_or_version(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    ast.parse(text)
    head = "\n".join(text.splitlines()[:3])
    assert str(ROOT) not in text
    assert not re.search(r"(?:^|[\s\"'(])/(?:[a-z]+/)+[a-z.]+", text, re.MULTILINE), "an absolute path"
    assert not re.search(r"\b20[2-9]\d-\d\d|\d\d:\d\d:\d\d", text), "a date or time"
    assert not re.search(r"\b\d+\.\d+\.\d+\b", head) and "version" not in head.lower(), "a version in the header"
    assert re.search(r"sha256 .*: [0-9a-f]{64}$", head, re.MULTILINE)
    assert "\t" not in text and "\r" not in text and text.endswith("\n") and not text.endswith("\n\n")


def kernels() -> list[ast.FunctionDef]:
    tree = ast.parse((PACKAGE / "kernels.py").read_text(encoding="utf-8"))
    return [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name.endswith("_kernel")]


def test_kernels_import_only_triton() -> None:
    tree = ast.parse((PACKAGE / "kernels.py").read_text(encoding="utf-8"))
    imports = [n for n in ast.walk(tree) if isinstance(n, (ast.Import, ast.ImportFrom))]
    named = {a.name for n in imports if isinstance(n, ast.Import) for a in n.names}
    assert named == {"triton", "triton.language"} and all(isinstance(n, ast.Import) for n in imports)


def test_kernels_fit_a_screen_and_the_runtime() -> None:
    text = (PACKAGE / "kernels.py").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("# sha256")]
    assert [line for line in lines if len(line) > 120] == []
    names = [k.name for k in kernels()]
    assert len(names) == len(set(names)) > 0
    assert [n for n in names if len(n) > 49] == []  # K504


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_no_launch_option_of_gpus(path: Path) -> None:
    assert not re.search(r"num_warps|num_stages", path.read_text(encoding="utf-8"))  # K503


@pytest.mark.parametrize("kernel", kernels(), ids=lambda k: k.name)
def test_run_time_integers_are_not_specialised(kernel: ast.FunctionDef) -> None:
    """Exactly the integers that a launch counts: a new value of one must not compile the kernel again."""
    (decorator,) = kernel.decorator_list
    assert isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "triton.jit"
    (listed,) = [ast.literal_eval(k.value) for k in decorator.keywords if k.arg == "do_not_specialize"]
    plain = [a.arg for a in kernel.args.args if a.annotation is None]
    used = {n.id for n in ast.walk(kernel) if isinstance(n, ast.Name)}
    assert [n for n in plain if n in ("T", "NT", "task_num", "num_core")] == listed
    assert {"T", "NT", "task_num", "num_core"} & used == set(listed)
    annotated = [a for a in kernel.args.args if a.annotation is not None]
    assert {ast.unparse(a.annotation) for a in annotated if a.annotation} == {"tl.constexpr"}


@pytest.mark.parametrize("kernel", kernels(), ids=lambda k: k.name)
def test_every_argument_is_used(kernel: ast.FunctionDef) -> None:
    used = {n.id for n in ast.walk(kernel) if isinstance(n, ast.Name)}
    assert [a.arg for a in kernel.args.args if a.arg not in used] == []


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda p: p.name)
def test_templates_hold_no_kernel_logic(path: Path) -> None:
    """`tl.` stands only in the statement macros and the tile helpers, and in the import of kernels.py."""
    if path.name in ("statements.j2", "tile_io.j2"):
        return
    lines = path.read_text(encoding="utf-8").splitlines()
    allowed = ("import triton.language as tl", "LN2 = tl.constexpr(")
    assert [line for line in lines if re.search(r"\btl\.", line) and not line.startswith(allowed)] == []
