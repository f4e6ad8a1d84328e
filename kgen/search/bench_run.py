"""Runs a bench: captures both sides at each shape, compiles and models every launch, and compares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kgen.errors import KgenError, nearest
from kgen.search.bench import OTHER, Compared, timed
from kgen.search.call import Call, call_of, parse_lengths, parse_sizes
from kgen.search.modelled import Modeller
from kgen.spec.load import LoadedSpec
from kgen.spec.models import Spec
from kgen.spec.targets import Target
from kgen.storage import home_folder
from kgen.virtual import Compiler, find_toolchain
from kgen.virtual.peers import Capture, CapturedLaunch, device_of
from kgen.virtual.timeline import Costs

PEERS = ("fla",)
DIRECTIONS = ("fwd", "fwd+bwd")
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class BenchRequest:
    """What to compare. Both sides get the same tensors; there is no initial state, and no final one is asked for."""

    against: str
    direction: str
    calls: tuple[Call, ...]
    package: Path


def bench_calls(loaded: LoadedSpec, shape: str | None, lengths: str | None, dtype: str) -> tuple[Call, ...]:
    """The call that is asked for, or those that the spec lists."""
    if shape is not None:
        return (call_of(loaded.spec, parse_sizes(shape), parse_lengths(lengths), dtype, chunk=False),)
    if lengths is not None:
        raise KgenError("--lengths without --shape", code="lengths", hint="say of which heads and widths: --shape H=16")
    calls = []
    for number, listed in enumerate(loaded.spec.bench_shapes):
        try:
            calls.append(call_of(loaded.spec, listed.sizes, listed.lengths, dtype, chunk=False))
        except KgenError as error:
            raise error.at(loaded.location(("bench_shapes", number))) from None
    return tuple(calls)


def run_bench(
    spec: Spec,
    target: Target,
    request: BenchRequest,
    costs: Sequence[Costs],
    *,
    jobs: int | None = None,
    toolchain: str = "auto",
    cache: bool = True,
    progress: Progress | None = None,
) -> list[Compared]:
    """One comparison a shape. `costs`: sets of constants, the first of which counts."""
    _check(spec, target, request)
    out: list[Compared] = []
    with ExitStack() as stack:
        home = home_folder()
        compiler = stack.enter_context(
            Compiler(find_toolchain(toolchain), jobs=jobs, cache_dir=home / "compiled" if cache else None)
        )
        modeller = stack.enter_context(Modeller(compiler.jobs, home / "modelled" if cache else None))
        capture = stack.enter_context(Capture())
        name = target.compiler_target.value
        for number, call in enumerate(request.calls):
            asked = _asked(spec, target, request, call)
            package = str(request.package.resolve())
            ours = capture.ask({**asked, "subject": "package", "path": package})
            theirs = capture.ask({**asked, "subject": request.against})
            sides = [
                timed(side, stage, name, compiler, modeller, costs)
                for side, stage in ((ours, own_stage(spec)), (theirs, peer_stage(spec)))
            ]
            ops = (ours.torch_ops, theirs.torch_ops)
            out.append(Compared(shape_text(spec, call), request.direction, sides[0], sides[1], ops))
            if progress is not None:
                progress(number + 1, len(request.calls))
    return out


def own_stage(spec: Spec) -> Callable[[CapturedLaunch], str]:
    """Our launches by the stage that has the kernel."""
    stages = {f"{kernel}_kernel": name for name, stage in spec.stages.items() for kernel in stage.kernels}
    return lambda launch: stages.get(launch.kernel, OTHER)


def peer_stage(spec: Spec) -> Callable[[CapturedLaunch], str]:
    """The other side's by its wrapper's name, which begins with the stage's: kgen keeps fla's stage names."""
    names = sorted(spec.stages, key=len, reverse=True)
    return lambda launch: next((n for n in names if launch.wrapper.startswith(n)), OTHER)


def shape_text(spec: Spec, call: Call) -> str:
    """`B1 T4096 H16 HV32 K128 V128`, with the number of sequences of a packed batch."""
    text = " ".join(f"{name}{size}" for name, size in _sizes(spec, call).items())
    return f"{text} in {len(call.lengths)} sequences" if call.lengths else text


def _sizes(spec: Spec, call: Call) -> dict[str, int]:
    """Without the chunk, which each side chooses."""
    return {name: size for name, size in call.sizes.items() if name != spec.chunk}


def _asked(spec: Spec, target: Target, request: BenchRequest, call: Call) -> dict[str, Any]:
    return {
        "operator": spec.operator.name, "shape": _sizes(spec, call),
        "lengths": list(call.lengths) if call.lengths else None,
        "dtype": call.dtype, "direction": request.direction, **device_of(target),
    }  # fmt: skip


def _check(spec: Spec, target: Target, request: BenchRequest) -> None:
    if request.against not in PEERS:
        raise KgenError(
            f"nothing to compare with called {request.against!r}",
            code="bench-against",
            hint=nearest(request.against, PEERS),
        )
    if request.direction not in DIRECTIONS:
        raise KgenError(
            f"no direction {request.direction!r}", code="bench-direction", hint=nearest(request.direction, DIRECTIONS)
        )
    if request.direction != "fwd" and spec.operator.forward_only:
        raise KgenError(
            f"{spec.name} has no backward yet", code="bench-direction", hint="bench it with --direction fwd"
        )
    if not request.calls:
        raise KgenError(
            f"{spec.name} lists no bench_shapes", code="bench-shapes", hint="add them to the spec, or give --shape"
        )
    if not (request.package / "__init__.py").is_file():
        raise KgenError(
            f"no generated package in {request.package}", code="package-missing", hint="run `kgen build` on the spec"
        )
    if target.memory is None:
        raise KgenError(f"{target.name} has no Ascend compiler", code="target-compile", hint="choose an Ascend target")
