"""cu_seqlens: every mistake in it, what is remembered of it and for how long; batches with nothing in them; devices."""

from __future__ import annotations

import gc
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton

from tests.errors.generated_gdn import OPERATOR, PACKAGE, RUNTIME, SHAPES, packed, refusal, valid

Stage = pytest.mark.parametrize("function", SHAPES)
TAKES_HOST = ["chunk_gated_delta_rule_fwd_h", OPERATOR]


def tensors(result: object) -> list[torch.Tensor]:
    """The results that are there."""
    return [t for t in (result if isinstance(result, tuple) else (result,)) if t is not None]


def same(first: object, second: object) -> bool:
    """Whether two calls gave the same."""
    return all(torch.equal(a, b) for a, b in zip(tensors(first), tensors(second), strict=True))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ids of tensors whose values went to the host."""
    seen: list[int] = []
    for name in ("tolist", "item", "cpu", "numpy"):
        original = getattr(torch.Tensor, name)

        def spy(self: torch.Tensor, *args: Any, _original: Any = original, **kwargs: Any) -> Any:
            seen.append(id(self))
            return _original(self, *args, **kwargs)

        monkeypatch.setattr(torch.Tensor, name, spy)
    monkeypatch.setattr(RUNTIME.Arguments, "launch", lambda *_: None)  # the interpreter reads all tensors
    return seen


# ---------------------------------------------------------------- mistakes

MISTAKES = {
    "not 1-D": (torch.tensor([[0, 7, 20]]), "cu_seqlens is torch.int64 (1, 3); expected int32 or int64 [N + 1]"),
    "a scalar": (torch.tensor(20), "cu_seqlens is torch.int64 (); expected int32 or int64 [N + 1]"),
    "floats": (torch.tensor([0.0, 7.0, 20.0]), "cu_seqlens is torch.float32 (3,); expected int32 or int64"),
    "16 bits": (torch.tensor([0, 7, 20], dtype=torch.int16), "cu_seqlens is torch.int16 (3,); expected int32 or int64"),
    "a list": ([0, 7, 20], "cu_seqlens is [0, 7, 20]; expected int32 or int64"),
    "empty": (torch.tensor([], dtype=torch.int64), "cu_seqlens is torch.int64 (0,); expected int32 or int64"),
    "no sequence": (torch.tensor([0]), "cu_seqlens is torch.int64 (1,); expected int32 or int64 [N + 1], N at least 1"),
    "not from 0": (torch.tensor([1, 7, 20]), "cu_seqlens starts at 1; expected 0"),
    "falling": (torch.tensor([0, 9, 7, 20]), "cu_seqlens falls from 9 to 7 at entry 2; expected nondecreasing"),
    "short": (torch.tensor([0, 7, 19]), "cu_seqlens ends at 19; expected T = 20"),
    "long": (torch.tensor([0, 7, 21]), "cu_seqlens ends at 21; expected T = 20"),
    "elsewhere": (torch.tensor([0, 7, 20], device="meta"), "cu_seqlens is on meta; expected cpu, as"),
}


@Stage
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_cu_seqlens(function: str, mistake: str) -> None:
    wrong, expected = MISTAKES[mistake]
    assert expected in refusal(function, {**packed(function, 0, 7, 20), "cu_seqlens": wrong})


@pytest.mark.parametrize("function", TAKES_HOST)
def test_a_mistake_in_cu_seqlens_cpu(function: str) -> None:
    def told(host: object) -> str:
        return refusal(function, {**packed(function, 0, 7, 20), "cu_seqlens_cpu": host})

    assert "cu_seqlens_cpu has 4 entries; expected 3, as cu_seqlens has" in told(torch.tensor([0, 7, 9, 20]))
    assert "cu_seqlens_cpu starts at 1; expected 0" in told(torch.tensor([1, 7, 20]))
    assert "cu_seqlens_cpu ends at 19; expected T = 20" in told(torch.tensor([0, 7, 19]))
    assert "cu_seqlens_cpu is torch.float32 (3,)" in told(torch.tensor([0.0, 7.0, 20.0]))
    assert "cu_seqlens_cpu is (0, 7, 20); expected int32 or int64" in told((0, 7, 20))
    assert "cu_seqlens_cpu is on meta; expected cpu" in told(torch.tensor([0, 7, 20], device="meta"))
    alone = {**valid(function), "cu_seqlens_cpu": torch.tensor([0, 20])}
    assert "cu_seqlens_cpu is given without cu_seqlens; pass both or neither" in refusal(function, alone)


@Stage
def test_chunk_indices_of_another_batch(function: str) -> None:
    for wrong in (torch.zeros(4, 2, dtype=torch.int32), torch.zeros(2, dtype=torch.int32), [[0, 0]] * 3):
        message = refusal(function, {**packed(function, 0, 7, 24), "chunk_indices": wrong})
        assert "chunk_indices is" in message and "expected [3, 2], as cu_seqlens has 3 chunks" in message
    alone = {**valid(function), "chunk_indices": torch.zeros(4, 2, dtype=torch.int32)}
    assert "chunk_indices is given without cu_seqlens" in refusal(function, alone)
    right = {**packed(function, 0, 7, 24), "chunk_indices": torch.tensor([[0, 0], [1, 0], [1, 1]])}
    PACKAGE.function(function)(**right)


def test_a_mistake_is_told_again() -> None:
    arguments = packed(OPERATOR, 0, 7, 20)
    arguments["cu_seqlens"][0] = 3
    for _ in range(2):
        assert "cu_seqlens starts at 3" in refusal(OPERATOR, arguments)
    PACKAGE.function(OPERATOR)(**packed(OPERATOR, 0, 7, 20))
    longer = {**packed(OPERATOR, 0, 7, 24), "cu_seqlens": packed(OPERATOR, 0, 7, 20)["cu_seqlens"]}
    assert "cu_seqlens ends at 20; expected T = 24" in refusal(OPERATOR, longer)


def test_a_remembered_tensor_is_checked_against_each_batch() -> None:
    cu_seqlens = torch.tensor([0, 7, 20])
    PACKAGE.function(OPERATOR)(**{**packed(OPERATOR, 0, 7, 20), "cu_seqlens": cu_seqlens})
    message = refusal(OPERATOR, {**packed(OPERATOR, 0, 7, 24), "cu_seqlens": cu_seqlens})
    assert "cu_seqlens ends at 20; expected T = 24" in message


# ---------------------------------------------------------------- what is remembered


@Stage
def test_a_second_call_reads_nothing_from_the_device(function: str, reads: list[int]) -> None:
    arguments = packed(function, 0, 7, 20)
    PACKAGE.function(function)(**arguments)
    assert reads == [id(arguments["cu_seqlens"])]
    PACKAGE.function(function)(**arguments)
    assert len(reads) == 1


def test_a_fixed_batch_reads_nothing(reads: list[int]) -> None:
    PACKAGE.function(OPERATOR)(**valid(OPERATOR))
    assert reads == []


@pytest.mark.parametrize("function", TAKES_HOST)
def test_the_hosts_copy_saves_the_read(function: str, reads: list[int]) -> None:
    arguments = packed(function, 0, 7, 20)
    host = arguments["cu_seqlens"].clone()
    for _ in range(2):
        PACKAGE.function(function)(**arguments, cu_seqlens_cpu=host)
    assert set(reads) == {id(host)}  # which costs nothing, so it is compared on each call
    first = RUNTIME._TABLES.of(arguments["cu_seqlens"])[16]
    host[1] = 11
    PACKAGE.function(function)(**arguments, cu_seqlens_cpu=host)
    assert RUNTIME._TABLES.of(arguments["cu_seqlens"])[16].values == [0, 11, 20] != first.values


@Stage
def test_a_change_in_place_is_noticed(function: str) -> None:
    arguments, expected = packed(function, 0, 7, 20), packed(function, 0, 11, 20)
    PACKAGE.function(function)(**arguments)
    arguments["cu_seqlens"][1] = 11
    assert same(PACKAGE.function(function)(**arguments), PACKAGE.function(function)(**expected))
    arguments["cu_seqlens"][1] = 50
    assert "cu_seqlens falls from 50 to 20 at entry 2" in refusal(function, arguments)


def test_a_change_through_a_view_is_noticed() -> None:
    buffer = torch.tensor([0, 7, 20, 99])
    arguments = {**packed(OPERATOR, 0, 7, 20), "cu_seqlens": buffer[:3]}
    PACKAGE.function(OPERATOR)(**arguments)
    buffer[1] = 11
    ours, theirs = (PACKAGE.function(OPERATOR)(**a) for a in (arguments, packed(OPERATOR, 0, 11, 20)))
    assert same(ours, theirs)


def test_tensors_of_inference_mode(reads: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """They don't tell when they are changed: read each time, but not while a graph is captured; tables are kept."""
    with torch.inference_mode():
        arguments = packed(OPERATOR, 0, 7, 20)
        cu_seqlens = arguments["cu_seqlens"]
        PACKAGE.function(OPERATOR)(**arguments)
        first = RUNTIME._TABLES.of(cu_seqlens)[16]
        PACKAGE.function(OPERATOR)(**arguments)
        assert len(reads) == 2 and RUNTIME._TABLES.of(cu_seqlens)[16] is first
        monkeypatch.setattr(RUNTIME, "capturing", lambda device: True)
        PACKAGE.function(OPERATOR)(**arguments)
        assert len(reads) == 2
        monkeypatch.undo()
        cu_seqlens[1] = 11
        ours, theirs = (PACKAGE.function(OPERATOR)(**a) for a in (arguments, packed(OPERATOR, 0, 11, 20)))
        assert same(ours, theirs)


def test_what_is_new_or_changed_while_a_graph_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RUNTIME, "capturing", lambda device: True)
    arguments = packed(OPERATOR, 0, 7, 20)
    assert "cu_seqlens is new while a graph is captured; call once with it before" in refusal(OPERATOR, arguments)
    monkeypatch.undo()
    PACKAGE.function(OPERATOR)(**arguments)
    monkeypatch.setattr(RUNTIME, "capturing", lambda device: True)
    PACKAGE.function(OPERATOR)(**arguments)
    changed = {**arguments, "cu_seqlens_cpu": torch.tensor([0, 11, 20])}
    assert "cu_seqlens has changed while a graph is captured" in refusal(OPERATOR, changed)


def test_memory_ends_with_the_tensor() -> None:
    gc.collect()
    before = set(RUNTIME._TABLES.entries)
    for dtype in (torch.int32, torch.int64):
        arguments = packed(OPERATOR, 0, 7, 20, dtype=dtype)
        PACKAGE.function(OPERATOR)(**arguments)
        assert set(RUNTIME._TABLES.entries) - before == {id(arguments["cu_seqlens"])}
        del arguments
        gc.collect()
        assert set(RUNTIME._TABLES.entries) == before


def test_an_id_that_another_tensor_has_now() -> None:
    """A late goodbye of a dead tensor leaves alone what its id's new owner has."""
    memory, new = RUNTIME._Memory(), torch.tensor([0, 1])
    old = torch.tensor([0, 2])
    memory.of(old)
    reference, _ = memory.entries.pop(id(old))
    memory.entries[id(new)] = memory.entries.get(id(new), (reference, {16: "stale"}))
    assert memory.of(new) == {}
    kept = memory.of(new)
    kept[16] = "ours"
    reference.__callback__(reference)
    assert memory.of(new) is kept


@Stage
def test_chunk_sizes_and_strides_dont_mix(function: str) -> None:
    strided = torch.tensor([0, 99, 7, 99, 20, 99])[::2]
    ours = PACKAGE.function(function)(**{**packed(function, 0, 7, 20), "cu_seqlens": strided})
    assert same(ours, PACKAGE.function(function)(**packed(function, 0, 7, 20, dtype=torch.int32)))
    if "chunk_size" in valid(function) and function != "chunk_fwd_o":
        wide = {**packed(function, 0, 7, 20), "chunk_size": 64}
        apart = PACKAGE.function(function)(**wide)
        assert same(PACKAGE.function(function)(**{**wide, "cu_seqlens": strided}), apart)


def test_threads_share_a_tensor() -> None:
    arguments = packed("chunk_local_cumsum", 0, 7, 20)
    expected = PACKAGE.function("chunk_local_cumsum")(**arguments)
    shared, found = torch.tensor([0, 7, 20]), []
    facts = {"max": {}, "chunk": "BT", "chunks": (16,), "dtypes": {}, "shared": (), "groups": {}}

    def work() -> None:
        for _ in range(50):
            x = RUNTIME.Arguments("f", facts, strict=True)
            x.tensor("g", arguments["g"], ("T", "HV"), "fp32", head_first=True)
            x.chunk("chunk_size", 16)
            x.sequences(shared)
            found.append(x.tables.chunk_indices.tolist())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 200 and all(f == [[0, 0], [1, 0]] for f in found)
    assert torch.equal(PACKAGE.function("chunk_local_cumsum")(**{**arguments, "cu_seqlens": shared}), expected)


# ---------------------------------------------------------------- nothing to do


@pytest.mark.parametrize("bounds", [(0, 0), (0, 0, 0, 0)])
def test_a_batch_of_empty_sequences_only(bounds: tuple[int, ...]) -> None:
    arguments = packed(OPERATOR, *bounds)
    o, state = PACKAGE.function(OPERATOR)(**arguments, output_final_state=True)
    assert o.shape == (1, 0, 4, 40) and torch.equal(state, arguments["initial_state"])
    _, state = PACKAGE.function(OPERATOR)(**{**arguments, "initial_state": None}, output_final_state=True)
    assert state.shape == (len(bounds) - 1, 4, 24, 40) and not state.any()


@Stage
@pytest.mark.parametrize("sizes", [{"T": 0, "NT": 0}, {"B": 0, "N": 0}, {"B": 0, "N": 0, "T": 0, "NT": 0}])
def test_no_rows_or_no_batch(function: str, sizes: dict[str, int]) -> None:
    for tensor in tensors(PACKAGE.function(function)(**valid(function, **sizes))):
        assert tensor.numel() == 0


def test_no_rows_keep_the_state() -> None:
    arguments = valid(OPERATOR, T=0)
    _, state = PACKAGE.function(OPERATOR)(**arguments, output_final_state=True)
    assert torch.equal(state, arguments["initial_state"])


# ---------------------------------------------------------------- devices


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("Ascend910B2", "Ascend910B2"),
        ("Ascend910B2C", "Ascend910B2"),
        ("Ascend910_9391", "Ascend910_9391"),
        ("Ascend950PR_9599", "Ascend950PR"),
        ("Ascend910B4", "Ascend910B4"),
        ("Ascend910_9382", "Ascend910_9382"),
        ("cuda_sm90", "cuda_sm90"),
        ("cuda_sm80", "cuda_sm90"),
    ],
)
def test_a_devices_name_and_its_target(name: str, target: str) -> None:
    assert RUNTIME.known_target(name) == target
    tiles = RUNTIME._tiles.choose("chunk_fwd_o", target, 16, {"K": 128, "V": 128, "BT": 64})
    assert tiles["BK"] <= 128 and tiles["BV"] <= 128


def test_an_npus_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    def properties(index: int) -> dict[str, int]:
        return {"max_shared_mem": 1, "num_aicore": 20 + index, "num_vectorcore": 40 + 2 * index}

    fake = SimpleNamespace(active=SimpleNamespace(utils=SimpleNamespace(get_device_properties=properties)))
    monkeypatch.setattr(triton.runtime, "driver", fake)
    npu = SimpleNamespace(type="npu", index=1)
    assert RUNTIME.cores.__wrapped__(npu, "cube") == 21
    assert RUNTIME.cores.__wrapped__(npu, "vector") == 42
    monkeypatch.setattr(torch, "npu", SimpleNamespace(get_device_name=lambda device: "Ascend910B2"), raising=False)
    assert RUNTIME.target_of.__wrapped__(npu) == "Ascend910B2"
    assert not RUNTIME.capturing(npu)
    monkeypatch.setattr(torch.npu, "is_current_stream_capturing", lambda: True, raising=False)
    assert RUNTIME.capturing(npu)
