"""Before and after of each pass: `fixtures/<pass>.txt` holds titled programs, `--update-goldens` writes the rest.

== title
<program>
-- before
<kernel as the pass gets it>
-- after
<kernel as it leaves it>, or (unchanged), or (refused) with the error
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kgen.errors import KgenError
from kgen.ir.show import show
from kgen.passes import PASSES

from .conftest import Small

FOLDER = Path(__file__).parent / "fixtures"
NAMES = [p.__name__ for p in PASSES]
UNCHANGED = "(unchanged)\n"
SETTLED = {"core_grid", "addresses", "tails", "signature"}  # every program gives these something to do


@dataclass(frozen=True)
class Case:
    """One titled program of a fixture file, and what is expected of it."""

    title: str
    program: str
    expected: str


def cases(name: str) -> Iterator[Case]:
    text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    for part in re.split(r"^== ", text, flags=re.MULTILINE)[1:]:
        title, _, rest = part.partition("\n")
        program, _, expected = rest.partition("-- before\n")
        yield Case(title, program.strip("\n") + "\n", expected.strip("\n") + "\n")


def made(name: str, program: str) -> str:
    """The text below a program's `-- before`."""
    small = Small(program)
    try:
        kernel = small.before(name)
        before = show(kernel)
        after = next(p for p in PASSES if p.__name__ == name)(kernel, small.context)
    except KgenError as error:
        return f"(refused)\n-- after\n{error.render()}\n"
    assert after is kernel or after != kernel, "an equal kernel that isn't the same object"
    return f"{before}-- after\n{UNCHANGED if after is kernel else show(after)}"


@pytest.mark.parametrize("name", NAMES)
def test_fixture(name: str, update_goldens: bool) -> None:
    found = list(cases(name))
    texts = [made(name, case.program) for case in found]
    if update_goldens:
        whole = "\n".join(f"== {c.title}\n{c.program}-- before\n{t}" for c, t in zip(found, texts, strict=True))
        (FOLDER / f"{name}.txt").write_text(whole, encoding="utf-8", newline="\n")
    for case, text in zip(cases(name), texts, strict=True):
        assert text == case.expected, f"{case.title}: after a change that is meant, run pytest with --update-goldens"


@pytest.mark.parametrize("name", NAMES)
def test_every_pass_has_a_rewrite_and_something_it_leaves_alone(name: str) -> None:
    found = list(cases(name))
    changed = [c for c in found if not c.expected.endswith((UNCHANGED,)) and "(refused)" not in c.expected]
    assert changed, f"fixtures/{name}.txt shows no rewrite"
    if name not in SETTLED:
        assert any(c.expected.endswith(UNCHANGED) for c in found), f"fixtures/{name}.txt leaves nothing alone"


def test_there_is_a_fixture_for_each_pass_and_no_other() -> None:
    assert sorted(p.stem for p in FOLDER.glob("*.txt")) == sorted(NAMES)
