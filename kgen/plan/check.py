"""A recorded plan against the spec and the kernels it is for: what a person could have edited into it is refused."""

from __future__ import annotations

from pathlib import Path

from kgen.errors import KgenError
from kgen.ir.nodes import Kernel
from kgen.plan.record import Entry, Expressions, Plan, broken
from kgen.spec.models import Spec


def check_plan(plan: Plan, spec: Spec, kernels: dict[str, Kernel], path: Path) -> None:
    """Every entry names what the spec has, with tiles that the kernel can run; no key stands twice."""

    def refuse(why: str) -> KgenError:
        return broken(path, why, "doesn't fit the spec")

    if plan.operator != spec.name:
        raise refuse(f"it is for operator {plan.operator}, the spec is {spec.name}")
    seen: set[tuple[object, ...]] = set()
    for number, e in enumerate(plan.entries):
        if wrong := _wrong(e, spec, kernels):
            raise refuse(f"entry {number}: {wrong}")
        key = (e.kernel, e.target, e.bits, e.chunk, tuple(e.widths.items()))
        if key in seen:
            raise refuse(
                f"entry {number} stands twice: {e.kernel}, {e.target}, {e.bits} bits, chunk {e.chunk}, {e.widths}"
            )
        seen.add(key)
    for name, widths in plan.expressions.items():
        if name not in spec.kernels:
            raise refuse(f"expressions of {name}, which isn't a kernel")
        known = {spec.chunk, *(f"B{d}" for d in spec.kernels[name].tiles)}
        for expressions in widths.values():
            if extra := _symbols(expressions) - known:
                raise refuse(f"expressions of {name} use {sorted(extra)[0]}; known: {', '.join(sorted(known))}")


def _wrong(e: Entry, spec: Spec, kernels: dict[str, Kernel]) -> str:
    """What is wrong with an entry, or nothing."""
    if e.kernel not in spec.kernels:
        return f"{e.kernel} isn't a kernel"
    tiled = spec.kernels[e.kernel].tiles
    if e.target not in spec.targets:
        return f"{e.target} isn't a target"
    if e.chunk not in spec.chunks:
        return f"chunk {e.chunk} isn't one of {spec.chunks}"
    if list(e.widths) != list(tiled) or any(w not in spec.buckets[d] for d, w in e.widths.items()):
        return f"widths {e.widths} aren't buckets of {', '.join(tiled) or 'no dim'}"
    if list(e.tiles) != [f"B{d}" for d in tiled]:
        return f"tiles {e.tiles} aren't those of {e.kernel}: {', '.join(f'B{d}' for d in tiled) or 'none'}"
    for dim, allowed in tiled.items():
        size = e.tiles[f"B{dim}"]
        if size not in allowed:
            return f"B{dim} = {size} isn't a candidate: {allowed}"
        if dim in kernels[e.kernel].whole and size < e.widths[dim]:
            return f"B{dim} = {size} doesn't cover {dim} = {e.widths[dim]}, which {e.kernel} keeps in one tile"
    return ""


def _symbols(expressions: Expressions) -> set[str]:
    def walk(tree: object) -> set[str]:
        if isinstance(tree, str):
            return {tree}
        return set().union(*(walk(t) for t in tree[1:])) if isinstance(tree, (list, tuple)) else set()

    return set().union(*(walk(getattr(expressions, name)) for name in Expressions.model_fields))
