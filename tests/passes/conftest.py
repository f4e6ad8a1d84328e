"""Small programs over the gated delta rule's tensors and a few more, lowered as far as a test wants."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from kgen.errors import KgenError
from kgen.ir.nodes import Kernel
from kgen.ir.parse import parse_kernel
from kgen.passes import PASSES, Context, lower
from kgen.spec.load import load_spec
from kgen.spec.models import Spec

ROOT = Path(__file__).parents[2]
GDN = load_spec(ROOT / "specs" / "gdn.yaml").spec

# Beside gdn's tensors: a gate without the decay fact, a square output, two outputs more, one of which may be absent.
EXTRA = {
    "loose": {"dims": ("T", "HV"), "store": ("HV", "T"), "dtype": "fp32"},
    "P": {"dims": ("T", "HV", "BT"), "dtype": "fp32"},
    "y": {"dims": ("T", "HV", "V"), "dtype": "io"},
    "z": {"dims": ("T", "HV"), "dtype": "fp32", "optional": True},
    "s0": {"dims": ("N", "HV", "K", "V"), "dtype": "state"},
    "slot": {"dims": ("T",), "dtype": "int32"},
    "bias": {"dims": ("HV",), "dtype": "fp32"},
}


class Small:
    """One program with its context, and the kernel after any pass."""

    def __init__(self, source: str, outputs: tuple[str, ...] = ("o", "P", "y", "z", "ht")) -> None:
        self.source = textwrap.dedent(source).strip() + "\n"
        self.name = self.source.partition("(")[0].removeprefix("def ").strip()
        entry = GDN.kernels["chunk_fwd_o"].model_copy(
            update={"program": f"p.py:{self.name}", "bind": {}, "given": (), "outputs": outputs}
        )
        tensors = {n: GDN.tensors["o"].__class__.model_validate(t) for n, t in EXTRA.items()}
        self.spec: Spec = GDN.model_copy(update={"kernels": {self.name: entry}, "tensors": {**GDN.tensors, **tensors}})
        self.context = Context(self.spec, self.name)

    def parse(self) -> Kernel:
        return parse_kernel(self.spec, self.name, self.source, "p.py")

    def stages(self) -> dict[str, Kernel]:
        return dict(lower(self.parse(), self.context))

    def before(self, name: str) -> Kernel:
        """The kernel that the named pass gets."""
        names = ["parse", *(p.__name__ for p in PASSES)]
        wanted = names[names.index(name) - 1]
        return next(k for n, k in lower(self.parse(), self.context) if n == wanted)


@pytest.fixture
def refusal() -> Callable[[str], KgenError]:
    """The error that a program meets in parsing or lowering: located, and never one of kgen's own."""

    def get(source: str) -> KgenError:
        small = Small(source)
        with pytest.raises(KgenError) as caught:
            small.stages()
        error = caught.value
        assert error.location is not None and error.location.path == "p.py"
        assert error.exit_code == 2 and (error.hint or error.code != "not-implemented")
        return error

    return get
