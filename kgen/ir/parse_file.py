"""The function of a program file, found without running it: what a file may hold, and how big it may be."""

from __future__ import annotations

import ast
import warnings

from kgen.errors import KgenError, Location, nearest
from kgen.ir.scope import character, place

# A program is a page, not a book: these bound what a hostile one can cost.
MAX_SOURCE = 256 * 1024  # characters
MAX_NODES = 20_000
MAX_DEPTH = 100  # of nested syntax; kgen's walks are recursive


def find_program(source: str, path: str, name: str) -> ast.FunctionDef:
    """The function `name` of a program file's text, with a plain signature."""
    tree = _parse(source, path)
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    _check_file(tree, source, path)
    if name not in functions:
        hint = nearest(name, functions)
        raise KgenError(f"no program {name!r} in this file", code="program-missing", location=Location(path), hint=hint)
    function = functions[name]
    _check_signature(function, source, path)
    return function


def _parse(source: str, path: str) -> ast.Module:
    if len(source) > MAX_SOURCE:
        raise _too_large(path, f"more than {MAX_SOURCE} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Python, about text that isn't Python's to run
            tree = ast.parse(source, path)
    except (RecursionError, MemoryError):
        raise _too_large(path, "nested too deeply") from None
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        column = max(0, (getattr(error, "offset", None) or 1) - 1)
        message = getattr(error, "msg", None) or str(error) or "can't be parsed"
        where, hint = place(path, source, line, column), "a program file is Python syntax"
        raise KgenError(message, code="program-syntax", location=where, hint=hint) from None
    _check_size(tree, source, path)
    return tree


def _check_size(tree: ast.Module, source: str, path: str) -> None:
    """Bounds on nodes and depth, by a walk that doesn't recurse."""
    count = 0
    nodes: list[tuple[ast.AST, int]] = [(n, 1) for n in tree.body]
    while nodes:
        node, depth = nodes.pop()
        count += 1
        if count > MAX_NODES:
            raise _too_large(path, f"more than {MAX_NODES} pieces of syntax")
        if depth > MAX_DEPTH:
            line = getattr(node, "lineno", 0)
            where = place(path, source, line, character(source, line, getattr(node, "col_offset", 0)))
            raise _too_large(path, f"more than {MAX_DEPTH} levels of syntax", where)
        nodes.extend((child, depth + 1) for child in ast.iter_child_nodes(node))


def _too_large(path: str, why: str, where: Location | None = None) -> KgenError:
    message, hint = f"program file is too large: {why}", "split the program, or name parts of a long expression"
    return KgenError(message, code="program-size", location=where or Location(path), hint=hint)


def _check_file(tree: ast.Module, source: str, path: str) -> None:
    for node in tree.body:
        constant = node.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) else None
        docstring = constant is not None and isinstance(constant.value, str)
        stub = isinstance(node, ast.ImportFrom) and node.module == "kgen.lang" and node.level == 0
        if not (docstring or stub or isinstance(node, ast.FunctionDef)):
            end = node.end_col_offset if node.end_lineno == node.lineno else None
            columns = (character(source, node.lineno, c) for c in (node.col_offset, end or node.col_offset + 1))
            raise KgenError(
                f"{type(node).__name__} at the top of a program file",
                code="program-syntax",
                location=place(path, source, node.lineno, *columns),
                hint="a program file holds functions, and `from kgen.lang import *` for editors",
            )


def _check_signature(function: ast.FunctionDef, source: str, path: str) -> None:
    a = function.args
    plain = not (a.posonlyargs or a.kwonlyargs or a.vararg or a.kwarg or a.defaults or a.kw_defaults)
    bare = all(x.annotation is None for x in a.args) and function.returns is None and not function.decorator_list
    generic = bool(getattr(function, "type_params", None))
    distinct = len({x.arg for x in a.args}) == len(a.args)  # Python's own check is in its compiler, which never runs
    if not (plain and bare and a.args and distinct and not generic):
        raise KgenError(
            "a program's parameters are plain tensor names, each once",
            code="program-syntax",
            location=place(path, source, function.lineno, character(source, function.lineno, function.col_offset)),
            hint="no defaults, annotations, decorators or keyword-only parameters",
        )
