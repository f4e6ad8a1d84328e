"""The committed package under the interpreter, and right arguments for each of its functions, to be made wrong."""

from __future__ import annotations

import importlib
import itertools
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from kgen.verify.package import load_package

ROOT = Path(__file__).parents[2]
PACKAGE = load_package(ROOT / "generated" / "gdn")
RUNTIME: Any = importlib.import_module(f"{PACKAGE.module.__name__}._runtime")
OPERATOR = "chunk_gated_delta_rule"

SIZES = {"B": 2, "N": 2, "T": 20, "NT": 2, "H": 2, "HV": 4, "K": 24, "V": 40, "BT": 16}
GATES = ("g", "beta")  # [B, T, HV] of any strides and any float dtype: the first thing done is to transpose them
SHAPES: dict[str, dict[str, str]] = {
    "chunk_local_cumsum": {"g": "B T HV"},
    "chunk_scaled_dot_kkt_fwd": {"k": "B T H K", "g": "B T HV", "beta": "B T HV"},
    "solve_tril": {"A": "B T HV BT"},
    "recompute_w_u_fwd": {"k": "B T H K", "v": "B T HV V", "beta": "B T HV", "A": "B T HV BT", "g": "B T HV"},
    "chunk_gated_delta_rule_fwd_h": {
        "k": "B T H K", "w": "B T HV K", "u": "B T HV V", "g": "B T HV", "initial_state": "N HV K V",
    },
    "chunk_fwd_o": {"q": "B T H K", "k": "B T H K", "v": "B T HV V", "h": "B NT HV K V", "g": "B T HV"},
    OPERATOR: {
        "q": "B T H K", "k": "B T H K", "v": "B T HV V", "g": "B T HV", "beta": "B T HV", "initial_state": "N HV K V",
    },
}  # fmt: skip
OPTIONAL = {(name, p) for name in SHAPES for p in ("g", "initial_state")} - {("chunk_local_cumsum", "g")}
PARAMETERS = [(name, p) for name, shapes in SHAPES.items() for p in shapes]
TAKES_CHUNK_SIZE = [name for name in SHAPES if name not in ("solve_tril", "recompute_w_u_fwd")]


def valid(function: str, **sizes: int) -> dict[str, Any]:
    """Arguments that the function takes; sizes that differ from SIZES may be given."""
    known = {**SIZES, **sizes}
    generator = torch.Generator().manual_seed(7)
    arguments: dict[str, Any] = {}
    for name, dims in SHAPES[function].items():
        value = torch.rand([known[d] for d in dims.split()], generator=generator) * 0.1
        arguments[name] = -value if name == "g" else value
    if function in TAKES_CHUNK_SIZE:
        arguments["chunk_size"] = known["BT"]
    return arguments


def packed(function: str, *bounds: int, dtype: torch.dtype = torch.int64) -> dict[str, Any]:
    """The same for a varlen batch, `cu_seqlens` being `bounds`."""
    chunks = sum(-(-(b - a) // SIZES["BT"]) for a, b in itertools.pairwise(bounds))
    arguments = valid(function, B=1, T=bounds[-1], N=len(bounds) - 1, NT=chunks)
    return {**arguments, "cu_seqlens": torch.tensor(bounds, dtype=dtype)}


def refusal(function: str, arguments: dict[str, Any]) -> str:
    """The message of the error that a call must end in, before anything is launched."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RUNTIME.Arguments, "launch", lambda *_: pytest.fail("launched before all was checked"))
        with pytest.raises(ValueError) as caught:
            PACKAGE.function(function)(**arguments)
    message = str(caught.value)
    assert message.startswith(f"{function}: "), message
    assert re.search(r"expected|supported|allowed|must be|leave it|pass|pack|call", message), f"no next step: {message}"
    return message
