"""Compiles variants of a package and reports each as a row that other programs rely on (DESIGN.md section 7)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kgen.ir.nodes import Kernel
from kgen.search.launches import launch_of, reference_shape
from kgen.search.modelled import Modelled, Modeller
from kgen.search.variants import Variant
from kgen.spec.models import Spec
from kgen.spec.targets import Target
from kgen.storage import home_folder
from kgen.virtual import Compiler, CompileResult, find_toolchain
from kgen.virtual.timeline import Costs

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Compiled:
    """A variant's compile, and its modelled time where that was asked for."""

    variant: Variant
    result: CompileResult
    modelled: Modelled | None


def compile_rows(
    files: dict[str, str],
    chosen: list[Variant],
    targets: Sequence[Target],
    models: Models | None,
    *,
    jobs: int | None = None,
    toolchain: str = "auto",
    cache: bool = True,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """One row a variant, in order. `files` is the package; it is compiled from a temporary folder, never from
    `generated/`. No `models`, no modelled times."""
    with ExitStack() as stack:
        compiler, source = open_compiler(stack, files, jobs=jobs, toolchain=toolchain, cache=cache)
        store = home_folder() / "modelled" if cache else None
        modeller = stack.enter_context(Modeller(compiler.jobs, store))
        work = _Work(compiler, modeller, source, targets, models)
        return [row(c) for c in compiler.map(work.compile, chosen, progress)]


def compile_variants(
    files: dict[str, str],
    chosen: list[Variant],
    targets: Sequence[Target],
    *,
    jobs: int | None = None,
    toolchain: str = "auto",
    cache: bool = True,
    progress: Progress | None = None,
) -> list[CompileResult]:
    """The compiler's results alone, in the variants' order."""
    with ExitStack() as stack:
        compiler, source = open_compiler(stack, files, jobs=jobs, toolchain=toolchain, cache=cache)
        return compiler.map(lambda v: compiler.compile(v.request(source, targets)), chosen, progress)


def open_compiler(
    stack: ExitStack, files: dict[str, str], *, jobs: int | None, toolchain: str, cache: bool
) -> tuple[Compiler, Path]:
    """A compiler, and the package's kernels in a folder that goes with it."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kgen-"))
    source = Path(folder) / "kernels.py"
    source.write_text(files["kernels.py"], encoding="utf-8")
    store = home_folder() / "compiled" if cache else None
    return stack.enter_context(Compiler(find_toolchain(toolchain), jobs=jobs, cache_dir=store)), source


@dataclass(frozen=True)
class Models:
    """What is needed to model variants at their reference shapes."""

    spec: Spec
    kernels: dict[str, Kernel]


@dataclass(frozen=True)
class _Work:
    """What is done for one variant."""

    compiler: Compiler
    modeller: Modeller
    source: Path
    targets: Sequence[Target]
    models: Models | None

    def compile(self, v: Variant) -> Compiled:
        request = v.request(self.source, self.targets)
        if self.models is None:
            return Compiled(v, self.compiler.compile(request), None)
        target = next(t for t in self.targets if t.name == v.target)
        costs = Costs.of(target)
        launch = launch_of(self.models.spec, self.models.kernels[v.kernel], v, reference_shape(v.mode), target)
        key = self.compiler.key(request)
        found = self.modeller.remembered(key, launch, costs)
        result = self.compiler.compile(request, keep_ir=found is None)
        if found is None and result.usable and result.final_ir is not None:
            found = self.modeller.time(key, result.final_ir, launch, costs)
        return Compiled(v, result, found if result.usable else None)


def row(c: Compiled) -> dict[str, Any]:
    """DESIGN.md section 7's fields, with the compiler's message and what the modelled time is of and made of."""
    m = c.modelled
    fields = compile_fields(c.variant, c.result, m.us if m else None, m.unknown if m else None)
    return {
        **fields,
        "modelled_shape": reference_shape(c.variant.mode).text if m else None,
        "modelled_bound": m.bound or None if m else None,
        "modelled_warnings": list(m.warnings) if m else [],
        "message": fields["message"] or (m.problem if m else ""),
    }


def compile_fields(v: Variant, r: CompileResult, us: float | None, unknown: dict[str, int] | None) -> dict[str, Any]:
    """What every row of a compiled variant has. `unknown`: what its model met; else what is in its IR."""
    return {
        "kernel": v.kernel,
        "variant": v.name,
        "target": v.target,
        "dtype": v.dtype,
        "tiles": dict(v.tiles),
        "verdict": r.verdict,
        "message": r.message,
        "ub_bytes": r.ub_bytes,
        "l1_bytes": r.l1_bytes,
        "l0c_bytes": r.l0c_bytes,
        "ub_predicted_bytes": v.predicted,
        "calls": r.calls,
        "idle_vector_core": r.idle_vector_core,
        "modelled_us": us,
        "unknown_operations": unknown or r.unknown,
        "unwritten": list(r.unwritten),
        "seconds": round(r.seconds, 3),
        "toolchain": r.toolchain,
    }
