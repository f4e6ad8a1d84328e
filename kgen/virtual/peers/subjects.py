"""What is captured: host programs by name, called with tensors that nobody fills. Runs in the peers' environment.

- `fla`: an operator of fla-core through its public function; its Ascend wrappers take it.
- `package`: the same operator of a package that kgen generated, from its folder.
- `call`: one function of fla-core with a published measurement, with what is forced about it.
"""

# mypy: disable-error-code="import-untyped, import-not-found, attr-defined, no-any-return"

import importlib
import importlib.util
import itertools
import os
import sys
from collections.abc import Callable
from typing import Any

import torch

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_hosts: set[str] = set()
_packages = itertools.count()


def is_host(path: str) -> bool:
    """Whether a source file belongs to a captured host program."""
    return any(path.startswith(folder) for folder in _hosts)


def prepare(request: dict[str, Any]) -> Callable[[], object]:
    """Import a subject and make its arguments; the result makes the call."""
    if request["subject"] == "package":
        module = _package(request["path"])
        return _operator(getattr(module, request["operator"]), request)
    _fla()
    if request["subject"] == "fla":
        return _operator(getattr(importlib.import_module(OPERATORS[request["operator"]]), request["operator"]), request)
    return CALLS[request["name"]](**request.get("arguments", {}))


OPERATORS = {"chunk_gated_delta_rule": "fla.ops.gated_delta_rule"}


def _fla() -> None:
    """Import fla-core as on an NPU: its backends decline other devices, which the stand-in is."""
    from fla import backends

    if getattr(backends.BaseBackend, "_kgen_patched", False):
        return
    _hosts.add(os.path.dirname(importlib.import_module("fla").__file__ or "") + os.sep)
    verify = backends.BaseBackend.verify

    def accept(self: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        ok, reason = verify(self, name, *args, **kwargs)
        return (True, None) if not ok and reason and "device is not NPU" in reason else (ok, reason)

    backends.BaseBackend.verify = accept
    backends.BaseBackend._kgen_patched = True


def _package(path: str) -> Any:
    """A generated package from its folder, whose launchers take the CPU for the NPU."""
    name = f"_kgen_captured_{next(_packages)}"
    spec = importlib.util.spec_from_file_location(
        name, os.path.join(path, "__init__.py"), submodule_search_locations=[path]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    _hosts.add(os.path.abspath(path) + os.sep)
    runtime = sys.modules[f"{name}._runtime"]
    device = importlib.import_module("__main__").Device
    runtime.target_of = lambda _device: runtime.known_target(device.target)
    runtime.cores = lambda _device, bound: device.cores["num_aicore" if bound == "cube" else "num_vectorcore"]
    return module


def _operator(function: Callable[..., Any], request: dict[str, Any]) -> Callable[[], object]:
    """The gated delta rule at a shape: q, k [B, T, H, K]; v [B, T, HV, V]; g, beta [B, T, HV]; states [N, HV, K, V]."""
    s, dtype = request["shape"], DTYPES[request["dtype"]]
    both = request["direction"] != "fwd"
    lengths = request.get("lengths")

    def empty(*shape: int, kind: torch.dtype = dtype) -> torch.Tensor:
        return torch.empty(*shape, dtype=kind).requires_grad_(both)

    B, T, H, HV, K, V = (s[n] for n in ("B", "T", "H", "HV", "K", "V"))
    cu = None if lengths is None else torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int64)
    count = B if lengths is None else len(lengths)
    inputs = {
        "q": empty(B, T, H, K), "k": empty(B, T, H, K), "v": empty(B, T, HV, V),
        "g": empty(B, T, HV, kind=torch.float32) if request.get("gate", True) else None,
        "beta": empty(B, T, HV),
        "initial_state": empty(count, HV, K, V, kind=torch.float32) if request.get("initial_state") else None,
    }  # fmt: skip

    def run() -> None:
        with torch.set_grad_enabled(both):
            o, ht = function(
                **inputs, output_final_state=bool(request.get("final_state")), cu_seqlens=cu, scale=K**-0.5
            )[:2]
            if both:
                outputs = [x for x in (o, ht) if x is not None and x.requires_grad]
                torch.autograd.backward(outputs, [torch.empty_like(x) for x in outputs])

    return run


# ---------------------------------------------------------------- functions with a published measurement


def _conv(
    B: int,
    T: int,
    D: int,
    W: int,
    direction: str,
    activation: str = "silu",
    one_launch: bool = False,
    dtype: str = "bf16",
) -> Callable[[], object]:
    """causal_conv1d with bias. `one_launch`: the backward as a single launch that finds tails at run time."""
    from fla.modules.causal_conv1d import causal_conv1d

    both = direction == "bwd"
    x, w, b = (torch.empty(*shape, dtype=DTYPES[dtype]).requires_grad_(both) for shape in ((B, T, D), (D, W), (D,)))

    def run() -> None:
        y = causal_conv1d(x, weight=w, bias=b, activation=activation, backend="triton")
        y = y[0] if isinstance(y, tuple) else y
        if both:
            with _forced_tail_mode() if one_launch else _nothing():
                y.backward(torch.empty_like(y))

    return run


class _nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_error: object) -> None: ...


class _forced_tail_mode:
    """The backward's launches made one: every chunk with the tail mode that decides at run time."""

    def __enter__(self) -> None:
        from triton.runtime.jit import JITFunction

        self.run = noted = JITFunction.run
        self.jit = JITFunction

        def forced(kernel: Any, *args: Any, grid: Any, **kwargs: Any) -> None:
            if kwargs.get("TAIL_MODE") == 1:
                return None
            if kwargs.get("TAIL_MODE") == 0:
                kwargs.update(TAIL_MODE=2, NUM_CHKS=kwargs["NUM_CHKS"] + kwargs["B"], NT_STRIDE=kwargs["NT_STRIDE"] + 1)
            return noted(kernel, *args, grid=grid, **kwargs)

        JITFunction.run = forced

    def __exit__(self, *_error: object) -> None:
        self.jit.run = self.run


def _state_backward(B: int, T: int, H: int, D: int, BV: int | None = None) -> Callable[[], object]:
    """chunk_gated_delta_rule_bwd_dhu in bf16 with K = V = D; `BV` forces the width of the state's slabs."""
    from fla.ops.common.backends.triton_ascend import chunk_delta_h
    from fla.ops.common.chunk_delta_h import chunk_gated_delta_rule_bwd_dhu

    q, k, w, do, dv = (torch.empty(B, T, H, D, dtype=torch.bfloat16) for _ in range(5))
    g = torch.empty(B, T, H, dtype=torch.float32)

    def run() -> None:
        chosen = chunk_delta_h._select_bwd_dhu_tiles
        if BV is not None:
            chunk_delta_h._select_bwd_dhu_tiles = lambda *_args, **_kwargs: (64, BV)
        try:
            chunk_gated_delta_rule_bwd_dhu(q=q, k=k, w=w, g=g, h0=None, dht=None, do=do, dv=dv, scale=1.0)
        finally:
            chunk_delta_h._select_bwd_dhu_tiles = chosen

    return run


def _kda(
    B: int, T: int, H: int, HV: int, K: int, V: int, lengths: list[int] | None = None, dtype: str = "bf16"
) -> Callable[[], object]:
    """chunk_kda with its gate, forward and backward."""
    from fla.ops.kda import chunk_kda

    def empty(*shape: int, kind: torch.dtype = DTYPES[dtype]) -> torch.Tensor:
        return torch.empty(*shape, dtype=kind).requires_grad_()

    cu = None if lengths is None else torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int64)
    count = B if lengths is None else len(lengths)

    def run() -> None:
        o, ht = chunk_kda(
            empty(B, T, H, K), empty(B, T, H, K), empty(B, T, HV, V), empty(B, T, HV, K), empty(B, T, HV),
            scale=K**-0.5, initial_state=empty(count, HV, K, V, kind=torch.float32), output_final_state=True,
            use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, A_log=empty(HV, kind=torch.float32),
            dt_bias=empty(HV * K, kind=torch.float32), cu_seqlens=cu,
        )[:2]  # fmt: skip
        torch.autograd.backward([o, ht], [torch.empty_like(o), torch.empty_like(ht)])

    return run


def _norm(T: int, D: int, kind: str, dtype: str = "bf16") -> Callable[[], object]:
    """l2norm, rms_norm or layer_norm, forward and backward."""
    x, weight, bias = (torch.empty(*shape, dtype=DTYPES[dtype]) for shape in ((T, D), (D,), (D,)))

    def run() -> None:
        if kind == "l2norm":
            from fla.modules.l2norm import l2norm_bwd, l2norm_fwd

            y, rstd = l2norm_fwd(x)[:2]
            l2norm_bwd(y, rstd, torch.empty_like(x))
            return
        from fla.modules.layernorm import layer_norm_bwd, layer_norm_fwd

        rms = kind == "rms_norm"
        _, mean, rstd, _ = layer_norm_fwd(x, weight, None if rms else bias, eps=1e-5, is_rms_norm=rms, num_groups=1)
        layer_norm_bwd(torch.empty_like(x), x, weight, None if rms else bias, mean, rstd, is_rms_norm=rms, num_groups=1)

    return run


CALLS: dict[str, Callable[..., Callable[[], object]]] = {
    "causal_conv1d": _conv, "chunk_gated_delta_rule_bwd_dhu": _state_backward, "kda": _kda, "norm": _norm,
}  # fmt: skip
