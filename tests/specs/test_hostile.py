"""Specs from strangers: nothing in one is executed, costs much, or shows a file it has no business with."""

from __future__ import annotations

import builtins
import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kgen.errors import KgenError
from kgen.spec.check import check_spec
from kgen.spec.load import load_spec

PROGRAM = "programs/small.py:product"
LIMIT_S = 10.0  # far above what any of these takes, far below what an unbounded one would


def refused(path: Path, text: str | bytes) -> KgenError:
    """The error of a file with this text, which must come soon and be short."""
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    start = time.perf_counter()
    with pytest.raises(KgenError) as caught:
        check_spec(load_spec(path))
    assert time.perf_counter() - start < LIMIT_S
    assert len(caught.value.render()) < 2000
    return caught.value


# -- YAML


@pytest.mark.parametrize(
    "value",
    [
        "!!python/object/apply:os.system [touch HERE]",
        "!!python/name:os.system",
        "!!python/object/new:subprocess.Popen [[touch, HERE]]",
        "!!binary aGk=",
        "!!str small",
        "! small",
        "!custom small",
        "!<tag:yaml.org,2002:str> small",
    ],
)
def test_tags(tmp_path: Path, value: str) -> None:
    error = refused(tmp_path / "spec.yaml", f"doc: x\nname: {value.replace('HERE', str(tmp_path / 'touched'))}\n")
    assert error.code == "spec-tag"
    assert error.location is not None
    assert error.location.line == 2
    assert not (tmp_path / "touched").exists()


def test_tag_of_the_whole_document(tmp_path: Path) -> None:
    assert refused(tmp_path / "spec.yaml", "!!python/object:builtins.dict\nname: x\n").code == "spec-tag"


def test_tag_handle(tmp_path: Path) -> None:
    text = "%TAG !p! tag:yaml.org,2002:python/\n---\nname: !p!name:os.system\n"
    assert refused(tmp_path / "spec.yaml", text).code == "spec-syntax"


def test_billion_laughs(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    error = refused(tmp_path / "spec.yaml", "\n".join(lines) + "\n")
    assert error.code in ("spec-too-large", "spec-alias")
    assert error.location is not None
    assert error.location.line > 1


def test_many_aliases(tmp_path: Path) -> None:
    error = refused(tmp_path / "spec.yaml", "a: &a x\nb:\n" + "- *a\n" * 65)
    assert error.code == "spec-alias"
    assert error.location is not None
    assert error.location.line == 67


def test_alias_of_what_holds_it(tmp_path: Path) -> None:
    error = refused(tmp_path / "spec.yaml", "a: &a [x, *a]\n")
    assert error.code == "spec-alias"
    assert "inside itself" in error.message


def test_alias_as_key(tmp_path: Path) -> None:
    assert refused(tmp_path / "spec.yaml", "a: &a x\n*a : y\n").code == "spec-alias"


def test_merge_keys_mean_nothing(tmp_path: Path) -> None:
    error = refused(tmp_path / "spec.yaml", "<<: &a {name: x}\n")
    assert error.code == "spec-unknown-field"
    assert "'<<'" in error.message


@pytest.mark.parametrize("text", ["name: " + "[" * 25 + "]" * 25, "[" * 100_000, "{a: " * 10_000, "- " * 10_000])
def test_deep_nesting(tmp_path: Path, text: str) -> None:
    assert refused(tmp_path / "spec.yaml", text).code == "spec-too-deep"


def test_deep_nesting_by_indentation(tmp_path: Path) -> None:
    error = refused(tmp_path / "spec.yaml", "".join(f"{' ' * i}a:\n" for i in range(1000)))
    assert error.code == "spec-too-deep"
    assert error.location is not None
    assert error.location.line == 25


def test_deep_nesting_through_aliases(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [[[*a{i - 1}]]]" for i in range(1, 10)]
    assert refused(tmp_path / "spec.yaml", "\n".join(lines) + "\n").code == "spec-too-deep"


def test_large_file(tmp_path: Path) -> None:
    assert refused(tmp_path / "spec.yaml", b"#" * ((1 << 20) + 1)).code == "spec-too-large"


@pytest.mark.parametrize(
    "text",
    [
        "# " + "x" * 1_000_000,
        "name: " + "x" * 1_000_000,
        "name: " + "x " * 500_000,
        "name: |\n" + "  x\n" * 250_000,
        'name: "' + "\\\n" * 500_000 + '"',
        "name: '" + "\n" * 1_000_000 + "'",
        "\n" * 1_000_000,
        "a: &" + "x" * 1_000_000,
        "? " * 300_000,
        "- x\n" * 250_000,
        "".join(f"k{i}: 1\n" for i in range(90_000)),
        "dims:\n" + "".join(f"  D{i}: {{kind: oops}}\n" for i in range(9_000)),
        "{" + ", ".join(f"k{i}" for i in range(90_000)) + "}",
    ],
    ids=lambda text: repr(text[:12]),
)
def test_a_megabyte_of_anything(tmp_path: Path, text: str) -> None:
    refused(tmp_path / "spec.yaml", text[: 1 << 20])


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"name: \xff\xfe\n", "spec-encoding"),
        ("name: small\n".encode("utf-16"), "spec-encoding"),
        (b"name: a\x00b\n", "spec-syntax"),
        (b"name: \x1b[31mred\n", "spec-syntax"),
        (b'name: "\\U00110000"\n', "spec-syntax"),
        (b'name: "\\x"\n', "spec-syntax"),
    ],
)
def test_odd_characters(tmp_path: Path, data: bytes, code: str) -> None:
    error = refused(tmp_path / "spec.yaml", data)
    assert error.code == code
    assert error.location is not None
    assert error.location.line == 1
    assert "\x1b" not in error.render()


def test_half_a_character(mistake) -> None:
    """A lone surrogate is no text that a file could hold; written out later it would be a crash."""
    error, _ = mistake("doc: The rule.", 'doc: "\\uD800"')
    assert error.code == "spec-syntax"


def test_terminal_escapes_in_values_are_shown_as_text(mistake) -> None:
    error, _ = mistake("name: small\n", 'name: "\\e[2Jsmall"\n')
    assert "\x1b" not in error.render()
    assert "\\x1b" in error.message


def test_right_to_left_marks_are_shown_as_text(mistake) -> None:
    error, _ = mistake("name: small\n", "name: sm\u202eall\n")
    assert "\u202e" not in error.render()


@settings(max_examples=300, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.sampled_from("ab:- \n\t[]{},&*!|>'\"%@`#?\\0x1.~<=\u00e9\u2028"), max_size=60))
def test_any_text_is_refused_in_kgens_own_words(tmp_path: Path, text: str) -> None:
    refused(tmp_path / "spec.yaml", text)


@settings(max_examples=200, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_change_of_a_good_spec_loads_or_is_refused(spec_path: Path, data: st.DataObject) -> None:
    text = (Path(__file__).parent / "data" / "small.yaml").read_text()
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 40)))
    piece = data.draw(st.sampled_from(["", "x", "null", "[]", "{}", "-1", "1e9", ": ", "'", "\n", "- ", "*a", "true"]))
    spec_path.write_text(text[:start] + piece + text[end:])
    try:
        check_spec(load_spec(spec_path))
    except KgenError as error:
        assert error.code
        assert error.hint
        assert len(error.render()) < 2000


# -- names that would be code


CODE = [
    'x\\"; import os',
    "x\\nimport os",
    "x\\n",
    "x; import os",
    "x()",
    "x.y",
    "x y",
    "__import__('os')",
    "{{ x }}",
    "{% raw %}",
    "",
    " x",
    "9x",
    "x-y",
    "\u00e9t\u00e9",
    "\uff58",  # a full-width x, which Python folds to x
    "x\u200b",
]


@pytest.mark.parametrize("name", CODE)
@pytest.mark.parametrize("place", ["operator", "tensor", "parameter", "to", "spec"])
def test_name_that_is_no_identifier(mistake, place: str, name: str) -> None:
    quoted = f'"{name}"'
    old, new = {
        "operator": ("name: small_rule", f"name: {quoted}"),
        "tensor": ("  o: {dims", f"  {quoted}: {{dims"),
        "parameter": ("{name: gk,", f"{{name: {quoted},"),
        "to": ("to: g_raw, required", f"to: {quoted}, required"),
        "spec": ("name: small\n", f"name: {quoted}\n"),
    }[place]
    error, line = mistake(old, new)
    assert error.code == "spec-name"
    assert quoted in line
    assert "isn't an identifier" in error.message
    assert "letters, digits and '_'" in error.hint


@pytest.mark.parametrize(
    "name", ["class", "lambda", "None", "import", "tl", "triton", "torch", "__class__", "__builtins__"]
)
@pytest.mark.parametrize("old", ["name: small_rule", "  o: {dims", "{name: gk,"])
def test_name_of_python_or_of_emitted_modules(mistake, old: str, name: str) -> None:
    word = {"name: small_rule": "small_rule", "  o: {dims": "o:", "{name: gk,": "gk"}[old]
    error, line = mistake(old, old.replace(word, f"{name}:" if word == "o:" else name))
    assert error.code == "spec-name"
    assert name in line
    assert "reserved in the emitted source" in error.message
    assert error.hint == "choose another name"


@pytest.mark.parametrize("name", ["eval", "exec", "open", "print", "__import__", "len", "int"])
def test_builtins_cant_be_hidden(mistake, name: str) -> None:
    assert hasattr(builtins, name)
    error, _ = mistake("{name: gk,", f"{{name: {name},")
    assert error.code == "spec-name"


def test_text_is_only_text(spec_path: Path) -> None:
    """Free text may hold anything printable: what makes it safe is that the emitter writes it through repr."""
    text = spec_path.read_text().replace("doc: The rule.", 'doc: \'"""; import os #\'')
    spec_path.write_text(text)
    assert load_spec(spec_path).spec.operator.doc == '"""; import os #'


@pytest.mark.parametrize("target", ["../../etc/passwd", "/etc/passwd", "a/b", "..", "x.yaml"])
def test_target_names_are_no_paths(mistake, target: str) -> None:
    error, _ = mistake("[Ascend910B2, cuda", f'["{target}", cuda')
    assert error.code == "spec-name"


# -- paths


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret.py"
    path.write_text("password = 'hunter2'\n")
    return path


def check_escape(error: KgenError, code: str = "program-escape") -> None:
    assert error.code == code
    assert error.hint
    assert "hunter2" not in error.render()


def test_path_upwards(mistake, secret: Path) -> None:
    error, line = mistake(PROGRAM, "../secret.py:product")
    check_escape(error)
    assert "../secret.py" in line
    assert "leaves the spec's folder" in error.message


def test_path_upwards_in_the_middle(mistake, secret: Path) -> None:
    check_escape(mistake(PROGRAM, "programs/../../secret.py:product")[0])


def test_absolute_path(mistake) -> None:
    check_escape(mistake(PROGRAM, "/etc/secret.py:product")[0])


def test_absolute_path_into_the_folder_itself(mistake, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right on this machine only, so refused too."""
    monkeypatch.chdir(folder)
    check_escape(mistake(PROGRAM, "//programs/small.py:product")[0])


def test_link_out_of_the_folder(folder: Path, mistake, secret: Path) -> None:
    (folder / "programs" / "link.py").symlink_to(secret)
    error, line = mistake(PROGRAM, "programs/link.py:product")
    check_escape(error)
    assert "link.py" in line


def test_linked_folder(folder: Path, mistake, secret: Path) -> None:
    (folder / "away").symlink_to(secret.parent)
    check_escape(mistake(PROGRAM, "away/secret.py:product")[0])


def test_linked_folder_isnt_listed(folder: Path, mistake, secret: Path) -> None:
    (folder / "away").symlink_to(secret.parent)
    error, _ = mistake(PROGRAM, "away/secrets.py:product")
    assert error.code == "program-escape"
    assert "'away/secret.py'" not in error.hint


def test_link_to_nowhere(folder: Path, mistake, tmp_path: Path) -> None:
    (folder / "programs" / "link.py").symlink_to(tmp_path / "nothing.py")
    check_escape(mistake(PROGRAM, "programs/link.py:product")[0])


def test_links_in_a_circle(folder: Path, mistake) -> None:
    (folder / "programs" / "a.py").symlink_to("b.py")
    (folder / "programs" / "b.py").symlink_to("a.py")
    check_escape(mistake(PROGRAM, "programs/a.py:product")[0])


def test_link_inside_the_folder_is_fine(folder: Path, spec_path: Path) -> None:
    (folder / "programs" / "link.py").symlink_to("small.py")
    spec_path.write_text(spec_path.read_text().replace(PROGRAM, "programs/link.py:product"))
    check_spec(load_spec(spec_path))


def test_link_to_another_kind_of_file(folder: Path, mistake) -> None:
    (folder / "notes.txt").write_text("x")
    (folder / "programs" / "link.py").symlink_to(folder / "notes.txt")
    error, _ = mistake(PROGRAM, "programs/link.py:product")
    check_escape(error)
    assert "isn't a .py file" in error.message


def test_pipe_for_a_program(folder: Path, mistake) -> None:
    os.mkfifo(folder / "programs" / "pipe.py")
    error, _ = mistake(PROGRAM, "programs/pipe.py:product")
    assert error.code == "program-missing"


def test_pipe_for_a_spec(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "spec.yaml")
    with pytest.raises(KgenError) as caught:
        load_spec(tmp_path / "spec.yaml")
    assert caught.value.code == "spec-unreadable"


def test_spec_that_links_away(folder: Path, secret: Path) -> None:
    (folder / "link.yaml").symlink_to(secret)
    with pytest.raises(KgenError) as caught:
        load_spec(folder / "link.yaml")
    check_escape(caught.value, "spec-link")


@pytest.mark.parametrize(
    "reference", ["programs/small.py:a.b", "programs/small.py:", "a b.py:f", "x.py:f;g", "a\\\\b.py:f"]
)
def test_program_reference_of_odd_characters(mistake, reference: str) -> None:
    error, _ = mistake(PROGRAM, f'"{reference}"')
    assert error.code == "spec-program-reference"
    assert error.hint == "write path/to/file.py:function"
