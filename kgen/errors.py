"""Every error that a user of kgen can meet.

A `KgenError` is the user's to mend: it says where, what was expected and what to do next, and ends the command with
exit code 2. A `KgenBug` is kgen's own: an invariant broke, and no input of the user's should be able to cause it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Location:
    """A place in a text file; lines count from 1, columns from 0 (as `ast` does)."""

    path: str
    line: int = 0
    column: int = 0
    end_column: int | None = None
    text: str | None = None

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column + 1}" if self.line else self.path

    def excerpt(self) -> str:
        """The source line with a caret under the place, or nothing where the line isn't known."""
        if not self.text:
            return ""
        width = max(1, (self.end_column or self.column + 1) - self.column)
        width = min(width, max(1, len(self.text) - self.column))
        gutter = f"{self.line:5d} | "
        return f"{gutter}{self.text}\n{' ' * (len(gutter) + self.column)}{'^' * width}"


class KgenError(Exception):
    """A mistake in an input, or a machine that lacks something.

    `code` is short and stable (`spec-unknown-field`); `hint` is the next step.
    """

    exit_code = 2

    def __init__(self, message: str, *, code: str, location: Location | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.location = location
        self.hint = hint

    def at(self, location: Location) -> KgenError:
        """The same error with a place, unless it already has one."""
        return self if self.location else KgenError(self.message, code=self.code, location=location, hint=self.hint)

    def render(self) -> str:
        """Text for a terminal: message, place, source line with caret, next step."""
        lines = [f"error[{self.code}]: {self.message}"]
        if self.location:
            lines.append(f"  --> {self.location}")
            if excerpt := self.location.excerpt():
                lines.append(excerpt)
        if self.hint:
            lines.append(f"  help: {self.hint}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.render()


class KgenBug(Exception):
    """An invariant of kgen itself broke; please report it with the spec that shows it."""


def printable(text: str, keep: str = "") -> str:
    """The text with control characters but those in `keep` replaced: in a terminal or a CI's log some are commands."""
    return "".join(c if c.isprintable() or c in keep else "?" for c in text)


def nearest(word: str, known: Iterable[str]) -> str:
    """`did you mean 'x'?`, or the list of what is known, for a name that isn't."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {', '.join(names)}" if names else "none is known here"
