"""Wrong tensors, sizes and options: one error each, which names function, argument, what it is and what is allowed."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
import torch

from tests.errors.generated_gdn import (
    GATES,
    OPERATOR,
    OPTIONAL,
    PACKAGE,
    PARAMETERS,
    ROOT,
    SHAPES,
    SIZES,
    TAKES_CHUNK_SIZE,
    packed,
    refusal,
    valid,
)  # fmt: skip

Stage = pytest.mark.parametrize("function", SHAPES)
Each = pytest.mark.parametrize(("function", "name"), PARAMETERS)
EachDim = pytest.mark.parametrize(
    ("function", "name", "place"),
    [(f, p, i) for f, p in PARAMETERS for i in range(len(SHAPES[f][p].split()))],
)
STATE_OR_GATE = (*GATES, "initial_state")


def named(name: str, message: str) -> bool:
    """Whether a message names an argument."""
    return re.search(rf"\b{name}\b", message) is not None


@Stage
def test_right_arguments_pass(function: str) -> None:
    result = PACKAGE.function(function)(**valid(function))
    for tensor in result if isinstance(result, tuple) else (result,):
        assert tensor is None or bool(torch.isfinite(tensor).all())


@Each
@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.bool, torch.complex64])
def test_a_dtype_that_no_kernel_takes(function: str, name: str, dtype: torch.dtype) -> None:
    arguments = valid(function)
    message = refusal(function, {**arguments, name: arguments[name].to(dtype)})
    assert f"{name} is {dtype}; allowed: torch." in message


@Each
def test_mixed_dtypes(function: str, name: str) -> None:
    own = [p for p in SHAPES[function] if p not in STATE_OR_GATE]
    if name not in own or len(own) < 2:
        return
    arguments = valid(function)
    message = refusal(function, {**arguments, name: arguments[name].half()})
    assert all(named(p, message) for p in (name, "float16", "float32"))
    assert "as" in message and any(named(p, message) for p in own if p != name)


@Each
@pytest.mark.parametrize("extra", [True, False])
def test_a_wrong_rank(function: str, name: str, extra: bool) -> None:
    arguments = valid(function)
    value = arguments[name]
    message = refusal(function, {**arguments, name: value[None] if extra else value[0]})
    assert f"{name} has shape" in message and "expected [" in message


@EachDim
def test_a_dim_that_disagrees(function: str, name: str, place: int) -> None:
    dim = SHAPES[function][name].split()[place]
    shared = sum(dim in dims.split() for dims in SHAPES[function].values())
    if shared == 1 and dim not in ("H", "BT", "N", "NT"):
        return  # nothing to disagree with
    arguments = valid(function)
    shape = list(arguments[name].shape)
    shape[place] += 1
    message = refusal(function, {**arguments, name: torch.zeros(shape)})
    assert named(name, message) and f"{dim} = {SIZES[dim] + 1}" in message, message


@Each
def test_another_device(function: str, name: str) -> None:
    arguments = valid(function)
    message = refusal(function, {**arguments, name: arguments[name].to("meta")})
    assert f"{name} is on meta" in message
    if name != next(iter(SHAPES[function])):
        assert "is on cpu; all must be on one device" in message


@Stage
def test_a_device_without_kernels(function: str) -> None:
    arguments = {n: v.to("meta") if isinstance(v, torch.Tensor) else v for n, v in valid(function).items()}
    assert "is on meta; expected an NPU or a CUDA GPU" in refusal(function, arguments)


def test_the_cpu_without_the_interpreter() -> None:
    script = (
        "import torch, generated.gdn as gdn\n"
        "x, b = torch.zeros(1, 4, 1, 8), torch.zeros(1, 4, 1)\n"
        "gdn.chunk_gated_delta_rule(x, x, x, None, b)\n"
    )
    environment = {n: v for n, v in os.environ.items() if n != "TRITON_INTERPRET"} | {"PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    expected = (
        "ValueError: chunk_gated_delta_rule: q is on cpu; expected an NPU or a CUDA GPU (the CPU only with TRITON_"
    )
    assert expected in result.stderr


@Each
def test_strides(function: str, name: str) -> None:
    """A stage refuses them, except of gates; the operator copies. Either way nothing wrong comes out."""
    arguments = valid(function)
    odd = {**arguments, name: arguments[name].transpose(-1, -2).contiguous().transpose(-1, -2)}
    assert not odd[name].is_contiguous()
    if function != OPERATOR and name not in GATES:
        message = refusal(function, odd)
        assert f"{name} isn't contiguous" in message and f"pass {name}.contiguous()" in message
        return
    results, expected = (PACKAGE.function(function)(**a) for a in (odd, arguments))
    for ours, theirs in zip(*(r if isinstance(r, tuple) else (r,) for r in (results, expected)), strict=True):
        assert ours is theirs or torch.equal(ours, theirs)


def test_expanded_inputs_of_the_operator() -> None:
    arguments = valid(OPERATOR)
    wide = {**arguments, "v": arguments["v"][..., :1].expand_as(arguments["v"])}
    ours, _ = PACKAGE.function(OPERATOR)(**wide)
    theirs, _ = PACKAGE.function(OPERATOR)(**{**wide, "v": wide["v"].contiguous()})
    assert torch.equal(ours, theirs)


@Each
def test_not_a_tensor(function: str, name: str) -> None:
    arguments = valid(function)
    message = refusal(function, {**arguments, name: arguments[name].tolist()})
    assert f"{name} is list; expected a tensor [" in message


@Each
def test_none(function: str, name: str) -> None:
    arguments = {**valid(function), name: None}
    if (function, name) in OPTIONAL:
        PACKAGE.function(function)(**arguments)
    else:
        assert f"{name} is missing; expected a tensor [" in refusal(function, arguments)


@EachDim
def test_a_width_out_of_range(function: str, name: str, place: int) -> None:
    dim = SHAPES[function][name].split()[place]
    if dim not in ("K", "V"):
        return
    for size in (0, 257):
        message = refusal(function, valid(function, **{dim: size}))
        assert f"has {dim} = {size}; supported: 1 to 256" in message


@Stage
def test_heads_that_dont_divide(function: str) -> None:
    if not any(" H " in dims for dims in SHAPES[function].values()):
        return
    for heads, value_heads in ((3, 4), (4, 2)):
        message = refusal(function, valid(function, H=heads, HV=value_heads))
        assert f"HV = {value_heads}" in message and f"H = {heads}" in message and "must be a multiple of" in message


@Stage
@pytest.mark.parametrize("dim", ["H", "HV"])
def test_no_heads(function: str, dim: str) -> None:
    if any(dim in dims.split() for dims in SHAPES[function].values()):
        assert f"has {dim} = 0; expected at least 1" in refusal(function, valid(function, **{dim: 0}))


@pytest.mark.parametrize("function", TAKES_CHUNK_SIZE)
@pytest.mark.parametrize("size", [48, 128, 0, -16, 64.0, True, "64", None])
def test_a_chunk_size_that_isnt_built(function: str, size: object) -> None:
    message = refusal(function, {**valid(function), "chunk_size": size})
    assert f"chunk_size is {size!r}; supported: 16, 32, 64" in message


@pytest.mark.parametrize("function", ["solve_tril", "recompute_w_u_fwd"])
@pytest.mark.parametrize("size", [0, 48, 128])
def test_a_chunk_size_shown_by_a_tensor(function: str, size: int) -> None:
    assert f"A has BT = {size}; supported: 16, 32, 64" in refusal(function, valid(function, BT=size))


def test_two_chunk_sizes() -> None:
    message = refusal("chunk_fwd_o", {**valid("chunk_fwd_o"), "chunk_size": 32})
    assert "h has NT = 2; expected 1, as 20 rows in chunks of 32 has" in message


@pytest.mark.parametrize(
    ("function", "name", "default"),
    [
        ("chunk_local_cumsum", "use_graph", False),
        ("chunk_gated_delta_rule_fwd_h", "gk", None),
        ("chunk_fwd_o", "g_gamma", None),
        (OPERATOR, "use_qk_l2norm_in_kernel", False),
        (OPERATOR, "use_beta_sigmoid_in_kernel", False),
        (OPERATOR, "allow_neg_eigval", False),
        (OPERATOR, "cp_context", None),
    ],
)
def test_an_option_that_isnt_built(function: str, name: str, default: object) -> None:
    for value, text in ((True, "True"), (torch.zeros(2), "a tensor"), ("yes", "'yes'")):
        message = refusal(function, {**valid(function), name: value})
        assert f"{name} is {text}; it isn't supported, leave it {default!r}" in message
    for value in (default, None):
        PACKAGE.function(function)(**valid(function), **{name: value})


@pytest.mark.parametrize("function", ["chunk_local_cumsum", "chunk_scaled_dot_kkt_fwd", "solve_tril"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, "float32"])
def test_an_output_dtype_that_isnt_built(function: str, dtype: object) -> None:
    message = refusal(function, {**valid(function), "output_dtype": dtype})
    assert f"output_dtype is {dtype}; allowed: " in message and "torch.float32" in message


@pytest.mark.parametrize("function", ["chunk_local_cumsum", "chunk_fwd_o", OPERATOR])
@pytest.mark.parametrize("scale", ["1", float("nan"), float("inf"), True, [1.0]])
def test_a_scale_that_is_no_number(function: str, scale: object) -> None:
    message = refusal(function, {**valid(function), "scale": scale})
    assert f"scale is {scale!r}; expected a finite number or None" in message


def test_a_state_in_the_other_layout() -> None:
    message = refusal(OPERATOR, {**valid(OPERATOR), "state_v_first": True})
    assert "initial_state has shape (2, 4, 24, 40)" in message and "expected [N, HV, V, K] with V = 40" in message


def test_a_16_bit_state_is_widened() -> None:
    state = valid(OPERATOR)["initial_state"].bfloat16()
    ours, theirs = (
        PACKAGE.function(OPERATOR)(**{**valid(OPERATOR), "initial_state": s}) for s in (state, state.float())
    )
    assert torch.equal(ours[0], theirs[0])


@pytest.mark.parametrize("name", SHAPES[OPERATOR])
def test_gradients(name: str) -> None:
    arguments = valid(OPERATOR)
    arguments[name].requires_grad_()
    message = refusal(OPERATOR, arguments)
    assert f"{name} requires grad and there is no backward yet; call it under torch.no_grad()" in message
    with torch.no_grad():
        o, _ = PACKAGE.function(OPERATOR)(**arguments)
    assert not o.requires_grad


@Stage
def test_varlen_in_a_batch(function: str) -> None:
    arguments = {**valid(function), "cu_seqlens": torch.tensor([0, 20])}
    assert "cu_seqlens is given and B = 2; pack the sequences into one row, B = 1" in refusal(function, arguments)


@Stage
def test_states_of_another_number_of_sequences(function: str) -> None:
    if "initial_state" in SHAPES[function]:
        arguments = {**packed(function, 0, 7, 20), "cu_seqlens": torch.tensor([0, 7, 7, 20])}
        assert "initial_state has N = 2; expected 3, as cu_seqlens has" in refusal(function, arguments)
