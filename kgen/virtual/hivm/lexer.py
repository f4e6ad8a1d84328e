"""Tokens of textual MLIR. A memref type is one token, since the same few types stand on every line."""

from __future__ import annotations

import bisect
import re

from kgen.virtual.hivm.errors import HivmError

_NESTED = r"(?:[^<>\n-]|->|-(?!>)"  # what may stand in angle brackets; the arrow of a map is no bracket
_MEMREF = rf"memref<{_NESTED}|<{_NESTED}|<{_NESTED})*>)*>)*>"
_TOKEN = re.compile(
    rf"""[ \t\r\n]*(?:(?P<skip>//[^\n]*|\Z)
    |(?P<value>%[A-Za-z0-9_$.-]+(?:\#\d+)?)
    |(?P<memref>{_MEMREF})
    |(?P<word>[A-Za-z_][\w$.]*)
    |(?P<number>0x[0-9A-Fa-f]+|-?\d+\.\d*(?:[eE][-+]?\d+)?|-?\d+)
    |(?P<mark>->|[()\[\]{{}}<>:,=?|+*/;-])
    |(?P<symbol>@(?:[\w$.-]+|"[^"\n]*"))
    |(?P<alias>[\#!^][\w$.]+)
    |(?P<string>"(?:[^"\\\n]|\\.)*")
    |(?P<other>.)
    )
    """,
    re.VERBOSE,
)
_MOST_DIGITS = 40  # more than any integer of 128 bits has
_LONG_NUMBER = re.compile(rf"\d{{{_MOST_DIGITS + 1}}}")
_GROUPS = ("", *sorted(_TOKEN.groupindex, key=lambda name: _TOKEN.groupindex[name]))  # by number
KINDS = ("value", "memref", "word", "number", "mark", "symbol", "alias", "string", "end")


class Tokens:
    """All tokens of a text: kinds, texts and where each begins."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.kinds: list[str] = []
        self.texts: list[str] = []
        self.starts: list[int] = []
        self._newlines = [match.start() for match in re.finditer("\n", text)]
        self._read(text)

    def line(self, start: int) -> int:
        """The line of a position, counted from 1."""
        return bisect.bisect_left(self._newlines, start) + 1

    def _read(self, text: str) -> None:
        kinds, texts, starts = self.kinds, self.texts, self.starts
        if _LONG_NUMBER.search(text):
            self._refuse_long_numbers(text)
        for match in _TOKEN.finditer(text):
            number = match.lastindex
            assert number is not None  # every alternative is a group
            kind = _GROUPS[number]
            if kind == "skip":
                continue
            if kind == "other":
                start = match.start(number)
                raise HivmError(f"unreadable text {text[start : start + 40]!r}", self.line(start))
            kinds.append(kind)
            texts.append(match[number])
            starts.append(match.start(number))
        kinds.append("end")
        texts.append("")
        starts.append(len(text))

    def _refuse_long_numbers(self, text: str) -> None:
        """Digits without end are no number; in a string they may stand."""
        for match in _TOKEN.finditer(text):
            if match.lastgroup not in ("skip", "string") and _LONG_NUMBER.search(match[0]):
                raise HivmError(f"a number of more than {_MOST_DIGITS} digits", self.line(match.end()))
