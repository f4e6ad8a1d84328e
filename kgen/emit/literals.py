"""Python literals in double quotes, as reviewers expect them."""

from __future__ import annotations

from typing import Any


def quoted(text: object) -> str:
    """A Python string literal in double quotes."""
    body = repr(str(text))[1:-1]
    return f'"{body}"' if '"' not in body else repr(str(text))


def literal(value: Any) -> str:
    """A literal in double quotes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal(k)}: {literal(v)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple):
        inner = ", ".join(literal(v) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return quoted(value) if isinstance(value, str) else repr(value)


def safe(text: str) -> str:
    """Free text for a docstring or comment: one line, nothing that could end it."""
    flat = " ".join(text.split())
    return "".join(c for c in flat if c.isprintable()).replace("\\", "/").replace('"""', "'''").rstrip('"')
