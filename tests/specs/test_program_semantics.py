"""What the reference evaluator makes of a program: void, carries, writes, heads; and that it knows every node."""

from __future__ import annotations

import gc
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kgen.errors import KgenBug, KgenError
from kgen.ir import nodes, show
from kgen.ir.build import i32, num
from kgen.ir.nodes import Access, Assign, Cast, Expr, For, IndexRef, Kernel, Load, Loop, Stmt, StoreTile
from kgen.ir.parse import parse_kernel
from kgen.spec.models import Spec
from kgen.verify import program
from kgen.verify.program import evaluate

Array = npt.NDArray[np.float64]
LENGTHS = (3, 0, 21, 16)
SPEC = Spec.model_validate(
    {
        "name": "toy", "doc": "toy",
        "dims": {
            "T": {"kind": "rows"}, "N": {"kind": "sequences"}, "NT": {"kind": "chunks"}, "H": {"kind": "heads"},
            "HV": {"kind": "heads", "group_of": "H"}, "K": {"kind": "static", "max": 256},
            "BT": {"kind": "chunk", "values": [16, 32]},
        },
        "dtypes": {"io": ["fp32"]},
        "flags": {"reverse": {}},
        "scalars": {"scale": {}},
        "tensors": {
            "x": {"dims": ["T", "K"], "dtype": "io"},
            "q": {"dims": ["T", "H"], "dtype": "io"},
            "g": {"dims": ["T", "HV"], "dtype": "io", "optional": True},
            "y": {"dims": ["T", "K"], "dtype": "io", "optional": True},
            "r": {"dims": ["T"], "dtype": "io", "optional": True},
            "c": {"dims": ["NT"], "dtype": "io", "optional": True},
            "n": {"dims": ["N"], "dtype": "io", "optional": True},
            "p": {"dims": ["T", "HV"], "dtype": "io", "optional": True},
            "A": {"dims": ["T", "BT"], "dtype": "io", "optional": True},
            "Z": {"dims": ["T", "BT"], "dtype": "io", "optional": True, "zeroed": True},
        },
        "dot_dtype": "io",
        "kernels": {
            "toy": {
                "program": "toy.py:toy", "bound": "vector", "outputs": ["y", "r", "c", "n", "p", "A", "Z"],
                "given": ["y", "r", "c", "n", "p", "A", "Z"], "tiles": {"K": [16]},
            },
        },
        "stages": {}, "targets": [], "tolerances": {}, "buckets": {},
        "operator": {"name": "toy_op", "doc": "", "params": [], "chain": [], "returns": []},
    }
)  # fmt: skip
SIZES = {"T": sum(LENGTHS), "N": 4, "NT": 4, "H": 2, "HV": 4, "K": 20, "BT": 16}


def parsed(*lines: str, params: str, loop: str) -> Kernel:
    body = textwrap.indent("\n".join(lines), " " * 8)
    return parse_kernel(SPEC, "toy", f"def toy({params}):\n    for {loop}:\n{body}\n", "toy.py")


def run(
    *lines: str,
    loop: str = "t in tasks(chunks(T))",
    tile: int = 16,
    absent: Sequence[str] = (),
    flags: dict[str, bool] | None = None,
    **inputs: Array,
) -> dict[str, Array]:
    """The outputs named in the program's lines, for given inputs and LENGTHS rows a sequence."""
    text = "\n".join(lines)
    names = [n for n in SPEC.tensors if n in inputs or n in absent or f"{n}[" in text]
    kernel = parsed(*lines, params=", ".join(names), loop=loop)
    tensors: dict[str, Any] = {**inputs, **dict.fromkeys(absent)}
    for name in set(names) & set(SPEC.kernels["toy"].outputs):
        shape = [SIZES[d] for d in SPEC.tensors[name].dims]
        tensors[name] = np.full(shape, 0.0 if SPEC.tensors[name].zeroed else np.nan)
    bounds = np.cumsum((0, *LENGTHS)).tolist()
    evaluate(
        kernel, SPEC, tensors, dims={k: v for k, v in SIZES.items() if k not in {"N", "NT"}}, tiles={"K": tile},
        scalars={"scale": 2.0}, flags=flags, cu_seqlens=bounds,
    )  # fmt: skip
    return {n: tensors[n] for n in SPEC.kernels["toy"].outputs if n in names}


X = np.random.default_rng(0).standard_normal((SIZES["T"], SIZES["K"]))
G = np.random.default_rng(1).standard_normal((SIZES["T"], SIZES["HV"]))
Q = np.random.default_rng(2).standard_normal((SIZES["T"], SIZES["H"]))
STARTS = [0, 3, 3, 24]


def by_chunk(fn: Any) -> Array:
    """fn of each chunk's rows, in the order of chunks."""
    firsts = [
        (s, min(16, n - i)) for b, n in zip(STARTS, LENGTHS, strict=True) for i in range(0, n, 16) for s in [b + i]
    ]
    return np.asarray([fn(X[s : s + n]) for s, n in firsts])


def test_sums_and_maxima_skip_what_does_not_exist() -> None:
    total, top = (
        ("for bk in tiles(K):", "    s += sum(x[t, bk])"),
        ("for bk in tiles(K):", "    s = maximum(s, max(max(x[t, bk], 1), 0))"),
    )
    assert np.allclose(run("s = zeros()", *total, "c[t] = s", x=X)["c"], by_chunk(np.sum))
    assert np.array_equal(run("s = full(-inf)", *top, "c[t] = s", x=X)["c"], by_chunk(np.max))
    assert np.allclose(run("c[t] = sum(sum(x[t], 0))", x=X)["c"], by_chunk(np.sum))


def test_lanes_count_from_the_start_of_the_sequence_and_dims_are_numbers() -> None:
    rows = np.concatenate([np.arange(n) for n in LENGTHS])
    assert np.array_equal(run("r[t] = index(t) * 1.0 + K", r=X[:, 0])["r"], rows + 20)
    y = run("y[t] = index(K)[None, :] + zeros(t, K)", x=X)["y"]
    assert np.array_equal(y, np.broadcast_to(np.arange(20.0), y.shape))


def test_columns_of_a_chunk_are_stored_in_full_and_zero_past_its_end() -> None:
    a = run("A[t] = full(1.0, t, t)")["A"]
    assert np.array_equal(a[0], [1.0] * 3 + [0.0] * 13)
    assert np.array_equal(a[3], [1.0] * 16)
    assert np.array_equal(a[19], [1.0] * 5 + [0.0] * 11)
    assert np.array_equal(run("A[t] = 1.0")["A"], a)
    z = run("Z[s, s] = eye(s)", loop="s in tasks(parts(T, 16))")["Z"]
    assert np.array_equal(z[4], np.eye(16)[1]) and z.sum() == SIZES["T"]


def test_value_heads_read_their_key_head() -> None:
    want = np.repeat(Q, 2, axis=1) * G
    direct = run("p[t] = q[t] * g[t] if g else 1.0", loop="t in tasks(chunks(T), heads(HV))", q=Q, g=G)["p"]
    grouped = run("a = q[t]", "for _ in group(HV):", "    if g:", "        p[t] = a * g[t]",
                  loop="t in tasks(chunks(T), heads(H))", q=Q, g=G)["p"]  # fmt: skip
    assert np.array_equal(direct, want) and np.array_equal(grouped, want)


def test_an_absent_optional_tensor_takes_the_other_branch() -> None:
    loop = "t in tasks(chunks(T), heads(HV))"
    assert (run("e = g[t] if g else 1.0", "p[t] = sum(e[:, None], 1)", loop=loop, absent=["g"])["p"] == 1.0).all()
    assert (run("if g:", "    p[t] = g[t]", "else:", "    p[t] = 3.0", loop=loop, absent=["g"])["p"] == 3.0).all()


def test_carries_pass_through_scans_and_empty_sequences_keep_the_first_value() -> None:
    loop = "m in tasks(seqs(N))"
    lines = ("s = full(5.0)", "for t in scan(chunks(m){}):", "    s = s * 2.0 + sum(sum(x[t], 0))", "n[m] = s")
    sums = by_chunk(np.sum)
    forward = run(*(line.format("") for line in lines), loop=loop, x=X)["n"]
    backward = run(*(line.format(", reverse=True") for line in lines), loop=loop, x=X)["n"]
    assert np.allclose(forward, [10 + sums[0], 5.0, 20 + 2 * sums[1] + sums[2], 10 + sums[3]])
    assert np.allclose(backward, [10 + sums[0], 5.0, 20 + 2 * sums[2] + sums[1], 10 + sums[3]])


@pytest.mark.parametrize("tile", [4, 16, 32])
def test_slabs_are_parts_of_one_tile(tile: int) -> None:
    lines = ("S = zeros(t, K)", "for bk in tiles(K):", "    S[:, bk] = x[t, bk] * 2.0", "y[t] = S")
    assert np.array_equal(run(*lines, x=X, tile=tile)["y"], X * 2)


def test_slices_are_void_outside_their_range() -> None:
    lines = ("a = x[t]", "b = zeros(t, K)", "for i in range(2, 5):", "    b[i, 0:i] = a[i, 0:i]", "y[t] = b")
    inside = np.concatenate([np.arange(n) % 16 for n in LENGTHS])[:, None]
    want = np.where((inside >= 2) & (inside < 5) & (np.arange(20)[None, :] < inside), X, 0.0)
    assert np.array_equal(run(*lines, x=X)["y"], want)
    assert np.allclose(run("a = x[t]", "c[t] = sum(a[0:2, 3:5])", x=X)["c"], by_chunk(lambda c: c[:2, 3:5].sum()))


def test_running_sums_follow_a_flag() -> None:
    def want(sums: Any) -> Array:
        return np.concatenate([sums(X[s : s + n, 0]) for s, n in ((0, 3), (3, 16), (19, 5), (24, 16))])

    lines = ("a = x[t]", "r[t] = cumsum(a[:, 0], 0, reverse=reverse)")
    assert np.allclose(run(*lines, x=X)["r"], want(np.cumsum))
    reverse = run(*lines, x=X, flags={"reverse": True})["r"]
    assert np.allclose(reverse, want(lambda v: v[::-1].cumsum()[::-1]))


def test_tril_and_where_ignore_what_they_do_not_choose() -> None:
    lines = (
        "nan = log(zeros(t, t) - 1.0)",
        "same = index(t)[:, None] == index(t)[None, :]",
        "A[t] = tril(nan, -20) + where(same, 1.0, where(same, nan, 0.0))",
    )
    a = run(*lines)["A"]
    assert np.array_equal(a[3:19], np.eye(16)) and a.sum() == SIZES["T"]


@pytest.mark.parametrize(
    ("lines", "code", "message", "line"),
    [
        (["r[t] = log(zeros(t) - 1.0)"], "program-nan", "3 of 3 elements stored to 'r' are NaN", 3),
        (["a = x[t]", "c[t] = a[3, 0]"], "program-nan", "'c' are NaN", 4),
        (["a = x[t]", "r[t] = a[:, 0] + a[19, 0]"], "program-index", "position 19 of an axis of 16", 4),
        (["for bk in tiles(K):", "    c[t] = 1.0"], "program-writes", "4 of 4 elements of 'c' are written more", None),
        (["if g:", "    c[t] = 1.0"], "program-writes", "4 of 4 elements of 'c' are never", None),
        (["for bk in tiles(K):", "    r[t] = 1.0"], "program-writes", "40 of 40 elements of 'r'", None),
        (["Z[t] = zeros(t, t)", "Z[t] = zeros(t, t)"], "program-writes", "'Z' are written more than once", None),
        (["r[last(t)] = 1.0"], "program-writes", "36 of 40 elements of 'r' are never written", None),
    ],
)  # fmt: skip
def test_mistakes_of_a_program_are_named(lines: list[str], code: str, message: str, line: int | None) -> None:
    with pytest.raises(KgenError) as caught:
        run(*lines, x=X, absent=["g"])
    assert caught.value.code == code and message in caught.value.message
    assert caught.value.location is not None and caught.value.location.path == "toy.py"
    if line is not None:
        assert caught.value.location.line == line


# ---------------------------------------------------------------- every node is known

DEVICE = {Load, StoreTile, Loop, Cast}


def subclasses(base: type[Any]) -> set[type[Any]]:
    """The node classes of the IR; dataclasses with slots leave an older twin behind until it is collected."""
    gc.collect()
    return {cls for cls in base.__subclasses__() if getattr(nodes, cls.__name__, None) is cls}


def test_the_evaluator_knows_every_language_node_and_no_other() -> None:
    assert set(program.EXPRESSIONS) == subclasses(Expr) - DEVICE - {IndexRef}  # an operand of full, eye and index only
    assert set(program.STATEMENTS) == subclasses(Stmt) - DEVICE


def test_show_knows_every_node() -> None:
    assert set(show.EXPRESSIONS) == subclasses(Expr)
    kernel = parsed("c[t] = 1.0", params="c", loop="t in tasks(chunks(T))")
    access = Access("c", i32("i"), ())
    samples: list[Stmt] = [
        Loop("i", num(0), num(2), None, (StoreTile(access, Load(access)), Assign("z", Cast(num(1.0))))),
        Loop("j", num(0), num(2), num(1), (), static=True, note="why"),
        *kernel.body,
    ]
    text = show.show(replace(kernel, body=tuple(samples)))
    assert "store(c + i, load(c + i))" in text and "for j in static_range(0, 2, 1):" in text and "# why" in text


@pytest.mark.parametrize("node", [Load(Access("c", num(0), ())), Cast(num(1.0)), IndexRef(nodes.ONE)])
def test_device_expressions_are_refused(node: Expr) -> None:
    kernel = parsed("c[t] = 1.0", params="c", loop="t in tasks(chunks(T))")
    loop = kernel.body[0]
    assert isinstance(loop, For)
    changed = replace(kernel, body=(replace(loop, body=(Assign("z", node),)),))
    with pytest.raises(KgenBug, match=type(node).__name__):
        evaluate(changed, SPEC, {"c": np.full(4, np.nan)}, dims=SIZES, tiles={}, cu_seqlens=[0, 3, 3, 24, 40])


@pytest.mark.parametrize("stmt", [Loop("i", num(0), num(1), None, ()), StoreTile(Access("c", num(0), ()), num(1.0))])
def test_device_statements_are_refused(stmt: Stmt) -> None:
    kernel = parsed("c[t] = 1.0", params="c", loop="t in tasks(chunks(T))")
    with pytest.raises(KgenBug, match=type(stmt).__name__):
        evaluate(
            replace(kernel, body=(stmt,)), SPEC, {"c": np.full(4, np.nan)}, dims=SIZES, tiles={},
            cu_seqlens=[0, 3, 3, 24, 40],
        )  # fmt: skip


def test_tensors_of_another_shape_or_missing_ones_are_kgens_own_mistake() -> None:
    kernel = parsed("c[t] = 1.0", params="c", loop="t in tasks(chunks(T))")
    for tensors, dims, bounds in (
        ({"c": np.zeros(5)}, SIZES, [0, 40]),
        ({}, SIZES, [0, 40]),
        ({"c": np.zeros(4)}, SIZES, [0, 30, 20, 40]),
        ({"c": np.zeros(4)}, SIZES, [0, 41]),
    ):
        with pytest.raises(KgenBug):
            evaluate(kernel, SPEC, tensors, dims=dims, tiles={}, cu_seqlens=bounds)
    with pytest.raises(KgenBug, match="aren't 3 sequences"):
        evaluate(kernel, SPEC, {"c": np.zeros(4)}, dims=SIZES, tiles={}, batch=3)
