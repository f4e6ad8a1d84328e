"""The memory expressions: S is never below P, trees evaluate like sympy, printed source evaluates like trees."""

from __future__ import annotations

from pathlib import Path

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from kgen.ir.nodes import Kernel
from kgen.pipeline import lowered, read
from kgen.plan.choose import placement_of
from kgen.plan.peak import Peak, peak, symbol, tree, trees
from kgen.plan.record import check_tree, tree_source, tree_value

SPEC = Path(__file__).resolve().parent.parent.parent / "specs" / "gdn.yaml"
SOURCES = read(SPEC)
KERNELS: dict[str, Kernel] = lowered(SOURCES)
PLACEMENT = placement_of(SOURCES.targets)
PEAKS: dict[tuple[str, int], Peak] = {(n, w): peak(k, PLACEMENT, w) for n, k in KERNELS.items() for w in (2, 4)}
SIZES = st.fixed_dictionaries({n: st.sampled_from([16, 32, 48, 64, 96, 128, 256]) for n in ("BT", "BK", "BV")})
NAMES = ("ub_sum", "ub_peak", "l1_sum", "l1", "l0c_sum", "l0c")


@given(SIZES, st.sampled_from(sorted(PEAKS)))
def test_side_by_side_is_never_less_than_the_largest_live_sum(sizes: dict[str, int], key: tuple[str, int]) -> None:
    t = trees(PEAKS[key])
    for total, live in ((t.ub_sum, t.ub), (t.l1_sum, t.l1), (t.l0c_sum, t.l0c)):
        assert tree_value(total, sizes) >= tree_value(live, sizes) >= 0


@given(SIZES, st.sampled_from(sorted(PEAKS)), st.sampled_from(NAMES))
def test_trees_and_source_evaluate_like_sympy(sizes: dict[str, int], key: tuple[str, int], name: str) -> None:
    expression = getattr(PEAKS[key], name)
    plain = tree(expression)
    check_tree(plain, SPEC, "expression")
    exact = sympy.sympify(expression).subs({symbol(n): v for n, v in sizes.items()})
    value = tree_value(plain, sizes)
    assert exact <= value <= exact + 8  # each half-size term is rounded up
    assert eval(tree_source(plain), {"max": max, "min": min}, dict(sizes)) == value


@given(SIZES, st.sampled_from(sorted(PEAKS)))
def test_a_larger_tile_never_takes_less(sizes: dict[str, int], key: tuple[str, int]) -> None:
    t = trees(PEAKS[key])
    for name, size in sizes.items():
        wider = {**sizes, name: size * 2}
        assert tree_value(t.ub, wider) >= tree_value(t.ub, sizes)


@pytest.mark.parametrize("key", sorted(PEAKS), ids=str)
def test_kernels_with_dots_use_the_cube_memories_and_others_do_not(key: tuple[str, int]) -> None:
    found = PEAKS[key]
    cube = SOURCES.loaded.spec.kernels[key[0]].bound.value == "cube"
    assert found.layout.mixed == cube
    assert (found.l1 != 0) == cube
    assert (found.l0c != 0) == cube


def test_every_kernel_has_buffers_with_sane_lifetimes() -> None:
    for found in PEAKS.values():
        assert found.layout.buffers
        for b in found.layout.buffers:
            assert 0 <= b.start <= b.end <= found.layout.points
            assert b.width in (2, 4)
            assert b.times >= 1
