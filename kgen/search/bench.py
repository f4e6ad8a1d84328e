"""A generated operator beside another library's kernels: launches captured, compiled and modelled in one run.

Both sides are captured from their own host code, compiled by the same compiler with each launch's own options, and
modelled with the same constants. A row a stage, and a total for the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kgen.search.modelled import Modelled, Modeller
from kgen.virtual import Compiler, CompileResult, LinalgRequest
from kgen.virtual.launch import Argument, Buffer, Launch
from kgen.virtual.launch_options import compiler_flags
from kgen.virtual.peers import Captured, CapturedLaunch
from kgen.virtual.timeline import Costs

TIE = 1.15  # a difference below this factor says nothing
OTHER = "other"


@dataclass(frozen=True)
class Timed:
    """One launch of a side: the stage that it belongs to, its compile and its modelled time with each set of
    constants."""

    launch: CapturedLaunch
    stage: str
    result: CompileResult | None  # None where the front end refused it
    times: tuple[Modelled, ...]

    @property
    def problem(self) -> str:
        """Why there is no time, or nothing."""
        if self.result is None:
            return self.launch.lower_error
        if not self.result.usable or not self.times:
            return f"{self.result.verdict}: {self.result.message}"
        first = self.times[0]
        if first.us is None:
            return first.problem or f"unknown operations: {_some(sorted(first.unknown or {}))}"
        return ""


def _some(names: Sequence[str], most: int = 6) -> str:
    """The first names of a list, and how many more there are."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


@dataclass(frozen=True)
class Compared:
    """Both sides at one shape and direction."""

    shape: str
    direction: str
    ours: tuple[Timed, ...]
    theirs: tuple[Timed, ...]
    torch_ops: tuple[int, int]


def timed(
    captured: Captured,
    stage_of: Callable[[CapturedLaunch], str],
    target: str,
    compiler: Compiler,
    modeller: Modeller,
    costs: Sequence[Costs],
) -> tuple[Timed, ...]:
    """Compile and model every launch of a capture."""

    def one(launch: CapturedLaunch) -> Timed:
        if launch.linalg is None:
            return Timed(launch, stage_of(launch), None, ())
        request = LinalgRequest(launch.kernel, launch.linalg, target, compiler_flags(launch.options))
        key = compiler.key(request)
        at = captured_launch(launch)
        found = [modeller.remembered(key, at, each) for each in costs]
        result = compiler.compile(request, keep_ir=None in found)
        if result.usable and result.final_ir is not None:
            found = list(modeller.times(key, result.final_ir, at, costs))
        times = tuple(f for f in found if f is not None) if result.usable else ()
        return Timed(launch, stage_of(launch), result, times)

    return tuple(compiler.map(one, captured.launches))


def captured_launch(launch: CapturedLaunch) -> Launch:
    """The launch as the virtual machine takes it."""
    arguments: list[Argument] = []
    for a in launch.arguments:
        if a.kind == "tensor":
            arguments.append(Buffer(a.name, a.element, a.count, a.values))
        else:
            arguments.append(a.value)
    return Launch(launch.grid, tuple(arguments))


def rows(compared: Compared, stages: Sequence[str], number: int = 0) -> Iterator[dict[str, Any]]:
    """A row a stage that either side launches, then the total; `number` chooses the set of constants."""
    present = [s for s in (*stages, OTHER) if any(t.stage == s for t in (*compared.ours, *compared.theirs))]
    for stage in present:
        ours = [t for t in compared.ours if t.stage == stage]
        theirs = [t for t in compared.theirs if t.stage == stage]
        yield _row(compared, stage, ours, theirs, number)
    yield {**_row(compared, "total", compared.ours, compared.theirs, number), "torch_ops": _both(*compared.torch_ops)}


def _row(
    compared: Compared, kernel: str, ours: Sequence[Timed], theirs: Sequence[Timed], number: int
) -> dict[str, Any]:
    ours_us, theirs_us = _sum(ours, number), _sum(theirs, number)
    ratio = ours_us / theirs_us if ours_us is not None and theirs_us else None
    problems = sorted({f"{t.launch.kernel}: {t.problem}" for t in (*ours, *theirs) if t.problem})
    warnings = {f"{t.launch.kernel}: {w}" for t in (*ours, *theirs) if t.times for w in t.times[number].warnings}
    return {
        "kernel": kernel,
        "direction": compared.direction,
        "shape": compared.shape,
        "ours_us": ours_us,
        "theirs_us": theirs_us,
        "ratio": ratio,
        "tie": ranking(ratio) == "tie",
        "launches": _both(len(ours), len(theirs)),
        "basis": "modelled",
        "toolchain": next((t.result.toolchain for t in (*ours, *theirs) if t.result is not None), {}),
        "problems": problems,
        "warnings": sorted(warnings),
    }


def _sum(launches: Sequence[Timed], number: int) -> float | None:
    """The modelled time of launches one after another; None where one has none."""
    if not launches or any(t.problem for t in launches):
        return None
    return sum(t.times[number].us or 0.0 for t in launches)


def _both(ours: int, theirs: int) -> dict[str, int]:
    return {"ours": ours, "theirs": theirs}


# ---------------------------------------------------------------- sensitivity


def variations(costs: Costs) -> tuple[list[Costs], list[tuple[str, float]]]:
    """The constants as they are, then each halved and each doubled; and what each set after the first changes."""
    changes = [(name, factor) for name in Costs.constants() for factor in (0.5, 2.0)]
    return [costs, *(costs.scaled(name, factor) for name, factor in changes)], changes


def ranking(ratio: float | None) -> str:
    """Where our side stands: ahead, behind, or a tie below a factor of 1.15."""
    if ratio is None:
        return "unknown"
    return "ahead" if ratio <= 1 / TIE else "behind" if ratio >= TIE else "tie"


def flips(
    compared: Sequence[Compared], stages: Sequence[str], changes: Sequence[tuple[str, float]]
) -> Iterator[dict[str, Any]]:
    """For each changed constant, the rows whose ranking (ahead, tie or behind) changes, and all totals."""
    for each in compared:
        before = {row["kernel"]: row["ratio"] for row in rows(each, stages)}
        for number, (name, factor) in enumerate(changes, 1):
            for row in rows(each, stages, number):
                old, new = before[row["kernel"]], row["ratio"]
                flipped = old is not None and new is not None and ranking(old) != ranking(new)
                if flipped or row["kernel"] == "total":
                    yield {
                        "constant": name, "factor": factor, "kernel": row["kernel"], "shape": each.shape,
                        "direction": each.direction, "ratio": old, "ratio_changed": new, "flips": flipped,
                        "change": f"{ranking(old)} to {ranking(new)}",
                    }  # fmt: skip
