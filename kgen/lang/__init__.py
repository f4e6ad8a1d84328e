"""The tile language, for editors only: kgen reads programs with `ast` and never runs them.

Importing this module gives each built-in a stand-in, so that tools can import a program file; calling one says so.
"""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = [
    "tasks", "scan", "tiles", "parts", "heads", "group", "chunks", "seqs", "tokens", "zeros", "full", "eye", "dot",
    "sum", "max", "cumsum", "exp", "exp2", "log", "tanh", "sigmoid", "rsqrt", "abs", "maximum", "minimum", "where",
    "tril", "index", "last", "start", "end", "seq", "step", "local", "history", "ending", "T", "N", "NT", "H", "HV",
    "K", "V", "BT", "inf",
]  # fmt: skip

inf = float("inf")


class _Word:
    """A word of the tile language, which has no meaning when Python runs it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"<{self._name} of the tile language>"

    def __call__(self, *args: object, **options: object) -> NoReturn:
        raise NotImplementedError(
            f"{self._name}(...) is part of kgen's tile language, which is read and never run; "
            "to evaluate a program use `kgen verify SPEC --level program`"
        )


def __getattr__(name: str) -> Any:
    """Scalars and flags come from a spec, so any name is one; only Python's own dunder names are not."""
    if name.startswith("__"):
        raise AttributeError(name)
    return _Word(name)
