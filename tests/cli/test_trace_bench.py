"""`kgen trace` and `kgen bench`: what they print and write, and how they fail. Most need the tool chain."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from kgen.errors import KgenError
from kgen.virtual import find_toolchain
from kgen.virtual.peers import find_peers

ROOT = Path(__file__).resolve().parent.parent.parent
SPEC = "specs/gdn.yaml"


def kgen(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kgen.cli", *arguments],
        cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def needs_toolchain() -> dict[str, str]:
    """How a command with another home finds the tool chain."""
    try:
        return {"KGEN_TOOLCHAIN": str(find_toolchain().python.parent.parent)}
    except KgenError as error:
        if os.environ.get("KGEN_REQUIRE_TOOLCHAIN") == "1":
            pytest.fail(f"KGEN_REQUIRE_TOOLCHAIN=1, and {error.message}")
        pytest.skip(error.message)


@pytest.fixture(scope="module")
def needs_peers(needs_toolchain: dict[str, str]) -> dict[str, str]:
    """How it finds the peers as well."""
    try:
        return {**needs_toolchain, "KGEN_PEERS": str(find_peers().parent.parent)}
    except KgenError as error:
        if os.environ.get("KGEN_REQUIRE_PEERS") == "1":
            pytest.fail(f"KGEN_REQUIRE_PEERS=1, and {error.message}")
        pytest.skip(error.message)


def rows(done: subprocess.CompletedProcess[str], code: int = 0) -> list[dict[str, Any]]:
    assert done.returncode == code, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["chunk_fwd_oo"], "did you mean 'chunk_fwd_o'"),
        (["chunk_fwd_o", "--shape", "T=0"], "T = 0"),
        (["chunk_fwd_o", "--shape", "T=4k"], "cannot read the size 'T=4k'"),
        (["chunk_fwd_o", "--shape", "TT=64"], "'TT' is no size of a call"),
        (["chunk_fwd_o", "--shape", "H=16,HV=24"], "HV is a multiple of H"),
        (["chunk_fwd_o", "--shape", "K=512"], "from 1 to 256"),
        (["chunk_fwd_o", "--shape", "BT=48"], "supported: 16, 32, 64"),
        (["chunk_fwd_o", "--shape", "B=2", "--lengths", "64,64"], "packed sequences are one batch row"),
        (["chunk_fwd_o", "--lengths", "64,x"], "cannot read the lengths"),
        (["chunk_fwd_o", "--dtype", "fp8"], "no dtype 'fp8'"),
        (["chunk_fwd_o", "--without", "gg"], "no optional tensor 'gg'"),
        (["chunk_fwd_o", "--target", "Ascend910"], "isn't a target of the spec"),
        (["chunk_fwd_o", "--shape", "T=²"], "cannot read the size 'T=²'"),
        (["chunk_fwd_o", "--shape", "B=-3"], "B = -3"),
        (["chunk_fwd_o", "--shape", "T=999999999"], "T = 999999999"),
        (["chunk_fwd_o", "--shape", "T=1,T=2"], "T is given twice"),
        (["chunk_fwd_o", "--with", "g"], "is a tensor of chunk_fwd_o"),
        (["chunk_fwd_o", "--with", "revers"], "no flag 'revers'"),
        (["chunk_fwd_o", "--without", "q"], "no optional tensor 'q'"),
        (["chunk_fwd_o", "--without", "g", "--with", "g"], "in both --with and --without"),
        (["chunk_fwd_o", "--without", "g,g"], "twice"),
        (["chunk_fwd_o", "--block", "24"], "blocks 0 to 23"),
    ],
)
def test_trace_names_the_mistake_and_the_next_step(arguments: list[str], told: str) -> None:
    done = kgen("trace", SPEC, *arguments)
    assert done.returncode == 2
    assert told in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--against", "flaa"], "'flaa'"),
        (["--direction", "bwd"], "no direction 'bwd'"),
        (["--direction", "fwd+bwd"], "no backward yet"),
        (["--shape", "T=x"], "cannot read the size"),
        (["--shape", "T=0"], "T = 0"),
        (["--shape", "TT=64"], "'TT' is no size of a call"),
        (["--shape", "H=16,HV=24"], "HV is a multiple of H"),
        (["--shape", "B=999999999"], "B = 999999999"),
        (["--shape", "B=2", "--lengths", "64,64"], "packed sequences are one batch row"),
        (["--shape", "T=64", "--lengths", "64,64"], "lengths of 128 rows in all, T = 64"),
        (["--lengths", "64,64"], "--lengths without --shape"),
        (["--dtype", "bf61"], "did you mean 'bf16'"),
        (["--direction", "fw"], "did you mean 'fwd'"),
        (["--target", "nope"], "isn't a target"),
    ],
)
def test_bench_names_the_mistake_and_the_next_step(arguments: list[str], told: str) -> None:
    done = kgen("bench", SPEC, *arguments)
    assert done.returncode == 2
    assert told in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.toolchain
def test_bench_without_the_peers_says_how_to_make_them(needs_toolchain: dict[str, str], tmp_path: Path) -> None:
    done = kgen("bench", SPEC, KGEN_PEERS=str(tmp_path))
    assert done.returncode == 2
    assert "kgen doctor --fix --peers" in done.stderr


def test_verify_names_an_unknown_level() -> None:
    done = kgen("verify", SPEC, "--level", "executed")
    assert done.returncode == 2
    assert "execute" in done.stderr


# ---------------------------------------------------------------- output


@pytest.mark.toolchain
def test_trace_prints_times_and_writes_what_was_asked(needs_toolchain: dict[str, str], tmp_path: Path) -> None:
    trace, picture = tmp_path / "t.json", tmp_path / "m.svg"
    done = kgen(
        "trace", SPEC, "chunk_fwd_o", "--shape", "T=1024,H=4,HV=8", "--out", str(trace), "--picture", str(picture),
        **{"KGEN_HOME": str(tmp_path), **needs_toolchain},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "modelled" in done.stdout and "UB" in done.stdout
    source = (ROOT / "generated/gdn/kernels.py").read_text(encoding="utf-8").splitlines()
    blamed = {  # the costliest places are lines of the generated kernels
        label: source[int(line) - 1] for line, label in re.findall(r"kernels\.py:(\d+)\b.*  (\w+)\n", done.stdout)
    }
    assert all("tl.dot(" in text for label, text in blamed.items() if label.startswith("mma_tile"))
    assert any(label.startswith("mma_tile") for label in blamed), done.stdout
    assert all("load(" in t or "tl.dot(" in t for label, t in blamed.items() if label.startswith("nd2nz")), blamed
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    assert len(spans) > 100 and all(e["dur"] >= 0 and e["ts"] >= 0 for e in spans)
    lanes = {e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert {"MTE2", "V", "M", "FIX"} <= {lane.split()[-1] for lane in lanes}
    ends: dict[tuple[int, int], float] = {}
    for e in sorted(spans, key=lambda e: (e["pid"], e["tid"], e["ts"])):  # a pipe does one thing at a time
        lane = (e["pid"], e["tid"])
        assert e["ts"] >= ends.get(lane, 0.0) - 1e-3
        ends[lane] = e["ts"] + e["dur"]
    assert ET.parse(picture).getroot().tag.endswith("svg")


@pytest.mark.toolchain
def test_trace_as_json_and_more_rows_take_longer(needs_toolchain: dict[str, str], tmp_path: Path) -> None:
    times = []
    for rows_ in (1024, 4096):
        done = kgen(
            "trace", SPEC, "chunk_delta_h", "--shape", f"T={rows_},H=4,HV=8", "--json",
            **{"KGEN_HOME": str(tmp_path), **needs_toolchain},
        )  # fmt: skip
        (row,) = rows(done)
        assert row["verdict"] == "fits" and row["shape"]["T"] == rows_
        assert row["modelled_us"] == row["timeline"]["us"]
        assert row["timeline"]["unknown"] == {}
        assert row["calls"]["mma"] > 0 and row["idle_vector_core"] is False and row["ub_predicted_bytes"] > 0
        spaces = {s["space"]: s["reserved_bytes"] for part in row["memory"] for s in part["spaces"]}
        assert (spaces["UB"], spaces["L1"], spaces["L0C"]) == (row["ub_bytes"], row["l1_bytes"], row["l0c_bytes"])
        assert not any(part["unwritten"] for part in row["memory"])
        assert all(0 <= share <= 1 for use in row["timeline"]["uses"] for share in use["busy"].values())
        times.append(row["modelled_us"])
    assert 3 < times[1] / times[0] < 4.2  # a loop over chunks, and what is there once


@pytest.mark.toolchain
def test_the_compiler_gets_its_own_name_of_a_target(needs_toolchain: dict[str, str], tmp_path: Path) -> None:
    where = {"KGEN_HOME": str(tmp_path), **needs_toolchain}
    for command in (
        ("trace", SPEC, "chunk_local_cumsum", "--shape", "T=64", "--target", "Ascend950PR", "--json"),
        ("compile", SPEC, "--kernel", "chunk_local_cumsum", "--target", "Ascend950PR", "--json"),
    ):
        done = kgen(*command, **where)
        found = json.loads(done.stdout)
        assert {r["verdict"] for r in found} == {"fits"}, done.stderr
        assert {r["target"] for r in found} == {"Ascend950PR"}
        assert all(r["modelled_us"] is None for r in found)  # its IR has operations that the model doesn't know


@pytest.mark.toolchain
@pytest.mark.slow
def test_a_bench_of_a_target_without_a_model_has_problems_and_no_number(
    needs_peers: dict[str, str], tmp_path: Path
) -> None:
    shape = ("--shape", "T=256,H=2,HV=4,K=64,V=64")
    done = kgen(
        "bench", SPEC, "--target", "Ascend950PR", *shape, "--json", **{"KGEN_HOME": str(tmp_path), **needs_peers}
    )
    for r in rows(done, 1):
        assert r["ours_us"] is None and r["theirs_us"] is None and r["ratio"] is None
        assert r["problems"] and all(len(p) < 600 for p in r["problems"])


@pytest.mark.toolchain
def test_compile_rows_have_modelled_times_and_keep_them(needs_toolchain: dict[str, str], tmp_path: Path) -> None:
    command = ("compile", SPEC, "--kernel", "chunk_scaled_dot_kkt", "--json")
    first = rows(kgen(*command, **{"KGEN_HOME": str(tmp_path), **needs_toolchain}))
    assert first == rows(kgen(*command, **{"KGEN_HOME": str(tmp_path), **needs_toolchain}))
    assert all(r["modelled_us"] > 0 and r["modelled_bound"] in ("core", "hbm", "l2") for r in first)
    assert all(r["unknown_operations"] == {} for r in first)
    text = kgen(*command[:-1], **{"KGEN_HOME": str(tmp_path), **needs_toolchain}).stdout
    assert "modelled us" in text and " to " in text and f"Ascend910B2: {len(first)} fits" in text
    without = rows(kgen(*command, "--no-model", **{"KGEN_HOME": str(tmp_path), **needs_toolchain}))
    assert [r["modelled_us"] for r in without] == [None] * len(first)
    assert [r["ub_bytes"] for r in without] == [r["ub_bytes"] for r in first]


@pytest.mark.toolchain
def test_a_full_disk_under_the_cache_costs_only_the_cache(needs_toolchain: dict[str, str], tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("a file where the cache's folder would be", encoding="utf-8")
    done = kgen(
        "trace", SPEC, "chunk_local_cumsum", "--shape", "T=64", "--json", **{"KGEN_HOME": str(home), **needs_toolchain}
    )
    (row,) = rows(done)
    assert row["modelled_us"] > 0


@pytest.mark.toolchain
@pytest.mark.slow
def test_bench_compares_both_sides(needs_peers: dict[str, str], tmp_path: Path) -> None:
    shape = ("--shape", "B=1,T=1024,H=4,HV=8,K=128,V=128")
    found = rows(
        kgen("bench", SPEC, "--against", "fla", *shape, "--json", **{"KGEN_HOME": str(tmp_path), **needs_peers})
    )
    stages = [r["kernel"] for r in found]
    assert stages[-1] == "total" and len(stages) == len(set(stages)) > 5
    for r in found:
        assert {"kernel", "direction", "shape", "ours_us", "theirs_us", "ratio", "launches", "basis"} <= set(r)
        assert r["basis"] == "modelled" and not r["problems"]
    total = found[-1]
    for side in ("ours", "theirs"):
        parts = [r for r in found[:-1] if r[f"{side}_us"] is not None]
        assert total[f"{side}_us"] == pytest.approx(sum(r[f"{side}_us"] for r in parts))
        assert total["launches"][side] == sum(r["launches"][side] for r in found[:-1])
    text = kgen("bench", SPEC, "--against", "fla", *shape, **{"KGEN_HOME": str(tmp_path), **needs_peers})
    assert "every time is modelled" in text.stdout


@pytest.mark.toolchain
@pytest.mark.slow
def test_every_total_survives_every_constant(needs_peers: dict[str, str], tmp_path: Path) -> None:
    done = kgen(
        "bench", SPEC, "--against", "fla", "--sensitivity", "--json", **{"KGEN_HOME": str(tmp_path), **needs_peers}
    )
    totals = [r for r in rows(done) if r["kernel"] == "total"]
    assert len({r["shape"] for r in totals}) == 5
    assert len({(r["constant"], r["factor"]) for r in totals}) * 5 == len(totals)
    assert not any(r["flips"] for r in totals)
    assert all(r["ratio_changed"] is not None for r in totals)


@pytest.mark.toolchain
@pytest.mark.parametrize("after", [1.0, 1.5, 2.0, 2.5, 6.0])
def test_an_interrupt_ends_everything_without_a_traceback(
    needs_toolchain: dict[str, str], tmp_path: Path, after: float
) -> None:
    """As Ctrl-C does: the signal goes to every process of the terminal's group."""
    command = [sys.executable, "-m", "kgen.cli", "compile", SPEC, "--all", "--json"]
    environment = {**os.environ, "KGEN_HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path), **needs_toolchain}
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=ROOT,
        start_new_session=True,
    )
    time.sleep(after)
    os.killpg(child.pid, signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert child.returncode == 130, err
    assert "Traceback" not in err and not out
    assert not [p for p in tmp_path.iterdir() if p.name.startswith("kgen-")]
    assert not children_with(str(tmp_path))


def children_with(text: str) -> list[str]:
    """Command lines of processes that mention a text."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found += [line] if text in line else []
    return found
