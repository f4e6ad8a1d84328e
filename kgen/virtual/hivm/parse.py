"""Reads the final HIVM IR: the text that `bishengir-compile` hands to its last step.

It holds one function for the cube core (`_mix_aic`) and one for the vector core (`_mix_aiv`), or a single one, host
functions that tell sizes, and declarations of the device library's templates.
"""

from __future__ import annotations

import re

from kgen.virtual.hivm.affine import AffineMap, parse_affine_map
from kgen.virtual.hivm.cursor import Cursor
from kgen.virtual.hivm.errors import HivmError
from kgen.virtual.hivm.lexer import Tokens
from kgen.virtual.hivm.nodes import Argument, Block, Function, Module, Operation, Unknown
from kgen.virtual.hivm.parse_ops import read_operation
from kgen.virtual.hivm.places import read_places

_MOST_NESTED = 64  # regions; every walk over a function calls itself for each
_CORE = re.compile(r"hivm\.func_core_type<(AIC|AIV|MIX|AIC_OR_AIV)>")
_ROLE = re.compile(r"hacc\.arg_type<(\w+)>")


def parse_module(text: str) -> Module:
    """The whole IR of one kernel. Raises `HivmError`, with the line, on text that isn't such IR."""
    tokens = Tokens(text)
    cursor = Cursor(tokens, read_places(text))
    reader = _ModuleReader(cursor)
    reader.read()
    if not any(f.core is not None for f in reader.functions):
        raise HivmError("the final HIVM IR holds no device function")
    return Module(tuple(reader.functions), frozenset(reader.declared))


class _ModuleReader:
    """Aliases first, then functions, with or without a module round them."""

    def __init__(self, cursor: Cursor) -> None:
        self._c = cursor
        self._maps: dict[str, AffineMap] = {}
        self.functions: list[Function] = []
        self.declared: set[str] = set()
        self._depth = 0  # of the region that is being read

    def read(self) -> None:
        c = self._c
        depth = 0
        while c.kinds[c.at] != "end":
            if c.kinds[c.at] == "alias":
                self._alias()
            elif c.accept("module"):
                if c.kinds[c.at] == "symbol":
                    c.at += 1
                if c.accept("attributes"):
                    c.skip_balanced()
                c.expect("{")
                depth += 1
            elif c.accept("func.func"):
                self._function()
            elif depth and c.accept("}"):
                depth -= 1
                c.place()
            elif c.kinds[c.at] == "word" and "." in c.texts[c.at]:
                raise HivmError(f"{c.texts[c.at]} stands outside every function", c.line)
            else:
                raise c.error("a function")
        if depth:
            raise c.error("'}'")

    def _alias(self) -> None:
        """`#map1 = affine_map<…>`, `#loc3 = loc(…)`."""
        c = self._c
        name = c.take("alias")
        c.expect("=")
        if c.accept("affine_map"):
            line = c.line
            if not c.peek("<"):
                raise c.error("'<'")
            try:
                c.map_texts[name] = c.skip_balanced()[1:-1]
                self._maps[name] = parse_affine_map(c.map_texts[name])
            except HivmError as error:
                raise error.placed(line) from None
            return
        if c.kinds[c.at] in ("alias", "word"):
            c.at += 1
        if c.texts[c.at] in ("<", "("):
            c.skip_balanced()

    def _function(self) -> None:
        c = self._c
        line = c.line
        if c.texts[c.at] in ("private", "public"):
            c.at += 1
        name = c.take("symbol")[1:].strip('"')
        c.begin_function()
        arguments = self._arguments()
        if c.accept("->"):
            _skip_results(c)
        attributes = c.skip_balanced() if c.accept("attributes") else ""
        if not c.accept("{"):
            c.place()
            self.declared.add(name.removeprefix("_mlir_ciface_"))
            return
        body = self._block()
        c.place()
        self.functions.append(_function(name, line, arguments, body, attributes))

    def _arguments(self) -> tuple[Argument, ...]:
        """`(%arg0: type {attributes} loc(…), …)`; a declaration has types only."""
        c = self._c
        c.expect("(")
        out: list[Argument] = []
        while not c.accept(")"):
            name = ""
            if c.kinds[c.at] == "value":
                name = c.define(c.take("value"))
                c.expect(":")
            kind = c.type()
            role = _ROLE.search(c.attributes())
            c.place()
            out.append(Argument(name, kind, role[1] if role else ""))
            c.accept(",")
        return tuple(out)

    def _block(self) -> Block:
        """Operations up to the closing brace; what follows it belongs to the caller."""
        c = self._c
        self._depth += 1
        if self._depth > _MOST_NESTED:
            raise HivmError(f"regions nested more than {_MOST_NESTED} deep", c.line)
        names = c.names()
        out: list[Operation] = []
        while not c.accept("}"):
            if c.kinds[c.at] == "alias" and c.texts[c.at].startswith("^"):
                out.append(self._label())
            else:
                out.append(read_operation(c, self._maps, self._block))
        c.leave(names)
        self._depth -= 1
        return tuple(out)

    def _label(self) -> Unknown:
        """`^bb1(%x: f32):` of control flow between blocks, which the compiler for the 950 leaves: kept by name only."""
        c = self._c
        line, label = c.line, c.take("alias")
        arguments = self._arguments() if c.peek("(") else ()
        c.expect(":")
        return Unknown(line, None, "block label", tuple(a.name for a in arguments), label)


def _function(name: str, line: int, arguments: tuple[Argument, ...], body: Block, attributes: str) -> Function:
    """What the attributes say of who runs it."""
    core = _CORE.search(attributes)
    host = "function_kind<HOST>" in attributes
    if not host and core is None:
        raise HivmError(f"function {name} does not say which core runs it", line)
    kind = None if host or core is None else core[1].lower()
    if kind == "mix":
        raise HivmError(f"function {name} isn't split into a cube core's and a vector core's", line)
    return Function(
        name, line, arguments, body, "aiv" if kind == "aic_or_aiv" else kind,
        mixed="hivm.part_of_mix" in attributes, vector_function="hivm.vector_function" in attributes,
    )  # fmt: skip


def _skip_results(c: Cursor) -> None:
    """The result types of a function."""
    if c.peek("("):
        c.skip_balanced()
    else:
        c.type()
