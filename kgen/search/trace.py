"""One kernel at one shape: its variant, compile, modelled time and trace."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from kgen.errors import KgenError, nearest
from kgen.ir.nodes import Kernel
from kgen.plan.record import Entry, Plan
from kgen.search.call import Call, call_of, check_options
from kgen.search.compile_rows import open_compiler
from kgen.search.launches import Shape, launch_of
from kgen.search.variants import Variant, everything, flags_of, make_variant
from kgen.spec.models import DimKind, Spec
from kgen.spec.targets import Target
from kgen.virtual import CompileResult
from kgen.virtual.hivm import Module, parse_module
from kgen.virtual.launch import Launch
from kgen.virtual.timeline import Costs, Recording, Timeline, evaluate, record


@dataclass(frozen=True)
class TraceRequest:
    """What to trace. `sizes` holds what the user gave of B, T, heads, widths and the chunk, by the spec's names."""

    kernel: str
    target: str
    sizes: dict[str, int]
    lengths: tuple[int, ...] | None
    dtype: str
    absent: tuple[str, ...]  # optional tensors
    on: tuple[str, ...]  # flags; the others are off


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


def trace_kernel(
    spec: Spec,
    kernels: dict[str, Kernel],
    plan: Plan,
    target: Target,
    files: dict[str, str],
    request: TraceRequest,
    *,
    block: int = 0,
    toolchain: str = "auto",
    cache: bool = True,
) -> Traced:
    """Compile the variant that the package would launch at a shape, and model that launch. `block`: one that it must
    have."""
    if request.kernel not in kernels:
        raise KgenError(f"no kernel {request.kernel!r}", code="kernel-unknown", hint=nearest(request.kernel, kernels))
    variant, shape = choose(spec, kernels[request.kernel], plan, request)
    launch = launch_of(spec, kernels[request.kernel], variant, shape, target)
    if not 0 <= block < launch.blocks:
        last = launch.blocks - 1
        raise KgenError(f"no block {block}", code="trace-block", hint=f"the launch has blocks 0 to {last}")
    with ExitStack() as stack:
        compiler, source = open_compiler(stack, files, jobs=1, toolchain=toolchain, cache=cache)
        result = compiler.compile(variant.request(source, [target]), keep_ir=True)
    if result.final_ir is None:
        return Traced(variant, shape, result, None, launch, None, None)
    module = parse_module(result.final_ir)
    if not result.usable:
        return Traced(variant, shape, result, module, launch, None, None)
    costs = Costs.of(target)
    recording = record(module, launch, costs)
    return Traced(variant, shape, result, module, launch, recording, evaluate(recording, costs))


def choose(spec: Spec, kernel: Kernel, plan: Plan, request: TraceRequest) -> tuple[Variant, Shape]:
    """The variant and shape of a request, with what it leaves open filled in."""
    call = call_of(spec, request.sizes, request.lengths, request.dtype)
    heads = {n: d for n, d in spec.dims.items() if d.kind is DimKind.HEADS}
    shape = Shape(call.sizes["B"], call.sizes[spec.one(DimKind.ROWS)], call.lengths)
    tail = shape.rows % call.sizes[spec.chunk]
    mode = "varlen" if shape.lengths is not None else "tail" if tail else "full"
    given = everything(spec, kernel, call.dtype)
    flags = flags_of(spec, kernel)
    check_options(kernel.name, given, [f.lower() for f in flags], request.absent, request.on)
    entry = _entry(spec, kernel, plan, request.target, call)
    given = {n: "" if n in request.absent else d for n, d in given.items()}
    key, value = (call.sizes[n] for n in sorted(heads, key=lambda n: heads[n].group_of is not None))
    variant = make_variant(
        spec, kernel, entry, call.dtype, {n: call.sizes[n] for n in entry.widths}, given,
        {f: f.lower() in request.on for f in flags}, mode, (key, value),
    )  # fmt: skip
    return variant, shape


def _entry(spec: Spec, kernel: Kernel, plan: Plan, target: str, call: Call) -> Entry:
    """The plan's row for the widths: the bucket that holds them."""
    bits = 32 if call.dtype == "fp32" else 16
    for entry in plan.entries:
        bucket = {n: next((b for b in spec.buckets[n] if call.sizes[n] <= b), 0) for n in entry.widths}
        wanted = (kernel.name, target, bits, call.sizes[spec.chunk], bucket)
        if (entry.kernel, entry.target, entry.bits, entry.chunk, entry.widths) == wanted:
            return entry
    raise KgenError(
        f"the plan has no row for {kernel.name} on {target} at this shape",
        code="plan-missing",
        hint="run `kgen plan` on the spec",
    )
