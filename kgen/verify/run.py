"""`kgen verify`: the ladder of proofs over an operator's cases, one row for each compared output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from kgen.errors import KgenError, nearest
from kgen.ir.parse import parse_kernel
from kgen.spec.check import check_spec
from kgen.spec.load import LoadedSpec, load_spec
from kgen.spec.programs import read_program
from kgen.spec.targets import load_target
from kgen.verify import interpret_level, interpreter, program_level
from kgen.verify.cases import GdnCase, compiled_cases, gdn_cases
from kgen.verify.package import load_package
from kgen.verify.rows import Row

LEVELS = ("program", "interpret")  # what runs unless levels are asked for: they need no tool chain
KNOWN = (*LEVELS, "execute")
ELSEWHERE = {
    "lint": "not available yet; the levels so far are program, interpret and execute",
    "compile": "run `kgen compile` on the spec",
    "device": "not available yet; the levels so far are program, interpret and execute",
}
CASES: dict[str, Callable[[], tuple[GdnCase, ...]]] = {"chunk_gated_delta_rule": gdn_cases}  # by operator
COMPILED_CASES: dict[str, Callable[[], tuple[GdnCase, ...]]] = {"chunk_gated_delta_rule": compiled_cases}

Check = Callable[[GdnCase], Sequence[Row]]


def verify_rows(
    spec_path: Path,
    package: Path,
    levels: Sequence[str] = LEVELS,
    cases: int | None = None,
    only: str | None = None,
    toolchain: str = "auto",
) -> Iterator[Row]:
    """Rows of each level, case by case. The first `cases` of those whose name contains `only`.

    What is wrong with the request is raised at once, before the first row is asked for.
    """
    for level in levels:
        _check_level(level)
    loaded = load_spec(spec_path)
    check_spec(loaded)
    operator = loaded.spec.operator.name
    chosen = {level: select(operator, cases, only, level) for level in levels}
    if {"interpret", "execute"} & set(levels):
        interpreter.activate()
    stack = ExitStack()
    try:
        checks = {level: _check(level, loaded, package, toolchain, stack) for level in levels}
    except BaseException:
        stack.close()
        raise
    return _rows(checks, chosen, stack)


def _rows(checks: dict[str, Check], chosen: dict[str, tuple[GdnCase, ...]], stack: ExitStack) -> Iterator[Row]:
    with stack:
        for level, check in checks.items():
            for case in chosen[level]:
                yield from check(case)


def select(operator: str, cases: int | None, only: str | None, level: str = "program") -> tuple[GdnCase, ...]:
    """The cases of an operator that are asked for; the execute level has its own."""
    known = COMPILED_CASES if level == "execute" else CASES
    if operator not in known:
        raise KgenError(
            f"there are no cases and references for the operator {operator!r}",
            code="no-reference",
            hint=f"known: {', '.join(sorted(known))}; write them in kgen/verify/cases.py and kgen/verify/references/",
        )
    everything = known[operator]()
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
    if level not in KNOWN:
        raise KgenError(f"unknown level {level!r}", code="level-unknown", hint=nearest(level, KNOWN))


def _check(level: str, loaded: LoadedSpec, package: Path, toolchain: str, stack: ExitStack) -> Check:
    """What runs one case at a level; `stack` ends what it needs."""
    if level == "execute":
        from kgen.verify.execute_level import CompiledKernels, sizes_of

        target = load_target(loaded.spec.targets[0], loaded.path.parent / "targets")
        name = target.compiler_target.value
        compiled = stack.enter_context(CompiledKernels(package, name, sizes_of(target), toolchain))
        return lambda case: compiled.run_case(loaded.spec, case)
    if level == "interpret":
        imported = load_package(package)
        return lambda case: interpret_level.run_case(loaded.spec, imported, case)
    programs = {name: read_program(loaded, name) for name in loaded.spec.kernels}
    kernels = {n: parse_kernel(loaded.spec, n, p.text, p.name) for n, p in programs.items()}
    return lambda case: program_level.verify_gdn(loaded.spec, kernels, case)
