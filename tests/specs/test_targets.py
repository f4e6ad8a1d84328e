"""Chip facts: complete, evidenced, and refused with a place when wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pydantic import BaseModel

from kgen.errors import KgenError
from kgen.resources import specs_dir
from kgen.spec.load import load_spec
from kgen.spec.targets import AccessMode, Evidence, Fact, Target, load_target, target_names

KIB = 1024
NAMES = sorted(target_names(specs_dir() / "targets"))


def facts(model: BaseModel, prefix: str = "") -> dict[str, Fact]:
    """Every fact below a model, by dotted name."""
    found: dict[str, Fact] = {}
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, Fact):
            found[prefix + name] = value
        elif isinstance(value, BaseModel):
            found |= facts(value, f"{prefix}{name}.")
    return found


def test_the_targets() -> None:
    assert NAMES == ["Ascend910B2", "Ascend910_9391", "Ascend950PR", "cuda_sm90"]
    assert set(load_spec(specs_dir() / "gdn.yaml").spec.targets) <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_fact_has_a_source(name: str) -> None:
    target = load_target(name)
    assert target.name == name
    for field, fact in facts(target).items():
        assert len(fact.source) > 10, field
        if fact.evidence is Evidence.GUESS:
            assert "nobody has measured" in fact.source or "hasn't been" in fact.source, field


@pytest.mark.parametrize(
    ("name", "cube", "ub", "l0c"),
    [
        ("Ascend910B2", 24, 192 * KIB, 128 * KIB),
        ("Ascend910_9391", 24, 192 * KIB, 128 * KIB),
        ("Ascend950PR", 32, 248 * KIB, 256 * KIB),
    ],
)
def test_what_the_compiler_says(name: str, cube: int, ub: int, l0c: int) -> None:
    """The numbers of the target spec that the compiler writes into its IR."""
    target = load_target(name)
    assert target.cores is not None
    assert target.memory is not None
    assert (target.cores.cube.value, target.cores.vector.value) == (cube, 2 * cube)
    memory = target.memory
    assert (memory.ub_bytes.value, memory.l0c_bytes.value) == (ub, l0c)
    assert (memory.l1_bytes.value, memory.l0a_bytes.value, memory.l0b_bytes.value) == (512 * KIB, 64 * KIB, 64 * KIB)
    assert (memory.ub_align.value, memory.l1_align.value, memory.l0c_align.value) == (32, 32, 512)
    assert {fact.evidence for fact in facts(memory).values()} == {Evidence.RUN}


def test_planner_and_cost_numbers() -> None:
    target = load_target("Ascend910B2")
    assert target.placement is not None
    assert target.cost is not None
    assert target.placement.workspace_slots.value == 4
    assert target.cost.gm_to_ub.value == 58.6
    assert target.cost.cross_core_flag_cycles.evidence is Evidence.GUESS
    assert target.cost.dma_element_load_cycles.value == 22


def test_gpu() -> None:
    target = load_target("cuda_sm90")
    assert target.shared_bytes is not None
    assert target.shared_bytes.value == 227 * KIB
    assert target.power_of_two_tiles.value is True
    assert target.access_mode.value is AccessMode.POINTER
    assert target.cores is None


@pytest.mark.parametrize("name", ["Ascend910B", "../targets/Ascend910B2", "/etc/passwd", "", "Ascend910B2.yaml"])
def test_unknown_target(name: str) -> None:
    with pytest.raises(KgenError, match="unknown target") as caught:
        load_target(name)
    assert caught.value.code == "target-unknown"
    assert "Ascend910B2" in caught.value.hint


@pytest.fixture
def chip(tmp_path: Path) -> Path:
    shutil.copy(specs_dir() / "targets" / "Ascend910B2.yaml", tmp_path / "Ascend910B2.yaml")
    return tmp_path / "Ascend910B2.yaml"


def test_own_folder_comes_first(chip: Path) -> None:
    chip.write_text(chip.read_text().replace("doc: Ascend 910B2 (A2)", "doc: mine"))
    assert load_target("Ascend910B2", chip.parent).doc == "mine"
    assert load_target("cuda_sm90", chip.parent).family == "cuda"


@pytest.mark.parametrize(
    ("old", "new", "code", "message", "hint"),
    [
        ("ub_bytes: {value: 196608, evidence: run", "ub_bytes: {value: 196608, evidence: rum",
         "target-bad-value", "memory.ub_bytes.evidence: expected one of run, seed, public, guess",
         "did you mean 'run'?"),
        ("ub_bytes: {value: 196608, evidence: run", "ub_bytes: {value: 196608, evidenc: run",
         "target-unknown-field", "unknown field 'evidenc'", "did you mean 'evidence'?"),
        ("ub_bytes: {value: 196608", "ub_bytes: {value: 192 KiB", "target-wrong-type", "a whole number", "change"),
        ("  ub_bytes:", "  ub_byte:", "target-unknown-field", "memory.ub_byte", "did you mean 'ub_bytes'?"),
        ("name: Ascend910B2\n", "name: Ascend910B3\n", "target-name", "describes 'Ascend910B3'",
        "write name: Ascend910B2"),
        ("family: a2", "family: a7", "target-bad-value", "family: expected one of a2, a3, a5, cuda", "a2"),
        ("family: a2", "family: cuda", "target-missing-field", "family 'cuda' needs shared_bytes", "add shared_bytes"),
        ("value: Ascend910B2, ", 'value: "x; rm -rf", ', "target-bad-value", "'x; rm -rf' isn't allowed here",
        "write text that matches"),
    ],
)  # fmt: skip
def test_mistake(chip: Path, old: str, new: str, code: str, message: str, hint: str) -> None:
    text = chip.read_text()
    assert text.count(old) == 1
    chip.write_text(text.replace(old, new))
    with pytest.raises(KgenError) as caught:
        load_target("Ascend910B2", chip.parent)
    assert caught.value.code == code
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.location is not None
    assert caught.value.location.text == next(line for line in chip.read_text().splitlines() if new.strip() in line)


def test_npu_without_its_memory(chip: Path) -> None:
    lines = chip.read_text().splitlines()
    start = lines.index("memory:")
    chip.write_text("\n".join(lines[:start] + lines[start + 9 :]) + "\n")
    with pytest.raises(KgenError, match="family 'a2' needs memory"):
        load_target("Ascend910B2", chip.parent)


def test_link_out_of_the_folder(chip: Path, tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.mkdir()
    (away / "chip.yaml").symlink_to("/etc/hostname")
    with pytest.raises(KgenError) as caught:
        load_target("chip", away)
    assert caught.value.code == "target-link"


def test_schema_names_every_part() -> None:
    assert {"cores", "memory", "placement", "cost", "shared_bytes"} <= set(Target.model_json_schema()["properties"])
