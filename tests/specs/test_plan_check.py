"""A recorded plan that was edited is refused where it doesn't fit the spec; tiles at run time cover what they must."""

from __future__ import annotations

import importlib.util
import itertools
import re
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kgen.errors import KgenError
from kgen.pipeline import lowered, plan_inputs, read, recorded_plan
from kgen.plan.choose import placement_of, predicted_plan
from kgen.plan.record import Plan, dump_plan, load_plan, tree_source
from kgen.plan.report import explain_text

ROOT = Path(__file__).resolve().parent.parent.parent
RECORD = ROOT / "generated" / "gdn" / "plan.json"
SOURCES = read(ROOT / "specs" / "gdn.yaml")
SPEC, KERNELS = SOURCES.loaded.spec, lowered(SOURCES)


def recorded() -> Plan:
    plan = load_plan(RECORD)
    assert plan is not None
    return plan


def test_the_recorded_plan_is_current_and_fits() -> None:
    assert recorded_plan(SOURCES, KERNELS, RECORD) == recorded()


def test_a_change_of_a_pass_makes_the_plan_stale() -> None:
    fewer = {n: k for n, k in KERNELS.items() if n != "chunk_fwd_o"}
    assert plan_inputs(SOURCES, KERNELS) != plan_inputs(SOURCES, fewer)


EDITS: dict[str, tuple[dict[str, Any], str]] = {
    "a kernel that isn't one": ({"kernel": "chunk_fwd_oo"}, "isn't a kernel"),
    "a target that isn't the spec's": ({"target": "Ascend910B9"}, "isn't a target"),
    "a chunk that isn't one": ({"chunk": 48}, "chunk 48 isn't one of"),
    "a width that is no bucket": ({"widths": {"K": 256, "V": 100}}, "aren't buckets"),
    "widths in another order": ({"widths": {"V": 128, "K": 256}}, "aren't buckets"),
    "a tile that is no candidate": ({"tiles": {"BK": 256, "BV": 48}}, "BV = 48 isn't a candidate"),
    "a tile of another name": ({"tiles": {"BQ": 256}}, "aren't those of chunk_delta_h"),
    "a tile too narrow for the state": ({"tiles": {"BK": 128, "BV": 64}}, "doesn't cover K = 256"),
}


@pytest.mark.parametrize("what", EDITS)
def test_an_edited_entry_is_refused(what: str, tmp_path: Path) -> None:
    fields, message = EDITS[what]
    plan = recorded()
    number = next(
        i for i, e in enumerate(plan.entries) if e.kernel == "chunk_delta_h" and e.widths == {"K": 256, "V": 128}
    )
    entries = list(plan.entries)
    entries[number] = entries[number].model_copy(update=fields)
    _refused(plan.model_copy(update={"entries": tuple(entries)}), tmp_path, message)


def test_an_entry_that_stands_twice_is_refused(tmp_path: Path) -> None:
    plan = recorded()
    _refused(plan.model_copy(update={"entries": (*plan.entries, plan.entries[0])}), tmp_path, "stands twice")


def test_another_operators_plan_is_refused(tmp_path: Path) -> None:
    _refused(recorded().model_copy(update={"operator": "kda"}), tmp_path, "operator kda")


def test_an_expression_with_an_unknown_symbol_is_refused(tmp_path: Path) -> None:
    text = dump_plan(recorded()).replace('"BK"', '"BQ"', 1)
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(KgenError, match="plan-broken"):
        recorded_plan(SOURCES, KERNELS, path)


def _refused(plan: Plan, tmp_path: Path, message: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(dump_plan(plan))
    with pytest.raises(KgenError) as caught:
        recorded_plan(SOURCES, KERNELS, path)
    assert caught.value.code == "plan-broken"
    assert message in caught.value.message
    assert "kgen plan SPEC --force" in caught.value.hint


# ---------------------------------------------------------------- tiles at run time


@pytest.fixture(scope="module")
def tiles() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gdn_tiles", ROOT / "generated" / "gdn" / "tiles.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("target", [*SPEC.targets, "Ascend910B4", "a chip nobody knows"])
def test_tiles_cover_what_one_tile_must_hold(tiles: ModuleType, target: str) -> None:
    """The state is one tile over K: a narrower one would drop rows without a word. What can't fit is an error."""
    for kernel, bits, chunk, K, V in itertools.product(
        tiles.CANDIDATES, (16, 32), (16, 32, 64), (1, 60, 96, 200, 256), (7, 64, 192, 256)
    ):
        try:
            chosen = tiles.choose(kernel, target, bits, {"BT": chunk, "K": K, "V": V})
        except ValueError as error:
            assert target.startswith("cuda"), error
            assert kernel in str(error)
            continue
        if kernel == "chunk_delta_h":
            assert chosen["BK"] >= K


def test_the_expression_never_chooses_more_than_a_memory_holds(tiles: ModuleType) -> None:
    for kernel, bits, chunk, K, V in itertools.product(
        tiles.CANDIDATES, (16, 32), (16, 32, 64), (64, 128, 256), (64, 128, 256)
    ):
        chosen = tiles.choose(kernel, "Ascend910B4", bits, {"BT": chunk, "K": K, "V": V})
        needed = tiles.BYTES[kernel](bits=bits, BT=chunk, **chosen)
        assert all(n <= limit for n, limit in zip(needed, tiles.CAPACITY["Ascend910B2"], strict=True))


def test_a_chunk_by_another_name_is_planned_alike(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "specs", tmp_path / "specs")
    path = tmp_path / "specs" / "gdn.yaml"
    path.write_text(re.sub(r"\bBT\b", "BC", path.read_text(encoding="utf-8")), encoding="utf-8")
    sources = read(path)
    kernels = lowered(sources)
    plan = predicted_plan(sources.loaded.spec, kernels, sources.targets, "0" * 64)
    ours = predicted_plan(SPEC, KERNELS, SOURCES.targets, "0" * 64)
    assert plan.entries == ours.entries
    assert "BC" in tree_source(plan.expressions["chunk_fwd_o"]["16"].ub)
    assert "live at the peak" in explain_text(
        "chunk_fwd_o", sources.loaded.spec, kernels, plan, placement_of(sources.targets)
    )
