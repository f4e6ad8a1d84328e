"""plan.json is as untrusted as a spec: anything but what `kgen plan` writes is one clear error."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kgen.errors import KgenError
from kgen.plan.record import dump_plan, load_plan

GOOD: dict[str, Any] = {
    "schema": 1,
    "operator": "gdn",
    "inputs": "0" * 64,
    "toolchain": {"triton_ascend": "3.2.0"},
    "margin": 0.125,
    "expressions": {
        "kkt": {
            bits: {
                "ub_sum": ["*", 8, "BT", "BK"], "ub": ["max", ["*", 2, "BT"], 64], "l1_sum": 0, "l1": 0,
                "l0c_sum": 0, "l0c": ["ceildiv", "BT", 2],
            }
            for bits in ("16", "32")
        }
    },
    "entries": [
        {
            "kernel": "kkt", "target": "Ascend910B2", "bits": 16, "chunk": 64, "widths": {"K": 64}, "tiles": {"BK": 64},
            "verdict": "fits", "grid": "min(task_num, cube cores)", "tail_modes": [0, 2], "ub_predicted_bytes": 1024,
            "ub_bytes": 1000, "l1_bytes": 0, "l0c_bytes": 0, "rejected": [],
        }
    ],
}  # fmt: skip


def write(tmp_path: Path, data: Any) -> Path:
    path = tmp_path / "plan.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def edited(change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    data = copy.deepcopy(GOOD)
    change(data)
    return data


def test_a_good_plan_survives_a_round_trip(tmp_path: Path) -> None:
    plan = load_plan(write(tmp_path, GOOD))
    assert plan is not None
    again = load_plan(write(tmp_path, dump_plan(plan)))
    assert again == plan


def test_no_plan_is_no_error(tmp_path: Path) -> None:
    assert load_plan(tmp_path / "plan.json") is None


def _entry(**fields: Any) -> dict[str, Any]:
    return edited(lambda d: d["entries"][0].update(fields))


def _tree(tree: Any) -> dict[str, Any]:
    return edited(lambda d: d["expressions"]["kkt"]["16"].update(ub=tree))


def deep(levels: int) -> str:
    """A plan's text with an expression nested so deep that writing it by `json` would fail too."""
    text = json.dumps(_tree("DEEP"))
    return text.replace('"DEEP"', '["+", ' * levels + '"BT"' + ", 1]" * levels)


BAD: dict[str, Any] = {
    "not json": "{",
    "empty": "",
    "a list": "[]",
    "an unknown field": edited(lambda d: d.update(surprise=1)),
    "a later schema": edited(lambda d: d.update(schema=2)),
    "a kernel that is code": _entry(kernel="kkt(); import os"),
    "a target that is a path": _entry(target="../../etc"),
    "a tile of zero": _entry(tiles={"BK": 0}),
    "a negative tile": _entry(tiles={"BK": -64}),
    "a huge tile": _entry(tiles={"BK": 1 << 40}),
    "a tile that is text": _entry(tiles={"BK": "64"}),
    "a tile name that is code": _entry(tiles={"BK}; import os; {": 64}),
    "a width of zero": _entry(widths={"K": 0}),
    "bits of 8": _entry(bits=8),
    "an unknown verdict": _entry(verdict="great"),
    "bytes below zero": _entry(ub_bytes=-1),
    "a margin of one": edited(lambda d: d.update(margin=1.0)),
    "a symbol that is code": _tree("__import__('os').system('true')"),
    "a symbol that is a call": _tree(["+", "f()", 1]),
    "an operator that is unknown": _tree(["eval", "BT", 1]),
    "an operator alone": _tree(["+"]),
    "a float in an expression": _tree(["*", 0.5, "BT"]),
    "an object in an expression": _tree(["+", {"a": 1}, 2]),
    "an expression nested without end": deep(2000),
    "an expression nested too deep": deep(100),
}


@pytest.mark.parametrize("what", sorted(BAD))
def test_a_bad_plan_is_refused(tmp_path: Path, what: str) -> None:
    path = write(tmp_path, BAD[what])
    with pytest.raises(KgenError) as caught:
        load_plan(path)
    assert caught.value.code == "plan-broken"
    assert caught.value.location is not None and caught.value.location.path == str(path)
    assert "kgen plan SPEC --force" in caught.value.hint


def test_a_huge_plan_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, " " * (9 << 20))
    with pytest.raises(KgenError, match="larger than"):
        load_plan(path)
