"""One wrong argument a test: the message names the function, the argument, what it is and what is allowed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kgen.verify.package import load_package

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = load_package(ROOT / "generated" / "gdn")
B, T, H, HV, K, V, BT = 1, 40, 1, 2, 16, 24, 32
NT = 2
Arguments = dict[str, Any]


def rand(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def cu(*values: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


def good(function: str) -> Arguments:
    """Arguments that the function takes."""
    q, k, v, o = rand(B, T, H, K), rand(B, T, H, K), rand(B, T, HV, V), rand(B, T, HV, V)
    g, beta = -rand(B, T, HV, dtype=torch.float32), rand(B, T, HV, dtype=torch.float32)
    w, h = rand(B, T, HV, K), rand(B, NT, HV, K, V)
    A = rand(B, T, HV, BT, dtype=torch.float32)
    every: dict[str, Arguments] = {
        "chunk_gated_delta_rule": {"q": q, "k": k, "v": v, "g": g, "beta": beta, "chunk_size": BT},
        "chunk_local_cumsum": {"g": g, "chunk_size": BT},
        "chunk_scaled_dot_kkt_fwd": {"k": k, "g": g, "beta": beta, "chunk_size": BT},
        "solve_tril": {"A": A},
        "recompute_w_u_fwd": {"k": k, "v": v, "beta": beta, "A": A.bfloat16(), "g": g},
        "chunk_gated_delta_rule_fwd_h": {"k": k, "w": w, "u": o, "g": g, "chunk_size": BT},
        "chunk_fwd_o": {"q": q, "k": k, "v": o, "h": h, "g": g, "chunk_size": BT},
    }
    return every[function]


FUNCTIONS = sorted(
    (
        "chunk_gated_delta_rule", "chunk_local_cumsum", "chunk_scaled_dot_kkt_fwd", "solve_tril", "recompute_w_u_fwd",
        "chunk_gated_delta_rule_fwd_h", "chunk_fwd_o",
    )
)  # fmt: skip
TENSORS = [(f, n) for f in FUNCTIONS for n, v in good(f).items() if isinstance(v, torch.Tensor)]


def refused(function: str, arguments: Arguments, *parts: str) -> None:
    """The call raises ValueError, and its message has the function's name and every part."""
    with pytest.raises(ValueError) as caught:
        PACKAGE.function(function)(**arguments)
    message = str(caught.value)
    assert message.startswith(f"{function}: "), message
    for part in parts:
        assert part in message, message


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_good_arguments_are_good(function: str) -> None:
    PACKAGE.function(function)(**good(function))


@pytest.mark.parametrize(("function", "name"), TENSORS)
def test_a_tensor_that_is_something_else(function: str, name: str) -> None:
    refused(function, {**good(function), name: [1.0]}, f"{name} is list", "expected a tensor [")


@pytest.mark.parametrize(("function", "name"), TENSORS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.int32])
def test_a_dtype_that_is_not_supported(function: str, name: str, dtype: torch.dtype) -> None:
    wrong = good(function)[name].to(dtype)
    refused(function, {**good(function), name: wrong}, f"{name} is {dtype}", "allowed: torch.")


@pytest.mark.parametrize(("function", "name"), TENSORS)
def test_a_rank_that_is_wrong(function: str, name: str) -> None:
    refused(function, {**good(function), name: good(function)[name][0]}, f"{name} has shape", "expected [B, ")


def _other_dims() -> list[tuple[str, str, int]]:
    """(function, tensor, axis) for every axis that another tensor or the chunk size has fixed by then."""
    out = []
    for function, name in TENSORS:
        first = next(iter(good(function)))
        if name != first:
            out += [(function, name, axis) for axis in range(2)]  # B and T: every later tensor has them
    return out


@pytest.mark.parametrize(("function", "name", "axis"), _other_dims())
def test_shapes_that_disagree(function: str, name: str, axis: int) -> None:
    arguments = good(function)
    value = arguments[name]
    wrong = torch.cat([value, value], axis)
    refused(function, {**arguments, name: wrong.contiguous()}, f"{name} has ")


@pytest.mark.parametrize(("function", "name"), TENSORS)
def test_a_tensor_on_another_device(function: str, name: str) -> None:
    wrong = good(function)[name].to("meta")
    refused(function, {**good(function), name: wrong}, " is on ")


@pytest.mark.parametrize(("function", "name"), [(f, n) for f, n in TENSORS if n not in ("g", "beta")])
def test_a_stage_wants_contiguous_tensors_and_the_operator_makes_them(function: str, name: str) -> None:
    value = good(function)[name]
    strided = value.repeat_interleave(2, -1)[..., ::2]
    assert not strided.is_contiguous()
    arguments = {**good(function), name: strided}
    if function != "chunk_gated_delta_rule":
        refused(function, arguments, f"{name} isn't contiguous", f"{name}.contiguous()")
        return
    ours, plain = PACKAGE.function(function)(**arguments), PACKAGE.function(function)(**good(function))
    assert torch.equal(ours[0], plain[0])


@pytest.mark.parametrize("function", [f for f in FUNCTIONS if "g" in good(f) and f != "chunk_local_cumsum"])
def test_mixed_dtypes(function: str) -> None:
    arguments = good(function)
    name = next(n for n in list(arguments)[1:] if arguments[n].dtype == torch.bfloat16) if function not in (
        "chunk_scaled_dot_kkt_fwd",
    ) else None  # fmt: skip
    if name is None:
        return  # one tensor of that class: nothing to mix
    refused(
        function, {**arguments, name: arguments[name].half()}, f"{name} is torch.float16; expected torch.bfloat16, as "
    )


OPERATOR = "chunk_gated_delta_rule"
STATE = rand(1, HV, K, V, dtype=torch.float32)
VARLEN: dict[str, tuple[Arguments, tuple[str, ...]]] = {
    "a list": ({"cu_seqlens": [0, T]}, ("cu_seqlens is [0, 40]", "int32 or int64 [N + 1]")),
    "floats": ({"cu_seqlens": cu(0, T).float()}, ("cu_seqlens is torch.float32", "int32 or int64")),
    "two axes": ({"cu_seqlens": cu(0, T)[None]}, ("cu_seqlens is torch.int64 (1, 2)", "[N + 1]")),
    "no sequence": ({"cu_seqlens": cu(0)}, ("cu_seqlens is torch.int64 (1,)", "N at least 1")),
    "a start that is not 0": ({"cu_seqlens": cu(1, T)}, ("cu_seqlens starts at 1; expected 0",)),
    "a fall": ({"cu_seqlens": cu(0, 20, 10, T)}, ("falls from 20 to 10 at entry 2", "nondecreasing")),
    "an end before T": ({"cu_seqlens": cu(0, 30)}, ("cu_seqlens ends at 30; expected T = 40",)),
    "an end after T": ({"cu_seqlens": cu(0, 50)}, ("cu_seqlens ends at 50; expected T = 40",)),
    "another device": ({"cu_seqlens": cu(0, T).to("meta")}, ("cu_seqlens is on meta; expected cpu",)),
    "a host copy of another length": (
        {"cu_seqlens": cu(0, T), "cu_seqlens_cpu": cu(0, 20, T)}, ("cu_seqlens_cpu has 3 entries; expected 2",),
    ),
    "a host copy alone": ({"cu_seqlens_cpu": cu(0, T)}, ("cu_seqlens_cpu is given without cu_seqlens",)),
    "chunk indices of another count": (
        {"cu_seqlens": cu(0, T), "chunk_indices": cu(0, 0)[None]}, ("chunk_indices is", "expected [2, 2]"),
    ),
    "a state of another count": (
        {"cu_seqlens": cu(0, 20, T), "initial_state": STATE}, ("initial_state has N = 1; expected 2",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", VARLEN)
def test_a_varlen_batch_that_is_wrong(what: str) -> None:
    arguments, parts = VARLEN[what]
    refused(OPERATOR, {**good(OPERATOR), **arguments}, *parts)


def test_varlen_with_more_than_one_row() -> None:
    arguments = {n: torch.cat([v, v]) if isinstance(v, torch.Tensor) else v for n, v in good(OPERATOR).items()}
    refused(OPERATOR, {**arguments, "cu_seqlens": cu(0, T)}, "cu_seqlens is given and B = 2", "B = 1")


@pytest.mark.parametrize(("name", "dim", "size"), [("q", "K", 257), ("v", "V", 300), ("q", "K", 0)])
def test_widths_out_of_range(name: str, dim: str, size: int) -> None:
    arguments = good(OPERATOR)
    wrong = rand(B, T, H if dim == "K" else HV, size)
    refused(OPERATOR, {**arguments, name: wrong}, f"{name} has {dim} = {size}; supported: 1 to 256")


def test_value_heads_that_key_heads_do_not_divide() -> None:
    arguments = {**good(OPERATOR), "q": rand(B, T, 3, K), "k": rand(B, T, 3, K)}
    refused(OPERATOR, arguments, "HV = 2", "H = 3", "must be a multiple of H")


@pytest.mark.parametrize("size", [48, 128, 0, True, 32.0, None])
def test_a_chunk_size_that_is_not_supported(size: object) -> None:
    refused(OPERATOR, {**good(OPERATOR), "chunk_size": size}, f"chunk_size is {size!r}; supported: 16, 32, 64")


def test_a_state_in_the_other_layout() -> None:
    wrong = {"initial_state": STATE.mT.contiguous()}
    refused(OPERATOR, {**good(OPERATOR), **wrong}, "initial_state has shape (1, 2, 24, 16)", "expected [N, HV, K, V]")


UNSUPPORTED: list[tuple[str, str, object]] = [
    (OPERATOR, "use_qk_l2norm_in_kernel", True),
    (OPERATOR, "use_beta_sigmoid_in_kernel", True),
    (OPERATOR, "allow_neg_eigval", True),
    (OPERATOR, "cp_context", object()),
    ("chunk_gated_delta_rule_fwd_h", "gk", rand(B, T, HV, K)),
    ("chunk_fwd_o", "g_gamma", rand(HV)),
    ("chunk_local_cumsum", "use_graph", True),
]


@pytest.mark.parametrize(("function", "name", "value"), UNSUPPORTED, ids=[f"{f}.{n}" for f, n, _ in UNSUPPORTED])
def test_what_the_signature_has_and_the_kernels_do_not(function: str, name: str, value: object) -> None:
    refused(function, {**good(function), name: value}, f"{name} is ", "isn't supported")


@pytest.mark.parametrize("function", ["chunk_local_cumsum", "chunk_scaled_dot_kkt_fwd", "solve_tril"])
def test_an_output_dtype_that_is_not_supported(function: str) -> None:
    refused(function, {**good(function), "output_dtype": torch.float64}, "output_dtype is torch.float64", "allowed: ")


@pytest.mark.parametrize("name", ["q", "k", "v", "g", "beta"])
def test_a_gradient_is_refused_and_no_grad_is_not(name: str) -> None:
    arguments = good(OPERATOR)
    arguments[name] = arguments[name].requires_grad_()
    refused(OPERATOR, arguments, f"{name} requires grad", "torch.no_grad()")
    with torch.no_grad():
        PACKAGE.function(OPERATOR)(**arguments)


@pytest.mark.parametrize("name", ["q", "k", "v", "beta"])
def test_a_missing_tensor(name: str) -> None:
    refused(OPERATOR, {**good(OPERATOR), name: None}, f"{name} is missing; expected a tensor [B, T, ")


def test_tensors_on_the_cpu_without_the_interpreter() -> None:
    code = (
        "import torch; from generated.gdn import solve_tril\n"
        "try: solve_tril(torch.zeros(1, 16, 1, 16))\n"
        "except ValueError as error: print(error)"
    )
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert "solve_tril: A is on cpu; expected an NPU or a CUDA GPU" in done.stdout, done.stderr


# ---------------------------------------------------------------- what must work


def finite(value: torch.Tensor) -> bool:
    return bool(torch.isfinite(value.float()).all())


def test_no_rows() -> None:
    arguments = {n: v[:, :0] if isinstance(v, torch.Tensor) else v for n, v in good(OPERATOR).items()}
    o, state = PACKAGE.function(OPERATOR)(**arguments, initial_state=STATE, output_final_state=True)
    assert o.shape == (B, 0, HV, V)
    assert torch.equal(state, STATE)


def test_a_batch_of_empty_sequences() -> None:
    arguments = {n: v[:, :0] if isinstance(v, torch.Tensor) else v for n, v in good(OPERATOR).items()}
    _, state = PACKAGE.function(OPERATOR)(**arguments, cu_seqlens=cu(0, 0, 0), output_final_state=True)
    assert state.shape == (2, HV, K, V)
    assert not state.any()


def test_one_row() -> None:
    arguments = {n: v[:, :1] if isinstance(v, torch.Tensor) else v for n, v in good(OPERATOR).items()}
    assert finite(PACKAGE.function(OPERATOR)(**arguments)[0])


def _reads(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How often a tensor has been read back to the host."""
    count = 0
    real = torch.Tensor.tolist

    def counting(self: torch.Tensor) -> Any:
        nonlocal count
        count += 1
        return real(self)

    monkeypatch.setattr(torch.Tensor, "tolist", counting)
    return lambda: count


def test_a_second_call_reads_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds, reads = cu(0, 7, T), _reads(monkeypatch)
    call = PACKAGE.function(OPERATOR)
    first = call(**good(OPERATOR), cu_seqlens=bounds)[0]
    before = reads()
    second = call(**good(OPERATOR), cu_seqlens=bounds)[0]
    assert before >= 1 and reads() == before
    assert torch.equal(first, second)


def test_a_change_in_place_is_noticed() -> None:
    bounds, call = cu(0, 7, T), PACKAGE.function(OPERATOR)
    call(**good(OPERATOR), cu_seqlens=bounds)
    bounds[1] = 30
    ours = call(**good(OPERATOR), cu_seqlens=bounds)[0]
    assert torch.equal(ours, call(**good(OPERATOR), cu_seqlens=cu(0, 30, T))[0])
    bounds[1] = 50
    refused(OPERATOR, {**good(OPERATOR), "cu_seqlens": bounds}, "falls from 50 to 40")


def test_a_16_bit_state_is_widened() -> None:
    call = PACKAGE.function(OPERATOR)
    half = STATE.bfloat16()
    ours = call(**good(OPERATOR), initial_state=half)[0]
    assert torch.equal(ours, call(**good(OPERATOR), initial_state=half.float())[0])
