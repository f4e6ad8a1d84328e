"""Types from their text, remembered by text: a kernel has thousands of memref types and a few dozen distinct ones."""

from __future__ import annotations

import functools
import re

from kgen.virtual.hivm.affine import operators, parse_affine_map
from kgen.virtual.hivm.errors import HivmError
from kgen.virtual.hivm.types import SPACES, MemRef, Sizes, element_bits, row_major

_BRACKETS = {"<": ">", "(": ")", "[": "]", "{": "}"}
_SPACE = "#hivm.address_space<"
_STEP = r"(?:-?\d+|\?)"
_STRIDED = re.compile(rf"strided<\[\s*({_STEP}(?:\s*,\s*{_STEP})*)?\s*\](?:,\s*offset:\s*({_STEP}))?>")


@functools.lru_cache(maxsize=65536)
def read_memref(text: str) -> MemRef:
    """Read one `memref<...>`."""
    parts = split_top(text[len("memref<") : -1])
    if not parts:
        raise HivmError("the type memref<>, which says nothing")
    shape, element = _shape_and_element(parts[0])
    space: str | None = None
    strides: Sizes | None = None
    offset: int | None = 0
    for part in parts[1:]:
        if part.startswith(_SPACE):
            space = part[len(_SPACE) : -1]
            if space not in SPACES:
                raise HivmError(f"the memory space {space!r}, which kgen does not know")
        elif part.startswith("strided<"):
            strides, offset = _strided(part)
        elif part.startswith("affine_map<"):
            offset = _mapped(part, shape)
        else:
            raise HivmError(f"the memref layout {part!r}, which kgen does not know")
    if strides is not None and len(strides) != len(shape):
        raise HivmError(f"a memref of {len(shape)} dimensions with {len(strides)} strides")
    return MemRef(shape, element, space, strides, offset)


def split_top(text: str) -> list[str]:
    """Split at the commas that stand outside every bracket."""
    parts: list[str] = []
    position = start = 0
    while position < len(text):
        char = text[position]
        if char in _BRACKETS:
            position = _closing(text, position)
        elif char == ",":
            parts.append(text[start:position].strip())
            start = position + 1
        position += 1
    tail = text[start:].strip()
    return [*parts, tail] if tail else parts


def _strided(part: str) -> tuple[Sizes, int | None]:
    """`strided<[64, ?], offset: ?>`."""
    match = _STRIDED.fullmatch(part)
    if not match:
        raise HivmError(f"the memref layout {part!r}, which kgen does not know")
    strides = tuple(_integer_or_dynamic(item) for item in match[1].split(",")) if match[1] else ()
    return strides, _integer_or_dynamic(match[2]) if match[2] else 0


def _mapped(part: str, shape: Sizes) -> int | None:
    """The offset of a dense layout that is given as a map: `(d0, d1)[s0] -> (d0 * 16 + d1 + s0)`."""
    map_ = parse_affine_map(part[len("affine_map<") : -1])
    if map_.results == map_.dims:
        return 0
    if len(map_.results) == 1 and len(map_.dims) == len(shape) and None not in shape[1:]:
        names = (*map_.dims, *map_.symbols)
        (formula,) = map_.python(names)

        def at(**known: int) -> int:
            return int(eval(formula, {"__builtins__": {}}, {**dict.fromkeys(names, 0), **known}))

        dense = row_major(tuple(size or 1 for size in shape))
        plain = all(op in ("+", "*") for op in operators(map_.results[0]))
        if plain and all(at(**{d: 1}) - at() == step for d, step in zip(map_.dims, dense, strict=True)):
            return None if map_.symbols else at()
    raise HivmError(f"the memref layout {part!r}, which kgen does not know")


def _shape_and_element(text: str) -> tuple[Sizes, str]:
    """Split `64x?xf32` at its dimensions; the element may itself hold an `x` (`index`)."""
    shape: list[int | None] = []
    rest = text.strip()
    while match := re.match(r"(\d+|\?)x", rest):
        shape.append(_integer_or_dynamic(match[1]))
        rest = rest[match.end() :]
    element_bits(rest)
    return tuple(shape), rest


def _integer_or_dynamic(text: str) -> int | None:
    return None if text.strip() == "?" else int(text)


def _closing(text: str, opening: int) -> int:
    """Position of the bracket that closes the one at `opening`; the `>` of an arrow is no bracket."""
    stack: list[str] = []
    for position in range(opening, len(text)):
        char = text[position]
        if char in _BRACKETS:
            stack.append(_BRACKETS[char])
        elif char == ">" and text[position - 1] == "-":
            continue
        elif stack and char == stack[-1]:
            stack.pop()
            if not stack:
                return position
    raise HivmError(f"unbalanced brackets in {text[opening : opening + 120]!r}")
