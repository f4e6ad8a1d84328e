"""Lines no longer than a reviewer's screen: one statement, broken at its outermost brackets when it must be."""

from __future__ import annotations

import re

WIDTH = 120
STRING = re.compile(r'"(?:[^"\\]|\\.)*"' + r"|'(?:[^'\\]|\\.)*'")


def wrap(text: str, indent: int) -> list[str]:
    """The statement at `indent` spaces; a long one is broken inside its last brackets, arguments filling the lines."""
    line = " " * indent + text
    if len(line) <= WIDTH:
        return [line]
    opened = _last_bracket(text)
    if opened is None:
        return [line]
    start, end = opened
    parts = _split(text[start + 1 : end])
    comma = "," if text[:end].rstrip().endswith(",") else ""  # one element and a comma is a tuple
    body = wrap(parts[0] + comma, indent + 4) if len(parts) == 1 else _fill(parts, indent + 4)
    return [" " * indent + text[: start + 1], *body, " " * indent + text[end:]]


def _fill(parts: list[str], indent: int) -> list[str]:
    """Arguments, as many to a line as fit; one that is too long by itself is broken in turn."""
    lines: list[str] = []
    current = ""
    for part in parts:
        joined = f"{current} {part}," if current else f"{part},"
        if indent + len(joined) <= WIDTH:
            current = joined
            continue
        lines += [" " * indent + current] if current else []
        current = f"{part},"
        if indent + len(current) > WIDTH:
            lines += wrap(current, indent)
            current = ""
    return [*lines, " " * indent + current] if current else lines


def _last_bracket(text: str) -> tuple[int, int] | None:
    """The outermost bracket pair that closes last and holds something."""
    depth, end, text = 0, None, _blanked(text)
    for position in range(len(text) - 1, -1, -1):
        char = text[position]
        if char in ")]}":
            if depth == 0:
                end = position
            depth += 1
        elif char in "([{":
            depth -= 1
            if depth == 0 and end is not None and end - position > 1 and char in "({":
                return position, end
    return None


def _blanked(text: str) -> str:
    """The text with every string literal's content blanked: brackets and commas in it separate nothing."""
    return STRING.sub(lambda m: "_" * len(m[0]), text)


def _split(text: str) -> list[str]:
    """Comma-separated parts at depth 0."""
    parts, depth, start = [], 0, 0
    for position, char in enumerate(_blanked(text)):
        depth += char in "([{"
        depth -= char in ")]}"
        if char == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts
