"""Names of the device library's templates, taken apart: what is done, over how many dimensions, in which element types.

The compiler calls templates by mangled names: `vmuls_vs_1d_float`, `load_gm_to_ubuf_2d_bfloat16_t`,
`mma_tile_half_to_float_tb`, `enablevc_reduce_sum_ar_float`. A name that doesn't follow the scheme has no `Template`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import NamedTuple

ELEMENTS: Mapping[str, str] = {
    "float": "f32", "half": "f16", "bfloat16_t": "bf16", "bool": "i1", "int8_t": "i8", "uint8_t": "ui8",
    "int16_t": "i16", "uint16_t": "ui16", "int32_t": "i32", "uint32_t": "ui32", "int64_t": "i64", "uint64_t": "ui64",
}  # fmt: skip
_ELEMENT = re.compile(rf"_({'|'.join(sorted(ELEMENTS, key=len, reverse=True))})(?=_|$)")
_RANK = re.compile(r"_(\d)d(?=_|$)")

# The pipe that runs a template, by the beginning of its name; the first that matches decides.
_PIPES = (
    ("load_gm_to_", "MTE2"), ("copy_gm_to_", "MTE2"), ("nd2nz", "MTE2"), ("set_l1_", "MTE2"),
    ("store_ubuf_to_gm", "MTE3"), ("copy_ubuf_to_gm", "MTE3"), ("copy_ubuf_to_cbuf", "MTE3"),
    ("mma_tile", "M"), ("batch_mma_tile", "M"), ("fixpipe", "FIX"),
)  # fmt: skip
# What the vector unit does, by the beginning of a name. Anything else is unknown, never silently vector work.
_VECTOR = (
    "v", "broadcast", "reduce", "enablevc_reduce", "transpose", "arange", "cumsum", "cumprod", "copy_ubuf_to_ubuf",
    "deinterleave", "interleave", "gather", "sort", "pad", "concat", "flip", "histogram", "enablevc_",
)  # fmt: skip


class Template(NamedTuple):
    """A template's name in parts: `vcmps_eq_1d_half` is base `vcmps_eq`, rank 1, elements (`f16`,)."""

    name: str
    base: str  # the name without rank and element types: `load_gm_to_ubuf`, `mma_tile_ta`, `reduce_sum_ar`
    rank: int | None
    elements: tuple[str, ...]  # in the name's order: source, destination
    pipe: str

    @property
    def form(self) -> str:
        """`operation rank dtype`, as coverage is counted: `vcmps_eq 1d f16`."""
        rank = [] if self.rank is None else [f"{self.rank}d"]
        return " ".join([self.base, *rank, "->".join(self.elements)])


@functools.cache
def template(name: str) -> Template | None:
    """The parts of a template's name, or None for a name whose unit of execution isn't known."""
    pipe = next((p for prefix, p in _PIPES if name.startswith(prefix)), None)
    if pipe is None:
        if not name.startswith(_VECTOR):
            return None
        pipe = "V"
    elements = tuple(ELEMENTS[e] for e in _ELEMENT.findall(name))
    base = _ELEMENT.sub("", name)
    base = base.replace("_4d_to_2d", "").replace("nz2nd_to", "nz2nd")
    rank = _RANK.search(base)
    return Template(name, _RANK.sub("", base), int(rank[1]) if rank else None, elements, pipe)


Roles = tuple[tuple[int, ...], tuple[int, ...]]

# Places of the operands that a template reads and writes, by the beginning of its base; the first that matches decides.
# What is left are scratch memory and numbers.
_ROLES: tuple[tuple[str, Roles], ...] = (
    ("arange", ((), (0,))),
    ("mma_tile", ((0, 1), (6,))), ("batch_mma_tile", ((0, 1), (6,))),
    ("vsel", ((0, 1, 2), (3,))),
    ("vgathermask", ((0, 1), (2, 3))),
    ("interleave", ((0, 1), (2,))), ("gather", ((0, 1), (2,))),
    ("reduce_max_with_index", ((0,), (1, 2))), ("reduce_min_with_index", ((0,), (1, 2))),
    ("enablevc_reduce_max_with_index", ((0,), (1, 2))), ("enablevc_reduce_min_with_index", ((0,), (1, 2))),
    *((base, ((0,), (1,))) for base in (
        "load_gm_to_", "nd2nz", "store_ubuf_", "copy_", "set_l1", "fixpipe", "broadcast", "cum", "deinterleave",
        "reduce", "enablevc_", "transpose", "flip", "vcast", "vabs", "vexp", "vln", "vnot", "vsqrt", "vrsqrt", "vrec",
        "vrelu",
    )),
    ("v", ((0, 1), (2,))),
)  # fmt: skip


@functools.cache
def operand_roles(found: Template) -> Roles | None:
    """The places of the operands that a template reads and of those that it writes; None where that isn't known."""
    return next((roles for prefix, roles in _ROLES if found.base.startswith(prefix)), None)
