"""YAML text to plain data, with the place of every key and value, and bounds on what a stranger's file may cost.

Built on the parser's events, not on its loader: nothing is constructed but dicts, lists and scalars of the YAML 1.2
core schema, and every limit is checked while the text is read, before anything it refuses has been built.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.reader import ReaderError

from kgen.errors import KgenError, Location, printable

MAX_BYTES = 1 << 20
MAX_DEPTH = 24
MAX_ALIASES = 64
MAX_NODES = 20_000  # after aliases are expanded
_MAX_EXCERPT = 200
_MAX_DIGITS = 19  # an int64 has no more; the limit also keeps int() linear

Path = tuple[str | int, ...]

_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = {**dict.fromkeys(("true", "True", "TRUE"), True), **dict.fromkeys(("false", "False", "FALSE"), False)}
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


class Span(NamedTuple):
    """A place in the text: line and columns count from 0, as the YAML parser counts them."""

    line: int
    column: int
    end_column: int


@dataclass(slots=True)
class Node:
    """A value, where it is, and its children with the places of their keys."""

    data: Any
    span: Span
    children: dict[str | int, Node] = field(default_factory=dict)
    keys: dict[str | int, Span] = field(default_factory=dict)
    size: int = 1  # nodes in it, aliases expanded
    height: int = 0  # levels of containers in it


@dataclass(slots=True)
class _Open:
    """A mapping or sequence whose end hasn't been read; `key` waits for its value."""

    node: Node
    anchor: str | None
    key: str | None = None


class Source:
    """A text file and the way from a place in it to a `Location`."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        # Only \n, \r\n and \r: the line breaks of YAML 1.2, in which the parser counts.
        self.lines = re.split(r"\r\n|\n|\r", text)

    def location(self, span: Span) -> Location:
        """The location for messages; a long line is cut, and left out where the place is past the cut."""
        text = self.lines[span.line] if span.line < len(self.lines) else ""
        shown = printable(text[:_MAX_EXCERPT]) if span.column < _MAX_EXCERPT else None
        end = span.end_column if span.end_column > span.column else None
        return Location(printable(self.name), span.line + 1, span.column, end, shown)


def parse(source: Source, text: str) -> Node:
    """The tree of the file's one document."""
    return _Builder(source).build(text)


class _Builder:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._stack: list[_Open] = []
        self._anchors: dict[str, Node | None] = {}
        self._root: Node | None = None
        self._aliases = 0
        self._nodes = 0
        self._documents = 0

    def build(self, text: str) -> Node:
        for event in self._events(text):
            kind = type(event).__name__
            if kind == "ScalarEvent":
                self._check(event)
                self._scalar(event)
            elif kind in ("MappingStartEvent", "SequenceStartEvent"):
                self._check(event)
                self._start(event, {} if kind == "MappingStartEvent" else [])
            elif kind in ("MappingEndEvent", "SequenceEndEvent"):
                opened = self._stack.pop()
                self._done(opened.node, opened.anchor)
            elif kind == "AliasEvent":
                self._alias(event)
            elif kind == "DocumentStartEvent":
                self._document(event)
        if self._root is None or self._root.data is None:
            raise self._error(
                "spec-empty",
                "the file is empty",
                Span(0, 0, 0),
                "start from specs/gdn.yaml; `kgen schema` prints every field",
            )
        return self._root

    def _document(self, event: Any) -> None:
        self._documents += 1
        if self._documents > 1:
            raise self._error(
                "spec-documents",
                "more than one YAML document in the file",
                _span(event),
                "keep one operator a file and remove the '---'",
            )
        if event.version or event.tags:
            raise self._error("spec-syntax", "YAML directives aren't allowed", _span(event), "remove the line with '%'")

    def _events(self, text: str) -> Iterator[Any]:
        parser = YAML(typ="safe", pure=True).parse(text)
        while True:
            try:
                event = next(parser)
            except StopIteration:
                return
            except MarkedYAMLError as error:
                mark = error.problem_mark or error.context_mark
                span = Span(mark.line, mark.column, 0) if mark else Span(0, 0, 0)
                context = f" ({error.context})" if error.context else ""
                raise self._syntax(f"{error.problem or 'malformed'}{context}", span) from None
            except ReaderError as error:
                before = text[: int(error.position)]
                span = Span(len(re.findall(r"\r\n|\n|\r", before)), len(re.split(r"[\r\n]", before)[-1]), 0)
                raise self._syntax(f"character U+{int(error.character):04X} isn't allowed", span) from None
            except Exception as error:  # the parser lets ValueError and others through on malformed escapes
                raise self._syntax(f"{type(error).__name__} in the YAML parser", Span(0, 0, 0)) from None
            yield event

    def _syntax(self, problem: str, span: Span) -> KgenError:
        text = printable(" ".join(problem.split()))[:300]
        return self._error(
            "spec-syntax", f"not valid YAML: {text}", span, "quote text that holds ': ', ' #' or brackets"
        )

    def _error(self, code: str, message: str, span: Span, hint: str) -> KgenError:
        return KgenError(message, code=code, location=self._source.location(span), hint=hint)

    def _check(self, event: Any) -> None:
        """What holds for every node: no tag, and not too many of them."""
        if event.tag is not None:
            raise self._error(
                "spec-tag",
                f"YAML tags aren't allowed: {str(event.tag)[:80]!r}",
                _span(event),
                "write the plain value; a spec is data only",
            )
        self._count(1, event)

    def _count(self, nodes: int, event: Any) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise self._error(
                "spec-too-large",
                f"more than {MAX_NODES} values, aliases expanded",
                _span(event),
                "split the spec, or write less through aliases",
            )

    def _scalar(self, event: Any) -> None:
        span = _span(event)
        if not event.value.isascii():
            try:
                event.value.encode()
            except UnicodeEncodeError:  # "\uD800" is no text that a file could hold
                raise self._syntax("half of a surrogate pair", span) from None
        top = self._stack[-1] if self._stack else None
        if top and isinstance(top.node.data, dict) and top.key is None:
            self._key(top, event.value, span)
            return
        if top and top.key is not None and event.style in (None, "") and not event.value:
            span = top.node.keys[top.key]  # the parser puts a value that isn't there at whatever comes next
        data = self._value(event.value, span) if event.style in (None, "") else event.value
        self._done(Node(data, span), event.anchor)

    def _key(self, top: _Open, key: str, span: Span) -> None:
        """A key is its text whatever it looks like, so that a dim may be called `N` or `null` without surprises."""
        if key in top.node.keys:
            first = top.node.keys[key].line + 1
            raise self._error(
                "spec-duplicate-key",
                f"key {key[:80]!r} is given twice; first on line {first}",
                span,
                "remove or rename one of them",
            )
        top.key = key
        top.node.keys[key] = span

    def _value(self, text: str, span: Span) -> Any:
        if text in _NULL:
            return None
        if text in _BOOL:
            return _BOOL[text]
        if _INT.fullmatch(text):
            if len(text) > _MAX_DIGITS:
                raise self._error("spec-number", f"number of {len(text)} digits", span, "no field takes one this large")
            return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
        if _NOT_FINITE.fullmatch(text):
            raise self._error("spec-number", f"{text} isn't a finite number", span, "write a finite number")
        if _FLOAT.fullmatch(text):
            number = float(text)
            if not math.isfinite(number):
                raise self._error("spec-number", f"{text[:40]} is too large for a float", span, "write a finite number")
            return number
        return text

    def _start(self, event: Any, data: Any) -> None:
        span = _span(event)
        if self._stack and isinstance(self._stack[-1].node.data, dict) and self._stack[-1].key is None:
            raise self._error("spec-syntax", "a key must be a name, not a list or mapping", span, "write `name: value`")
        if len(self._stack) >= MAX_DEPTH:
            raise self._error("spec-too-deep", f"nested deeper than {MAX_DEPTH} levels", span, "a spec needs about six")
        if event.anchor:
            self._anchors[event.anchor] = None  # open: an alias to it from inside would never end
        self._stack.append(_Open(Node(data, span), event.anchor))

    def _alias(self, event: Any) -> None:
        span = _span(event)
        self._aliases += 1
        node = self._anchors.get(event.anchor)
        top = self._stack[-1] if self._stack else None
        if node is None or (top and isinstance(top.node.data, dict) and top.key is None):
            problem = "inside itself" if event.anchor in self._anchors else "that isn't defined before"
            raise self._error(
                "spec-alias",
                f"alias *{str(event.anchor)[:40]} {problem} or stands for a key",
                span,
                "write the value out",
            )
        if self._aliases > MAX_ALIASES:
            raise self._error("spec-alias", f"more than {MAX_ALIASES} aliases", span, "write the values out")
        if len(self._stack) + node.height > MAX_DEPTH:
            raise self._error(
                "spec-too-deep",
                f"nested deeper than {MAX_DEPTH} levels through an alias",
                span,
                "a spec needs about six",
            )
        self._count(node.size, event)
        self._done(node, None)

    def _done(self, node: Node, anchor: str | None) -> None:
        """Hand a finished value to what holds it."""
        if anchor:
            self._anchors[anchor] = node
        if not self._stack:
            self._root = node
            return
        top = self._stack[-1]
        parent = top.node
        if isinstance(parent.data, dict):
            assert top.key is not None
            key: str | int = top.key
            parent.data[key] = node.data
            top.key = None
        else:
            key = len(parent.data)
            parent.data.append(node.data)
        parent.children[key] = node
        parent.size += node.size
        parent.height = max(parent.height, node.height + 1)


def _span(event: Any) -> Span:
    start, end = event.start_mark, event.end_mark
    same_line = end is not None and end.line == start.line
    return Span(start.line, start.column, end.column if same_line else 0)
