"""Loading: values and places of a good spec, and one mistake a test for everything a single field can get wrong."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kgen.errors import KgenError
from kgen.resources import specs_dir
from kgen.spec.check import check_spec
from kgen.spec.load import load_spec
from kgen.spec.models import DimKind
from kgen.spec.schema import json_schema


def test_every_spec_of_kgen_is_good() -> None:
    paths = sorted(specs_dir().glob("*.yaml"))
    assert paths
    for path in paths:
        check_spec(load_spec(path))


def test_values(spec_path: Path) -> None:
    spec = load_spec(spec_path).spec
    assert spec.dims["T"].kind is DimKind.ROWS
    assert spec.kernels["product"].tiles == {"K": (64, 256), "V": (64, 128)}
    assert spec.operator.chain[0].scalars == {"scale": 1.5}
    assert spec.stages["gate_cumsum"].params[2].default is False
    assert spec.tolerances["fp32"] == 1e-5


@pytest.mark.parametrize(
    ("path", "key", "line_text", "pointed_at"),
    [
        (("kernels", "product", "tiles", "K", 1), False, "    tiles: {K: [64, 256], V: [64, 128]}", "256"),
        (("kernels", "product", "tiles", "K"), True, "    tiles: {K: [64, 256], V: [64, 128]}", "K"),
        (("kernels", "product"), False, "  product:", "product"),
        (("tensors", "q", "dtype"), False, "  q: {dims: [T, H, K], dtype: io}", "io"),
        (("kernels", "product", "nothing", "here"), False, "  product:", "product"),
    ],
)
def test_places(spec_path: Path, path: tuple[str | int, ...], key: bool, line_text: str, pointed_at: str) -> None:
    location = load_spec(spec_path).location(path, key=key)
    assert location.text == line_text
    assert location.end_column is not None
    assert location.text[location.column : location.end_column] == pointed_at


def test_caret_points_at_the_value(mistake) -> None:
    error, _ = mistake("bound: cube", "bound: cubes")
    assert "    bound: cubes\n" in error.render()
    source, caret = error.render().splitlines()[2:4]
    assert source.index("cubes") == caret.index("^")
    assert caret.count("^") == len("cubes")


FIELDS = {
    "unknown field": (
        "    bound: cube", "    bonud: cube",
        "spec-unknown-field", "bonud", "kernels.product.bonud: unknown field 'bonud'", "did you mean 'bound'?",
    ),
    "unknown field in a list": (
        "{name: gk, kind: unsupported}", "{nam: gk, kind: unsupported}",
        "spec-unknown-field", "gk", "stages.product_fwd.params[5].nam: unknown field 'nam'", "did you mean 'name'?",
    ),
    "unknown field at the top": (
        "dot_dtype: io", "dot_dtype: io\ndot_dtpye: io",
        "spec-unknown-field", "dot_dtpye", "dot_dtpye: unknown field", "did you mean 'dot_dtype'?",
    ),
    "missing field": (
        "    bound: vector\n", "",
        "spec-missing-field", "  cumsum:", "kernels.cumsum.bound: field 'bound' is missing", "kgen schema",
    ),
    "missing section": (
        "dot_dtype: io\n", "", "spec-missing-field", "name: small", "dot_dtype: field 'dot_dtype' is missing", "add it",
    ),
    "number for text": (
        "doc: The rule.", "doc: 7", "spec-wrong-type", "doc: 7",
        "operator.doc: expected text, found 7", 'quote it: "7"',
    ),
    "text for a number": (
        "max: 200", "max: wide", "spec-wrong-type", "max: wide", "dims.K.max: expected a whole number, found 'wide'",
        "",
    ),
    "quoted number": (
        "max: 200", 'max: "200"', "spec-wrong-type", "200", "dims.K.max: expected a whole number, found '200'", "",
    ),
    "fraction for a whole number": (
        "max: 200", "max: 200.5", "spec-wrong-type", "200.5", "dims.K.max: expected a whole number, found 200.5", "",
    ),
    "text for a switch": (
        "fp32, optional: true}\n  h0", "fp32, optional: yes}\n  h0",
        "spec-wrong-type", "optional: yes", "tensors.g.optional: expected true or false, found 'yes'", "",
    ),
    "one name for a list": (
        "outputs: [o, ht]", "outputs: o", "spec-wrong-type", "outputs: o", "expected a list, found 'o'", "list: [o]",
    ),
    "list for a mapping": (
        "tiles: {K: [64, 256], V: [64, 128]}", "tiles: [64, 256]",
        "spec-wrong-type", "tiles:", "kernels.product.tiles: expected a mapping of names, found a list of 2", "",
    ),
    "nothing for a mapping": (
        "  q: {dims: [T, H, K], dtype: io}", "  q:",
        "spec-wrong-type", "  q:", "tensors.q: expected a mapping of fields, found None", "give it a value",
    ),
    "wrong word": (
        "kind: sequences", "kind: sequence", "spec-bad-value", "sequence}",
        "dims.N.kind: expected one of rows, sequences",
        "did you mean 'sequences'?",
    ),
    "wrong dtype": (
        "[bf16, fp32]", "[bf16, fp23]", "spec-bad-value", "fp23", "dtypes.io[1]: expected one of bf16, fp16, fp32",
        "did you mean",
    ),
    "number out of range": (
        "max: 200", "max: 0", "spec-bad-value", "max: 0", "dims.K.max: expected greater than or equal to 1, found 0",
        "",
    ),
    "no multiple of 16": (
        "tiles: {K: [64, 256]", "tiles: {K: [64, 250]",
        "spec-bad-value", "250", "kernels.product.tiles.K[1]: expected a multiple of 16, found 250", "",
    ),
    "default of no known type": (
        "chunk, default: 64}", "chunk, default: [64]}",
        "spec-wrong-type", "[64]", "stages.product_fwd.params[6].default: expected true or false or a whole number", "",
    ),
    "program without a function": (
        "programs/small.py:product", "programs/small.py",
        "spec-program-reference", "small.py", "'programs/small.py' isn't a program reference",
        "path/to/file.py:function",
    ),
    "name too long": (
        "name: small_rule", "name: " + "s" * 49, "spec-name", "sssss", "longer than 48 characters", "shorten",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FIELDS.values(), ids=FIELDS.keys())
def test_field(mistake, case: tuple[str, ...]) -> None:
    old, new, code, line_part, message, hint = case
    error, line = mistake(old, new)
    assert error.code == code
    assert line_part in line
    assert message in error.message
    assert hint in error.hint
    assert error.hint


def test_first_by_line_and_how_many_more(mistake) -> None:
    error, line = mistake("kind: sequences}\n  NT: {kind: chunks}", "kind: sequence}\n  NT: {kind: chunky}")
    assert "N: {kind: sequence}" in line
    assert error.message.endswith("(1 more)")


def test_only_the_mistyped_field_is_reported_not_the_missing_one(mistake) -> None:
    error, _ = mistake("    bound: cube", "    bonud: cube")
    assert "more)" not in error.message


SYNTAX = {
    "open bracket": ("[bf16, fp32]", "[bf16, fp32", "spec-syntax", "  state", "not valid YAML"),
    "colon in plain text": (
        "doc: The rule.",
        "doc: The rule: this.",
        "spec-syntax",
        "The rule: this",
        "not valid YAML",
    ),
    "tab": ("  io: [bf16", "\tio: [bf16", "spec-syntax", "\tio", "not valid YAML"),
    "unknown alias": ("[bf16, fp32]", "*dtypes", "spec-alias", "*dtypes", "that isn't defined before"),
    "duplicate key": ("  N: {kind", "  T: {kind: heads}\n  N: {kind", "spec-duplicate-key", "heads", "first on line 5"),
    "second document": ("dot_dtype: io", "---\ndot_dtype: io", "spec-documents", "---", "more than one YAML document"),
    "directive": ("# A small", "%YAML 1.1\n---\n# A small", "spec-syntax", "---", "directives"),
    "list as key": (
        "  io: [bf16",
        "  ? [a, b]\n  : [fp16]\n  io: [bf16",
        "spec-syntax",
        "[a, b]",
        "a key must be a name",
    ),
    "infinite number": ("bf16: 0.005", "bf16: .inf", "spec-number", ".inf", "isn't a finite number"),
    "no number": ("bf16: 0.005", "bf16: .nan", "spec-number", ".nan", "isn't a finite number"),
    "overflowing number": ("bf16: 0.005", "bf16: 1e999", "spec-number", "1e999", "too large"),
    "endless digits": ("max: 200", "max: " + "9" * 5000, "spec-number", "999", "number of 5000 digits"),
}


@pytest.mark.parametrize("case", SYNTAX.values(), ids=SYNTAX.keys())
def test_syntax(mistake, case: tuple[str, ...]) -> None:
    old, new, code, line_part, message = case
    error, line = mistake(old, new)
    assert error.code == code
    assert line_part in line
    assert message in error.message
    assert error.hint


def test_a_key_is_its_text(spec_path: Path) -> None:
    spec_path.write_text(spec_path.read_text().replace("  N: {kind: sequences}", "  N: {kind: sequences}\n  12: {}"))
    with pytest.raises(KgenError, match="'12' isn't an identifier"):
        load_spec(spec_path)


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "null\n"])
def test_empty_file(spec_path: Path, text: str) -> None:
    spec_path.write_text(text)
    with pytest.raises(KgenError) as caught:
        load_spec(spec_path)
    assert caught.value.code == "spec-empty"


@pytest.mark.parametrize("text", ["[1, 2]\n", "just text\n"])
def test_no_mapping(spec_path: Path, text: str) -> None:
    spec_path.write_text(text)
    with pytest.raises(KgenError, match="expected a mapping of fields") as caught:
        load_spec(spec_path)
    assert caught.value.code == "spec-wrong-type"


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(KgenError, match="No such file") as caught:
        load_spec(tmp_path / "gone.yaml")
    assert caught.value.code == "spec-unreadable"


def test_folder_for_a_file(tmp_path: Path) -> None:
    with pytest.raises(KgenError, match="isn't a file") as caught:
        load_spec(tmp_path)
    assert caught.value.code == "spec-unreadable"


def test_aliases_are_allowed_in_moderation(spec_path: Path) -> None:
    text = spec_path.read_text()
    text = text.replace("K: [64, 256], V: [64, 128]}\nstages", "K: &k [64, 256], V: &v [64, 128]}\nstages")
    text = text.replace("buckets: {K: [64, 256], V: [64, 128]}", "buckets: {K: *k, V: *v}")
    spec_path.write_text(text)
    assert load_spec(spec_path).spec.buckets == {"K": (64, 256), "V": (64, 128)}


def test_byte_order_mark(spec_path: Path) -> None:
    spec_path.write_bytes(b"\xef\xbb\xbf" + spec_path.read_bytes())
    assert load_spec(spec_path).spec.name == "small"


def test_windows_line_ends_keep_the_lines(spec_path: Path) -> None:
    spec_path.write_bytes(spec_path.read_bytes().replace(b"\n", b"\r\n"))
    assert load_spec(spec_path).location(("dims", "N", "kind")).line == 6


def test_loading_is_quick() -> None:
    """The whole start of `kgen build` waits for it; the limit leaves room for a busy machine."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        load_spec(specs_dir() / "gdn.yaml")
        times.append(time.perf_counter() - start)
    assert min(times) < 0.2


def test_schema_refuses_unknown_fields() -> None:
    schema = json_schema()
    assert schema["additionalProperties"] is False
    assert set(schema["required"]) >= {"name", "dims", "tensors", "kernels"}
    assert schema["$schema"].startswith("https://json-schema.org/")
