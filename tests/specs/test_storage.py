"""What kgen keeps on a machine is replaced in one step, and lies where KGEN_HOME says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest

from kgen import stamp
from kgen.errors import KgenError
from kgen.plan.record import load_plan
from kgen.search.plan import record_plan
from kgen.storage import home_folder, replace_file

RECORD = Path(__file__).resolve().parent.parent.parent / "generated" / "gdn" / "plan.json"


def full(*_: object) -> NoReturn:
    raise OSError(28, "No space left on device")


def test_a_file_is_replaced_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    for text in ("one", "two"):
        replace_file(path, text, mode=0o644)
        assert path.read_text() == text
    assert path.stat().st_mode & 0o777 == 0o644
    assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_a_plan_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = load_plan(RECORD)
    assert plan is not None
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(KgenError) as caught:
        record_plan(plan, tmp_path / "plan.json")
    assert caught.value.code == "output-unwritable" and "No space left" in caught.value.message
    assert list(tmp_path.iterdir()) == []


def test_a_tilde_in_the_setting_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KGEN_HOME", "~/kept")
    monkeypatch.chdir(tmp_path)
    assert home_folder() == tmp_path / "kept"
    spec = tmp_path / "a.yaml"
    spec.write_text("name: a\n")
    stamp.remember(spec, None, tmp_path, [spec], [])
    assert len(list((tmp_path / "kept" / "builds").iterdir())) == 1
    assert not (tmp_path / "~").exists()
