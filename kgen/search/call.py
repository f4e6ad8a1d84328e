"""What a user asks of a call: sizes, lengths, dtype and options, read, filled in and checked in one place.

Every limit here lies well above real use. It is there so that a slip of the keyboard is an error at once, and not an
hour or a machine's memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kgen.errors import KgenError, nearest
from kgen.spec.models import DimKind, Spec

MOST_ROWS = 1 << 24  # of all sequences: 16 times a context of a million
MOST_SEQUENCES = 1 << 16
MOST_HEADS = 1 << 12
MOST_WORK = 1 << 21  # chunks times heads, which a modelled time takes a minute and a gigabyte for
DIGITS = 9
DEFAULT_HEADS = (16, 32)  # of keys, and of values
DEFAULTS = {"B": 1, "T": 4096, "width": 128}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,47}")
_NUMBER = re.compile(r"[+-]?[0-9]+")
_HOW = "write sizes as B=1,T=4096,H=16,HV=32,K=128"


@dataclass(frozen=True)
class Call:
    """A checked call. `sizes` holds all of B, rows, heads, widths and the chunk, by the spec's names; the rows are
    those of each batch row, or of all sequences where it is packed."""

    sizes: dict[str, int]
    lengths: tuple[int, ...] | None
    dtype: str


def parse_sizes(text: str) -> dict[str, int]:
    """`B=1,T=4096,HV=32`, commas or spaces between."""
    out: dict[str, int] = {}
    for item in _items(text):
        name, _, value = item.partition("=")
        if not _NAME.fullmatch(name) or not _NUMBER.fullmatch(value):
            raise KgenError(f"cannot read the size {item[:40]!r}", code="shape", hint=_HOW)
        if name in out:
            raise KgenError(f"{name} is given twice", code="shape", hint="give each size once")
        out[name] = _number(name, value)
    return out


def parse_lengths(text: str | None) -> tuple[int, ...] | None:
    """`64,100,7`, commas or spaces between; None stays None."""
    if text is None:
        return None
    items = list(_items(text))
    wrong = next((item for item in items if not _NUMBER.fullmatch(item)), None if items else text)
    if wrong is not None:
        raise KgenError(f"cannot read the lengths: {wrong[:40]!r}", code="lengths", hint="write them as 64,100,7")
    return tuple(_number("a length", item) for item in items)


def parse_names(text: str | None, option: str) -> tuple[str, ...]:
    """`g,h0`, commas or spaces between."""
    names = tuple(_items(text or ""))
    for name in names:
        if names.count(name) > 1:
            raise KgenError(f"{option} names {name[:40]!r} twice", code="call-option", hint="name each once")
    return names


def call_of(
    spec: Spec, sizes: Mapping[str, int], lengths: tuple[int, ...] | None, dtype: str, *, chunk: bool = True
) -> Call:
    """A call with what is left open filled in. `chunk`: whether the size of a chunk may be asked for."""
    lengths = lengths or None
    known = spec.dtypes[spec.dot_dtype]
    if dtype not in known:
        raise KgenError(f"no dtype {dtype[:40]!r}", code="dtype-unknown", hint=nearest(dtype, known))
    defaults = _defaults(spec)
    allowed = [n for n in defaults if chunk or n != spec.chunk]
    for name in sizes:
        if name not in allowed:
            raise KgenError(f"{name!r} is no size of a call", code="shape", hint=nearest(name, allowed))
    if lengths is not None:
        defaults[spec.one(DimKind.ROWS)] = _packed(spec, sizes, lengths)
    full = {**defaults, **sizes}
    _check(spec, full)
    _check_work(spec, full, lengths)
    return Call(full, lengths, dtype)


def check_options(
    kernel: str, optional: Mapping[str, str], flags: list[str], absent: tuple[str, ...], on: tuple[str, ...]
) -> None:
    """Options of a kernel: tensors that may be absent, and flags that may be on. `optional`: their dtypes, by name."""
    for name in absent:
        if name in on:
            raise _option(f"{name!r} stands in both --with and --without", "tensors go to --without, flags to --with")
        if name in flags:
            raise _option(f"{name!r} is a flag of {kernel}, not a tensor", "a flag is off unless --with names it")
        if name not in optional:
            raise _option(f"{kernel} has no optional tensor {name[:40]!r}", nearest(name, optional))
    for name in on:
        if name in optional:
            raise _option(f"{name!r} is a tensor of {kernel}, not a flag", "it is there unless --without names it")
        if name not in flags:
            raise _option(f"{kernel} has no flag {name[:40]!r}", nearest(name, flags))


def _option(message: str, hint: str) -> KgenError:
    return KgenError(message, code="call-option", hint=hint)


def _items(text: str) -> Iterator[str]:
    return filter(None, re.split(r"[, \t]+", text))


def _number(name: str, digits: str) -> int:
    count = len(digits.lstrip("+-"))
    if count > DIGITS:
        raise KgenError(f"{name} has {count} digits", code="shape", hint=f"sizes and lengths have at most {DIGITS}")
    return int(digits)


def _defaults(spec: Spec) -> dict[str, int]:
    """Each size of a call, in the order of printing."""
    heads = {n: DEFAULT_HEADS[d.group_of is not None] for n, d in spec.dims.items() if d.kind is DimKind.HEADS}
    widths = {n: DEFAULTS["width"] for n, d in spec.dims.items() if d.kind is DimKind.STATIC}
    rows = {spec.one(DimKind.ROWS): DEFAULTS["T"]}
    return {"B": DEFAULTS["B"], **rows, **heads, **widths, spec.chunk: max(spec.chunks)}


def _packed(spec: Spec, sizes: Mapping[str, int], lengths: tuple[int, ...]) -> int:
    """The rows of all sequences."""
    rows, total = spec.one(DimKind.ROWS), sum(lengths)
    if len(lengths) > MOST_SEQUENCES:
        raise KgenError(f"{len(lengths)} lengths", code="lengths", hint=f"at most {MOST_SEQUENCES}")
    if min(lengths) < 0:
        raise KgenError(f"a length of {min(lengths)}", code="lengths", hint="each length is at least 0")
    if sizes.get(rows, total) != total or sizes.get("B", 1) != 1:
        raise KgenError(
            f"lengths of {total} rows in all, {rows} = {sizes.get(rows, total)}, B = {sizes.get('B', 1)}",
            code="shape",
            hint=f"packed sequences are one batch row: leave {rows} and B out",
        )
    return total


def _check(spec: Spec, sizes: Mapping[str, int]) -> None:
    """Each size by itself, and heads against the heads that they are groups of."""
    for name, size in sizes.items():
        kind = spec.dims[name].kind if name in spec.dims else DimKind.SEQUENCES
        limits = {DimKind.ROWS: MOST_ROWS, DimKind.HEADS: MOST_HEADS, DimKind.SEQUENCES: MOST_SEQUENCES}
        limit = (spec.dims[name].max if name in spec.dims else None) or limits.get(kind, MOST_ROWS)
        if not 1 <= size <= limit:
            raise KgenError(f"{name} = {size}", code="shape", hint=f"from 1 to {limit}")
    if sizes[spec.chunk] not in spec.chunks:
        allowed = ", ".join(map(str, spec.chunks))
        raise KgenError(f"{spec.chunk} = {sizes[spec.chunk]}", code="shape", hint=f"supported: {allowed}")
    for name, dim in spec.dims.items():
        key = dim.group_of
        if key is not None and sizes[name] % sizes[key]:
            told = f"{name} = {sizes[name]}, {key} = {sizes[key]}"
            raise KgenError(told, code="shape", hint=f"{name} is a multiple of {key}")


def _check_work(spec: Spec, sizes: Mapping[str, int], lengths: tuple[int, ...] | None) -> None:
    """What a modelled time costs, which goes with chunks and heads."""
    rows, chunk = sizes[spec.one(DimKind.ROWS)], sizes[spec.chunk]
    total = rows * sizes["B"]
    if total > MOST_ROWS:
        raise KgenError(f"{total} rows in all", code="shape", hint=f"at most {MOST_ROWS}")
    chunks = sum(-(-n // chunk) for n in lengths) if lengths else sizes["B"] * -(-rows // chunk)
    heads = max(sizes[n] for n, d in spec.dims.items() if d.kind is DimKind.HEADS)
    if chunks * heads > MOST_WORK:
        raise KgenError(
            f"{chunks} chunks of {heads} heads are {chunks * heads} pieces of work to model",
            code="shape",
            hint=f"at most {MOST_WORK}: times grow with the rows, so a smaller shape says as much",
        )
