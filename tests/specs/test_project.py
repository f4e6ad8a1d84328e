"""The project's own files agree with each other."""

from __future__ import annotations

import re
from pathlib import Path

from kgen.cli import app

ROOT = Path(__file__).parents[2]
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_every_package_is_under_an_import_contract() -> None:
    contracts = re.sub(r"#.*", "", PYPROJECT[PYPROJECT.index("[tool.importlinter]") :])
    for package in sorted((ROOT / "kgen").glob("*/__init__.py")):
        name = f"kgen.{package.parent.name}"
        assert re.search(rf'[" (]{re.escape(name)}[" )]', contracts), f"add {name} to the contracts in pyproject.toml"


def test_second_opinions_are_held_to_it() -> None:
    contract = PYPROJECT[PYPROJECT.index("second opinions: they never see") :]
    sources = contract[contract.index("source_modules") : contract.index("forbidden_modules")]
    for name in ("virtual", "check", "verify"):
        if (ROOT / "kgen" / name / "__init__.py").exists():
            assert f'"kgen.{name}"' in sources


def test_core_needs_neither_torch_nor_triton() -> None:
    core = PYPROJECT[PYPROJECT.index("\ndependencies = [") : PYPROJECT.index("[project.optional-dependencies]")]
    assert not re.search(r"torch|triton|numpy", core.split("[", 1)[1].split("]", 1)[0])
    # Open, `torch` may pull gigabytes; the interpreter level replaces parts of exactly this triton.
    for pin in ('"torch==2.13.0"', '"triton==3.7.1"', '"numpy<2.4"'):
        assert pin in PYPROJECT


def test_npu_extra_pins_nothing() -> None:
    assert "\nnpu = []\n" in PYPROJECT


def test_messages_name_commands_that_exist() -> None:
    known = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    named = {
        (path.name, command)
        for path in (ROOT / "kgen").rglob("*.py")
        for command in re.findall(r"`kgen ([a-z]+)", path.read_text(encoding="utf-8"))
    }
    assert not {(place, command) for place, command in named if command not in known}
