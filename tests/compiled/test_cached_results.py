"""What is kept between runs is never taken on trust: an entry that isn't what was stored isn't there."""

from __future__ import annotations

import json
import math
import zlib
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest

from kgen import pipeline
from kgen.errors import KgenError
from kgen.search import modelled
from kgen.search.bench import timed
from kgen.search.compile_rows import Models, compile_rows
from kgen.search.modelled import Modelled, Modeller
from kgen.search.trace import TraceRequest, trace_kernel
from kgen.search.variants import variants
from kgen.spec.targets import load_target
from kgen.virtual import Compiler, CompileRequest, CompileResult, Toolchain
from kgen.virtual import compile as compile_
from kgen.virtual import result as results
from kgen.virtual.cache import ResultCache
from kgen.virtual.hivm import HivmError
from kgen.virtual.launch import Launch
from kgen.virtual.peers import Captured, CapturedLaunch
from kgen.virtual.result import judged, restored, with_report
from kgen.virtual.timeline import Costs
from tests.compiled.test_memory_report import buffer, call, text_of

GOOD = CompileResult("fits", "", ub_bytes=64, l1_bytes=0, l0c_bytes=0, calls={"mma": 2}, idle_vector_core=None)


def test_what_was_stored_comes_back() -> None:
    assert restored(json.loads(json.dumps(asdict(GOOD)))) == GOOD
    assert restored(None) is None


@pytest.mark.parametrize(
    "change",
    [
        {"verdict": "fine"}, {"verdict": None}, {"message": 3}, {"ub_bytes": -1}, {"ub_bytes": True},
        {"ub_bytes": 64.0}, {"ub_bytes": "64"}, {"l1_bytes": math.nan}, {"required_bytes": math.inf},
        {"calls": {"mma": -2}}, {"calls": {"mma": "2"}}, {"calls": []}, {"idle_vector_core": 1},
        {"unknown": {"x": None}}, {"unwritten": "text"}, {"seconds": math.nan}, {"seconds": -1.0},
        {"toolchain": {"bishengir": 1}}, {"toolchain": None}, {"readers": None}, {"detail": {}}, {"seconds": True},
        {"seconds": "1"}, {"ub_bytes": None}, {"l0c_bytes": None}, {"more": 1},
        {"verdict": "error", "final_ir": "another's"},
    ],
    ids=str,
)  # fmt: skip
def test_a_field_of_another_type_or_range_is_no_result(change: dict[str, Any]) -> None:
    assert restored({**asdict(GOOD), **change}) is None


@pytest.mark.parametrize("field", [f.name for f in fields(CompileResult)])
def test_a_result_without_one_of_its_fields_is_none(field: str) -> None:
    assert restored({name: value for name, value in asdict(GOOD).items() if name != field}) is None


def test_a_kernel_that_did_not_compile_needs_no_sizes() -> None:
    failed = CompileResult("overflows", "UB overflow", required_bytes=9)
    assert restored(asdict(failed)) == failed


@pytest.mark.parametrize("content", ["[" * 100_000, '{"key": ' * 50_000, "\ud800", "{}", "null", "NaN"])
def test_an_entry_that_is_no_json_is_none(tmp_path: Path, content: str) -> None:
    cache = ResultCache(tmp_path)
    cache.put("k" * 64, {"a": 1}, "text")
    (entry,) = tmp_path.glob("*/*.json")
    entry.write_text(content, encoding="utf-8", errors="surrogatepass")
    assert cache.get("k" * 64) is None and cache.text("k" * 64) is None


def test_a_text_is_only_given_with_the_result_that_it_was_stored_with(tmp_path: Path) -> None:
    cache = ResultCache(tmp_path)
    one, two = "1" * 64, "2" * 64
    cache.put(one, {"a": 1}, "of one")
    cache.put(two, {"a": 2}, "of two")
    assert (cache.text(one), cache.text(two)) == ("of one", "of two")
    files = {p.name[0]: p for p in tmp_path.glob("*/*.ir.z")}
    files["1"].write_bytes(files["2"].read_bytes())
    assert cache.text(one) is None and cache.get(one) == {"a": 1}
    files["1"].write_bytes(zlib.compress(b"\xff\xfe"))
    assert cache.text(one) is None
    files["1"].unlink()
    assert cache.text(one) is None
    cache.put(one, {"a": 1})
    assert cache.text(one) is None


def test_a_miscompiled_kernel_is_an_error_that_says_where() -> None:
    lost = text_of(buffer("%a", 0), buffer("%b", 256), call("vexp_1d_float", "%a", "%b"))
    found = judged(with_report(GOOD, lost))
    assert (found.verdict, found.usable) == ("error", False)
    assert found.message.startswith("miscompiled: UB 64xf32 of line 3 of the IR is read at line 6 of the IR by vexp")
    assert found.ub_bytes == 512 and found.final_ir == lost
    whole = text_of(buffer("%a", 0), call("broadcast_scalar_float_to_1d", "%arg0", "%a"))
    assert judged(with_report(GOOD, whole)).verdict == "fits"


def test_a_kernel_of_which_nothing_is_known_is_no_kernel_that_fits() -> None:
    with pytest.raises(HivmError) as caught:
        with_report(GOOD, text_of('"some.thing"() : () -> ()', '"some.thing"() : () -> ()', "other.one"))
    assert caught.value.message == (
        "it has no buffer and no call, and operations that kgen does not know: other.one (1x), some.thing (2x)"
    )
    assert with_report(GOOD, text_of()).ub_bytes == 0  # nothing is in it, and nothing is unknown
    known = with_report(GOOD, text_of(buffer("%a", 0), '"some.thing"() : () -> ()'))
    assert (known.ub_bytes, known.unknown) == (256, {"some.thing": 1})
    called = with_report(GOOD, text_of(call("frobnicate"), '"some.thing"() : () -> ()'))
    assert called.unknown == {"@frobnicate": 1, "some.thing": 1}
    store = "memref.store %v, %arg0[%z] : memref<1xi32, #hivm.address_space<gm>>"
    stored = text_of("%z = arith.constant 0 : index", "%v = arith.constant 1 : i32", store, '"some.thing"() : () -> ()')
    assert with_report(GOOD, stored).unknown == {"some.thing": 1}


@pytest.mark.parametrize("error", [RecursionError, MemoryError])
def test_an_ir_that_takes_more_room_than_there_is_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def deep(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(results, "memory_report", deep)
    with pytest.raises(HivmError, match=f"it takes more room to read than there is: {error.__name__}"):
        with_report(GOOD, text_of())


TIME = Modelled(3.5, "core", 3.0, 1.0, 2.0, {}, ("sampled: 8 of 100",))


@pytest.mark.parametrize(
    "change",
    [
        {}, {"us": -1.0}, {"us": math.nan}, {"us": math.inf}, {"us": "3"}, {"us": True}, {"bound": "ddr"},
        {"core_us": "x"}, {"unknown": {"hivm.hir.x": 2}}, {"unknown": []}, {"warnings": None}, {"warnings": [3]},
        {"problem": "what is done hangs on an integer"}, {"problem": None}, {"us": None}, {"bound": ""},
        {"core_us": None}, {"l2_us": None}, {"hbm_us": True}, {"more": 1},
    ],
    ids=str,
)  # fmt: skip
def test_a_kept_time_is_a_time(tmp_path: Path, change: dict[str, Any]) -> None:
    launch, costs = Launch((1, 1, 1), ()), Costs.of(load_target("Ascend910B2"))
    modeller = Modeller(1, tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(modeller, "_start", lambda: Alone(TIME))
        assert modeller.time("k", "text", launch, costs) == TIME
    (entry,) = tmp_path.glob("*/*.json")
    stored = json.loads(entry.read_text())
    stored["result"] |= change
    entry.write_text(json.dumps(stored))
    assert modeller.remembered("k", launch, costs) == (None if change else TIME)


@pytest.mark.parametrize("field", [f.name for f in fields(Modelled)])
def test_a_kept_time_has_all_of_its_fields(tmp_path: Path, field: str) -> None:
    launch, costs = Launch((1, 1, 1), ()), Costs.of(load_target("Ascend910B2"))
    modeller = Modeller(1, tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(modeller, "_start", lambda: Alone(TIME))
        modeller.time("k", "text", launch, costs)
    (entry,) = tmp_path.glob("*/*.json")
    stored = json.loads(entry.read_text())
    del stored["result"][field]
    entry.write_text(json.dumps(stored))
    assert modeller.remembered("k", launch, costs) is None


def test_a_missing_time_is_kept_with_its_reason(tmp_path: Path) -> None:
    launch, costs = Launch((1, 1, 1), ()), Costs.of(load_target("Ascend910B2"))
    for number, found in enumerate((Modelled(None, problem="no"), Modelled(None, unknown={"a.b": 1}))):
        modeller = Modeller(1, tmp_path / str(number))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(modeller, "_start", lambda found=found: Alone(found))
            modeller.time("k", "text", launch, costs)
        assert modeller.remembered("k", launch, costs) == found


def test_a_model_that_ran_out_of_room_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch, costs = Launch((1, 1, 1), ()), Costs.of(load_target("Ascend910B2"))
    modeller = Modeller(1, tmp_path)
    monkeypatch.setattr(modeller, "_start", lambda: Alone(Modelled(None, problem="MemoryError"), lasting=False))
    assert modeller.time("k", "text", launch, costs).us is None
    assert modeller.remembered("k", launch, costs) is None


class Alone:
    """A pool that gives one result."""

    def __init__(self, found: Modelled, lasting: bool = True) -> None:
        self.found, self.lasting = found, lasting

    def submit(self, *_: object) -> Alone:
        return self

    def result(self) -> tuple[list[Modelled], bool]:
        return [self.found], self.lasting


@pytest.mark.parametrize("break_", ["\u2028", "\x0b", "\x0c", "\x1c", "\x85"])
def test_a_comment_at_the_top_stays_one_whatever_it_holds(tmp_path: Path, break_: str) -> None:
    asked = request(tmp_path, 256)
    asked.source.write_text(f"# all{break_}import gone\n# of it\n" + KERNELS, encoding="utf-8")
    assert compile_._text(asked) == "#\n#\n" + KERNELS


# ------------------------------------------------------------ through a compiler

KERNELS = """import triton
import triton.language as tl


@triton.jit
def copy(x, y, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    tl.store(y + o, tl.load(x + o))
"""


def request(folder: Path, block: int) -> CompileRequest:
    source = folder / "kernels.py"
    source.write_text(KERNELS, encoding="utf-8")
    return CompileRequest(source, "copy", {"x": "*fp32", "y": "*fp32"}, {"BLOCK": block}, "Ascend910B2")


@pytest.mark.toolchain
def test_another_kernels_ir_is_never_taken(toolchain: Toolchain, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with Compiler(toolchain, jobs=1, cache_dir=cache) as compiler:
        small, large = (compiler.compile(request(tmp_path, n), keep_ir=True) for n in (256, 1024))
        first, second = sorted(cache.glob("*/*.ir.z"), key=lambda p: p.stat().st_mtime_ns)
        first.write_bytes(second.read_bytes())
        again = compiler.compile(request(tmp_path, 256), keep_ir=True)
        assert small.ub_bytes != large.ub_bytes and again.ub_bytes == small.ub_bytes
        assert again.final_ir is not None and "1024" not in again.final_ir


@pytest.mark.toolchain
def test_results_of_other_readers_are_read_again_and_not_compiled(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    with Compiler(toolchain, jobs=1, cache_dir=cache) as compiler:
        first = compiler.compile(request(tmp_path, 256))
    (entry,) = cache.glob("*/*.json")
    stored = json.loads(entry.read_text())
    stored["result"] |= {"readers": "of yesterday", "ub_bytes": 1, "calls": {}}
    entry.write_text(json.dumps(stored))
    with Compiler(replace(toolchain, python=tmp_path / "gone"), jobs=1, cache_dir=cache) as compiler:
        assert compiler.compile(request(tmp_path, 256)) == first
        assert json.loads(entry.read_text())["result"]["ub_bytes"] == first.ub_bytes
        for text in cache.glob("*/*.ir.z"):
            text.unlink()
        assert compiler.compile(request(tmp_path, 256)) == first  # nothing is to be read again
        monkeypatch.setattr(results, "readers_hash", lambda: "of tomorrow")
        monkeypatch.setattr("kgen.virtual.compile.readers_hash", lambda: "of tomorrow")
        with pytest.raises(KgenError):  # compiled anew, with a tool chain that is gone
            compiler.compile(request(tmp_path, 256))


@pytest.mark.toolchain
def test_an_ir_that_cannot_be_read_is_its_kernels_verdict(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kgen.virtual.compile.with_report", lambda result, text: with_report(result, text[:300]))
    with Compiler(toolchain, jobs=1, cache_dir=tmp_path / "cache") as compiler:
        found = compiler.compile(request(tmp_path, 256))
    assert found.verdict == "error" and found.ub_bytes is None
    assert found.message.startswith("the final IR can't be read: line ")
    assert not list((tmp_path / "cache").glob("*/*.json"))  # another kgen may read it


def test_no_file_that_makes_results_is_left_out_of_their_keys() -> None:
    """Each file of kgen/virtual is among the readers of an IR, the driver of the compiler or the rules of the model, or
    is known to say nothing of what is kept."""
    virtual = Path(results.__file__).parent
    known = {*results.READERS, *(virtual / name for name in compile_.DRIVER), *modelled.RULES}
    silent = {"__init__", "cache", "compile", "coverage", "doctor", "environment", "interrupts", "launch",
              "launch_options", "process", "toolchain"}  # fmt: skip
    left = {p for p in virtual.rglob("*.py") if p not in known and p.parent.name not in ("peers", "execute")}
    assert {p.stem for p in left} == silent
    imported = {"hivm", "machine", "timeline", "templates"}
    assert {p.parent.name if p.parent != virtual else p.stem for p in modelled.RULES} == imported


@pytest.mark.toolchain
def test_comments_at_the_top_change_nothing_and_keep_line_numbers(toolchain: Toolchain, tmp_path: Path) -> None:
    asked = request(tmp_path, 256)
    with Compiler(toolchain, jobs=1, cache_dir=tmp_path / "cache") as compiler:
        keys, irs = [], []
        for header in ("# one\n# 123\n", "# another\n# 456\n", "# longer\n# by\n# a line\n"):
            asked.source.write_text(header + KERNELS, encoding="utf-8")
            keys.append(compiler.key(asked))
            irs.append(compiler.compile(asked, keep_ir=True).final_ir or "")
    assert keys[0] == keys[1] != keys[2]
    line = KERNELS.split("\n").index("    tl.store(y + o, tl.load(x + o))") + 1
    assert f'"kernels.py":{line + 2}:' in irs[0].replace(str(tmp_path) + "/", "")
    assert f'"kernels.py":{line + 3}:' in irs[2].replace(str(tmp_path) + "/", "")


@pytest.mark.toolchain
@pytest.mark.parametrize("text", ["cp: error writing: No space left on device", "terminate: std::bad_alloc", ""])
def test_a_failure_for_want_of_room_is_the_machines_and_is_not_kept(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    broken = tmp_path / "bishengir-compile"
    broken.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit 1\n", encoding="utf-8")
    broken.chmod(0o755)
    if not text:
        monkeypatch.setattr(compile_, "_ROOM_BYTES", 1 << 60)
    compiler = Compiler(replace(toolchain, bishengir=broken), jobs=1, cache_dir=tmp_path / "cache")
    with compiler, pytest.raises(KgenError) as caught:
        compiler.compile(request(tmp_path, 256))
    assert caught.value.code == "no-room" and caught.value.exit_code == 2
    assert not list((tmp_path / "cache").glob("*/*.json"))


@pytest.mark.toolchain
def test_a_miscompiled_kernel_has_no_time_anywhere(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(result: CompileResult, text: str) -> CompileResult:
        return replace(with_report(result, text), unwritten=("UB 64xf32 is read and nothing writes it",))

    monkeypatch.setattr("kgen.virtual.compile.with_report", lost)
    sources = pipeline.read(Path("specs/gdn.yaml"))
    kernels, plan = pipeline.planned(sources)
    spec, target, files = sources.loaded.spec, sources.targets[0], pipeline.package(sources, kernels, plan)
    asked = TraceRequest("chunk_local_cumsum", target.name, {"T": 64}, None, "bf16", (), ())
    found = trace_kernel(spec, kernels, plan, target, files, asked, toolchain=str(toolchain.python), cache=False)
    assert found.result.verdict == "error" and found.timeline is None and found.module is not None
    chosen = variants(spec, kernels, plan, target.name, "chunk_local_cumsum")[:1]
    models = Models(spec, kernels)
    (row,) = compile_rows(files, chosen, sources.targets, models, toolchain=str(toolchain.python), cache=False)
    assert (row["verdict"], row["modelled_us"]) == ("error", None) and row["unwritten"]
    with Compiler(toolchain, jobs=1) as compiler, Modeller(1) as modeller:
        text = compiler.compile(request(tmp_path, 256), keep_ir=True)
        assert text.final_ir is not None
        linalg = "module {}"
        launch = CapturedLaunch("k", "k_fwd", (1, 1, 1), (), {}, {}, None, linalg)
        monkeypatch.setattr(compiler, "compile", lambda *_args, **_more: text)
        captured = Captured((launch,), 0)
        (timed_,) = timed(captured, lambda _: "kkt", target.name, compiler, modeller, [Costs.of(target)])
    assert timed_.times == () and timed_.problem.startswith("error: miscompiled")
