"""What a name means while a tile program is parsed: tensors, flags, dims, index variables, local tiles."""

from __future__ import annotations

import ast
import functools
import re
from dataclasses import dataclass, field

from kgen.errors import KgenError, Location, nearest, printable
from kgen.ir.nodes import Axis, IndexVar, Span, Type
from kgen.spec.models import Spec, Tensor, flag_of


def dtype_of(tensor: str) -> str:
    """The element type of a loaded tile: whatever the tensor is stored in."""
    return f"@{tensor}"


@functools.lru_cache(maxsize=8)
def source_lines(source: str) -> tuple[str, ...]:
    """Lines as Python counts them (a form feed or U+2028 ends none), with control characters made visible."""
    lines = re.split(r"\r\n|\r|\n", source)
    return tuple(printable(line, keep="\t") for line in lines)


def place(path: str, source: str, line: int, column: int, end_column: int | None = None) -> Location:
    """A location with its line of `source`; columns in characters."""
    lines = source_lines(source)
    return Location(path, line, column, end_column, lines[line - 1] if 0 < line <= len(lines) else None)


def character(source: str, line: int, offset: int) -> int:
    """A column in characters from `ast`'s, which counts UTF-8 bytes."""
    lines = source_lines(source)
    text = lines[line - 1] if 0 < line <= len(lines) else ""
    return offset if text.isascii() else len(text.encode(errors="replace")[:offset].decode(errors="ignore"))


@dataclass
class Local:
    """A local tile; `needs` are the flags under which it exists."""

    type: Type
    needs: frozenset[str] = frozenset()


@dataclass
class Scope:
    """Names visible at one point of a program."""

    spec: Spec
    path: str
    source: str
    tensors: dict[str, Tensor]  # by the program's parameter names
    locals: dict[str, Local] = field(default_factory=dict)
    indices: dict[str, IndexVar] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()
    head: str | None = None
    all_indices: dict[str, IndexVar] = field(default_factory=dict)
    outputs: frozenset[str] = frozenset()  # parameters that are stored to, and never read
    unrolled: int = 1  # copies that the enclosing range loops make of a statement
    loops: int = 0  # that enclose this point

    def branch(self, flag: str | None = None) -> Scope:
        """A nested scope that shares tensors and sees a copy of the locals."""
        flags = self.flags | {flag} if flag else self.flags
        return Scope(
            self.spec, self.path, self.source, self.tensors, dict(self.locals), dict(self.indices), flags, self.head,
            self.all_indices, self.outputs, self.unrolled, self.loops,
        )  # fmt: skip

    def span(self, node: ast.AST) -> Span:
        line = getattr(node, "lineno", 0)
        column = character(self.source, line, getattr(node, "col_offset", 0))
        end = getattr(node, "end_col_offset", 0) if getattr(node, "end_lineno", line) == line else 0
        return Span(line, column, character(self.source, line, end) if end else column + 1)

    def location(self, node: ast.AST) -> Location:
        span = self.span(node)
        return place(self.path, self.source, span.line, span.column, span.end_column)

    def error(self, node: ast.AST, message: str, hint: str = "", code: str = "program-syntax") -> KgenError:
        return KgenError(message, code=code, location=self.location(node), hint=hint)

    def tile_axis(self, var: IndexVar) -> Axis:
        """The axis that an index variable gives a tile."""
        if var.kind == "chunk":
            return Axis(var.name, self.chunk_dim)
        if var.kind == "part":
            return Axis(var.name, var.size)
        return Axis(var.name, f"B{var.over}")

    @property
    def chunk_dim(self) -> str:
        return self.spec.chunk

    def whole_axis(self, dim: str) -> Axis:
        """A whole static dim as an axis: one tile covers it, so its tile symbol is at least the dim."""
        return Axis(dim, f"B{dim}")

    def local(self, node: ast.AST, name: str) -> Local:
        local = self.locals.get(name)
        if local is None:
            raise self.unknown(node, name)
        missing = local.needs - self.flags
        if missing:
            flag = sorted(missing)[0]
            raise self.error(
                node,
                f"{name!r} exists only where {flag} is set",
                "use it under the same `if`, or give it a value in the other branch",
                "program-optional",
            )
        return local

    def unknown(self, node: ast.AST, name: str) -> KgenError:
        known = {*self.locals, *self.indices, *self.tensors, *self.spec.dims, *self.spec.flags, *self.spec.scalars}
        return self.error(node, f"unknown name {name!r}", nearest(name, known), "program-name")

    def need_flag(self, node: ast.AST, name: str) -> None:
        tensor = self.tensors[name]
        if tensor.optional and flag_of(name) not in self.flags:
            raise self.error(
                node,
                f"tensor {name!r} is optional and may be absent here",
                f"use it under `if {name}:`",
                "program-optional",
            )
