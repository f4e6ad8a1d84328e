"""Expressions of a tile program: from `ast` to typed nodes."""

from __future__ import annotations

import ast
import math

from kgen.errors import KgenError, nearest
from kgen.ir import build
from kgen.ir.nodes import (
    I32,
    At,
    Axis,
    Expr,
    Fixed,
    IfExp,
    Index,
    IndexRef,
    Name,
    Num,
    Range,
    Read,
    Row,
    Type,
    Whole,
)
from kgen.ir.outside import outside_expr
from kgen.ir.scope import Scope, dtype_of
from kgen.spec.models import DimKind, flag_of

BINARY = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
COMPARE: dict[type[ast.cmpop], str] = {ast.Eq: "==", ast.NotEq: "!="}
ROWS = ("last", "start", "end")
LATER = {"history", "ending", "local", "seq", "step"}
SHAPES = ("zeros", "full", "eye")
MAX_OPTION = 65_536  # far past any diagonal or axis


def parse_expr(node: ast.expr, scope: Scope) -> Expr:
    """A typed expression, or an error with the place of the smallest part that is wrong."""
    try:
        return _expr(node, scope)
    except KgenError as error:
        raise error.at(scope.location(node)) from None


def _expr(node: ast.expr, scope: Scope) -> Expr:
    span = scope.span(node)
    if isinstance(node, ast.Constant):
        return _constant(node, scope)
    if isinstance(node, ast.Name):
        return _name(node, scope)
    if isinstance(node, ast.BinOp) and type(node.op) in BINARY:
        return build.binary(BINARY[type(node.op)], parse_expr(node.left, scope), parse_expr(node.right, scope), span)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return build.unary("-", parse_expr(node.operand, scope), span)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARE:
        left, right = parse_expr(node.left, scope), parse_expr(node.comparators[0], scope)
        return build.binary(COMPARE[type(node.ops[0])], left, right, span)
    if isinstance(node, ast.IfExp):
        return _if_exp(node, scope)
    if isinstance(node, ast.Attribute) and node.attr == "T":
        return build.transpose(parse_expr(node.value, scope), span)
    if isinstance(node, ast.Subscript):
        return _subscript(node, scope)
    if isinstance(node, ast.Call):
        return _call(node, scope)
    raise outside_expr(node, scope)


def _constant(node: ast.Constant, scope: Scope) -> Expr:
    if isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
        hint = "flags come from the spec, text isn't a value"
        raise scope.error(node, f"{repr(node.value)[:48]} isn't a number", hint)
    if isinstance(node.value, int) and abs(node.value) >= 2**31:
        raise scope.error(node, "this integer doesn't fit int32", "integers of a tile program are int32")
    return build.num(node.value, scope.span(node))


def _name(node: ast.Name, scope: Scope) -> Expr:
    span, id_ = scope.span(node), node.id
    if id_ in scope.locals:
        return Name(id_, type=scope.local(node, id_).type, span=span)
    if id_ in scope.indices:
        var = scope.indices[id_]
        if var.kind == "int":
            return Name(id_, type=I32, span=span)
        raise scope.error(node, f"{id_!r} is an index, not a value", f"its lane numbers are index({id_})")
    if id_ in scope.spec.scalars:
        return Name(id_, span=span)
    if id_ in scope.spec.flags:
        return Name(id_.upper(), type=Type((), "bool"), span=span)
    if id_ in scope.tensors:
        raise scope.error(node, f"tensor {id_!r} needs an index", f"read a tile of it: {id_}[t]")
    if id_ == "inf":
        return build.num(math.inf, span)
    dim = scope.spec.dims.get(id_)
    if dim and dim.kind is DimKind.STATIC:
        return Name(id_, type=I32, span=span)
    raise scope.unknown(node, id_)


def parse_test(node: ast.expr, scope: Scope) -> tuple[Expr, str | None]:
    """A compile-time condition, and the flag that holds in its body when it is a plain flag."""
    if isinstance(node, ast.Name) and node.id in scope.tensors:
        if not scope.tensors[node.id].optional:
            return build.num(True, scope.span(node)), None
        flag = flag_of(node.id)
        return Name(flag, type=Type((), "bool"), span=scope.span(node)), flag
    if isinstance(node, ast.Name) and node.id in scope.spec.flags:
        flag = node.id.upper()
        return Name(flag, type=Type((), "bool"), span=scope.span(node)), flag
    if isinstance(node, ast.Compare):
        test = parse_expr(node, scope)
        sides = (getattr(test, "a", None), getattr(test, "b", None))
        if all(isinstance(e, (Name, Num)) and e.type == I32 for e in sides):
            return test, None
    raise scope.error(
        node,
        "an `if` tests a flag, an optional tensor or an unrolled integer",
        "choose values of tiles with where(condition, a, b)",
    )


def _if_exp(node: ast.IfExp, scope: Scope) -> Expr:
    test, flag = parse_test(node.test, scope)
    if isinstance(test, Num):
        return parse_expr(node.body if test.value else node.orelse, scope)
    a = parse_expr(node.body, scope.branch(flag))
    b = parse_expr(node.orelse, scope)
    axes = build.join_axes(a.type, b.type, "if / else")
    dtype = a.type.dtype if a.type.dtype == b.type.dtype else "fp32"
    return IfExp(test, a, b, type=Type(axes, dtype), span=scope.span(node))


# ---------------------------------------------------------------- subscripts


def _elements(node: ast.Subscript) -> list[ast.expr]:
    return list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]


def _subscript(node: ast.Subscript, scope: Scope) -> Expr:
    elements, span = _elements(node), scope.span(node)
    if isinstance(node.value, ast.Name) and node.value.id not in scope.locals:
        if node.value.id not in scope.tensors:
            raise scope.unknown(node.value, node.value.id)
        scope.need_flag(node, node.value.id)
        if node.value.id in scope.outputs:
            hint = "keep the value in a local tile: what other tasks wrote has no order"
            raise scope.error(node, f"output {node.value.id!r} is read", hint, "program-output")
        index, axes = tensor_index(node, node.value.id, elements, scope)
        return Read(node.value.id, index, type=Type(axes, dtype_of(node.value.id)), span=span)
    if any(isinstance(e, ast.Constant) and e.value is None for e in elements):
        return _expand(node, elements, scope)
    if not isinstance(node.value, ast.Name):
        raise scope.error(node, "only a named tile can be sliced", "assign it to a name first")
    base = parse_expr(node.value, scope)
    index, kept = tile_index(node, base, elements, scope)
    return build.part(base, node.value.id, index, kept, span)


def _expand(node: ast.Subscript, elements: list[ast.expr], scope: Scope) -> Expr:
    shape = ["none" if isinstance(e, ast.Constant) else "all" if _is_all(e) else "?" for e in elements]
    if shape not in (["all", "none"], ["none", "all"]):
        raise scope.error(node, "a vector becomes a tile by x[:, None] or x[None, :]")
    return build.expand(parse_expr(node.value, scope), 1 if shape[1] == "none" else 0, scope.span(node))


def _is_all(e: ast.expr) -> bool:
    return isinstance(e, ast.Slice) and e.lower is e.upper is e.step is None


def tensor_index(
    node: ast.expr, tensor: str, elements: list[ast.expr], scope: Scope
) -> tuple[tuple[Index, ...], tuple[Axis, ...]]:
    """The index over every dim but the head, and the axes that the tile has. Trailing whole dims may be omitted."""
    dims = list(scope.tensors[tensor].dims)
    heads = [d for d in dims if scope.spec.dims[d].kind is DimKind.HEADS]
    for head in heads:
        _check_head(node, tensor, head, scope)
        dims.remove(head)
    if len(elements) > len(dims):
        raise scope.error(node, f"{tensor} has {len(dims)} indices ({', '.join(dims)}), got {len(elements)}")
    index: list[Index] = []
    axes: list[Axis] = []
    for i, dim in enumerate(dims):
        element = elements[i] if i < len(elements) else None
        one, axis = _dim_index(node, dim, element, index, scope)
        index.append(one)
        if axis:
            axes.append(axis)
    return tuple(index), tuple(axes)


def _check_head(node: ast.expr, tensor: str, dim: str, scope: Scope) -> None:
    if scope.head is None:
        hint = f"add heads({dim}) to tasks(…)"
        raise scope.error(node, f"{tensor} has a head dim {dim} but no loop gives a head", hint)
    group = scope.spec.dims[dim].group_of
    if dim != scope.head and group == scope.head:
        raise scope.error(node, f"{tensor} has value heads, this loop has key heads", f"write `for _ in group({dim})`")


def _dim_index(
    node: ast.expr, dim: str, e: ast.expr | None, before: list[Index], scope: Scope
) -> tuple[Index, Axis | None]:
    kind = scope.spec.dims[dim].kind
    if e is None or _is_all(e):
        if kind is DimKind.STATIC:
            return Whole(), scope.whole_axis(dim)
        if kind is DimKind.CHUNK:
            return Whole(), _chunk_columns(node, before, scope)
        raise scope.error(e or node, f"dim {dim} can't be read whole", "index it with the loop's variable")
    if isinstance(e, ast.Call):
        return _row(e, dim, scope), None
    if isinstance(e, ast.Name) and e.id in scope.indices:
        return _variable(e, dim, before, scope)
    if isinstance(e, ast.Name):
        raise scope.unknown(e, e.id)
    if isinstance(e, ast.BinOp):
        hint = "read the rows of the loop's own chunk"
        raise scope.error(e, "shifted rows aren't lowered yet", hint, "not-implemented")
    raise scope.error(e, f"dim {dim} takes an index variable, `:`, last(t), start(n) or end(n)")


def _chunk_columns(node: ast.expr, before: list[Index], scope: Scope) -> Axis:
    """Columns of a chunk dim belong to the chunk of the row index."""
    rows = [i.var for i in before if isinstance(i, At) and scope.indices[i.var].kind == "chunk"]
    if not rows:
        raise scope.error(node, "a chunk dim is read whole only beside the chunk's rows", "index the rows with t first")
    return scope.tile_axis(scope.indices[rows[0]])


def _row(e: ast.Call, dim: str, scope: Scope) -> Row:
    fn = e.func.id if isinstance(e.func, ast.Name) else "?"
    if fn in LATER:
        raise scope.error(e, f"{fn}(…) isn't lowered yet", code="not-implemented")
    if fn not in ROWS or e.keywords or len(e.args) != 1 or not isinstance(e.args[0], ast.Name):
        raise scope.error(e, f"{fn}(…) isn't a row", "rows are last(t), start(n), end(n)")
    if scope.spec.dims[dim].kind is not DimKind.ROWS:
        raise scope.error(e, f"{fn}(…) is a row, but {dim} isn't a rows dim")
    var = scope.indices.get(e.args[0].id)
    if var is None:
        raise scope.unknown(e.args[0], e.args[0].id)
    want = "chunk" if fn == "last" else "seq"
    if var.kind != want:
        raise scope.error(e, f"{fn}(…) takes a {want}, {var.name} is a {var.kind}")
    return Row(fn, var.name)


_FITS = {
    "chunk": (DimKind.ROWS, DimKind.CHUNKS, DimKind.CHUNK),
    "part": (DimKind.ROWS, DimKind.CHUNK),
    "seq": (DimKind.SEQUENCES,),
}


def _variable(e: ast.Name, dim: str, before: list[Index], scope: Scope) -> tuple[Index, Axis | None]:
    var, kind = scope.indices[e.id], scope.spec.dims[dim].kind
    fits = var.over == dim if var.kind == "tile" else kind in _FITS.get(var.kind, ())
    if not fits:
        raise scope.error(e, f"{e.id} ranges over {var.over or var.kind}, not over dim {dim}", code="program-type")
    rows = [i.var for i in before if isinstance(i, At)]
    if kind is DimKind.CHUNK and rows != [e.id] and rows:
        raise scope.error(e, f"columns of {e.id} beside rows of {rows[0]}", f"write {rows[0]}", "program-type")
    dropped = kind in (DimKind.SEQUENCES, DimKind.CHUNKS)
    return At(e.id), None if dropped else scope.tile_axis(var)


def tile_index(
    node: ast.expr, base: Expr, elements: list[ast.expr], scope: Scope
) -> tuple[tuple[Index, ...], tuple[Axis | None, ...]]:
    """Index of a slab (`S[bk]`, `dk[:, bk]`) or a slice (`m[i, 0:i]`); trailing whole axes may be omitted."""
    if len(elements) > base.type.rank:
        raise scope.error(node, f"{len(elements)} indices on a tile {base.type}", code="program-type")
    index: list[Index] = []
    kept: list[Axis | None] = []
    for i, axis in enumerate(base.type.axes):
        one, left = _tile_one(elements[i] if i < len(elements) else None, axis, scope)
        index.append(one)
        kept.append(left)
    return tuple(index), tuple(kept)


def _tile_one(e: ast.expr | None, axis: Axis, scope: Scope) -> tuple[Index, Axis | None]:
    if e is None or _is_all(e):
        return Whole(), axis
    if isinstance(e, ast.Slice):
        if e.step is not None or e.lower is None or e.upper is None:
            raise scope.error(e, "a slice of a tile is a:b with both ends")
        index = Range(_integer(e.lower, scope), _integer(e.upper, scope))
        return index, build.sliced_axis(axis, index)
    if isinstance(e, ast.Name) and e.id in scope.indices and scope.indices[e.id].kind == "tile":
        var = scope.indices[e.id]
        if axis.name != var.over:
            raise scope.error(e, f"{e.id} tiles {var.over}, this axis is {axis.name}", code="program-type")
        return At(e.id), scope.tile_axis(var)
    return Fixed(_integer(e, scope)), None


def _integer(e: ast.expr, scope: Scope) -> Expr:
    value = parse_expr(e, scope)
    if value.type != I32:
        raise scope.error(e, f"an integer is needed, this is {value.type}", code="program-type")
    return value


# ---------------------------------------------------------------- calls


def _call(node: ast.Call, scope: Scope) -> Expr:
    if not isinstance(node.func, ast.Name):
        raise scope.error(node, "only built-ins of the tile language can be called")
    fn = node.func.id
    if fn in SHAPES:
        return _shaped(node, fn, scope)
    if fn in LATER:
        raise scope.error(node, f"{fn}(…) isn't lowered yet", code="not-implemented")
    if fn == "index":
        return _index_call(node, scope)
    if fn not in build.ARITY:
        hint = nearest(fn, {*build.ARITY, *SHAPES})
        raise scope.error(node, f"{fn!r} isn't a built-in of the tile language", hint, "program-name")
    return _builtin(node, fn, scope)


_POSITIONAL = {"sum": ("axis",), "max": ("axis",), "cumsum": ("axis",), "tril": ("k",)}
_OPTIONS = {"dot": {"exact"}, "sum": {"axis"}, "max": {"axis"}, "cumsum": {"axis", "reverse"}, "tril": {"k"}}


def _builtin(node: ast.Call, fn: str, scope: Scope) -> Expr:
    positional = _POSITIONAL.get(fn, ())
    tiles = build.ARITY[fn] - len(positional)
    if len(node.args) < tiles or len(node.args) > tiles + len(positional):
        raise scope.error(node, f"{fn} takes {tiles} operands, got {len(node.args)}")
    args = tuple(parse_expr(a, scope) for a in node.args[:tiles])
    options: dict[str, object] = {}
    for key, value in zip(positional, node.args[tiles:], strict=False):
        options[key] = _option(value, key, scope)
    for kw in node.keywords:
        if kw.arg is None or kw.arg not in _OPTIONS.get(fn, set()) or kw.arg in options:
            raise scope.error(node, f"{fn} has no option {kw.arg!r} here")
        options[kw.arg] = _option(kw.value, kw.arg, scope)
    return build.call(fn, args, options, scope.span(node))


def _option(e: ast.expr, key: str, scope: Scope) -> object:
    if key in {"axis", "k"}:
        negative = isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.USub)
        constant = e.operand if isinstance(e, ast.UnaryOp) and negative else e
        value = constant.value if isinstance(constant, ast.Constant) else None
        if isinstance(value, int) and not isinstance(value, bool) and value < MAX_OPTION:
            return -value if negative else value
        raise scope.error(e, f"option {key!r} takes a constant integer")
    if isinstance(e, ast.Constant) and isinstance(e.value, bool):
        return e.value
    if isinstance(e, ast.Name) and e.id in scope.spec.flags:
        return e.id.upper()
    raise scope.error(e, f"option {key!r} takes True, False or a flag")


def _shaped(node: ast.Call, fn: str, scope: Scope) -> Expr:
    args = list(node.args)
    value = parse_expr(args.pop(0), scope) if fn == "full" and args else build.num(0.0)
    if node.keywords or (fn == "eye" and len(args) != 1) or not isinstance(value, (Num, Name)) or value.type.axes:
        raise scope.error(node, f"{fn}(…) takes index variables or dims: zeros(t, bv), full(-inf, r), eye(t)")
    axes = [_shape_axis(a, scope) for a in args] * (2 if fn == "eye" else 1)
    refs = tuple(IndexRef(a) for a in axes)
    from kgen.ir.nodes import Call

    call_args = (value, *refs) if fn != "eye" else refs
    return Call("eye" if fn == "eye" else "full", call_args, type=Type(tuple(axes), "fp32"), span=scope.span(node))


def _shape_axis(e: ast.expr, scope: Scope) -> Axis:
    if isinstance(e, ast.Name) and e.id in scope.indices and scope.indices[e.id].kind in {"chunk", "part", "tile"}:
        return scope.tile_axis(scope.indices[e.id])
    if isinstance(e, ast.Name) and e.id in scope.spec.dims and scope.spec.dims[e.id].kind is DimKind.STATIC:
        return scope.whole_axis(e.id)
    raise scope.error(e, "a shape is made of index variables and static dims", "no tile size is written in a program")


def _index_call(node: ast.Call, scope: Scope) -> Expr:
    if len(node.args) != 1 or node.keywords:
        raise scope.error(node, "index takes one index variable")
    axis = _shape_axis(node.args[0], scope)
    from kgen.ir.nodes import Call

    return Call("index", (IndexRef(axis),), type=Type((axis,), "int32"), span=scope.span(node))
