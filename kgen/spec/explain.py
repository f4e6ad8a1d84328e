"""A failed Pydantic validation as one located error that says what was expected and the nearest valid name."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from kgen.errors import KgenError, nearest
from kgen.spec.nodes import Node, Path, Source, Span

M = TypeVar("M", bound=BaseModel)

_MAX_VALUE = 60
_MAX_HINT = 400
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a mapping of names",
    "model_type": "a mapping of fields",
}


@dataclass(frozen=True)
class _Problem:
    """One of Pydantic's complaints, moved to the deepest place of the document that its path reaches."""

    code: str
    path: Path
    span: Span
    message: str
    hint: str
    missing: bool = False


def validate(model: type[M], root: Node, source: Source, kind: str = "spec") -> M:
    """The document as a model, or the first complaint by line as a `KgenError` with code `<kind>-…`."""
    try:
        return model.model_validate(root.data)
    except ValidationError as failure:
        problems = _problems(model, root, failure)
    first = problems[0]
    more = f" ({len(problems) - 1} more)" if len(problems) > 1 else ""
    message = f"{dotted(first.path)}: {first.message}{more}" if first.path else f"{first.message}{more}"
    location = source.location(first.span)
    raise KgenError(message, code=f"{kind}-{first.code}", location=location, hint=first.hint)


def shown(value: Any) -> str:
    """The value for a message: `repr`, cut where it is long."""
    if isinstance(value, (dict, list)):
        return f"a {'mapping' if isinstance(value, dict) else 'list'} of {len(value)}"
    text = repr(value)
    return text if len(text) <= _MAX_VALUE else f"{text[: _MAX_VALUE - 1]}…"


def dotted(path: Sequence[str | int]) -> str:
    """`kernels.x.tiles.K[0]`; a part that isn't a name is shown as `repr`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if _IDENTIFIER.fullmatch(part) else shown(part)
            text += f".{name}" if text else name
    return text


def near(word: str, known: Iterable[str]) -> str:
    """`nearest`, bounded: a stranger's spec may define thousands of names."""
    hint = nearest(word[:_MAX_VALUE], list(known)[:200])
    return hint if len(hint) <= _MAX_HINT else f"{hint[: _MAX_HINT - 1]}…"


def span_of(root: Node, path: Sequence[str | int], *, key: bool = False) -> Span:
    """Where a value is (or its key); for a path that leaves the document, the deepest place on it."""
    node, span = root, root.span
    for depth, part in enumerate(path):
        child = node.children.get(part)
        if child is None:
            break
        at_key = part in node.keys and (key and depth == len(path) - 1)
        # A container starts on the line after its key; its key is what people look for.
        span = node.keys[part] if at_key or (part in node.keys and child.children) else child.span
        node = child
    return span


def _problems(model: type[BaseModel], root: Node, failure: ValidationError) -> list[_Problem]:
    """All complaints by line, those that follow from another left out."""
    found: dict[Path, _Problem] = {}
    for error in failure.errors(include_url=False):
        loc: Path = error["loc"]
        problem = _problem(model, root, loc, dict(error))
        if problem.path in found and _in_union(loc, problem.path):
            continue  # each member of a union complains; the first member's text already names all of them
        found.setdefault(problem.path, problem)
    unknown = {problem.path[:-1] for problem in found.values() if problem.code == "unknown-field"}
    kept = [p for p in found.values() if not (p.missing and p.path[:-1] in unknown)]
    return sorted(kept, key=lambda p: (p.span.line, p.span.column))


def _in_union(loc: Path, path: Path) -> bool:
    return len(loc) > len(path)


def _problem(model: type[BaseModel], root: Node, loc: Path, error: dict[str, Any]) -> _Problem:
    if error["type"] == "extra_forbidden":
        hint = near(str(loc[-1]), _field_names(model, loc[:-1]))
        message = f"unknown field {shown(loc[-1])}"
        return _Problem("unknown-field", loc, span_of(root, loc, key=True), message, hint)
    if error["type"] == "missing":
        message = f"field {shown(loc[-1])} is missing"
        return _Problem("missing-field", loc, span_of(root, loc[:-1]), message, "add it; `kgen schema` lists all", True)
    if loc and loc[-1] == "[key]":
        path = loc[:-1]
        code, message, hint = _bad_text(error, path[-1])
        return _Problem(code, path, span_of(root, path, key=True), message, hint)
    path = _reached(root, loc)
    span = span_of(root, path)
    if len(path) < len(loc):
        return _union_problem(model, path, span, _value(root, path))
    return _value_problem(error, path, span)


def _union_problem(model: type[BaseModel], path: Path, span: Span, value: Any) -> _Problem:
    wanted = " or ".join(_choices(_annotation(model, path)))
    return _Problem("wrong-type", path, span, f"expected {wanted}, found {shown(value)}", "write one of those")


def _value_problem(error: dict[str, Any], path: Path, span: Span) -> _Problem:
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    found = f", found {shown(value)}"
    if kind in _EXPECTED:
        return _Problem("wrong-type", path, span, f"expected {_EXPECTED[kind]}{found}", _type_hint(kind, value))
    if kind in ("enum", "literal_error"):
        known = re.findall(r"'([^']*)'", str(context.get("expected", "")))
        return _Problem("bad-value", path, span, f"expected one of {', '.join(known)}{found}", near(str(value), known))
    if kind.startswith("string_") or kind == "value_error":
        code, message, hint = _bad_text(error, value)
        return _Problem(code, path, span, message, hint)
    text = str(error["msg"]).removeprefix("Input should be ")
    return _Problem("bad-value", path, span, f"expected {text}{found}", "change the value")


def _bad_text(error: dict[str, Any], value: Any) -> tuple[str, str, str]:
    """Code, message and hint for text that isn't the name or the reference that it should be."""
    context = error.get("ctx", {})
    if error["type"] == "value_error":
        return "name", str(context.get("error", error["msg"])), "choose another name"
    if error["type"] == "string_too_long":
        return "name", f"longer than {context['max_length']} characters: {shown(value)}", "shorten it"
    if "py:" in str(context.get("pattern", "")):
        return "program-reference", f"{shown(value)} isn't a program reference", "write path/to/file.py:function"
    if not context.get("pattern", "").startswith("^[A-Za-z_]["):
        return "bad-value", f"{shown(value)} isn't allowed here", f"write text that matches {context.get('pattern')}"
    return "name", f"{shown(value)} isn't an identifier", "use letters, digits and '_', not starting with a digit"


def _type_hint(kind: str, value: Any) -> str:
    if kind == "string_type" and isinstance(value, (int, float)):
        return f'quote it: "{value}"'
    if kind == "tuple_type" and isinstance(value, str):
        return f"write it as a list: [{value[:_MAX_VALUE]}]" if _IDENTIFIER.fullmatch(value) else "write a list: [a, b]"
    if value is None:
        return "give it a value, or remove the field"
    return "change the value"


def _reached(root: Node, loc: Path) -> Path:
    """The part of Pydantic's path that is in the document; what follows names members of a union."""
    node, reached = root, 0
    for part in loc:
        child = node.children.get(part)
        if child is None:
            break
        node, reached = child, reached + 1
    return loc[:reached]


def _value(root: Node, path: Path) -> Any:
    node = root
    for part in path:
        node = node.children[part]
    return node.data


def _field_names(model: type[BaseModel], path: Path) -> list[str]:
    for part in _parts(_annotation(model, path)):
        if isinstance(part, type) and issubclass(part, BaseModel):
            return list(part.model_fields)
    return []


def _annotation(model: type[BaseModel], path: Path) -> Any:
    """The type that the models give the value at a path, `Annotated` and one level of containers taken off a step."""
    here: Any = model
    for step in path:
        for part in _parts(here):
            if isinstance(part, type) and issubclass(part, BaseModel):
                field = part.model_fields.get(str(step))
                here = field.annotation if field else None
                break
            if typing.get_origin(part) in (dict, tuple, list):
                arguments = typing.get_args(part)
                here = arguments[1] if typing.get_origin(part) is dict else arguments[0]
                break
    return here


def _parts(annotation: Any) -> list[Any]:
    """The members of a union, with `Annotated` taken off."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _parts(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return [part for member in typing.get_args(annotation) for part in _parts(member)]
    return [annotation]


def _choices(annotation: Any) -> list[str]:
    """Words for each member of a union."""
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text", type(None): "nothing"}
    words: list[str] = []
    for part in _parts(annotation):
        if typing.get_origin(part) is typing.Literal:
            words += [repr(value) for value in typing.get_args(part)]
        elif isinstance(part, type) and issubclass(part, Enum):
            words += [repr(member.value) for member in part]
        else:
            words.append(names.get(part, getattr(part, "__name__", "a value")))
    return words
