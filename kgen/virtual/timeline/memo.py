"""Functions that look a call's event up by what of its operands can differ. A launch makes millions of calls."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from kgen.virtual.hivm.types import MemRef
from kgen.virtual.machine.protocol import Operand

Event = Callable[[tuple[Operand, ...]], int]


def memo(
    kinds: Sequence[MemRef | None],
    masks: Sequence[int],
    ignored: int | None,
    event: Event,
    append: Callable[[int], None],
) -> Callable[..., None]:
    """A function of a call's operands that appends its event, made once for all that are alike.

    `kinds`: the operands' types, None for numbers; `masks`: which bits of an address matter; `ignored`: an operand that
    doesn't.
    """
    parts = [
        ", ".join(_parts(f"v{i}", kind, mask))
        for i, (kind, mask) in enumerate(zip(kinds, masks, strict=True))
        if i != ignored
    ]
    made = _factory(len(kinds), ", ".join(part for part in parts if part))
    return made({}, event, append)


def _parts(name: str, kind: MemRef | None, mask: int) -> list[str]:
    """What of an operand its type doesn't tell."""
    if kind is None:
        return [name]
    out = [] if kind.space in ("ub", "cbuf", "cc") else [f"{name}[0]"]
    out.append(f"{name}[1]" if mask == -1 else f"{name}[1] & {mask}")
    if None in kind.shape:
        out.append(f"{name}[2]")
    if None in (kind.strides or ()):
        out.append(f"{name}[3]")
    return out


@functools.cache
def _factory(count: int, key: str) -> Callable[..., Callable[..., None]]:
    """Python for one form of call; names and numbers in it are made here."""
    names = ", ".join(f"v{i}" for i in range(count))
    source = f"""
def make(known, event, append):
    def look({names}):
        key = ({key})
        seen = known.get(key)
        if seen is None:
            seen = known[key] = event(({names}{"," if count == 1 else ""}))
        append(seen)
    return look
"""
    namespace: dict[str, object] = {}
    exec(source, namespace)
    made = namespace["make"]
    assert callable(made)
    return made
