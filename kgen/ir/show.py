"""Kernels as text: language nodes in the program's own syntax, device nodes close to the Triton that they become.

Printing a parsed expression and parsing it again gives the same node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kgen.errors import KgenBug
from kgen.ir.nodes import (
    Access,
    Assign,
    Binary,
    Call,
    Cast,
    Expand,
    Expr,
    Fixed,
    For,
    If,
    IfExp,
    Index,
    IndexRef,
    Kernel,
    Load,
    Loop,
    Name,
    Num,
    Part,
    PartAssign,
    Range,
    Read,
    Row,
    Space,
    Stmt,
    Store,
    StoreTile,
    Transpose,
    Unary,
    Whole,
)
from kgen.ir.rewrite import exprs, walk_block
from kgen.spec.models import flag_of

Words = Mapping[str, str]  # constexpr flags by what a program calls them: USE_G -> g, REVERSE -> reverse

CHOICE, OR, AND, COMPARE, MASK, SUM, PRODUCT, SIGN, POSTFIX = range(9)  # how tightly an operator binds, loosest first
BINDS = {
    "or": OR, "and": AND, "&": MASK, "+": SUM, "-": SUM, "*": PRODUCT, "/": PRODUCT, "//": PRODUCT, "%": PRODUCT,
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), COMPARE),
}  # fmt: skip
POSITIONAL = ("axis", "k")  # options that a program writes without their name


def show(kernel: Kernel) -> str:
    """The kernel as text, ending in a newline."""
    words = program_words(kernel)
    arguments = ", ".join((*kernel.params, *kernel.scalars, *kernel.runtime, *kernel.constexprs))
    lines = [f"def {kernel.name}({arguments}):  # {kernel.program} of {kernel.path}"]
    lines += _block((*kernel.prologue, *kernel.body), words, "    ")
    return "\n".join(lines) + "\n"


def program_words(kernel: Kernel) -> Words:
    """What a program calls its flags. Once the loop over tasks is lowered they are constexprs, and keep their names."""
    statements = list(walk_block(kernel.body))
    if not any(isinstance(s, For) and s.kind == "tasks" for s in statements):
        return {}
    local = {s.target for s in statements if isinstance(s, Assign)}
    flags: set[str] = set()
    for e in exprs(kernel.body):
        if isinstance(e, Name) and e.type.dtype == "bool":
            flags.add(e.id)
        elif isinstance(e, Call):
            flags |= {value for _, value in e.options if isinstance(value, str)}
    return {**{f: f.lower() for f in flags - local}, **{flag_of(p): p for p in kernel.params}}


# ---------------------------------------------------------------- statements


def _block(block: tuple[Stmt, ...], words: Words, indent: str) -> list[str]:
    lines = [indent + line for stmt in block for line in _statement(stmt, words)]
    return lines or [f"{indent}pass"]


def _statement(stmt: Stmt, words: Words) -> Iterator[str]:
    if stmt.note:
        yield f"# {stmt.note}"
    if isinstance(stmt, (For, Loop)):
        yield f"for {_loop(stmt, words)}:"
        yield from _block(stmt.body, words, "    ")
    elif isinstance(stmt, If):
        yield from _if(stmt, words)
    else:
        yield _simple(stmt, words)


def _simple(stmt: Stmt, words: Words) -> str:
    if isinstance(stmt, Assign):
        return f"{stmt.target} = {show_expr(stmt.value, words)}"
    if isinstance(stmt, PartAssign):
        return f"{stmt.target}[{_index(stmt.index, words)}] = {show_expr(stmt.value, words)}"
    if isinstance(stmt, Store):
        return f"{stmt.tensor}[{_index(stmt.index, words)}] = {show_expr(stmt.value, words)}"
    if isinstance(stmt, StoreTile):
        return f"store({_access(stmt.access, words, show_expr(stmt.value, words))})"
    raise KgenBug(f"show doesn't know {type(stmt).__name__}")


def _if(stmt: If, words: Words, word: str = "if") -> Iterator[str]:
    yield f"{word} {show_expr(stmt.test, words)}:"
    yield from _block(stmt.body, words, "    ")
    only = stmt.orelse[0] if len(stmt.orelse) == 1 else None
    if isinstance(only, If) and not only.note:
        yield from _if(only, words, "elif")
    elif stmt.orelse:
        yield "else:"
        yield from _block(stmt.orelse, words, "    ")


def _loop(stmt: For | Loop, words: Words) -> str:
    if isinstance(stmt, Loop):
        ends = [e for e in (stmt.start, stmt.stop, stmt.step) if e is not None]
        return f"{stmt.var} in {'static_range' if stmt.static else 'range'}({_joined(ends, words)})"
    names = ", ".join(stmt.vars)
    if stmt.kind == "tasks":
        return f"{names} in tasks({', '.join(_space(s) for s in stmt.spaces)})"
    if stmt.kind == "scan":
        return f"{names} in scan({_space(stmt.spaces[0])}{', reverse=True' if stmt.reverse else ''})"
    return f"{names} in {_space(stmt.spaces[0])}"


def _space(space: Space) -> str:
    if space.kind == "range":
        return f"range({space.start}, {space.size})"
    return f"{space.kind}({space.over}{f', {space.size}' if space.kind == 'parts' else ''})"


# ---------------------------------------------------------------- expressions


def show_expr(node: Expr, words: Words | None = None, at_least: int = CHOICE) -> str:
    """An expression, in parentheses where it binds less tightly than `at_least`."""
    rule = EXPRESSIONS.get(type(node))
    if rule is None:
        raise KgenBug(f"show doesn't know {type(node).__name__}")
    text, binds = rule(node, words or {})
    return text if binds >= at_least else f"({text})"


def _joined(nodes: list[Expr], words: Words) -> str:
    return ", ".join(show_expr(n, words) for n in nodes)


def _num(node: Num, words: Words) -> tuple[str, int]:
    if isinstance(node.value, float) and math.isinf(node.value):
        return ("inf", POSTFIX) if node.value > 0 else ("-inf", SIGN)
    return repr(node.value), POSTFIX if node.value >= 0 else SIGN


def _name(node: Name, words: Words) -> tuple[str, int]:
    return words.get(node.id, node.id), POSTFIX


def _binary(node: Binary, words: Words) -> tuple[str, int]:
    binds = BINDS[node.op]
    left = show_expr(node.a, words, binds + (binds == COMPARE))  # a < b < c means something else
    return f"{left} {node.op} {show_expr(node.b, words, binds + 1)}", binds


def _if_exp(node: IfExp, words: Words) -> tuple[str, int]:
    a, test = show_expr(node.a, words, CHOICE + 1), show_expr(node.test, words, CHOICE + 1)
    return f"{a} if {test} else {show_expr(node.b, words)}", CHOICE


def _unary(node: Unary, words: Words) -> tuple[str, int]:
    return f"{node.op}{show_expr(node.x, words, SIGN)}", SIGN


def _expand(node: Expand, words: Words) -> tuple[str, int]:
    return f"{show_expr(node.x, words, POSTFIX)}[{':, None' if node.axis == 1 else 'None, :'}]", POSTFIX


def _cast(node: Cast, words: Words) -> tuple[str, int]:
    dtype = node.type.dtype
    name = f"{dtype[1:]}.dtype" if dtype.startswith("@") else dtype
    return f"{show_expr(node.x, words, POSTFIX)}.to({name})", POSTFIX


def _call(node: Call, words: Words) -> tuple[str, int]:
    args, options = list(node.args), dict(node.options)
    fn = node.fn
    if fn == "eye":
        args = args[:1]  # its two axes are one
    zero = args[0] if fn == "full" and args else None
    if isinstance(zero, Num) and zero.value == 0 and zero.type.dtype == "fp32":
        fn, args = "zeros", args[1:]
    shown = [show_expr(a, words) for a in args]
    shown += [str(options.pop(key)) for key in POSITIONAL if key in options]
    shown += [f"{key}={words.get(v, v) if isinstance(v, str) else v}" for key, v in options.items()]
    return f"{fn}({', '.join(shown)})", POSTFIX


def _index(index: tuple[Index, ...], words: Words) -> str:
    """Indices, less the trailing whole dims that a program may omit."""
    count = len(index)
    while count > 1 and isinstance(index[count - 1], Whole):
        count -= 1
    return ", ".join(_one(i, words) for i in index[:count])


def _one(index: Index, words: Words) -> str:
    if isinstance(index, Whole):
        return ":"
    if isinstance(index, Fixed):
        return show_expr(index.value, words)
    if isinstance(index, Range):
        return f"{show_expr(index.start, words)}:{show_expr(index.stop, words)}"
    base = f"{index.fn}({index.var})" if isinstance(index, Row) else index.var
    return f"{base} {'+' if index.shift > 0 else '-'} {abs(index.shift)}" if index.shift else base


def _access(access: Access, words: Words, *value: str) -> str:
    """A block in memory, in the terms of a block pointer; a value to store stands after the address."""
    out = [f"{access.tensor} + {show_expr(access.base, words, SUM)}", *value]
    if access.axes:
        fields: dict[str, list[str]] = {
            "shape": [show_expr(a.extent, words) for a in access.axes],
            "strides": [show_expr(a.stride, words) for a in access.axes],
            "offsets": [show_expr(a.offset, words) for a in access.axes],
            "block": [str(a.size) for a in access.axes],
        }
        if any(a.check is not None for a in access.axes):
            fields["check"] = ["?" if a.check is None else show_expr(a.check, words) for a in access.axes]
        out += [f"{key}=({', '.join(values)}{',' * (len(values) == 1)})" for key, values in fields.items()]
    return ", ".join(out)


EXPRESSIONS: dict[type[Expr], Callable[[Any, Words], tuple[str, int]]] = {
    Num: _num,
    Name: _name,
    Read: lambda n, words: (f"{n.tensor}[{_index(n.index, words)}]", POSTFIX),
    Part: lambda n, words: (f"{n.base}[{_index(n.index, words)}]", POSTFIX),
    Unary: _unary,
    Binary: _binary,
    IfExp: _if_exp,
    Transpose: lambda n, words: (f"{show_expr(n.x, words, POSTFIX)}.T", POSTFIX),
    Expand: _expand,
    Call: _call,
    IndexRef: lambda n, words: (n.axis.name or "1", POSTFIX),
    Cast: _cast,
    Load: lambda n, words: (f"load({_access(n.access, words)})", POSTFIX),
}
