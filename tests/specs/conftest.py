"""A small spec in a folder of its own, and the error that a change to its text brings."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kgen.errors import KgenError
from kgen.spec.check import check_spec
from kgen.spec.load import load_spec

DATA = Path(__file__).parent / "data"

Mistake = Callable[..., tuple[KgenError, str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the small spec and its programs."""
    shutil.copytree(DATA, tmp_path / "specs")
    return tmp_path / "specs"


@pytest.fixture
def spec_path(folder: Path) -> Path:
    return folder / "small.yaml"


@pytest.fixture
def mistake(spec_path: Path) -> Mistake:
    """Replace text that occurs once, load and check: the error, and the line of the file that it points at."""

    def make(old: str, new: str) -> tuple[KgenError, str]:
        text = spec_path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
        spec_path.write_text(text.replace(old, new), encoding="utf-8")
        with pytest.raises(KgenError) as caught:
            check_spec(load_spec(spec_path))
        error = caught.value
        assert error.exit_code == 2
        assert error.location is not None
        assert error.location.path == str(spec_path)
        line = spec_path.read_text(encoding="utf-8").splitlines()[error.location.line - 1]
        assert "\n" not in error.message
        return error, line

    return make
