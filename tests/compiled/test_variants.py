"""A pairwise cover of the gated delta rule's variants through the real compiler: every one fits as it is.

All variants were compiled once: benchmarks/results/compile_all.json.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kgen.ir.nodes import Kernel
from kgen.pipeline import Sources, package, planned, read
from kgen.plan.record import Plan
from kgen.search.compile_rows import compile_rows
from kgen.search.variants import Variant, cover, probe, variants
from kgen.virtual import Toolchain

ROOT = Path(__file__).resolve().parent.parent.parent
SPEC = ROOT / "specs" / "gdn.yaml"
Gdn = tuple[Sources, dict[str, Kernel], Plan]
COMPILED = ("Ascend910B2", "Ascend910_9391")


@pytest.fixture(scope="module")
def gdn() -> Gdn:
    sources = read(SPEC)
    return sources, *planned(sources)


def every(gdn: Gdn, target: str) -> list[Variant]:
    sources, kernels, plan = gdn
    return variants(sources.loaded.spec, kernels, plan, target)


def compiled(gdn: Gdn, chosen: list[Variant]) -> list[dict[str, Any]]:
    sources, kernels, plan = gdn
    return compile_rows(package(sources, kernels, plan), chosen, sources.targets, None, jobs=2, cache=False)


def test_names_tell_variants_apart(gdn: Gdn) -> None:
    chosen = every(gdn, "Ascend910B2")
    assert len({(v.kernel, v.name) for v in chosen}) == len(chosen)


def test_the_cover_holds_every_pair_that_occurs(gdn: Gdn) -> None:
    import itertools

    chosen = every(gdn, "Ascend910B2")
    small = cover(chosen)
    assert len(small) < len(chosen) / 10

    def pairs(rows: list[Variant]) -> set[tuple[object, ...]]:
        return {(v.kernel, *p) for v in rows for p in itertools.combinations(v.factors, 2)}

    assert pairs(small) == pairs(chosen)
    assert small == cover(chosen)  # deterministic


def test_every_variant_was_compiled_and_recorded(gdn: Gdn) -> None:
    record = json.loads((ROOT / "benchmarks" / "results" / "compile_all.json").read_text())
    for target in COMPILED:
        assert record["targets"][target]["variants"] == len(every(gdn, target))
        assert record["targets"][target]["fits"] == len(every(gdn, target))


def test_a_dtype_that_no_call_chooses_is_compiled_as_it_is(gdn: Gdn) -> None:
    sources, kernels, plan = gdn
    spec = sources.loaded.spec
    kernel = kernels["chunk_scaled_dot_kkt"]
    entry = next(e for e in plan.entries if e.kernel == kernel.name and e.bits == 16)
    for dtype, printed in (("int32", "*i32"), ("int64", "*i64"), ("narrow", "*bf16")):
        beta = spec.tensors["beta"].model_copy(update={"dtype": dtype})
        dtypes = {**spec.dtypes, "narrow": ("bf16",)}
        changed = spec.model_copy(update={"tensors": {**spec.tensors, "beta": beta}, "dtypes": dtypes})
        found = probe(changed, kernel, entry, {})
        assert dict(found.signature)["beta"] == printed
        assert dict(probe(spec, kernel, entry, {}).signature)["beta"] == "*fp32"


@pytest.mark.toolchain
def test_a_cover_fits_on_910b2(gdn: Gdn, toolchain: Toolchain) -> None:
    rows = compiled(gdn, cover(every(gdn, "Ascend910B2")))
    assert [f"{r['kernel']} {r['variant']}: {r['message']}" for r in rows if r["verdict"] != "fits"] == []
    capacity = {"ub_bytes": 196_608, "l1_bytes": 524_288, "l0c_bytes": 131_072}
    assert all(0 <= (r[name] or 0) <= limit for r in rows for name, limit in capacity.items())


@pytest.mark.toolchain
def test_a_thinner_cover_fits_on_910_9391(gdn: Gdn, toolchain: Toolchain) -> None:
    rows = compiled(gdn, cover(every(gdn, "Ascend910_9391"))[::3])
    assert [f"{r['kernel']} {r['variant']}: {r['message']}" for r in rows if r["verdict"] != "fits"] == []


@pytest.mark.toolchain
def test_rows_have_the_fields_others_rely_on(gdn: Gdn, toolchain: Toolchain) -> None:
    row = compiled(gdn, [v for v in every(gdn, "Ascend910B2") if v.kernel == "chunk_fwd_o"][:1])[0]
    fields = {
        "kernel", "variant", "target", "dtype", "tiles", "verdict", "ub_bytes", "l1_bytes", "l0c_bytes",
        "ub_predicted_bytes", "calls", "idle_vector_core", "modelled_us",
    }  # fmt: skip
    assert fields <= set(row)
    assert set(row["calls"]) == {"vector", "mte2", "mte3", "nd2nz", "mma", "fixpipe", "barrier", "sync"}
    assert row["calls"]["mma"] > 0
    json.dumps(row)


@pytest.mark.toolchain
def test_a_tile_that_is_too_large_is_found_out(gdn: Gdn, toolchain: Toolchain) -> None:
    """The verdict isn't a formality: the same kernel with tiles that the plan refuses does not fit."""
    sources, kernels, plan = gdn
    widest = [e for e in plan.entries if e.chunk == 64 and e.widths == {"K": 256, "V": 256}]
    entries = tuple(e.model_copy(update={"tiles": {"BK": 256, "BV": 256}}) for e in widest if e.kernel == "chunk_fwd_o")
    wide = plan.model_copy(update={"entries": entries})
    chosen = variants(sources.loaded.spec, kernels, wide, "Ascend910B2", "chunk_fwd_o")
    rows = compiled((sources, kernels, plan), [v for v in chosen if v.dtype == "bf16" and v.mode == "varlen"][:1])
    assert [r["verdict"] for r in rows] == ["degraded"]
