"""Which names have a value where, and of what type: on every path, under the compile-time conditions on it."""

from __future__ import annotations

from dataclasses import dataclass, field

from kgen.ir.nodes import Expr, Name, Type

When = frozenset[tuple[Expr, bool]]  # conditions, and whether each holds


@dataclass
class Env:
    """For each name, the conditions under which it was assigned, with the types it may have there."""

    names: dict[str, dict[When, frozenset[Type]]] = field(default_factory=dict)

    def copy(self) -> Env:
        return Env({name: dict(ways) for name, ways in self.names.items()})

    def assign(self, name: str, type_: Type, when: When) -> None:
        """One more way; ways that it overrides go, and two that differ in one condition's sense become one."""
        ways = {w: t for w, t in self.names.get(name, {}).items() if not when <= w}
        ways[when] = frozenset((type_,))
        while (pair := _complementary(ways, when)) is not None:
            other, test = pair
            types = ways.pop(other) | ways.pop(when)
            when = when - {test}
            ways[when] = types
        self.names[name] = ways


def _complementary(ways: dict[When, frozenset[Type]], when: When) -> tuple[When, tuple[Expr, bool]] | None:
    for test, holds in when:
        other = when - {(test, holds)} | {(test, not holds)}
        if other in ways:
            return other, (test, holds)
    return None


def check_use(env: Env, name: Name, when: When, dtypes: bool) -> str:
    """What is wrong with reading a name under these conditions, if anything."""
    ways = env.names.get(name.id, {})
    opposite = {(test, not holds) for test, holds in when}
    possible = {w: t for w, t in ways.items() if not w & opposite}
    if not any(w <= when for w in possible):
        return f"{name.id!r} has no value on some path that leads here"
    for found in (t for types in possible.values() for t in types):
        if found.axes != name.type.axes or (dtypes and found.dtype != name.type.dtype):
            return f"{name.id!r} is read as {name.type} and was assigned {found}"
    return ""
