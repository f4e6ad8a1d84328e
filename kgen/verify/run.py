"""`kgen verify`: the ladder of proofs over an operator's cases, one row for each compared output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from kgen.errors import KgenError, nearest
from kgen.ir.parse import parse_kernel
from kgen.spec.check import check_spec
from kgen.spec.load import LoadedSpec, load_spec
from kgen.spec.programs import read_program
from kgen.verify import interpret_level, interpreter, program_level
from kgen.verify.cases import GdnCase, gdn_cases
from kgen.verify.package import load_package
from kgen.verify.rows import Row

LEVELS = ("program", "interpret")
ELSEWHERE = {
    "lint": "not available yet; the levels so far are program and interpret",
    "compile": "run `kgen compile` on the spec",
    "execute": "not available yet; the levels so far are program and interpret",
    "device": "not available yet; the levels so far are program and interpret",
}
CASES: dict[str, Callable[[], tuple[GdnCase, ...]]] = {"chunk_gated_delta_rule": gdn_cases}  # by operator

Check = Callable[[GdnCase], Sequence[Row]]


def verify_rows(
    spec_path: Path, package: Path, levels: Sequence[str] = LEVELS, cases: int | None = None, only: str | None = None
) -> Iterator[Row]:
    """Rows of each level, case by case. The first `cases` of those whose name contains `only`.

    What is wrong with the request is raised at once, before the first row is asked for.
    """
    for level in levels:
        _check_level(level)
    loaded = load_spec(spec_path)
    check_spec(loaded)
    chosen = select(loaded.spec.operator.name, cases, only)
    if "interpret" in levels:
        interpreter.activate()
    checks = [_check(level, loaded, package) for level in levels]
    return (row for check in checks for case in chosen for row in check(case))


def select(operator: str, cases: int | None, only: str | None) -> tuple[GdnCase, ...]:
    """The cases of an operator that are asked for."""
    if operator not in CASES:
        raise KgenError(
            f"there are no cases and references for the operator {operator!r}",
            code="no-reference",
            hint=f"known: {', '.join(sorted(CASES))}; write them in kgen/verify/cases.py and kgen/verify/references/",
        )
    everything = CASES[operator]()
    found = tuple(case for case in everything if only is None or only in case.name)
    if not found:
        raise KgenError(f"no case contains {only!r}", code="case-unknown", hint=nearest(only or "", _names(everything)))
    if cases is not None and cases < 1:
        raise KgenError(f"{cases} cases asked for", code="case-count", hint="ask for at least 1")
    return found[:cases]


def _names(cases: Sequence[GdnCase]) -> list[str]:
    return [case.name for case in cases[:5]]


def _check_level(level: str) -> None:
    if level in ELSEWHERE:
        raise KgenError(f"`kgen verify` has no level {level!r}", code="level-missing", hint=ELSEWHERE[level])
    if level not in LEVELS:
        raise KgenError(f"unknown level {level!r}", code="level-unknown", hint=nearest(level, LEVELS))


def _check(level: str, loaded: LoadedSpec, package: Path) -> Check:
    """What runs one case at a level."""
    if level == "interpret":
        imported = load_package(package)
        return lambda case: interpret_level.run_case(loaded.spec, imported, case)
    programs = {name: read_program(loaded, name) for name in loaded.spec.kernels}
    kernels = {n: parse_kernel(loaded.spec, n, p.text, p.name) for n, p in programs.items()}
    return lambda case: program_level.verify_gdn(loaded.spec, kernels, case)
