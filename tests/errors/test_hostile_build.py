"""Specs and programs from a stranger: free text never becomes code, names never take the place of what kgen emits."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
Edit = tuple[str, str]
HOSTILE = 'x""" \\\\ \'\'\' + __import__("pathlib").Path("owned").touch() + """ {{ 7 * 7 }} {% raw %} # "'


def build(folder: Path, *edits: Edit, program: tuple[str, Edit] | None = None) -> subprocess.CompletedProcess[str]:
    """`kgen build` on a copy of the specs with texts replaced."""
    copied(folder)
    files = [(folder / "specs" / "gdn.yaml", e) for e in edits]
    files += [(folder / "specs" / "programs" / program[0], program[1])] if program else []
    for path, (old, new) in files:
        text = path.read_text()
        assert old in text, old
        path.write_text(text.replace(old, new))
    return kgen(folder, "specs/gdn.yaml")


def copied(folder: Path, *, package: bool = False) -> Path:
    """A copy of the specs, and of what is generated from them; the package's folder."""
    shutil.copytree(ROOT / "specs", folder / "specs")
    if package:
        shutil.copytree(ROOT / "generated", folder / "generated", ignore=shutil.ignore_patterns("__pycache__"))
    return folder / "generated" / "gdn"


def kgen(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`kgen build` in a folder, with a time limit and a cache of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KGEN_HOME": str(folder / "home")}
    command = [sys.executable, "-m", "kgen.cli", "build", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=60)


def refused(done: subprocess.CompletedProcess[str], code: str) -> None:
    """One clear error, no traceback, exit 2."""
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"error[{code}" in done.stderr and "Traceback" not in done.stderr, done.stderr


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


Q, K = "name: q, kind: tensor, ", "name: k, kind: tensor, "
SEVERAL: dict[str, tuple[Edit, ...]] = {
    "flags that differ in case": (("  reverse: {doc", "  Reverse: {doc: x}\n  reverse: {doc"),),
    "a tensor like a flag in capitals": (("  q: {dims", "  REVERSE: {dims: [T, H, K], dtype: io}\n  q: {dims"),),
    "optional tensors that differ in case": (
        ("  q: {dims", "  H0: {dims: [N, HV, K, V], dtype: fp32, optional: true}\n  q: {dims"),
    ),
    "a dim like another's tile size": (("  BT: {kind", "  BK: {kind: static, max: 64}\n  BT: {kind"),),
    "a kernel's long name": (
        ("  chunk_local_cumsum:\n    doc: \"", f"  {'k' * 43}:\n    doc: \""),
        ("kernels: [chunk_local_cumsum]", f"kernels: [{'k' * 43}]"),
    ),
    "an output dtype with no tensor": (
        ("{name: output_dtype, kind: output_dtype, to: A,", "{name: A, kind: output_dtype,"),
    ),
    "parameters that swap names": (
        (
            f"- {{{Q}required: true}}\n      - {{{K}required: true}}\n      - {{name: v, ki",
            f"- {{{Q}to: k, required: true}}\n      - {{{K}to: q, required: true}}\n      - {{name: v, ki",
        ),
    ),
    "two parameters for one tensor": (
        ("      - {name: u, kind: tensor, required: true}", "      - {name: u, kind: tensor, to: w, required: true}"),
    ),
    "a flag by another name": (("{name: reverse, kind: flag,", "{name: rev, kind: flag, to: reverse,"),),
    "a switch like an output": (("{name: save_new_value, kind: switch,", "{name: h, kind: switch,"),),
    "a tensor that nothing gives": (("      - {name: w, kind: tensor, required: true}\n", ""),),
    "too many kernels": (
        ("kernels:\n", "kernels:\n" + "".join(
            f"  k{i}: {{program: 'programs/rows.py:cumsum_rows', bound: vector, outputs: [o]}}\n" for i in range(100)
        )),
    ),
    "too many tile choices": (
        ("tiles: {K: [64, 128], V: [64, 128]}", "tiles: {K: [16, 32, 64, 128, 256], V: [16, 32, 64, 128, 256]}"),
        ("buckets: {K: [64, 128, 256], V: [64, ", "buckets: {K: [16, 32, 64, 128, 256], V: [16, 32, 64, "),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", SEVERAL)
def test_a_spec_that_would_emit_wrong_or_endless_code_is_refused(what: str, tmp_path: Path) -> None:
    refused(build(tmp_path, *SEVERAL[what]), "spec-")
    assert not (tmp_path / "generated").exists()


PARAMETERS = "x bos K T task_num load_row _own REVERSE scale reverse cu_seqlens BLOCK_PTR USE_G print".split()


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_programs_parameter_takes_no_name_of_emitted_code(name: str, tmp_path: Path) -> None:
    loop = "o):\n    for t in tasks(chunks(T), heads(HV)):\n        o[t] = cumsum("
    edit = (f"(s, {loop}s[t]", f"({name}, {loop}{name}[t]")
    binding = ("{s: g_raw, o: g}", f"{{{name}: g_raw, o: g}}")
    refused(build(tmp_path, binding, program=("rows.py", edit)), "spec-name")


def test_tiles_over_a_dim_with_no_sizes_are_refused(tmp_path: Path) -> None:
    refused(build(tmp_path, ("    tiles: {K: [64, 128]}\n", "")), "program-tiles")


LOOP = "        o[t] = cumsum(s[t], 0, reverse=reverse) * scale"


def test_programs_that_would_take_minutes_are_refused(tmp_path: Path) -> None:
    nested = "".join(f"{'    ' * (i + 2)}for b{i} in tiles(K):\n" for i in range(19)) + "    " * 21 + "o[t] = s[t]"
    refused(build(tmp_path / "deep", program=("rows.py", (LOOP, nested))), "program-syntax")
    long = "        x = s[t]\n" + "        x = cumsum(x, 0)\n" * 2000 + "        o[t] = x"
    refused(build(tmp_path / "long", program=("rows.py", (LOOP, long))), "spec-too-large")


NAMES_OF_FILES = ["x\nimport os\n.yaml", "x coding=utf-7 .yaml", "\x1b[31m.yaml", os.fsdecode(b"\xff.yaml")]


@pytest.mark.parametrize("name", NAMES_OF_FILES, ids=ascii)
def test_a_specs_file_name_is_no_code_either(name: str, tmp_path: Path) -> None:
    copied(tmp_path)
    (tmp_path / "specs" / "gdn.yaml").rename(tmp_path / "specs" / name)
    refused(kgen(tmp_path, f"specs/{name}"), "spec-file-name")


def nested(op: str, levels: int) -> Any:
    tree: Any = "BT"
    for _ in range(levels):
        tree = [op, tree, 2]
    return tree


TREES: dict[str, Any] = {
    "ceildiv of one": ["ceildiv", "BT"],
    "ceildiv of three": ["ceildiv", "BT", 2, 2],
    "ceildiv by zero": ["ceildiv", "BT", 0],
    "ceildiv by a symbol": ["ceildiv", "BT", "BK"],
    "a negative number": -5,
    "a huge number": 10**4000,
    "a wide sum": ["+", *["BT"] * 100_000],
}


def with_tree(package: Path, tree: Any) -> None:
    data = json.loads((package / "plan.json").read_text())
    data["expressions"]["chunk_scaled_dot_kkt"]["16"]["ub"] = tree
    (package / "plan.json").write_text(json.dumps(data))


@pytest.mark.parametrize("what", TREES)
def test_a_hostile_expression_of_a_plan_is_refused(what: str, tmp_path: Path) -> None:
    with_tree(copied(tmp_path, package=True), TREES[what])
    refused(kgen(tmp_path, "specs/gdn.yaml"), "plan-broken")


@pytest.mark.parametrize("op", ["*", "+", "max", "ceildiv"])
def test_a_deep_expression_is_printed_in_linear_time(op: str, tmp_path: Path) -> None:
    package = copied(tmp_path, package=True)
    with_tree(package, nested(op, 60))
    assert kgen(tmp_path, "specs/gdn.yaml").returncode == 0
    ast.parse((package / "tiles.py").read_text())


def test_a_plan_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    package = copied(tmp_path, package=True)
    (package / "plan.json").rename(tmp_path / "elsewhere.json")
    (package / "plan.json").symlink_to(tmp_path / "elsewhere.json")
    refused(kgen(tmp_path, "specs/gdn.yaml"), "plan-broken")


def _link(package: Path) -> None:
    (package / "tiles.py").unlink()
    (package / "tiles.py").symlink_to(package.parent.parent / "secret")


def _whole_link(package: Path) -> None:
    shutil.rmtree(package)
    package.symlink_to("/etc")


def _names(package: Path) -> None:
    (package / "a\n::stop-commands::x.py").touch()
    (package / os.fsdecode(b"\xff\x1b[31m.py")).touch()


def _huge(package: Path) -> None:
    os.truncate(package / "tiles.py", 1 << 40)


PACKAGES: list[Callable[[Path], None]] = [_link, _whole_link, _names, _huge]


@pytest.mark.parametrize("change", PACKAGES, ids=lambda c: c.__name__)
def test_check_shows_nothing_but_the_packages_own_text(change: Callable[[Path], None], tmp_path: Path) -> None:
    package = copied(tmp_path, package=True)
    (tmp_path / "secret").write_text("SECRET")
    change(package)
    done = kgen(tmp_path, "specs/gdn.yaml", "--check")
    assert done.returncode == 1, done.stderr
    assert "SECRET" not in done.stdout and "\x1b" not in done.stdout
    assert not any(line.startswith("::") for line in done.stdout.splitlines())


def test_a_linked_output_folder_is_not_followed(tmp_path: Path) -> None:
    copied(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "generated").symlink_to(tmp_path / "elsewhere")
    refused(kgen(tmp_path, "specs/gdn.yaml"), "output-link")
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("becomes", ["/dev/zero", "a pipe"])
def test_a_stamp_is_not_answered_from_a_device_or_a_pipe(becomes: str, tmp_path: Path) -> None:
    copied(tmp_path, package=True)
    assert kgen(tmp_path, "specs/gdn.yaml").returncode == 0
    assert (tmp_path / "home" / "builds").is_dir()
    (tmp_path / "specs" / "gdn.yaml").unlink()
    if becomes == "a pipe":
        os.mkfifo(tmp_path / "specs" / "gdn.yaml")
    else:
        (tmp_path / "specs" / "gdn.yaml").symlink_to(becomes)
    refused(kgen(tmp_path, "specs/gdn.yaml"), "spec-")


def test_a_circle_of_links_and_a_long_name_are_plain_errors(tmp_path: Path) -> None:
    copied(tmp_path)
    (tmp_path / "specs" / "loop.yaml").symlink_to("loop.yaml")
    refused(kgen(tmp_path, "specs/loop.yaml"), "spec-link")
    refused(kgen(tmp_path, "specs/gdn.yaml", "--out", "x" * 300), "system")
