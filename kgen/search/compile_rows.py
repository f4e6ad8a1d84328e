"""Compiles variants of a package and reports each as a row that other programs rely on (DESIGN.md section 7)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kgen.search.variants import Variant
from kgen.storage import home_folder
from kgen.virtual import Compiler, CompileResult, find_toolchain

Progress = Callable[[int, int], None]


def compile_rows(
    files: dict[str, str],
    chosen: list[Variant],
    *,
    jobs: int | None = None,
    toolchain: str = "auto",
    cache: bool = True,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """One row a variant, in order. `files` is the package; it is compiled from a temporary folder, never from
    `generated/`."""
    results = compile_variants(files, chosen, jobs=jobs, toolchain=toolchain, cache=cache, progress=progress)
    return [row(v, r) for v, r in zip(chosen, results, strict=True)]


def compile_variants(
    files: dict[str, str],
    chosen: list[Variant],
    *,
    jobs: int | None = None,
    toolchain: str = "auto",
    cache: bool = True,
    progress: Progress | None = None,
) -> list[CompileResult]:
    """The compiler's results, in the variants' order."""
    found = find_toolchain(toolchain)
    with tempfile.TemporaryDirectory(prefix="kgen-") as folder:
        source = Path(folder) / "kernels.py"
        source.write_text(_without_header(files["kernels.py"]), encoding="utf-8")
        store = home_folder() / "compiled" if cache else None
        with Compiler(found, jobs=jobs, cache_dir=store) as compiler:
            step = None if progress is None else (lambda done, total, *_: progress(done, total))
            return compiler.compile_many([v.request(source) for v in chosen], progress=step)


def _without_header(text: str) -> str:
    """The source without its hash, which changes with things that no compiler sees: cached results stay good."""
    lines = text.splitlines(keepends=True)
    return "".join(line for i, line in enumerate(lines) if i > 1 or not line.startswith("#"))


def row(v: Variant, r: CompileResult) -> dict[str, Any]:
    """DESIGN.md section 7's fields, with the compiler's message and the seconds it took."""
    return {
        "kernel": v.kernel,
        "variant": v.name,
        "target": v.target,
        "dtype": v.dtype,
        "tiles": dict(v.tiles),
        "verdict": r.verdict,
        "ub_bytes": r.ub_bytes,
        "l1_bytes": r.l1_bytes,
        "l0c_bytes": r.l0c_bytes,
        "ub_predicted_bytes": v.predicted,
        "calls": r.calls,
        "idle_vector_core": r.idle_vector_core,
        "modelled_us": None,  # the timeline isn't here yet
        "message": r.message,
        "seconds": round(r.seconds, 3),
        "toolchain": r.toolchain,
    }
