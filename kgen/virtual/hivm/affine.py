"""Affine maps: `affine_map<(d0)[s0] -> ((-d0 + s0) ceildiv 4, 8)>`, read to expression trees."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple, Union

from kgen.virtual.hivm.errors import HivmError

OPERATORS = ("+", "-", "*", "floordiv", "ceildiv", "mod")
_MOST_TOKENS = 120  # the longest map seen in a kernel has 18; each level of nesting costs calls here and brackets there
_TOKEN = re.compile(r"\s*(->|floordiv|ceildiv|mod|[ds]\d+|\d+|[-+*()\[\],])")


class Binary(NamedTuple):
    """`left op right`; the right side of a division is positive."""

    op: str
    left: AffineExpr
    right: AffineExpr


AffineExpr = Union[int, str, Binary]  # noqa: UP007  a string is a dim or symbol; the name must exist at run time


class AffineMap(NamedTuple):
    """Results over `dims` dims and `symbols` symbols; operands come in that order."""

    dims: tuple[str, ...]
    symbols: tuple[str, ...]
    results: tuple[AffineExpr, ...]

    def python(self, operands: tuple[str, ...]) -> list[str]:
        """Each result as a Python expression over the operands' names."""
        names = dict(zip((*self.dims, *self.symbols), operands, strict=True))
        return [_python(result, names) for result in self.results]


@functools.cache
def parse_affine_map(text: str) -> AffineMap:
    """Read what stands between `affine_map<` and `>`."""
    return _Reader(text).read()


def operators(expr: AffineExpr) -> set[str]:
    """Those that an expression has."""
    return {expr.op} | operators(expr.left) | operators(expr.right) if isinstance(expr, Binary) else set()


class _Reader:
    """A recursive-descent reader over the tokens of one map."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _TOKEN.findall(text)
        if "".join(self._tokens) != re.sub(r"\s+", "", text):
            raise self._unknown()
        if len(self._tokens) > _MOST_TOKENS:
            raise HivmError(f"an affine map of more than {_MOST_TOKENS} tokens: {text[:60]!r}")
        self._at = 0

    def read(self) -> AffineMap:
        dims = self._list("(", ")")
        symbols = self._list("[", "]") if self._peek() == "[" else []
        self._expect("->")
        self._expect("(")
        results = [self._sum()]
        while self._peek() == ",":
            self._next()
            results.append(self._sum())
        self._expect(")")
        if self._peek() or not all(re.fullmatch(r"[ds]\d+", name) for name in (*dims, *symbols)):
            raise self._unknown()
        return AffineMap(tuple(dims), tuple(symbols), tuple(results))

    def _list(self, opening: str, closing: str) -> list[str]:
        self._expect(opening)
        names = []
        while self._peek() != closing:
            names.append(self._next())
            if self._peek() == ",":
                self._next()
        self._next()
        return names

    def _sum(self) -> AffineExpr:
        left = self._product()
        while self._peek() in ("+", "-"):
            left = Binary(self._next(), left, self._product())
        return left

    def _product(self) -> AffineExpr:
        left = self._factor()
        while self._peek() in ("*", "floordiv", "ceildiv", "mod"):
            left = Binary(self._next(), left, self._factor())
        return left

    def _factor(self) -> AffineExpr:
        token = self._next()
        if token == "(":
            inner = self._sum()
            self._expect(")")
            return inner
        if token == "-":
            inner = self._factor()
            return -inner if isinstance(inner, int) else Binary("*", inner, -1)
        if token.isdigit():
            return int(token)
        if re.fullmatch(r"[ds]\d+", token):
            return token
        raise self._unknown()

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        if not token:
            raise self._unknown()
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        if self._next() != token:
            raise self._unknown()

    def _unknown(self) -> HivmError:
        return HivmError(f"cannot read the affine map {self._text[:120]!r}")


def _python(expr: AffineExpr, names: dict[str, str]) -> str:
    if isinstance(expr, int):
        return str(expr) if expr >= 0 else f"({expr})"
    if isinstance(expr, str):
        if expr not in names:
            raise HivmError(f"the affine map uses {expr}, which it does not declare")
        return names[expr]
    left, right = _python(expr.left, names), _python(expr.right, names)
    if expr.op == "floordiv":
        return f"({left} // {right})"
    if expr.op == "ceildiv":
        return f"(-(-{left} // {right}))"
    if expr.op == "mod":
        return f"({left} % {right})"
    return f"({left} {expr.op} {right})"
