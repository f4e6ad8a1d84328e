"""What to write instead of Python that the tile language lacks."""

from __future__ import annotations

import ast

from kgen.errors import KgenError
from kgen.ir.scope import Scope

WORDS: dict[type[ast.AST], str] = {
    ast.Lambda: "lambda", ast.ListComp: "a comprehension", ast.SetComp: "a comprehension",
    ast.DictComp: "a comprehension", ast.GeneratorExp: "a comprehension", ast.JoinedStr: "an f-string",
    ast.NamedExpr: "`:=`", ast.Starred: "`*`", ast.BoolOp: "and / or", ast.Await: "await", ast.Yield: "yield",
    ast.YieldFrom: "yield", ast.While: "while", ast.With: "with", ast.Try: "try", ast.Import: "import",
    ast.ImportFrom: "import", ast.FunctionDef: "def", ast.AsyncFunctionDef: "async def", ast.AsyncFor: "async for",
    ast.ClassDef: "class", ast.Return: "return", ast.Delete: "del", ast.Raise: "raise", ast.Assert: "assert",
    ast.Global: "global", ast.Nonlocal: "nonlocal", ast.Pass: "pass", ast.Break: "break", ast.Continue: "continue",
    ast.AnnAssign: "an annotation", ast.Expr: "a bare expression",
}  # fmt: skip
OPERATORS: dict[type[ast.AST], tuple[str, str]] = {
    ast.MatMult: ("@", "a matrix product is dot(a, b)"), ast.Pow: ("**", "multiply, or use exp2"),
    ast.FloorDiv: ("//", "integers only index"), ast.Mod: ("%", "integers only index"), ast.Not: ("not", "use `else`"),
}  # fmt: skip


def outside_expr(node: ast.expr, scope: Scope) -> KgenError:
    """The error for an expression that isn't of the language."""
    if isinstance(node, ast.Compare):
        return scope.error(node, "only == and != compare in a tile program", "masks come from tril, where and index")
    if isinstance(node, ast.Attribute):
        hint = "the only attribute is .T, the transpose of a tile"
        return scope.error(node, f".{node.attr[:48]} isn't part of the tile language", hint)
    if isinstance(node, (ast.BinOp, ast.UnaryOp)) and type(node.op) in OPERATORS:
        what, hint = OPERATORS[type(node.op)]
        return scope.error(node, f"{what} isn't part of the tile language", hint)
    what = WORDS.get(type(node), type(node).__name__)
    hint = "expressions are + - * /, ==, !=, .T, reads and built-ins"
    return scope.error(node, f"{what} isn't part of the tile language", hint)


def outside_stmt(node: ast.stmt, scope: Scope) -> KgenError:
    """The error for a statement that isn't of the language."""
    what = "this assignment" if isinstance(node, (ast.Assign, ast.AugAssign)) else WORDS.get(type(node))
    hint = "statements are for, if on flags, assignment, and stores like o[t] = x"
    return scope.error(node, f"{what or type(node).__name__} isn't part of the tile language", hint)
