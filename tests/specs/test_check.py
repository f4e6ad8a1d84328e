"""Cross-field checks, one mistake a test: code, line, what is said and what is proposed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgen.errors import KgenError
from kgen.spec.check import check_spec
from kgen.spec.load import load_spec
from kgen.spec.programs import read_program

Q = "  q: {dims: [T, H, K], dtype: io}"
STATE = "store_if: {state_v_first: [N, HV, V, K]}"

NAMES = {
    "unknown dim": (Q, Q.replace("H", "HW"), "spec-unknown-dim", "HW", "tensors.q.dims[1]: unknown dim 'HW'", "'H'?"),
    "unknown dim in store": (
        "store: [HV, T], dtype: fp32}", "store: [HV, TT], dtype: fp32}",
        "spec-unknown-dim", "g_raw", "tensors.g_raw.store[1]: unknown dim 'TT'", "'T'?",
    ),
    "unknown dtype": (
        Q, Q.replace("io", "oi"), "spec-unknown-dtype", "oi", "tensors.q.dtype: unknown dtype 'oi'", "known",
    ),
    "unknown dot dtype": (
        "dot_dtype: io", "dot_dtype: bf61", "spec-unknown-dtype", "bf61", "dot_dtype: unknown", "'bf16'?",
    ),
    "unknown flag": (
        STATE, STATE.replace("state_v_first", "state_first"),
        "spec-unknown-flag", "state_first", "unknown flag 'state_first'", "did you mean 'state_v_first'?",
    ),
    "unknown tensor bound": (
        "bind: {s: g_raw, o: g}", "bind: {s: graw, o: g}",
        "spec-unknown-tensor", "graw", "kernels.cumsum.bind.s: unknown tensor 'graw'", "did you mean 'g_raw'?",
    ),
    "unknown output": (
        "outputs: [o, ht]", "outputs: [o, hte]",
        "spec-unknown-tensor", "hte", "kernels.product.outputs[1]: unknown tensor 'hte'", "did you mean 'ht'?",
    ),
    "unknown tensor given": (
        "given: [o]", "given: [og]", "spec-unknown-tensor", "og", "kernels.cumsum.given[0]: unknown tensor", "'o'?",
    ),
    "given though never absent": (
        "given: [o]", "given: [s]", "spec-optional", "[s]", "'g_raw' isn't optional", "remove it",
    ),
    "unknown tensor in a stage": (
        "{name: g, kind: tensor}", "{name: gg, kind: tensor}",
        "spec-unknown-tensor", "gg", "stages.product_fwd.params[2].name: unknown tensor 'gg'", "'g'?",
    ),
    "unknown tensor a parameter stands for": (
        "to: g_raw, required: true}", "to: g_rav, required: true}",
        "spec-unknown-tensor", "g_rav", "stages.gate_cumsum.params[0].to: unknown tensor 'g_rav'", "'g_raw'?",
    ),
    "unknown tensor returned": (
        "returns: [g]", "returns: [gr]", "spec-unknown-tensor", "gr", "stages.gate_cumsum.returns[0]: unknown", "'g'?",
    ),
    "returned but not written": (
        "returns: [g]", "returns: [v]", "spec-unavailable", "[v]", "no kernel of this stage writes 'v'", "g",
    ),
    "unknown kernel": (
        "kernels: [product]", "kernels: [prodcut]",
        "spec-unknown-kernel", "prodcut", "stages.product_fwd.kernels[0]: unknown kernel 'prodcut'", "'product'?",
    ),
    "unknown stage": (
        "{stage: product_fwd}", "{stage: product_fw}",
        "spec-unknown-stage", "product_fw}", "operator.chain[1].stage: unknown stage 'product_fw'", "'product_fwd'?",
    ),
    "unknown scalar": (
        "{name: scale, kind: scalar}", "{name: scala, kind: scalar}", "spec-unknown-scalar", "scala", "unknown",
        "'scale'?",
    ),
    "unknown scalar in the chain": (
        "scalars: {scale: 1.5}", "scalars: {scala: 1.5}", "spec-unknown-scalar", "scala", "operator.chain[0]",
        "'scale'?",
    ),
    "unknown flag in the chain": (
        "flags: {reverse: false}", "flags: {revers: false}", "spec-unknown-flag", "revers", "unknown flag",
        "'reverse'?",
    ),
    "unknown flag of a stage": (
        "{name: reverse,", "{name: revers,", "spec-unknown-flag", "revers", "unknown flag 'revers'", "'reverse'?",
    ),
    "unknown table": (
        "{name: cu_seqlens,", "{name: cu_seqlen,", "spec-unknown-table", "cu_seqlen", "unknown table", "'cu_seqlens'?",
    ),
    "unknown target": (
        "[Ascend910B2, cuda", "[Ascend910B7, cuda", "spec-unknown-target", "910B7", "targets[0]: unknown target",
        "910B2",
    ),
    "unknown dim tiled": (
        "tiles: {K: [64, 256]", "tiles: {KK: [64, 256]", "spec-unknown-static-dim", "KK", "unknown static dim 'KK'",
        "'K'?",
    ),
    "heads tiled": (
        "tiles: {K: [64, 256]", "tiles: {HV: [64, 256]", "spec-unknown-static-dim", "HV", "unknown static dim", "'V'?",
    ),
    "unknown dim in buckets": (
        "buckets: {K: [64, 256]", "buckets: {Q: [64], K: [64, 256]", "spec-unknown-static-dim", "Q", "unknown", "K, V",
    ),
    "unknown key heads": (
        "group_of: H}", "group_of: G}", "spec-unknown-dim", "group_of: G", "dims.HV.group_of: unknown dim 'G'", "known",
    ),
}  # fmt: skip

SHAPES = {
    "store of other dims": (
        "store: [HV, T], dtype: fp32}", "store: [HV, K], dtype: fp32}",
        "spec-store", "[HV, K]", "[HV, K] isn't a permutation of dims [T, HV]", "[T, HV] if they lie as indexed",
    ),
    "store with a dim twice": (
        STATE, STATE.replace("V, K", "K, K"), "spec-store", "K, K", "tensors.h0.store_if.state_v_first", "N, HV, K, V",
    ),
    "tile of no power of two": (
        "tiles: {K: [64, 256]", "tiles: {K: [64, 96]",
        "spec-impossible-tile", "96", "kernels.product.tiles.K[1]: impossible tile 96",
        "nearest is 64; possible: 16, 32, 64",
    ),
    "tile larger than its dim": (
        "V: [64, 128]}\nstages", "V: [64, 256]}\nstages",
        "spec-impossible-tile", "256", "impossible tile 256: V is at most 128", "nearest is 128",
    ),
    "tile listed twice": (
        "tiles: {K: [64, 256]", "tiles: {K: [64, 64]", "spec-repeated", "64, 64", "64 is listed twice", "remove",
    ),
    "no tile": ("tiles: {K: [64, 256]", "tiles: {K: []", "spec-empty-list", "[]", "the list is empty", "candidate"),
    "tile too large for any dim": (
        "tiles: {K: [64, 256]", "tiles: {K: [64, 2048]", "spec-bad-value", "2048", "less than or equal to 1024",
        "change",
    ),
    "buckets short of the max": (
        "buckets: {K: [64, 256]", "buckets: {K: [64, 128]", "spec-buckets", "buckets:", "doesn't cover K's max 200",
        "256",
    ),
    "buckets out of order": (
        "buckets: {K: [64, 256]", "buckets: {K: [256, 64]", "spec-buckets", "buckets:", "must ascend", "[64, 256]",
    ),
    "buckets missing": (
        "buckets: {K: [64, 256], V", "buckets: {V", "spec-buckets", "tiles:", "K is tiled, but buckets", "add K",
    ),
    "no rows": (
        "T: {kind: rows}", "T: {kind: heads}", "spec-dims", "dims:", "exactly one dim of kind 'rows', found 0", "add",
    ),
    "two rows": ("NT: {kind: chunks}", "NT: {kind: rows}", "spec-dims", "NT", "kind 'rows', found 2", "T, NT"),
    "static without max": (
        "K: {kind: static, max: 200}", "K: {kind: static}", "spec-dims", "K:", "have a max", "add max",
    ),
    "heads with max": ("H: {kind: heads}", "H: {kind: heads, max: 4}", "spec-dims", "H:", "have a max", "remove max"),
    "chunk without values": (
        "chunk, values: [16, 32, 64]}", "chunk}", "spec-dims", "BT", "'chunk' has values", "add values",
    ),
    "group of rows": ("group_of: H}", "group_of: T}", "spec-dims", "HV", "isn't an ungrouped heads dim", "H"),
    "group of itself": ("group_of: H}", "group_of: HV}", "spec-dims", "HV", "isn't an ungrouped heads dim", "H"),
    "rows grouped": (
        "T: {kind: rows}", "T: {kind: rows, group_of: H}", "spec-dims", "T:", "only a dim of kind", "remove",
    ),
    "no tolerance": ("bf16: 0.005, ", "", "spec-tolerance", "tolerances:", "none given for bf16", "add bf16"),
    "edge shape too wide": (
        "{K: 60, V: 64}", "{K: 60, V: 640}", "spec-shape", "640", "V = 640 is outside 1 to 128", "change",
    ),
}  # fmt: skip

CLASHES = {
    "tensor named like a dim": (
        "  o: {dims", "  T: {dims", "spec-name-clash", "  T: {dims", "'T' already names something in dims (line 5)",
        "rename",
    ),
    "scalar named like a flag": (
        "  scale: {}", "  reverse: {}", "spec-name-clash", "  reverse: {}", "already names something in flags",
        "rename",
    ),
    "operator named like a stage": (
        "name: small_rule", "name: product_fwd", "spec-name-clash", "name: product_fwd", "in stages", "rename",
    ),
    "parameter twice": (
        "{name: initial_state, kind: tensor, to: h0}\n      -", "{name: q, kind: tensor, to: h0}\n      -",
        "spec-name-clash", "to: h0", "stages.product_fwd.params[3].name: 'q' already", "rename",
    ),
    "dtype list named like a dtype": (
        "  state: [fp32]", "  fp32: [fp32]", "spec-name-clash", "fp32: [fp32]", "'fp32' is a dtype itself",
        "name of its own",
    ),
    "tensor named like a built-in of programs": (
        "  o: {dims", "  dot: {dims", "spec-name", "  dot:", "'dot' is a name of the tile language", "'dot_t'",
    ),
    "parameter named like a built-in of Python": (
        "{name: gk,", "{name: max,", "spec-name", "max", "'max' is a name of Python", "choose another",
    ),
    "stage named like a built-in of Python": (
        "  gate_cumsum:\n", "  print:\n", "spec-name", "  print:", "'print' is a name of Python", "choose another",
    ),
    "name of kgen's own kind": ("  o: {dims", "  _o: {dims", "spec-name", "  _o:", "'_o' starts with '_'", "write 'o'"),
}  # fmt: skip

SIGNATURES = {
    "flag without a default": (
        "kind: flag, default: false", "kind: flag", "spec-param", "reverse", "the default of a 'flag' parameter",
        "true or",
    ),
    "scalar with a flag's default": (
        "{name: scale, kind: scalar}", "{name: scale, kind: scalar, default: true}",
        "spec-param", "default: true", "stages.gate_cumsum.params[3].default", "a float",
    ),
    "tensor with a default": (
        "{name: g, kind: tensor}", "{name: g, kind: tensor, default: 1.0}", "spec-param", "1.0",
        "is nothing, found 1.0", "",
    ),
    "chunk size that isn't one": (
        "chunk, default: 64}", "chunk, default: 48}", "spec-param", "48", "one of 16, 32, 64, found 48", "write one of",
    ),
    "second chunk size": (
        "{name: cu_seqlens, kind: table}", "{name: cu_seqlens, kind: chunk, default: 64}",
        "spec-param", "cu_seqlens", "a second chunk size", "remove",
    ),
    "table that stands for something": (
        "{name: cu_seqlens, kind: table}", "{name: cu_seqlens, kind: table, to: g}",
        "spec-param", "to: g", "a parameter of kind 'table' stands for nothing", "remove to",
    ),
    "required with a default": (
        "kind: flag, default: false", "kind: flag, required: true, default: false",
        "spec-param", "required", "a required parameter has no default", "remove",
    ),
    "unsupported with a value": (
        "{name: gk, kind: unsupported}", "{name: gk, kind: unsupported, default: true}",
        "spec-param", "gk", "false or nothing", "write false or nothing",
    ),
    "unsupported yet required": (
        "{name: gk, kind: unsupported}", "{name: gk, kind: unsupported, required: true}",
        "spec-param", "gk", "an unsupported parameter can't be required", "remove required",
    ),
    "switch of a tensor that isn't returned": (
        "to: ht, default: false}\n      -", "to: h0, default: false}\n      -",
        "spec-optional", "h0", "'h0' isn't an optional tensor that is returned here", "ht",
    ),
    "output dtype of what isn't returned": (
        "output_dtype, to: g, default", "output_dtype, to: v, default", "spec-unknown-tensor", "to: v",
        "unknown tensor", "g",
    ),
    "scale from a dim that isn't there": (
        "  K: {kind: static, max: 200}", "  KD: {kind: static, max: 200}", "spec-unknown-dim", "q:",
        "unknown dim 'K'", "'KD'?",
    ),
}  # fmt: skip

CHAINS = {
    "when of an unknown tensor": (
        "when: g_raw", "when: g_rav", "spec-unknown-tensor", "g_rav", "operator.chain[0].when: unknown tensor",
        "'g_raw'?",
    ),
    "when of a required tensor": (
        "when: g_raw", "when: q", "spec-optional", "when: q", "'q' is a required parameter of the operator",
        "remove when",
    ),
    "optional tensor without when": (
        "{stage: gate_cumsum, when: g_raw, ", "{stage: gate_cumsum, ",
        "spec-optional", "gate_cumsum", "gate_cumsum needs 'g_raw', which may be absent here", "add when: g_raw",
    ),
    "nothing makes it": (
        "    - {name: v, kind: tensor, required: true}\n    - {name: g,", "    - {name: g,",
        "spec-unavailable", "product_fwd", "product_fwd needs 'v', which nothing before it makes", "known: ",
    ),
    "unmade return": (
        "    - {stage: product_fwd}\n", "", "spec-unavailable", "returns", "no step of the chain makes 'o'", "known: ",
    ),
    "empty chain": (
        "    - {stage: gate_cumsum, when: g_raw, scalars: {scale: 1.5}, flags: {reverse: false}}\n"
        "    - {stage: product_fwd}\n",
        "    []\n", "spec-empty-list", "[]", "operator.chain: the list is empty", "list the stages",
    ),
}  # fmt: skip

CASES = NAMES | SHAPES | CLASHES | SIGNATURES | CHAINS


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_misfit(mistake, case: tuple[str, ...]) -> None:
    old, new, code, line_part, message, hint = case
    error, line = mistake(old, new)
    assert error.code == code
    assert line_part in line
    assert message in error.message
    assert hint in error.hint
    assert error.hint


PROGRAM = "programs/small.py:product"


def test_missing_program(mistake) -> None:
    error, line = mistake(PROGRAM, "programs/smal.py:product")
    assert error.code == "program-missing"
    assert line == "    program: programs/smal.py:product"
    assert "no program file 'programs/smal.py'" in error.message
    assert error.hint == "did you mean 'programs/small.py'?"


def test_program_of_kgen_itself(spec_path: Path) -> None:
    spec_path.write_text(spec_path.read_text().replace(PROGRAM, "programs/delta_rule.py:kkt"))
    loaded = load_spec(spec_path)
    check_spec(loaded)
    program = read_program(loaded, "product")
    assert program.function == "kkt"
    assert program.name == "programs/delta_rule.py"
    assert "def kkt(" in program.text


def test_the_specs_own_program_comes_first(folder: Path) -> None:
    (folder / "programs" / "delta_rule.py").write_text("def kkt(): pass\n")
    path = folder / "small.yaml"
    path.write_text(path.read_text().replace(PROGRAM, "programs/delta_rule.py:kkt"))
    assert read_program(load_spec(path), "product").text == "def kkt(): pass\n"


def test_folder_named_like_a_program(folder: Path, mistake) -> None:
    (folder / "programs" / "folder.py").mkdir()
    error, _ = mistake(PROGRAM, "programs/folder.py:product")
    assert error.code == "program-missing"


def test_program_too_large(folder: Path) -> None:
    (folder / "programs" / "small.py").write_bytes(b"#" * (256 * 1024 + 1))
    with pytest.raises(KgenError, match="larger than 262144 bytes") as caught:
        check_spec(load_spec(folder / "small.yaml"))
    assert caught.value.code == "program-too-large"
    assert caught.value.location is not None
    assert caught.value.location.text == "    program: programs/small.py:cumsum_rows"


def test_program_of_another_encoding(folder: Path) -> None:
    (folder / "programs" / "small.py").write_bytes(b"# \xff\xfe\n")
    with pytest.raises(KgenError, match="not UTF-8") as caught:
        check_spec(load_spec(folder / "small.yaml"))
    assert caught.value.code == "program-encoding"


def test_required_after_optional_is_allowed(spec_path: Path) -> None:
    """fla's signatures have it; the emitter gives such a parameter the default None and refuses it."""
    old = "      - {name: gk, kind: unsupported}\n      - {name: chunk_size, kind: chunk, default: 64}\n"
    text = spec_path.read_text()
    assert old in text
    spec_path.write_text(text.replace(old, "      - {name: chunk_size, kind: chunk, required: true}\n"))
    check_spec(load_spec(spec_path))
