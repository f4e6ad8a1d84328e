"""One test a mistake in a tile program: its code, line, column and next step. Guillemets mark where the caret goes."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from kgen.errors import KgenError
from kgen.ir.parse import parse_kernel
from kgen.spec.load import load_spec

ROOT = Path(__file__).parents[2]
SPEC = load_spec(ROOT / "specs" / "gdn.yaml").spec


def refused(kernel: str, marked: str) -> KgenError:
    """The error that a program meets, after checking that it points at the part between guillemets."""
    source = marked.replace("«", "").replace("»", "")
    with pytest.raises(KgenError) as caught:
        parse_kernel(SPEC, kernel, source, "p.py")
    error = caught.value
    assert error.location is not None and error.location.path == "p.py"
    if "«" in marked:
        line = next(i for i, text in enumerate(marked.split("\n"), 1) if "«" in text)
        text = marked.split("\n")[line - 1]
        start, end = text.index("«"), text.index("»") - 1
        assert (error.location.line, error.location.column) == (line, start), error.render()
        assert error.location.end_column in (None, end), error.render()
        caret = error.location.excerpt().splitlines()[1]
        assert caret.index("^") == len(f"{line:5d} | ") + start
    return error


def kkt(*lines: str, task: str = "tasks(chunks(T), heads(HV))") -> str:
    """The kkt program with other statements in its loop."""
    return f"def kkt(k, g, beta, A):\n    for t in {task}:\n" + textwrap.indent("\n".join(lines), " " * 8) + "\n"


STATEMENTS = {
    "while": ("«w»hile True:", "    a = zeros(t)", "program-syntax", "while", "statements are"),
    "import": ("«import os»", "", "program-syntax", "import", "statements are"),
    "annotation": ("«a: float = zeros(t)»", "", "program-syntax", "annotation", "statements are"),
    "return": ("«return»", "", "program-syntax", "return", "statements are"),
    "delete": ("«del A»", "", "program-syntax", "del", "statements are"),
    "bare call": ("«print(t)»", "", "program-syntax", "bare expression", "statements are"),
    "two targets": ("«a = b = zeros(t)»", "", "program-syntax", "assignment", "statements are"),
    "lambda": ("a = «lambda x: x»", "", "program-syntax", "lambda", "expressions are"),
    "comprehension": ("a = «[k for _ in g]»", "", "program-syntax", "comprehension", "expressions are"),
    "generator": ("a = sum«(x for x in g)»", "", "program-syntax", "comprehension", "expressions are"),
    "f-string": ("a = «f'{t}'»", "", "program-syntax", "f-string", "expressions are"),
    "walrus": ("a = («b := zeros(t)»)", "", "program-syntax", ":=", "expressions are"),
    "text": ("a = «'text'»", "", "program-syntax", "isn't a number", "text isn't a value"),
    "True": ("a = «True»", "", "program-syntax", "isn't a number", "flags come from the spec"),
    "huge integer": ("a = «4294967296»", "", "program-syntax", "int32", "int32"),
    "attribute": ("a = «k.shape»", "", "program-syntax", ".shape", ".T"),
    "dunder": ("a = «k.__class__.__bases__»", "", "program-syntax", ".__bases__", ".T"),
    "method call": ("a = «k.sum(0)»", "", "program-syntax", "only built-ins", ""),
    "unknown function": ("a = «open(t)»", "", "program-name", "'open' isn't a built-in", ""),
    "misspelt function": ("a = «zeroes(t)»", "", "program-name", "'zeroes'", "did you mean 'zeros'?"),
    "matrix operator": ("a = «beta[t] @ beta[t]»", "", "program-syntax", "@", "dot(a, b)"),
    "augmented matrix operator": ("a = zeros(t)\n«a @= a»", "", "program-syntax", "@", "dot(a, b)"),
    "power": ("a = «beta[t] ** 2»", "", "program-syntax", "**", "multiply"),
    "floor division": ("a = «3 // 2»", "", "program-syntax", "//", "integers"),
    "less than": ("a = «beta[t] < 0.5»", "", "program-syntax", "only == and !=", "where"),
    "chained comparison": ("a = «1 == 2 == 3»", "", "program-syntax", "only == and !=", "where"),
    "and": ("a = «beta[t] and beta[t]»", "", "program-syntax", "and / or", "expressions are"),
    "not": ("a = «not beta[t]»", "", "program-syntax", "not", "else"),
    "tile size": ("a = zeros(«64», t)", "", "program-syntax", "index variables and static dims", "no tile size"),
    "chunk size": ("a = zeros(«BT», t)", "", "program-syntax", "index variables and static dims", "no tile size"),
    "zeros of a tile": ("a = «full(beta[t], t)»", "", "program-syntax", "full", ""),
    "vector and tile": (
        "x = zeros(t, t)\ny = «x * beta[t]»", "", "program-type", "a vector and a tile", "x[:, None] or x[None, :]",
    ),
    "dot without transpose": (
        "for bk in tiles(K):\n    a = «dot(k[t, bk], k[t, bk])»",
        "", "program-type", "contracts axis 'bk' with 't'", ".T",
    ),
    "dot of a vector": ("a = «dot(beta[t], beta[t])»", "", "program-type", "two axes", ""),
    "axes that differ": (
        "for bk in tiles(K):\n    a = «k[t, bk] + zeros(bk, t)»", "", "program-type", "axis t against bk", ".T",
    ),
    "tril of a slab": ("for bk in tiles(K):\n    a = «tril(k[t, bk])»", "", "program-type", "square", ""),
    "axis out of range": ("a = «sum(beta[t], 1)»", "", "program-type", "over axis 1", "from 0 to 0"),
    "cumsum over axis 1": ("a = «cumsum(beta[t], 1)»", "", "program-type", "axis 1", "0"),
    "cumsum of a tile": ("a = «cumsum(zeros(t, t), 0)»", "", "program-type", "only of a vector", "one row"),
    "where by number": ("a = «where(beta[t], 1.0, 0.0)»", "", "program-type", "where chooses", "comparison"),
    "axis as flag": ("a = sum(beta[t], «reverse»)", "", "program-syntax", "constant integer", ""),
    "exact as integer": ("a = dot(zeros(t, t), zeros(t, t), exact=«1»)", "", "program-syntax", "True, False", ""),
    "unknown option": ("a = «sum(beta[t], out=0)»", "", "program-syntax", "no option 'out'", ""),
    "too many operands": ("a = «exp2(beta[t], beta[t])»", "", "program-syntax", "takes 1 operands, got 2", ""),
    "star": ("a = exp2(«*beta»)", "", "program-syntax", "`*`", "expressions are"),
    "transpose of a vector": ("a = «beta[t].T»", "", "program-type", "two axes", ""),
    "expanded tile": ("a = «zeros(t, t)[:, None]»", "", "program-type", "only a vector", ""),
    "unnamed slice": ("a = «zeros(t, t)[0:2]»", "", "program-syntax", "named tile", "assign it to a name"),
    "slice with step": ("a = zeros(t)\nb = a[«0:4:2»]", "", "program-syntax", "both ends", ""),
    "end that isn't a sum": (
        "a = zeros(t)\nb = a[0:maximum(1, 2)]", "", "program-type", "ends of a slice", "",
    ),
    "position that is a vector": ("a = zeros(t)\nb = a[«a»]", "", "program-type", "an integer", ""),
    "unknown name": ("a = «kk»[t]", "", "program-name", "'kk'", "did you mean 'k'?"),
    "unknown value": ("a = beta[t] * «scael»", "", "program-name", "'scael'", "did you mean 'scale'?"),
    "unknown index": ("a = beta[«s»]", "", "program-name", "unknown name 's'", ""),
    "name of a loop that ended": (
        "for bk in tiles(K):\n    x = k[t, bk]\ny = «x» + 1.0", "", "program-name", "unknown name 'x'", "",
    ),
    "tensor without index": ("a = «beta» * 2.0", "", "program-syntax", "needs an index", "beta[t]"),
    "index as value": ("a = «t» + 1", "", "program-syntax", "an index, not a value", "index(t)"),
    "optional tensor": ("a = «g[t]»", "", "program-optional", "may be absent", "if g:"),
    "optional local": (
        "if g:\n    e = exp2(g[t])\na = «e» + 1.0", "", "program-optional", "only where USE_G is set", "same `if`",
    ),
    "optional tensor in else": (
        "if g:\n    e = g[t]\nelse:\n    e = «g[t]»", "", "program-optional", "may be absent", "if g:",
    ),
    "wrong dim": ("for bv in tiles(V):\n    a = k[t, «bv»]", "", "program-type", "ranges over V, not over dim K", ""),
    "rows on columns": ("a = k[t, «t»]", "", "program-type", "not over dim K", ""),
    "too many indices": ("a = «beta[t, t]»", "", "program-syntax", "has 1 indices (T), got 2", ""),
    "whole rows": ("a = beta[«:»]", "", "program-syntax", "can't be read whole", "loop's variable"),
    "constant row": ("a = beta[«0»]", "", "program-syntax", "takes an index variable", ""),
    "shifted rows": ("a = beta[«t + 1»]", "", "not-implemented", "shifted rows", "own chunk"),
    "history": ("a = «history(k, beta)»", "", "not-implemented", "isn't lowered yet", ""),
    "row of a tile": ("for bk in tiles(K):\n    a = beta[«last(bk)»]", "", "program-syntax", "takes a chunk", ""),
    "row that isn't one": ("a = beta[«first(t)»]", "", "program-syntax", "isn't a row", "last(t)"),
    "wrong slab": (
        "S = zeros(t, K)\nfor bv in tiles(V):\n    a = S[:, «bv»]", "", "program-type", "tiles V, this axis is K", "",
    ),
    "too many slab indices": ("a = zeros(t)\nb = «a[:, :]»", "", "program-type", "2 indices on a tile", ""),
    "tuple arity": ("«a, b = zeros(t), zeros(t), zeros(t)»", "", "program-syntax", "as many values as names", ""),
    "tuple from a call": ("«a, b = zeros(t)»", "", "program-syntax", "as many values as names", ""),
    "swap": (
        "a, b = zeros(t), beta[t]\n«a, b» = b, a",
        "", "program-syntax", "'a' is assigned and read", "another name first",
    ),
    "starred target": ("«*a», b = zeros(t), zeros(t)", "", "program-syntax", "an assignment goes to", ""),
    "attribute target": ("a = zeros(t, t)\n«a.T» = a", "", "program-syntax", "an assignment goes to", ""),
    "augmented attribute": ("a = zeros(t, t)\n«a.T» += a", "", "program-syntax", "an assignment goes to", ""),
    "store of other axes": ("«A[t]» = beta[t]", "", "program-type", "stores @beta[t] where fp32[t, t] is needed", ""),
    "store of a transpose": (
        "for bk in tiles(K):\n    «A[t]» = k[t, bk].T", "", "program-type", "stores @k[bk, t]", "",
    ),
    "store to an input": ("«beta[t]» = zeros(t)", "", "program-output", "isn't an output", "outputs: A"),
    "output read": ("A[t] = zeros(t, t)\na = «A[t]»", "", "program-output", "output 'A' is read", "local tile"),
    "contribution": ("«A[t] += zeros(t, t)»", "", "not-implemented", "contributions", "once"),
    "assigned tensor": ("«k» = zeros(t)", "", "program-syntax", "already names", "another name"),
    "assigned dim": ("«K» = zeros(t)", "", "program-syntax", "already names", "another name"),
    "assigned index": ("«t» = zeros(t)", "", "program-syntax", "already names", "another name"),
    "assigned tile symbol": ("«BK» = zeros(t)", "", "program-syntax", "already names", "another name"),
    "assigned constexpr": ("«USE_G» = zeros(t)", "", "program-syntax", "already names", "another name"),
    "assigned tl": ("«tl» = zeros(t)", "", "program-syntax", "emitted source", "letters"),
    "foreign letters": ("«größe» = zeros(t)", "", "program-syntax", "emitted source", "letters"),
    "after foreign letters": ("if g: a = sum(«'größe'») + größe", "", "program-syntax", "isn't a number", ""),
    "shape that changes": ("a = zeros(t)\n«a» = zeros(t, t)", "", "program-type", "would become", "another name"),
    "shapes of two branches": (
        "«i»f g:\n    a = zeros(t)\nelse:\n    a = zeros(t, t)", "", "program-type", "in the other", "another name",
    ),
    "tile as a test": ("if «beta[t]»:\n    a = zeros(t)", "", "program-syntax", "tests a flag", "where("),
    "two tests": ("if «g and g»:\n    a = zeros(t)", "", "program-syntax", "tests a flag", "where("),
    "unknown loop": ("for i in «enumerate(k)»:\n    a = zeros(t)", "", "program-syntax", "isn't a loop", ""),
    "loop over a tensor": ("«f»or i in k:\n    a = zeros(t)", "", "program-syntax", "a loop ranges over", ""),
    "loop else": (
        "«f»or bk in tiles(K):\n    a = zeros(t)\nelse:\n    b = zeros(t)",
        "", "program-syntax", "a loop ranges over", "",
    ),
    "tiles of rows": (
        "for i in «tiles(T)»:\n    a = zeros(t)",
        "", "program-name", "isn't a static dim", "known: K, V",
    ),
    "two dims": ("for i in «tiles(K, V)»:\n    a = zeros(t)", "", "program-syntax", "1 argument needed", ""),
    "option of tiles": (
        "for i in «tiles(K, reverse=True)»:\n    a = zeros(t)",
        "", "program-syntax", "no option", "scan",
    ),
    "scan of no sequence": ("for i in «scan(chunks(t))»:\n    a = zeros(t)", "", "program-syntax", "chunks(n)", ""),
    "inner tasks": (
        "for s in «tasks(chunks(T))»:\n    a = zeros(t)", "", "program-syntax", "outermost loop, once", "one loop",
    ),
    "group of value heads": ("for _ in «group(HV)»:\n    a = zeros(t)", "", "program-syntax", "inside heads(H)", ""),
    "range of a dim": ("for i in «range(K)»:\n    a = zeros(t)", "", "program-syntax", "constants", "unrolled"),
    "long range": ("for i in «range(100000)»:\n    a = zeros(t)", "", "program-syntax", "at most 256", ""),
    "nested ranges": (
        "for i in range(64):\n    for j in «range(64)»:\n        a = zeros(t)",
        "", "program-syntax", "1024 copies", "scan",
    ),
    "loop variable taken": ("for «k» in tiles(K):\n    a = zeros(t)", "", "program-syntax", "already names", "another"),
    "two loop variables": ("for «i, j» in tiles(K):\n    a = zeros(t)", "", "program-syntax", "1 loop variables", ""),
    "loop into a slab": ("for «A[t]» in tiles(K):\n    a = zeros(t)", "", "program-syntax", "plain names", ""),
    "index over another dim": (
        "for i in tiles(K):\n    a = zeros(t)\nfor «i» in tiles(V):\n    a = zeros(t)",
        "", "program-syntax", "was a tile over K", "one meaning",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_or_expression_outside_the_language(name: str) -> None:
    first, second, code, message, hint = STATEMENTS[name]
    error = refused("chunk_scaled_dot_kkt", kkt(*(line for line in (first, second) if line)))
    assert error.code == code
    assert message in error.message
    assert hint in error.hint


def test_a_key_head_loop_over_value_heads_names_the_loop_to_write() -> None:
    error = refused("chunk_scaled_dot_kkt", kkt("a = «beta[t]»", task="tasks(chunks(T), heads(H))"))
    assert error.code == "program-syntax" and "key heads" in error.message
    assert error.hint == "write `for _ in group(HV)`"


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("«tasks()»", "at least one space"),
        ("«tasks(heads(HV))»", "at least one space"),
        ("«tasks(chunks(T), heads(H), heads(HV))»", "heads at most once"),
        ("tasks(«chunk(T)»)", "isn't a task space"),
        ("tasks(«chunks(K)»)", "isn't a rows dim"),
        ("tasks(«chunks(T, 3)»)", "1 argument"),
        ("tasks(«chunks(T, size=3)»)", "no options"),
        ("tasks(«parts(T)»)", "2 arguments"),
        ("tasks(«parts(T, 8)»)", "multiple of 16"),
        ("tasks(«parts(T, 32)»)", "multiple of 16"),
        ("tasks(«k»)", "a task space is"),
        ("tasks(«*k»)", "a task space is"),
        ("«tasks(chunks(T), reverse=True)»", "no option"),
    ],
)
def test_a_space_of_tasks_that_is_none(task: str, message: str) -> None:
    error = refused("chunk_scaled_dot_kkt", kkt("a = zeros(t)", task=task))
    assert message in error.message


@pytest.mark.parametrize(
    ("source", "code", "message", "hint"),
    [
        ("«def kkt(k, g, beta, A=None)»:\n    pass\n", "program-syntax", "plain tensor names", "no defaults"),
        ("«def kkt(k: float, g, beta, A)»:\n    pass\n", "program-syntax", "plain tensor names", "annotations"),
        ("@staticmethod\n«def kkt(k, g, beta, A)»:\n    pass\n", "program-syntax", "plain tensor names", "decorators"),
        ("«def kkt(*k)»:\n    pass\n", "program-syntax", "plain tensor names", ""),
        ("«def kkt(k, *, g)»:\n    pass\n", "program-syntax", "plain tensor names", "keyword-only"),
        ("«def kkt()»:\n    pass\n", "program-syntax", "plain tensor names", ""),
        ("«def kkt(k, k)»:\n    pass\n", "program-syntax", "each once", ""),
        ("def kkt(k, «kk»):\n    pass\n", "program-name", "'kk' isn't a tensor", "did you mean 'k'?"),
        ("«import os»\ndef kkt(k):\n    pass\n", "program-syntax", "Import at the top", "kgen.lang"),
        ("«from os import *»\ndef kkt(k):\n    pass\n", "program-syntax", "ImportFrom at the top", "kgen.lang"),
        ("«from .kgen.lang import *»\ndef kkt(k):\n    pass\n", "program-syntax", "ImportFrom at the top", ""),
        ("«X = 1»\ndef kkt(k):\n    pass\n", "program-syntax", "Assign at the top", "kgen.lang"),
        ("«a»sync def kkt(k):\n    pass\n", "program-syntax", "AsyncFunctionDef at the top", ""),
        ("«c»lass kkt:\n    pass\n", "program-syntax", "ClassDef at the top", ""),
        ("def kkT(k):\n    pass\n", "program-missing", "no program 'kkt'", "did you mean 'kkT'?"),
        ("", "program-missing", "no program 'kkt'", ""),
        (
            "«d»ef kkt(k, g, beta, A):\n    a = zeros()\n",
            "program-syntax",
            "one `for … in tasks(…)`",
            "inside that loop",
        ),
        ("def kkt(k):\n  «pass»\n", "program-syntax", "pass", "statements are"),
        ("def kkt(k):\n    a = (\n", "program-syntax", "never closed", "Python syntax"),
        ("def kkt(k):\n\0", "program-syntax", "null bytes", "Python syntax"),
        ("def kkt(k):\n    a = '\ud800'\n", "program-syntax", "surrogates", "Python syntax"),
        ("def kkt(k):\n    a = 0" + "9" * 5000, "program-syntax", "", "Python syntax"),
        ("def kkt(k):\n    a = " + "9" * 5000, "program-syntax", "integer string", "Python syntax"),
    ],
)
def test_a_file_or_signature_outside_the_language(source: str, code: str, message: str, hint: str) -> None:
    error = refused("chunk_scaled_dot_kkt", source)
    assert error.code == code
    assert message in error.message
    assert hint in error.hint


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (kkt("a = " + "(" * 5000 + "1" + ")" * 5000), "parentheses"),
        (kkt("a = " + "-" * 150 + "1"), "levels of syntax"),
        (kkt("a = " + "-" * 100_000 + "1"), "nested too deeply"),
        (kkt("a = 1" + " + 1" * 150), "levels of syntax"),
        (kkt("a = 1" + " + 1" * 20_000), "nested too deeply"),
        (kkt("a = zeros(t, t)" + ".T" * 20_000), "nested too deeply"),
        (kkt(*(f"{'    ' * i}if g:" for i in range(120)), "    " * 120 + "a = zeros(t)"), ""),
        (kkt(*["a = zeros(t)"] * 6000), "pieces of syntax"),
        (kkt("# " + "x" * 300_000, "a = zeros(t)"), "characters"),
        (kkt("a = 0x" + "f" * 100_000), "int32"),
        (kkt("a = tril(zeros(t, t), 0x" + "f" * 100_000 + ")"), "constant integer"),
        (kkt("for i in range(0x" + "f" * 100_000 + "):", "    a = zeros(t)"), "unrolled"),
        (kkt(f"a = '{'x' * 100_000}'"), "isn't a number"),
    ],
)
def test_a_bomb_is_refused_with_a_short_message(source: str, message: str) -> None:
    error = refused("chunk_scaled_dot_kkt", source)
    assert message in error.message
    assert len(error.message) < 300


def test_escape_sequences_of_a_program_do_not_reach_the_terminal() -> None:
    error = refused("chunk_scaled_dot_kkt", kkt("a = '\x1b[31m' # \x1b]0;title\x07"))
    assert "\x1b" not in error.render() and "\x07" not in error.render()


def test_a_form_feed_ends_no_line() -> None:
    error = refused("chunk_scaled_dot_kkt", "#\x0c\x0c\u2028\n" + kkt("a = «kk»[t]"))
    assert error.location is not None and "kk[t]" in (error.location.text or "")
