"""The launches that variants are modelled with are those that the generated package makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgen.pipeline import planned, read
from kgen.search.bench import captured_launch
from kgen.search.launches import Shape, launch_of
from kgen.search.trace import TraceRequest, choose
from kgen.search.variants import everything
from kgen.virtual.launch import Buffer, Launch
from kgen.virtual.peers import Capture, device_of

ROOT = Path(__file__).resolve().parent.parent.parent
LENGTHS = (1000, 64, 700, 1, 257)
SHAPES = [
    Shape(1, 4096), Shape(2, 100), Shape(3, 64), Shape(1, 7), Shape(1, sum(LENGTHS), LENGTHS),
]  # fmt: skip


def told(launch: Launch) -> tuple[object, ...]:
    """What of a launch the timeline looks at."""
    arguments = [
        (a.element, a.count, a.values) if isinstance(a, Buffer) else "number" if isinstance(a, float) else a
        for a in launch.arguments
    ]
    return launch.grid, tuple(arguments)


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("shape", "name", "width"),
    [*((shape, "Ascend910_9391", 128) for shape in SHAPES), (SHAPES[1], "Ascend950PR", 256)],
    ids=lambda x: getattr(x, "text", x),
)
def test_a_launch_has_the_grid_and_arguments_of_the_packages(
    capture: Capture, shape: Shape, name: str, width: int
) -> None:
    sources = read(ROOT / "specs" / "gdn.yaml")
    kernels, plan = planned(sources)
    spec = sources.loaded.spec
    target = next(t for t in sources.targets if t.name == name)
    sizes = {"B": shape.batch, "T": shape.rows, "H": 4, "HV": 8, "K": width, "V": width}
    captured = capture.ask(
        {
            "subject": "package",
            "path": str(ROOT / "generated" / "gdn"),
            "operator": spec.operator.name,
            "shape": sizes,
            "lengths": list(shape.lengths) if shape.lengths else None,
            "dtype": "bf16",
            "direction": "fwd",
            **device_of(target),
        }
    )
    assert {launch.kernel.removesuffix("_kernel") for launch in captured.launches} == set(kernels)
    for made in captured.launches:
        kernel = made.kernel.removesuffix("_kernel")
        absent = tuple(n for n in ("h0", "ht") if n in everything(spec, kernels[kernel], "bf16"))
        given = sizes if shape.lengths is None else {n: sizes[n] for n in ("H", "HV", "K", "V")}
        asked = TraceRequest(kernel, target.name, given, shape.lengths, "bf16", absent, ())
        variant, chosen = choose(spec, kernels[kernel], plan, asked)
        assert all(made.constants[tile] == str(size) for tile, size in variant.tiles), kernel
        assert told(launch_of(spec, kernels[kernel], variant, chosen, target)) == told(captured_launch(made)), kernel
