"""The lowering, as one column: each pass is a pure function `(kernel, context) -> kernel` in a file of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kgen.ir.nodes import Kernel
from kgen.ir.verify import Verifier
from kgen.passes.addresses import addresses
from kgen.passes.bare_sums import bare_sums
from kgen.passes.choices import choices
from kgen.passes.context import Context
from kgen.passes.core_grid import core_grid
from kgen.passes.dot_operands import dot_operands
from kgen.passes.exponents import clip_exponents, exponent_base
from kgen.passes.left_copies import left_copies
from kgen.passes.loads import loads
from kgen.passes.masks import masks
from kgen.passes.nan_rule import nan_rule
from kgen.passes.refuse import refuse
from kgen.passes.signature import signature
from kgen.passes.slices import slices
from kgen.passes.tails import tails
from kgen.passes.whole_slabs import whole_slabs
from kgen.passes.widen import widen

Pass = Callable[[Kernel, Context], Kernel]

PASSES: tuple[Pass, ...] = (
    whole_slabs,  # first: slabs decide which loops exist
    choices,  # before names are given: each side of a choice reads its own tensors
    clip_exponents,  # while `tril` still says what is looked at
    exponent_base,  # after the clip, whose 0 doesn't scale; before loads, which take the factor along
    slices,  # before loads: a slice needs the program's own names
    loads,  # every later pass sees tensors only in named loads
    widen,  # needs loads to know what is 16-bit
    dot_operands,  # after widen, which must not touch operands
    bare_sums,  # after casts, which it negates an operand under; before copies, which look at the dots that remain
    left_copies,  # after casts: a cast made for one dot is nobody else's
    masks,  # after casts, so that a mask multiplies fp32; before the grid, on the language's own loops
    core_grid,  # index variables become i_t, i_hv …
    addresses,  # needs those
    tails,  # needs blocks with extents
    nan_rule,  # last of the rules: masks and clips have made their minima
    signature,  # reads which arguments the finished body uses
)


def lower(kernel: Kernel, context: Context) -> Iterator[tuple[str, Kernel]]:
    """The kernel as parsed, then after each pass, with the pass's name. Each is verified before it is handed on.

    Raises KgenError for what the language has and no pass lowers.
    """
    refuse(kernel, context)
    verifier = Verifier()
    verifier.check(kernel, "parse")
    yield "parse", kernel
    for run in PASSES:
        kernel = run(kernel, context)
        verifier.check(kernel, run.__name__)
        yield run.__name__, kernel
