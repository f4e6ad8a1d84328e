"""Statements of a tile program: Python syntax read with `ast`, never executed, into a `Kernel` of language nodes."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection

from kgen.errors import KgenError, nearest
from kgen.ir import build
from kgen.ir.nodes import Assign, Expr, For, If, IndexVar, Kernel, Num, PartAssign, Space, Stmt, Store, Type
from kgen.ir.outside import outside_expr, outside_stmt
from kgen.ir.parse_expr import BINARY, parse_expr, parse_test, tensor_index, tile_index
from kgen.ir.parse_file import find_program
from kgen.ir.rewrite import names_in, stmt_exprs, walk_block, walk_expr
from kgen.ir.scope import Local, Scope
from kgen.spec.models import DimKind, Spec, flag_of

MAX_LOOPS = 8  # one inside another: what a build costs doubles with each
MAX_UNROLLED = 1024  # copies of a statement that nested range loops may make
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,47}")


def parse_kernel(spec: Spec, kernel: str, source: str, path: str) -> Kernel:
    """The program of `kernel` as typed language nodes.

    `source` is the program file's text, `path` its name in messages. Raises KgenError with line and caret.
    """
    entry = spec.kernels[kernel]
    function = find_program(source, path, entry.program.rpartition(":")[2])
    params = tuple(a.arg for a in function.args.args)
    bound = {p: entry.bind.get(p, p) for p in params}
    tensors = {
        p: spec.tensors[t].model_copy(update={"optional": False}) if p in entry.given else spec.tensors[t]
        for p, t in bound.items()
        if t in spec.tensors
    }
    scope = Scope(spec, path, source, tensors, outputs=frozenset(entry.outputs))
    for arg in function.args.args:
        if arg.arg not in tensors:
            raise scope.error(
                arg, f"{arg.arg!r} isn't a tensor of the spec", nearest(arg.arg, spec.tensors), "program-name"
            )
    body = parse_block(function.body, scope)
    if len(body) != 1 or not isinstance(body[0], For) or body[0].kind != "tasks":
        raise scope.error(function, "a program is one `for … in tasks(…)`", "put every statement inside that loop")
    _check_tiled(function, body, entry.tiles, scope)
    indices = tuple(scope.all_indices.values())
    return Kernel(kernel, function.name, path, params, body, indices=indices, spaces=body[0].spaces)


def _check_tiled(function: ast.FunctionDef, body: tuple[Stmt, ...], tiles: Collection[str], scope: Scope) -> None:
    """A static dim that a tile has, whole or in parts, needs sizes to choose from."""
    static = {f"B{n}": n for n, d in scope.spec.dims.items() if d.kind is DimKind.STATIC}
    types = [e.type for s in walk_block(body) for root in stmt_exprs(s) for e in walk_expr(root)]
    axes = {str(a.size) for t in types for a in t.axes} & set(static)
    if missing := sorted(static[a] for a in axes if static[a] not in tiles):
        message = f"{function.name} makes tiles over {missing[0]}, for which the kernel lists no sizes"
        raise scope.error(function, message, f"add tiles: {{{missing[0]}: [64, 128]}} to the kernel", "program-tiles")


def parse_block(nodes: list[ast.stmt], scope: Scope) -> tuple[Stmt, ...]:
    """Statements in order; `scope` is updated as names are assigned."""
    out: list[Stmt] = []
    for i, node in enumerate(nodes):
        constant = node.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) else None
        docstring = i == 0 and constant is not None and isinstance(constant.value, str)
        if not docstring:
            out.extend(_statement(node, scope))
    return tuple(out)


def _statement(node: ast.stmt, scope: Scope) -> tuple[Stmt, ...]:
    if isinstance(node, ast.For):
        return (_for(node, scope),)
    if isinstance(node, ast.If):
        return _if(node, scope)
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        return _assign(node, node.targets[0], node.value, scope)
    if isinstance(node, ast.AugAssign) and type(node.op) in BINARY:
        return _augmented(node, scope)
    if isinstance(node, ast.AugAssign):
        raise outside_expr(ast.copy_location(ast.BinOp(node.target, node.op, node.value), node), scope)
    raise outside_stmt(node, scope)


def _assign(node: ast.stmt, target: ast.expr, value: ast.expr, scope: Scope) -> tuple[Stmt, ...]:
    if isinstance(target, ast.Tuple):
        if not isinstance(value, ast.Tuple) or len(value.elts) != len(target.elts):
            raise scope.error(node, "tuple assignment needs as many values as names")
        parsed = [parse_expr(v, scope) for v in value.elts]
        _check_parallel(target, parsed, scope)
        pairs = zip(target.elts, parsed, strict=True)
        return tuple(_bind(node, t, v, scope) for t, v in pairs)
    return (_bind(node, target, parse_expr(value, scope), scope),)


def _check_parallel(target: ast.Tuple, values: list[Expr], scope: Scope) -> None:
    """The parts become assignments in order, so no value may read a name that an earlier part assigns."""
    assigned: set[str] = set()
    for part, value in zip(target.elts, values, strict=True):
        if both := sorted(names_in(value) & assigned):
            hint = "assign to another name first"
            raise scope.error(target, f"{both[0]!r} is assigned and read in one tuple assignment", hint)
        base = part.value if isinstance(part, ast.Subscript) else part
        assigned |= {base.id} if isinstance(base, ast.Name) else set()


def _bind(node: ast.stmt, target: ast.expr, value: Expr, scope: Scope) -> Stmt:
    span = scope.span(node)
    if isinstance(target, ast.Name):
        _check_target(target, value, scope)
        scope.locals[target.id] = Local(value.type, scope.flags)
        return Assign(target.id, value, span=span)
    if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
        name = target.value.id
        elements = list(target.slice.elts) if isinstance(target.slice, ast.Tuple) else [target.slice]
        if name in scope.locals:
            base = parse_expr(target.value, scope)
            index, kept = tile_index(target, base, elements, scope)
            _same_axes(target, Type(tuple(a for a in kept if a)), value, scope)
            return PartAssign(name, index, value, span=span)
        if name in scope.tensors:
            scope.need_flag(target, name)
            if name not in scope.outputs:
                hint = f"outputs: {', '.join(sorted(scope.outputs))}; the spec lists them"
                raise scope.error(target, f"{name!r} isn't an output of this kernel", hint, "program-output")
            where, axes = tensor_index(target, name, elements, scope)
            _same_axes(target, Type(axes), value, scope)
            return Store(name, where, value, span=span)
        raise scope.unknown(target.value, name)
    raise scope.error(target, "an assignment goes to a name, a slab of a tile or a tile of a tensor")


def _check_target(target: ast.Name, value: Expr, scope: Scope) -> None:
    _check_name(target, target.id, scope)
    if target.id in scope.all_indices:
        raise scope.error(target, f"{target.id!r} already names an index", "choose another name")
    before = scope.locals.get(target.id)
    if before is not None and before.type.axes != value.type.axes and scope.flags >= before.needs:
        raise scope.error(
            target, f"{target.id!r} is {before.type} and would become {value.type}", "use another name", "program-type"
        )


def _check_name(node: ast.AST, name: str, scope: Scope) -> None:
    """A name that the program gives reaches the emitted source: plain, and nothing else's there."""
    if not IDENTIFIER.fullmatch(name) or name.startswith("__") or name in {"tl", "triton", "torch"}:
        hint = "letters, digits and _, up to 48"
        raise scope.error(node, f"{name[:48]!r} can't be a name in the emitted source", hint)
    spec = scope.spec
    made = {*map(flag_of, scope.tensors), *(f.upper() for f in spec.flags), *(f"B{d}" for d in spec.dims)}
    if name in {*scope.tensors, *spec.dims, *spec.flags, *spec.scalars, *made}:
        raise scope.error(node, f"{name!r} already names a tensor, dim, flag or scalar", "choose another name")


def _same_axes(target: ast.expr, want: Type, value: Expr, scope: Scope) -> None:
    if value.type.axes != want.axes and value.type.axes != ():
        raise scope.error(target, f"stores {value.type} where {want} is needed", code="program-type")


def _augmented(node: ast.AugAssign, scope: Scope) -> tuple[Stmt, ...]:
    target = node.target
    if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) and target.value.id in scope.tensors:
        raise scope.error(
            node, "contributions to an output aren't lowered yet", "write each element once", "not-implemented"
        )
    if not isinstance(target, (ast.Name, ast.Subscript)):
        raise scope.error(target, "an assignment goes to a name, a slab of a tile or a tile of a tensor")
    left = parse_expr(target, scope)
    try:
        value = build.binary(BINARY[type(node.op)], left, parse_expr(node.value, scope), scope.span(node))
    except KgenError as error:
        raise error.at(scope.location(node)) from None
    return (_bind(node, target, value, scope),)


def _if(node: ast.If, scope: Scope) -> tuple[Stmt, ...]:
    test, flag = parse_test(node.test, scope)
    if isinstance(test, Num):  # a tensor that is always given
        return parse_block(node.body if test.value else node.orelse, scope)
    yes, no = scope.branch(flag), scope.branch()
    body, orelse = parse_block(node.body, yes), parse_block(node.orelse, no)
    for name in sorted({*yes.locals, *no.locals}):
        a, b = yes.locals.get(name), no.locals.get(name)
        if a and b:
            scope.locals[name] = _joined(node, name, a, b, flag, scope)
        elif a and flag:  # under an `if` on an integer, nothing says later whether it was assigned
            scope.locals[name] = a
    return (If(test, body, orelse, span=scope.span(node)),)


def _joined(node: ast.If, name: str, a: Local, b: Local, flag: str | None, scope: Scope) -> Local:
    """A local after an `if`: what it is in both branches, and the flags that it needs in either."""
    if flag in b.needs:  # it can't be there without the flag
        return a
    if a.type.axes != b.type.axes:
        hint = "use another name in one branch, or give both the same shape"
        raise scope.error(node, f"{name!r} is {a.type} in one branch and {b.type} in the other", hint, "program-type")
    joined = a.type if a.type == b.type else Type(a.type.axes, "fp32")
    return Local(joined, (a.needs - {flag or ""}) | b.needs)


# ---------------------------------------------------------------- loops


def _for(node: ast.For, scope: Scope) -> For:
    call = node.iter
    if node.orelse or not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
        raise scope.error(node, "a loop ranges over tasks, scan, tiles, group or range")
    kind = call.func.id
    if kind == "tasks" and scope.all_indices:
        raise scope.error(call, "tasks(…) is the outermost loop, once", "one loop over tasks holds the whole program")
    if kind not in {"tasks", "scan", "tiles", "group", "range"}:
        raise scope.error(call, f"{kind!r} isn't a loop", nearest(kind, {"tasks", "scan", "tiles", "group", "range"}))
    names = [node.target] if not isinstance(node.target, ast.Tuple) else list(node.target.elts)
    if not all(isinstance(n, ast.Name) for n in names):
        raise scope.error(node.target, "loop variables are plain names")
    inner = scope.branch()
    inner.loops += 1
    if inner.loops > MAX_LOOPS:
        raise scope.error(node, f"more than {MAX_LOOPS} loops, one inside another", "split the program")
    spaces = _spaces(call, kind, inner)
    with_var = [s for s in spaces if s.kind != "heads"]
    if len(names) != len(with_var):
        raise scope.error(node.target, f"{len(with_var)} loop variables are needed, got {len(names)}")
    variables = tuple(n.id for n in names if isinstance(n, ast.Name))
    for n, name, space in zip(names, variables, with_var, strict=True):
        _declare(n, name, space, inner)
    reverse = _reverse(call, kind, scope)
    body = parse_block(node.body, inner)
    _keep_carries(scope, inner)
    return For(kind, variables, spaces, body, reverse, span=scope.span(node))


def _keep_carries(scope: Scope, inner: Scope) -> None:
    """What a loop assigns stays assigned after it only if it was before: the rest may never have run."""
    for name in scope.locals:
        scope.locals[name] = inner.locals[name]


def _reverse(call: ast.Call, kind: str, scope: Scope) -> bool:
    for kw in call.keywords:
        ok = kind == "scan" and kw.arg == "reverse" and isinstance(kw.value, ast.Constant)
        if not ok or not isinstance(kw.value, ast.Constant) or not isinstance(kw.value.value, bool):
            raise scope.error(call, f"{kind} has no option {kw.arg!r}", "scan takes reverse=True")
        return kw.value.value
    return False


def _declare(node: ast.expr, name: str, space: Space, scope: Scope) -> None:
    kinds = {"chunks": "chunk", "seqs": "seq", "tiles": "tile", "parts": "part", "range": "int", "group": "int"}
    var = IndexVar(name, kinds[space.kind], space.over, space.size)
    _check_name(node, name, scope)
    if space.kind == "group":
        return
    if name in scope.locals:
        raise scope.error(node, f"{name!r} already has a meaning here", "choose another loop variable")
    known = scope.all_indices.get(name)
    if known is not None and known != var:
        raise scope.error(node, f"{name!r} was a {known.kind} over {known.over} before", "one meaning a name")
    scope.indices[name] = scope.all_indices[name] = var


def _spaces(call: ast.Call, kind: str, scope: Scope) -> tuple[Space, ...]:
    if kind == "tasks":
        spaces = tuple(_task_space(a, scope) for a in call.args)
        heads = [s for s in spaces if s.kind == "heads"]
        if not spaces or len(heads) > 1 or len(spaces) == len(heads):
            raise scope.error(call, "tasks needs at least one space besides heads, and heads at most once")
        if heads:
            scope.head = heads[0].over
        return spaces
    if kind == "scan":
        return (_scan_space(call, scope),)
    if kind == "range":
        return (_range_space(call, scope),)
    dim = _dim_arg(call, scope, {"tiles": DimKind.STATIC, "group": DimKind.HEADS}[kind])
    if kind == "group":
        if scope.head is None or scope.spec.dims[dim].group_of != scope.head:
            raise scope.error(call, f"group({dim}) goes inside heads({scope.spec.dims[dim].group_of})")
        scope.head = dim
    return (Space(kind, dim),)


def _dim_arg(call: ast.Call, scope: Scope, kind: DimKind, arity: int = 1) -> str:
    if len(call.args) != arity or (arity != 1 and call.keywords):
        raise scope.error(call, f"{arity} argument{'s' * (arity > 1)} needed here, got {len(call.args)}")
    arg = call.args[0] if call.args else None
    name = arg.id if isinstance(arg, ast.Name) else "?"
    dim = scope.spec.dims.get(name)
    if dim is None or dim.kind is not kind:
        known = [n for n, d in scope.spec.dims.items() if d.kind is kind]
        raise scope.error(call, f"{name!r} isn't a {kind.value} dim", nearest(name, known), "program-name")
    return name


def _task_space(e: ast.expr, scope: Scope) -> Space:
    if not (isinstance(e, ast.Call) and isinstance(e.func, ast.Name)):
        raise scope.error(e, "a task space is chunks(T), seqs(N), tiles(X), parts(T, c) or heads(HV)")
    kinds = {
        "chunks": DimKind.ROWS, "parts": DimKind.ROWS, "seqs": DimKind.SEQUENCES, "tiles": DimKind.STATIC,
        "heads": DimKind.HEADS,
    }  # fmt: skip
    kind = e.func.id
    if kind not in kinds:
        raise scope.error(e, f"{kind!r} isn't a task space", nearest(kind, kinds))
    if e.keywords:
        raise scope.error(e, f"{kind} has no options")
    dim = _dim_arg(e, scope, kinds[kind], 2 if kind == "parts" else 1)
    if kind != "parts":
        return Space(kind, dim)
    size = e.args[1].value if len(e.args) == 2 and isinstance(e.args[1], ast.Constant) else None
    chunk = scope.spec.dims[scope.chunk_dim].values
    if not isinstance(size, int) or size < 16 or size % 16 or any(rows % size for rows in chunk):
        hint = f"one that divides every size of a chunk: {', '.join(map(str, chunk))}"
        raise scope.error(e, "parts(T, c) takes a constant multiple of 16", hint)
    return Space(kind, dim, size)


def _scan_space(call: ast.Call, scope: Scope) -> Space:
    inner = call.args[0] if len(call.args) == 1 else None
    plain = isinstance(inner, ast.Call) and len(inner.args) == 1 and not inner.keywords
    if plain and isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name):
        arg = inner.args[0]
        known = isinstance(arg, ast.Name) and arg.id in scope.indices and scope.indices[arg.id].kind == "seq"
        if inner.func.id == "chunks" and known and isinstance(arg, ast.Name):
            return Space("chunks", arg.id)
        if inner.func.id == "tokens" and known:
            raise scope.error(inner, "scan over tokens isn't lowered yet", "scan(chunks(n))", "not-implemented")
    raise scope.error(call, "scan takes chunks(n) of a sequence n")


def _range_space(call: ast.Call, scope: Scope) -> Space:
    values = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, int)]
    if len(values) != len(call.args) or len(values) not in (1, 2):
        raise scope.error(call, "range takes constants", "it is unrolled")
    start, stop = (0, values[0]) if len(values) == 1 else (values[0], values[1])
    if not 0 <= start <= stop <= 256:
        raise scope.error(call, "range is unrolled: at most 256 steps, from 0 up")
    scope.unrolled *= max(1, stop - start)
    if scope.unrolled > MAX_UNROLLED:
        raise scope.error(call, f"nested ranges unroll to more than {MAX_UNROLLED} copies", "use tiles or scan")
    return Space("range", "", stop, start)
