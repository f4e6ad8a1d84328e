"""The stubs that editors see: every word of the language is there with its meaning, and none of them runs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import kgen.lang
from kgen.ir.build import ARITY
from kgen.ir.parse_expr import LATER, ROWS, SHAPES

STUB = Path(kgen.lang.__file__).with_name("__init__.pyi")
LOOPS = {"tasks", "scan", "tiles", "group", "chunks", "seqs", "parts", "heads", "tokens"}


def test_every_built_in_has_a_stub_with_its_meaning() -> None:
    body = ast.parse(STUB.read_text()).body
    functions = {n.name: ast.get_docstring(n) for n in body if isinstance(n, ast.FunctionDef)}
    words = {*ARITY, *SHAPES, *ROWS, *LATER, *LOOPS}
    assert words <= set(kgen.lang.__all__)
    assert words == set(functions) - {"__getattr__"}
    assert all(functions.values())


def test_a_word_called_by_python_says_what_to_do() -> None:
    with pytest.raises(NotImplementedError, match=r"never run.*kgen verify"):
        kgen.lang.tasks(kgen.lang.chunks)
    assert repr(kgen.lang.scale) == "<scale of the tile language>"


PROGRAMS = sorted((Path(__file__).parents[2] / "specs" / "programs").glob("*.py"))


@pytest.mark.parametrize("file", PROGRAMS, ids=lambda path: path.name)
def test_a_program_file_can_be_imported_by_tools(file: Path) -> None:
    names: dict[str, object] = {}
    exec(compile(file.read_text(), file.name, "exec"), names)  # our own file: what an editor's index does
    assert any(callable(value) and not name.startswith("__") for name, value in names.items())
