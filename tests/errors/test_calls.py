"""Mistakes in what a call is asked for: each named with the next step at once, whatever its size."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kgen.errors import KgenError
from kgen.search import call as c
from kgen.search.bench_run import bench_calls
from kgen.spec.load import LoadedSpec, load_spec

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def gdn() -> LoadedSpec:
    return load_spec(ROOT / "specs" / "gdn.yaml")


def refused(gdn: LoadedSpec, shape: str = "", lengths: str | None = None, dtype: str = "bf16") -> str:
    """What a trace and a bench are told, which must be the same."""
    begin = time.monotonic()
    with pytest.raises(KgenError) as traced:
        c.call_of(gdn.spec, c.parse_sizes(shape), c.parse_lengths(lengths), dtype)
    with pytest.raises(KgenError) as benched:
        bench_calls(gdn, shape, lengths, dtype)
    assert time.monotonic() - begin < 5
    assert (traced.value.message, traced.value.code) == (benched.value.message, benched.value.code)
    return traced.value.render()


@pytest.mark.parametrize("name", ["B", "T", "H", "HV", "K", "V"])
@pytest.mark.parametrize("size", ["0", "-1", "-999999999", "999999999"])
def test_a_size_out_of_range_is_named_with_its_range(gdn: LoadedSpec, name: str, size: str) -> None:
    told = refused(gdn, f"{name}={size}")
    assert f"{name} = {size}" in told and "from 1 to" in told


@pytest.mark.parametrize("value", ["²", "٤", "4k", "", "1e3", "0x10", "1_0", "4.0", "１"])  # noqa: RUF001
def test_only_ascii_decimals_are_sizes_and_lengths(gdn: LoadedSpec, value: str) -> None:
    assert f"cannot read the size 'T={value}'" in refused(gdn, f"T={value}")
    if value:
        assert f"cannot read the lengths: '{value}'" in refused(gdn, lengths=f"64,{value}")


@pytest.mark.parametrize("digits", ["9" * 10, "1" * 5000])
def test_numbers_have_at_most_nine_digits(gdn: LoadedSpec, digits: str) -> None:
    assert f"T has {len(digits)} digits" in refused(gdn, f"T={digits}")
    assert f"a length has {len(digits)} digits" in refused(gdn, lengths=digits)


@pytest.mark.parametrize(
    ("shape", "lengths", "told"),
    [
        ("B=65536,T=16777216", None, "rows in all"),
        ("T=16777216", None, "pieces of work"),
        ("B=65536,T=1,HV=64", None, "pieces of work"),
        ("", ",".join(["1"] * 1_000_000), "at most 65536"),
        ("", ",".join(["999999999"] * 60_000), "T = 59999999940000"),
        ("HV=4096", ",".join(["1"] * 60_000), "pieces of work"),
        ("", ",".join(["0"] * 100), "T = 0"),
        ("", "", "cannot read the lengths"),
        ("", "64,-1", "a length of -1"),
        ("T=100", "64,32", "lengths of 96 rows in all, T = 100"),
        ("B=2", "64,32", "B = 2"),
        ("T=1,T=2", None, "T is given twice"),
        ("TT=1", None, "'TT' is no size of a call"),
        ("N=1", None, "'N' is no size of a call"),
        ("H=16,HV=24", None, "HV is a multiple of H"),
    ],
)
def test_what_a_machine_could_not_model_is_refused(gdn: LoadedSpec, shape: str, lengths: str | None, told: str) -> None:
    assert told in refused(gdn, shape, lengths)


def test_a_wrong_dtype_is_named(gdn: LoadedSpec) -> None:
    assert "bf16" in refused(gdn, dtype="bf61")


def test_large_real_shapes_are_well_within(gdn: LoadedSpec) -> None:
    for shape in ("T=1048576,HV=64", "B=64,T=4096,H=32,HV=64", "B=1024,T=64,HV=64"):
        c.call_of(gdn.spec, c.parse_sizes(shape), None, "bf16")
    full = c.call_of(gdn.spec, {"H": 4, "HV": 8}, (64, 0, 7), "fp16")
    assert full.sizes == {"B": 1, "T": 71, "H": 4, "HV": 8, "K": 128, "V": 128, "BT": 64}


def test_a_bench_has_no_chunk_and_no_lengths_alone(gdn: LoadedSpec) -> None:
    with pytest.raises(KgenError, match="'BT' is no size of a call"):
        bench_calls(gdn, "BT=32", None, "bf16")
    with pytest.raises(KgenError, match="--lengths without --shape"):
        bench_calls(gdn, None, "64,64", "bf16")


def test_a_listed_shape_is_checked_and_placed(gdn: LoadedSpec) -> None:
    shape = gdn.spec.bench_shapes[1].model_copy(update={"sizes": {"T": 64, "HH": 4}})
    spec = gdn.spec.model_copy(update={"bench_shapes": (gdn.spec.bench_shapes[0], shape)})
    with pytest.raises(KgenError, match="'HH' is no size") as raised:
        bench_calls(LoadedSpec(spec, gdn.document), None, None, "bf16")
    line = (ROOT / "specs" / "gdn.yaml").read_text(encoding="utf-8").splitlines()[raised.value.location.line - 1]
    assert "B: 2" in line


@pytest.mark.parametrize(
    ("absent", "on", "told"),
    [
        (("gg",), (), "no optional tensor 'gg'"),
        (("q",), (), "no optional tensor 'q'"),
        (("reverse",), (), "is a flag"),
        ((), ("revers",), "did you mean 'reverse'"),
        ((), ("g",), "is a tensor"),
        (("g",), ("g",), "in both --with and --without"),
        (("reverse",), ("reverse",), "in both --with and --without"),
    ],
)
def test_options_of_a_kernel(absent: tuple[str, ...], on: tuple[str, ...], told: str) -> None:
    with pytest.raises(KgenError) as raised:
        c.check_options("k", {"g": "fp32", "h0": "fp32"}, ["reverse"], absent, on)
    assert told in raised.value.render()


def test_an_option_named_twice() -> None:
    with pytest.raises(KgenError, match="--without names 'g' twice"):
        c.parse_names("g,h0 g", "--without")
