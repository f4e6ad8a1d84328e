"""The compile variants of a generated package: every distinct program that its launchers can ask a compiler for.

A variant is a kernel with its operand dtype, chunk, tiles, flags and access mode. The factors multiply:

* dtype of a call (bf16, fp16, fp32), since casts, tiles and the matrix unit's rate follow it;
* chunk (16, 32, 64), a constexpr that sizes every tile;
* tiles, one for each distinct choice in the plan: widths that share tiles share the variant, compiled at the widest;
* each optional tensor given or absent, and each flag of the spec: constexprs, so that what is absent costs nothing;
* mode: fixed with full chunks, fixed with a tail, varlen. A tail costs bounds that full chunks don't pay for.

What could be a factor and isn't: gates and initial states are widened to fp32 by the launcher, so their dtypes make no
variants; a kernel writes v_new whether it is wanted or not. Heads are constexprs too, but reach only strides, so one
pair stands for all. Widths off the tile sizes (60, 96, 192) change which blocks are bounded, so each of the spec's edge
shapes adds a few variants with everything on.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kgen.errors import KgenError, nearest
from kgen.ir.nodes import Kernel
from kgen.plan.record import Entry, Plan
from kgen.spec.models import DimKind, Spec, flag_of
from kgen.spec.targets import Target
from kgen.virtual import CompileRequest

TABLES = {"cu_seqlens": "*i64", "chunk_indices": "*i32", "chunk_offsets": "*i64"}
TRITON = {"int32": "i32", "int64": "i64"}  # Triton's names of dtypes, where they aren't the spec's
MODES = {"full": (False, 0), "tail": (False, 2), "varlen": (True, 2)}
KEY_HEADS, HEADS = 16, 32


@dataclass(frozen=True)
class Variant:
    """One compile. `choices` are what tells variants of a kernel apart, in printing order."""

    kernel: str
    target: str
    dtype: str
    chunk: int
    tiles: tuple[tuple[str, int], ...]
    widths: tuple[tuple[str, int], ...]
    mode: str
    flags: tuple[tuple[str, bool], ...]
    given: tuple[tuple[str, str], ...]  # optional tensors: dtype, or "" for absent
    signature: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, int | bool | None], ...]
    predicted: int
    heads: tuple[tuple[str, int], ...] = ()

    @property
    def name(self) -> str:
        """`bf16-c64-BK128-BV64-g-h0_fp32-varlen`."""
        parts = [self.dtype, f"c{self.chunk}", *(f"{k}{v}" for k, v in self.tiles)]
        tiles = dict(self.tiles)
        parts += [f"{k}{v}" for k, v in self.widths if v % tiles.get(f"B{k}", v)]
        parts += [n if d in ("fp32", self.dtype) and n != "h0" else f"{n}_{d}" for n, d in self.given if d]
        return "-".join([*parts, *(f for f, on in self.flags if on), self.mode])

    @property
    def factors(self) -> tuple[tuple[str, object], ...]:
        """What a pairwise cover pairs."""
        return (
            ("dtype", self.dtype), ("chunk", self.chunk), ("tiles", self.tiles), ("mode", self.mode), *self.flags,
            *self.given
        )  # fmt: skip

    def request(self, source: Path, targets: Sequence[Target]) -> CompileRequest:
        """The compile of this variant from a package's kernels.py, for the compiler's name of its target."""
        target = next(t for t in targets if t.name == self.target)
        return CompileRequest(
            source, f"{self.kernel}_kernel", dict(self.signature), dict(self.constants), target.compiler_target.value
        )  # fmt: skip


def variants(spec: Spec, kernels: dict[str, Kernel], plan: Plan, target: str, only: str | None = None) -> list[Variant]:
    """Every variant for a target, kernels in the spec's order."""
    if only is not None and only not in kernels:
        raise KgenError(f"no kernel {only!r}", code="kernel-unknown", hint=nearest(only, kernels))
    out: dict[tuple[object, ...], Variant] = {}
    for kernel in kernels.values():
        if only in (None, kernel.name):
            for v in itertools.chain(_regular(spec, kernel, plan, target), _edges(spec, kernel, plan, target)):
                out.setdefault((v.kernel, v.signature, v.constants), v)
    return list(out.values())


def dtypes_of(spec: Spec, bits: int) -> list[str]:
    """The call dtypes of an operand width."""
    names = spec.dtypes[spec.dot_dtype]
    return [d for d in names if (d == "fp32") == (bits == 32)]


def _entries(kernel: str, plan: Plan, target: str) -> Iterator[Entry]:
    """One entry for each distinct choice of tiles: the widest."""
    best: dict[tuple[object, ...], Entry] = {}
    for e in plan.entries:
        if e.kernel == kernel and e.target == target:
            key = (e.bits, e.chunk, tuple(e.tiles.items()))
            if key not in best or sum(e.widths.values()) >= sum(best[key].widths.values()):
                best[key] = e
    yield from best.values()


def _regular(spec: Spec, kernel: Kernel, plan: Plan, target: str) -> Iterator[Variant]:
    for e in _entries(kernel.name, plan, target):
        for dtype in dtypes_of(spec, e.bits):
            for given in _given(spec, kernel, dtype):
                for flags in _flags(spec, kernel):
                    for mode in MODES:
                        yield make_variant(spec, kernel, e, dtype, dict(e.widths), given, flags, mode)


def _edges(spec: Spec, kernel: Kernel, plan: Plan, target: str) -> Iterator[Variant]:
    """Widths off the tile sizes, with everything optional present."""
    tiled = spec.kernels[kernel.name].tiles
    for shape in spec.edge_shapes if tiled else ():
        widths = {d: getattr(shape, d) for d in tiled}
        for e in plan.entries:
            bucket = {d: next(b for b in spec.buckets[d] if w <= b) for d, w in widths.items()}
            if e.kernel == kernel.name and e.target == target and e.widths == bucket:
                off = dict.fromkeys(flags_of(spec, kernel), False)
                for dtype in dtypes_of(spec, e.bits):
                    given = everything(spec, kernel, dtype)
                    for mode in ("full", "varlen"):
                        yield make_variant(spec, kernel, e, dtype, widths, given, off, mode)


def flags_of(spec: Spec, kernel: Kernel) -> list[str]:
    """The spec's flags that a kernel has as constexprs."""
    return [f.upper() for f in spec.flags if f.upper() in kernel.constexprs]


def probe(spec: Spec, kernel: Kernel, e: Entry, flags: dict[str, bool]) -> Variant:
    """The variant of an entry that takes the most memory: everything optional given, varlen, in the first dtype."""
    dtype = dtypes_of(spec, e.bits)[0]
    return make_variant(spec, kernel, e, dtype, dict(e.widths), everything(spec, kernel, dtype), flags, "varlen")


def everything(spec: Spec, kernel: Kernel, dtype: str) -> dict[str, str]:
    """Each optional tensor given, in the dtype that takes the most memory: the first of its list."""
    return {p: dtypes[0] for p, dtypes in _optional(spec, kernel, dtype).items()}


def _flags(spec: Spec, kernel: Kernel) -> Iterator[dict[str, bool]]:
    names = flags_of(spec, kernel)
    for values in itertools.product((False, True), repeat=len(names)):
        yield dict(zip(names, values, strict=True))


def _tensor_dtypes(spec: Spec, kernel: Kernel, param: str, dtype: str) -> list[str]:
    """What a parameter may be stored in when the call's operands are `dtype`."""
    name = spec.kernels[kernel.name].bind.get(param, param)
    kind = spec.tensors[name].dtype
    if kind == spec.dot_dtype:
        return [dtype]
    names = spec.dtypes.get(kind, (kind,))
    return [d for d in dict.fromkeys(("fp32", dtype)) if d in names] or list(names)


def _optional(spec: Spec, kernel: Kernel, dtype: str) -> dict[str, list[str]]:
    return {p: _tensor_dtypes(spec, kernel, p, dtype) for p in kernel.params if flag_of(p) in kernel.constexprs}


def _given(spec: Spec, kernel: Kernel, dtype: str) -> Iterator[dict[str, str]]:
    """Every way to give or leave out the optional tensors."""
    optional = _optional(spec, kernel, dtype)
    for values in itertools.product(*([*dtypes, ""] for dtypes in optional.values())):
        yield dict(zip(optional, values, strict=True))


def make_variant(
    spec: Spec,
    kernel: Kernel,
    entry: Entry,
    dtype: str,
    widths: dict[str, int],
    given: dict[str, str],
    flags: dict[str, bool],
    mode: str,
    heads: tuple[int, int] = (KEY_HEADS, HEADS),
) -> Variant:
    """A variant with its Triton signature and constants. `heads`: key heads and value heads."""
    varlen, tail = MODES[mode]
    stored = {p: given.get(p) or _tensor_dtypes(spec, kernel, p, dtype)[0] for p in kernel.params if given.get(p) != ""}
    signature = {p: f"*{TRITON.get(d, d)}" for p, d in stored.items()}
    # In the emitted kernel's own order, which the run-time arguments follow.
    signature |= {r: TABLES[r] for r in kernel.runtime if varlen and r in TABLES}
    signature |= dict.fromkeys(kernel.scalars, "fp32")
    signature |= {r: "i32" for r in kernel.runtime if r not in TABLES}
    absent = [p for p in kernel.params if given.get(p) == ""] + [
        r for r in kernel.runtime if r in TABLES and not varlen
    ]
    constants: dict[str, int | bool | None] = dict.fromkeys(absent)
    named = {n: heads[0 if d.group_of is None else 1] for n, d in spec.dims.items() if d.kind is DimKind.HEADS}
    known: dict[str, int | bool] = {
        **named,
        **{n: d.max or 0 for n, d in spec.dims.items() if d.kind is DimKind.STATIC},
        **widths, spec.chunk: entry.chunk, **entry.tiles, **flags,
        **{flag_of(p): bool(d) for p, d in given.items()},
        "IS_VARLEN": varlen, "TAIL_MODE": tail, "BLOCK_PTR": True,
    }  # fmt: skip
    constants |= {c: known[c] for c in kernel.constexprs}
    return Variant(
        kernel.name, entry.target, dtype, entry.chunk, tuple(entry.tiles.items()), tuple(widths.items()), mode,
        tuple(flags.items()), tuple(given.items()), tuple(signature.items()), tuple(constants.items()),
        entry.ub_predicted_bytes, tuple(named.items()),
    )  # fmt: skip


def cover(every: list[Variant]) -> list[Variant]:
    """A subset in which each pair of factor values that occurs together in some variant of a kernel occurs once."""
    out: list[Variant] = []
    for _, group in itertools.groupby(every, key=lambda v: v.kernel):
        rows = list(group)
        pairs = {v: set(itertools.combinations(v.factors, 2)) for v in rows}
        wanted = set().union(*pairs.values())
        while wanted:
            best = max(rows, key=lambda v: len(pairs[v] & wanted))  # the first of equals: deterministic
            out.append(best)
            wanted -= pairs[best]
    return out
