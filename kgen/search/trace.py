"""One kernel at one shape: its variant, compile, modelled time and trace."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass

from kgen.errors import KgenError, nearest
from kgen.ir.nodes import Kernel
from kgen.plan.record import Entry, Plan
from kgen.search.compile_rows import open_compiler
from kgen.search.launches import Shape, launch_of
from kgen.search.variants import Variant, dtypes_of, everything, flags_of, make_variant
from kgen.spec.models import DimKind, Spec
from kgen.spec.targets import Target
from kgen.virtual import CompileResult
from kgen.virtual.hivm import Module, parse_module
from kgen.virtual.launch import Launch
from kgen.virtual.timeline import Costs, Recording, Timeline, evaluate, record

DEFAULTS = {"B": 1, "T": 4096}


@dataclass(frozen=True)
class TraceRequest:
    """What to trace. `sizes` holds what the user gave of B, T, heads, widths and the chunk, by the spec's names."""

    kernel: str
    target: str
    sizes: dict[str, int]
    lengths: tuple[int, ...] | None
    dtype: str
    absent: tuple[str, ...]  # optional tensors and flags that are off; the flags are off unless in `on`
    on: tuple[str, ...]


@dataclass(frozen=True)
class Traced:
    """A kernel's compile with its launch, and the timeline where it compiled."""

    variant: Variant
    shape: Shape
    result: CompileResult
    module: Module | None
    launch: Launch
    recording: Recording | None
    timeline: Timeline | None


def parse_sizes(text: str) -> dict[str, int]:
    """`B=1,T=4096,HV=32`, commas or spaces between."""
    out: dict[str, int] = {}
    for item in filter(None, re.split(r"[,\s]+", text)):
        name, equals, value = item.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name) or not re.fullmatch(r"\d{1,9}", value):
            raise KgenError(
                f"cannot read the size {item[:40]!r}", code="shape", hint="write sizes as B=1,T=4096,H=16,HV=32,K=128"
            )
        out[name] = int(value)
    return out


def trace_kernel(
    spec: Spec,
    kernels: dict[str, Kernel],
    plan: Plan,
    target: Target,
    files: dict[str, str],
    request: TraceRequest,
    *,
    toolchain: str = "auto",
    cache: bool = True,
) -> Traced:
    """Compile the variant that the package would launch at a shape, and model that launch."""
    if request.kernel not in kernels:
        raise KgenError(f"no kernel {request.kernel!r}", code="kernel-unknown", hint=nearest(request.kernel, kernels))
    variant, shape = choose(spec, kernels[request.kernel], plan, request)
    launch = launch_of(spec, kernels[request.kernel], variant, shape, target)
    with ExitStack() as stack:
        compiler, source = open_compiler(stack, files, jobs=1, toolchain=toolchain, cache=cache)
        result = compiler.compile(variant.request(source), keep_ir=True)
    if result.final_ir is None:
        return Traced(variant, shape, result, None, launch, None, None)
    module = parse_module(result.final_ir)
    costs = Costs.of(target)
    recording = record(module, launch, costs)
    return Traced(variant, shape, result, module, launch, recording, evaluate(recording, costs))


def choose(spec: Spec, kernel: Kernel, plan: Plan, request: TraceRequest) -> tuple[Variant, Shape]:
    """The variant and shape of a request, with what it leaves open filled in."""
    names = {d.kind: n for n, d in spec.dims.items()}
    heads = {n: d for n, d in spec.dims.items() if d.kind is DimKind.HEADS}
    static = [n for n, d in spec.dims.items() if d.kind is DimKind.STATIC]
    known = {"B", names[DimKind.ROWS], *heads, *static, spec.chunk}
    for name in request.sizes:
        if name not in known:
            raise KgenError(f"{name!r} is no size of a call", code="shape", hint=nearest(name, known))
    sizes = {**DEFAULTS, **dict.fromkeys(static, 128), spec.chunk: max(spec.chunks), **request.sizes}
    for name, d in heads.items():
        sizes.setdefault(name, 32 if d.group_of else 16)
    _check(spec, sizes, heads)
    shape = _shape(request, sizes, names[DimKind.ROWS])
    tail = shape.lengths is None and shape.rows % sizes[spec.chunk]
    mode = "varlen" if shape.lengths is not None else "tail" if tail else "full"
    entry = _entry(spec, kernel, plan, request, sizes, static)
    given = everything(spec, kernel, request.dtype)
    flags = flags_of(spec, kernel)
    for name in (*request.absent, *request.on):
        options = {*given, *(f.lower() for f in flags)}
        if name not in options:
            raise KgenError(f"{kernel.name} has no option {name!r}", code="trace-option", hint=nearest(name, options))
    given = {n: "" if n in request.absent else d for n, d in given.items()}
    key, value = (sizes[n] for n in sorted(heads, key=lambda n: heads[n].group_of is not None))
    variant = make_variant(
        spec, kernel, entry, request.dtype, {n: sizes[n] for n in entry.widths}, given,
        {f: f.lower() in request.on for f in flags}, mode, (key, value),
    )  # fmt: skip
    return variant, shape


def _check(spec: Spec, sizes: dict[str, int], heads: Iterable[str]) -> None:
    for name, size in sizes.items():
        limit = spec.dims[name].max if name in spec.dims else None
        if size < 1 or (limit is not None and size > limit):
            raise KgenError(
                f"{name} = {size}", code="shape", hint=f"from 1 to {limit}" if limit else "each size is at least 1"
            )
    if sizes[spec.chunk] not in spec.chunks:
        allowed = ", ".join(map(str, spec.chunks))
        raise KgenError(f"{spec.chunk} = {sizes[spec.chunk]}", code="shape", hint=f"supported: {allowed}")
    for name in heads:
        key = spec.dims[name].group_of
        if key is not None and sizes[name] % sizes[key]:
            raise KgenError(
                f"{name} = {sizes[name]}, {key} = {sizes[key]}", code="shape", hint=f"{name} is a multiple of {key}"
            )


def _shape(request: TraceRequest, sizes: dict[str, int], rows: str) -> Shape:
    if request.lengths is None:
        return Shape(sizes["B"], sizes[rows])
    total = sum(request.lengths)
    if request.sizes.get(rows, total) != total or sizes["B"] != 1:
        raise KgenError(
            f"lengths of {total} rows in all, {rows} = {request.sizes.get(rows, total)}, B = {sizes['B']}",
            code="shape",
            hint=f"packed sequences are one batch row: leave {rows} and B out",
        )
    return Shape(1, total, request.lengths)


def _entry(
    spec: Spec, kernel: Kernel, plan: Plan, request: TraceRequest, sizes: dict[str, int], static: list[str]
) -> Entry:
    """The plan's row for the widths: the bucket that holds them."""
    bits = 32 if request.dtype == "fp32" else 16
    if request.dtype not in dtypes_of(spec, bits):
        known = spec.dtypes[spec.dot_dtype]
        raise KgenError(f"no dtype {request.dtype!r}", code="trace-dtype", hint=nearest(request.dtype, known))
    for entry in plan.entries:
        bucket = {n: next((b for b in spec.buckets[n] if sizes[n] <= b), 0) for n in entry.widths}
        wanted = (kernel.name, request.target, bits, sizes[spec.chunk], bucket)
        if (entry.kernel, entry.target, entry.bits, entry.chunk, entry.widths) == wanted:
            return entry
    raise KgenError(
        f"the plan has no row for {kernel.name} on {request.target} at this shape",
        code="plan-missing",
        hint="run `kgen plan` on the spec",
    )
