"""Loops that would not end: a bound that memory gives may be anything where the memory's content isn't known."""

from __future__ import annotations

from collections.abc import Callable

from kgen.errors import KgenError

MOST_TURNS = 1 << 24  # of one loop; a launch of a real kernel has some thousands a core


def endless() -> KgenError:
    """What to raise in place of counting for ever."""
    return KgenError(
        f"a loop of the kernel goes round more than {MOST_TURNS} times with these arguments",
        code="loop-endless",
        hint="its bound may come from memory whose content isn't known here",
    )


def counted(lower: int, upper: int, step: int) -> range:
    """The counts of an `scf.for`. A step of 0 is a division by zero, as in the hardware's count of iterations."""
    if step == 0:
        raise ZeroDivisionError
    found = range(lower, upper, step)
    if found and (found[-1] - found[0]) // step >= MOST_TURNS:
        raise endless()
    return found


def turns() -> Callable[[], None]:
    """A counter for the turns of an `scf.while`, over all of a program's runs."""
    count = 0

    def turn() -> None:
        nonlocal count
        count += 1
        if count > MOST_TURNS:
            raise endless()

    return turn
