"""Each pass is needed: without it the verifier objects, or the emitted kernel shows what the pass prevents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from kgen.emit.statements import Line, kernel_lines
from kgen.errors import KgenBug
from kgen.ir.nodes import Kernel
from kgen.ir.parse import parse_kernel
from kgen.ir.show import show
from kgen.ir.verify import GONE, STAGES, Verifier
from kgen.passes import PASSES, Context

from .conftest import GDN, ROOT

NAMES = [p.__name__ for p in PASSES]


def parsed(name: str) -> Kernel:
    path = GDN.kernels[name].program.partition(":")[0]
    return parse_kernel(GDN, name, (ROOT / "specs" / path).read_text(encoding="utf-8"), path)


def without(name: str, kernel: str, verified: bool = True) -> Kernel:
    """A gdn kernel through the whole column less one pass; the pass's own place in it is still verified."""
    context, verifier, k = Context(GDN, kernel), Verifier(), parsed(kernel)
    for run in PASSES:
        if run.__name__ != name:
            k = run(k, context)
        if verified:
            verifier.check(k, run.__name__)
    return k


def text(kernel: Kernel) -> str:
    """The emitted statements, one a line."""
    return "\n".join(_flat(kernel_lines(kernel, "p.py", "")))


def _flat(lines: tuple[Line, ...]) -> list[str]:
    out = []
    for line in lines:
        out.append(" ".join(line.fields.values()))
        out += _flat(line.body) + _flat(line.orelse)
    return out


CAUGHT = {  # pass: a kernel that needs it, what the verifier says when it is gone
    "whole_slabs": ("chunk_delta_h", "slab"),
    "choices": ("chunk_delta_h", "IfExp in h0[n, :, bv] if USE_H0 else zeros(K, bv): choices leaves none"),
    "exponent_base": ("chunk_scaled_dot_kkt", "exp2()"),
    "slices": ("solve_tril_diag", "slices leaves none"),
    "loads": ("recompute_w_u", "read inside an expression"),
    "widen": ("recompute_w_u", "16-bit arithmetic"),
    "dot_operands": ("recompute_w_u", "dot of two types"),
    "masks": ("chunk_fwd_o", "tril()"),
    "core_grid": ("chunk_local_cumsum", "For: core_grid leaves none"),
    "addresses": ("chunk_local_cumsum", "addresses leaves none"),
    "tails": ("chunk_local_cumsum", "K303"),
    "nan_rule": ("chunk_fwd_o", "K605"),
    "signature": ("chunk_local_cumsum", "has no value on some path"),
}


@pytest.mark.parametrize("name", CAUGHT)
def test_the_verifier_misses_the_pass(name: str) -> None:
    kernel, message = CAUGHT[name]
    with pytest.raises(KgenBug) as caught:
        without(name, kernel)
    assert message in str(caught.value)
    assert kernel in str(caught.value) and f"after {name}" in str(caught.value)


@dataclass(frozen=True)
class Fault:
    """What emitted text lacks or shows once a pass is deleted."""

    kernel: str
    lost: str
    shown: str = ""


FAULTS = {
    "clip_exponents": Fault(
        "chunk_fwd_o", "exp(tl.minimum(b_g[:, None] - b_g[None, :], 0.0", "exp(b_g[:, None] - b_g[None, :])"
    ),
    "bare_sums": Fault("chunk_fwd_o", "b_acc - tl.dot((-tl.where(m_lower", "V, (b_acc + tl.dot(tl.where(m_lower"),
    "left_copies": Fault("chunk_fwd_o", "b_q_left", "tl.dot(b_q, b_h,"),
    "tails": Fault("chunk_fwd_o", "TAIL_MODE != 0", "BT, BK, False, BLOCK_PTR"),
    "nan_rule": Fault("chunk_fwd_o", "propagate_nan", "tl.maximum(o_t[:, None] - o_t[None, :] + 1.0, 0.0)"),
    "exponent_base": Fault("chunk_fwd_o", "LN2", "tl.exp2("),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_emitted_kernel_shows_the_fault(name: str) -> None:
    fault = FAULTS[name]
    whole, faulty = text(without("", fault.kernel)), text(without(name, fault.kernel, verified=False))
    assert fault.lost in whole and fault.lost not in faulty
    assert fault.shown in faulty and fault.shown not in whole


def test_each_pass_is_missed_one_way_or_the_other() -> None:
    assert {*CAUGHT, *FAULTS} == set(NAMES)


def test_the_verifier_knows_every_pass_in_order() -> None:
    assert ("parse", *NAMES) == STAGES
    assert {p for p, _, _ in GONE} <= set(NAMES)


PURE = [n for n in NAMES if n not in ("loads", "masks")]  # loads names again what is named; masks blank what is blanked


@pytest.mark.parametrize("name", PURE)
@pytest.mark.parametrize("kernel", list(GDN.kernels))
def test_a_second_run_returns_the_same_object(name: str, kernel: str) -> None:
    context, k = Context(GDN, kernel), parsed(kernel)
    for run in PASSES:
        k = run(k, context)
        if run.__name__ == name:
            assert run(k, context) is k


@pytest.mark.parametrize("kernel", list(GDN.kernels))
def test_passes_are_deterministic(kernel: str) -> None:
    def shown() -> list[str]:
        context, k = Context(GDN, kernel), parsed(kernel)
        out = []
        for run in PASSES:
            k = run(k, context)
            out.append(show(k))
        return out

    assert shown() == shown()


def test_no_pass_is_left_out_of_the_column() -> None:
    files = {p.stem for p in (ROOT / "kgen" / "passes").glob("*.py")}
    helpers = {"__init__", "context", "facts", "names", "refuse", "slice_edges"}
    one_file: Callable[[str], str] = lambda n: "exponents" if n in ("clip_exponents", "exponent_base") else n  # noqa: E731
    assert files - helpers == {one_file(n) for n in NAMES}
