"""A position among the tokens, with the small readings that every operation shares."""

from __future__ import annotations

import functools
import re
from collections import Counter

from kgen.virtual.hivm.errors import HivmError, UnexpectedError
from kgen.virtual.hivm.lexer import Tokens
from kgen.virtual.hivm.nodes import Operand, Place, Value
from kgen.virtual.hivm.read_types import read_memref
from kgen.virtual.hivm.types import MemRef, Scalar, Type

_OPENING = {"(": ")", "[": "]", "{": "}", "<": ">"}
_MAP = re.compile(r"#map\d*\b")
_CLOSING = frozenset(")]}")  # a `>` may stand alone, in an integer set


@functools.cache
def _scalar(element: str) -> Scalar:
    return Scalar(element)


class Cursor:
    """Reads forward; every `take`-like method raises a located `HivmError` on what it doesn't expect."""

    def __init__(self, tokens: Tokens, places: dict[str, Place]) -> None:
        self.tokens = tokens
        self.kinds = tokens.kinds
        self.texts = tokens.texts
        self.places = places
        self.map_texts: dict[str, str] = {}  # of affine maps, by alias: a type may name one
        self.at = 0
        self._names: dict[str, tuple[Value, int]] = {}  # with the count of results under the name
        self._used: Counter[str] = Counter()

    # ------------------------------------------------------------ tokens

    @property
    def line(self) -> int:
        """The line of the next token."""
        return self.line_at(self.at)

    def line_at(self, at: int) -> int:
        """The line of a token."""
        return self.tokens.line(self.tokens.starts[at])

    def ended(self) -> bool:
        """Whether nothing of an operation is left: the line ends, or what comes next isn't the operation's."""
        if self.kinds[self.at] == "end" or self.texts[self.at] in ("}", "loc"):
            return True
        return self.line_at(self.at) != self.line_at(self.at - 1)

    def error(self, expected: str) -> HivmError:
        """What to raise when the next token isn't what was expected."""
        found = self.texts[self.at][:60] or "the end of the text"
        return UnexpectedError(f"expected {expected}, found {found!r}", self.line)

    def peek(self, text: str) -> bool:
        """Whether the next token is this one."""
        return self.texts[self.at] == text

    def accept(self, text: str) -> bool:
        """Take the next token if it is this one."""
        if self.texts[self.at] == text:
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        """Take the next token, which must be this one."""
        if self.texts[self.at] != text:
            raise self.error(repr(text))
        self.at += 1

    def take(self, kind: str) -> str:
        """Take the next token, which must be of this kind."""
        if self.kinds[self.at] != kind:
            raise self.error(f"a {kind}")
        self.at += 1
        return self.texts[self.at - 1]

    def skip_balanced(self) -> str:
        """Pass over a bracketed group and give its text."""
        begin = self.at
        stack: list[tuple[str, int]] = []  # what closes it, and where it was opened
        while True:
            text = self.texts[self.at]
            if text in _OPENING:
                stack.append((_OPENING[text], self.at))
            elif stack and text == stack[-1][0]:
                stack.pop()
            elif self.kinds[self.at] == "end" or text in _CLOSING:
                opened = stack[-1][1] if stack else begin
                raise HivmError(f"expected a closing bracket for {self.texts[opened]!r}", self.line_at(opened))
            self.at += 1
            if not stack:
                starts = self.tokens.starts
                return self.tokens.text[starts[begin] : starts[self.at - 1] + 1]

    # ------------------------------------------------------------ names

    def define(self, name: str, count: int = 1) -> Value:
        """A new value, or `count` of them under one name; a name that another region has used gets a number, so that
        names are unique in a function."""
        seen = self._used[name]
        self._used[name] = seen + 1
        unique = f"{name}'{seen}" if seen else name
        self._names[name] = unique, count
        return unique

    def names(self) -> dict[str, tuple[Value, int]]:
        """What is in scope, to be given back to `leave`."""
        return dict(self._names)

    def leave(self, names: dict[str, tuple[Value, int]]) -> None:
        """End a region: its names are forgotten."""
        self._names = names

    def begin_function(self) -> None:
        """No names are known."""
        self._names = {}
        self._used = Counter()

    def resolve(self, text: str, at: int) -> Value:
        """The value that a name in the text, at a token, stands for."""
        base, hash_, number = text.partition("#")
        found, count = self._names.get(base, ("", 0))
        if count == 0:
            raise HivmError(f"{text} is used before it is defined", self.line_at(at))
        if not hash_ and count == 1:
            return found
        if not hash_ or int(number) >= count:
            raise HivmError(f"{text} is not one of the {count} results of {base}", self.line_at(at))
        return f"{found}#{number}" if count > 1 else found

    # ------------------------------------------------------------ pieces

    def value(self) -> Value:
        """One value."""
        return self.resolve(self.take("value"), self.at - 1)

    def values(self, closing: str | None = None) -> tuple[Value, ...]:
        """Values between commas; with `closing`, up to and with that bracket."""
        out: list[Value] = []
        while self.kinds[self.at] == "value":
            out.append(self.value())
            if not self.accept(","):
                break
        if closing is not None:
            self.expect(closing)
        return tuple(out)

    def operands(self) -> tuple[Operand, ...]:
        """`[%a, 4, 0]`: values and integers."""
        self.expect("[")
        out: list[Operand] = []
        while not self.accept("]"):
            out.append(self.operand())
            self.accept(",")
        return tuple(out)

    def operand(self) -> Operand:
        """A value or an integer."""
        return self.value() if self.kinds[self.at] == "value" else self.integer()

    def integer(self) -> int:
        """An integer."""
        try:
            return int(self.take("number"), 0)
        except ValueError:
            self.at -= 1
            raise self.error("an integer") from None

    def groups(self) -> tuple[tuple[int, ...], ...]:
        """`[[0, 1], [2]]`."""
        self.expect("[")
        out: list[tuple[int, ...]] = []
        while not self.accept("]"):
            self.expect("[")
            group: list[int] = []
            while not self.accept("]"):
                group.append(self.integer())
                self.accept(",")
            out.append(tuple(group))
            self.accept(",")
        return tuple(out)

    def type(self) -> Type:
        """A type."""
        kind, text = self.kinds[self.at], self.texts[self.at]
        if kind == "memref":
            self.at += 1
            try:
                return read_memref(_MAP.sub(self._map_text, text) if "#map" in text else text)
            except HivmError as error:
                raise error.placed(self.line_at(self.at - 1)) from None
        if kind == "word":
            self.at += 1
            if self.peek("<"):  # vector<4xf32> and the like: kept by its text, whoever needs its width will say so
                return _scalar(text + self.skip_balanced())
            return _scalar(text)
        if kind == "alias" and text.startswith("!"):
            self.at += 1
            return _scalar(text + self.skip_balanced() if self.peek("<") else text)
        raise self.error("a type")

    def _map_text(self, alias: re.Match[str]) -> str:
        return f"affine_map<{self.map_texts[alias[0]]}>" if alias[0] in self.map_texts else alias[0]

    def memref(self) -> MemRef:
        """A memref type."""
        found = self.type()
        if not isinstance(found, MemRef):
            self.at -= 1
            raise self.error("a memref type")
        return found

    def types(self) -> tuple[Type, ...]:
        """`(type, type)`, or one type without brackets."""
        if not self.accept("("):
            return (self.type(),)
        out: list[Type] = []
        while not self.accept(")"):
            out.append(self.type())
            self.accept(",")
        return tuple(out)

    def attributes(self) -> str:
        """The text of `{…}` if it comes next, else nothing."""
        return self.skip_balanced() if self.peek("{") else ""

    def place(self) -> Place | None:
        """`loc(…)` if it comes next."""
        if not self.peek("loc"):
            return None
        self.at += 1
        return self.places.get(self.skip_balanced()[1:-1])
