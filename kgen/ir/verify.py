"""What must hold of a kernel after each pass; a breach is a bug of kgen, found where it is made and not in emitted
text.

Two tables say which nodes may appear when. Beside them, at every stage: types follow from operands, a name is
assigned on every path that leads to its use, loop variables are unique, and blocks lie where the rules of addresses
want them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kgen.errors import KgenBug, KgenError
from kgen.ir import build
from kgen.ir.nodes import (
    I32,
    Access,
    Assign,
    At,
    Binary,
    Call,
    Cast,
    Expand,
    Expr,
    For,
    If,
    Kernel,
    Load,
    Loop,
    Name,
    Num,
    Part,
    PartAssign,
    Read,
    Stmt,
    StoreTile,
    Transpose,
    Type,
    Unary,
    children,
)
from kgen.ir.rewrite import assigned, stmt_exprs
from kgen.ir.show import show_expr
from kgen.ir.verify_names import Env, When, check_use

STAGES = (
    "parse", "whole_slabs", "choices", "clip_exponents", "exponent_base", "slices", "loads", "widen", "dot_operands",
    "bare_sums", "left_copies", "masks", "core_grid", "addresses", "tails", "nan_rule", "signature",
)  # fmt: skip

# (pass, what it leaves none of, why)
GONE: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("whole_slabs", ("slab",), "a carried tile is taken whole"),
    ("choices", ("IfExp",), "each side of a choice reads its own tensors"),
    ("exponent_base", ("exp2()",), "exponents are natural"),
    ("slices", ("Part", "PartAssign"), "the device has whole tiles only"),
    ("loads", ("read inside an expression",), "a tensor is read in a named load"),
    ("widen", ("16-bit arithmetic",), "vector code computes in fp32"),
    ("dot_operands", ("dot of two types",), "the matrix unit takes operands of one type"),
    ("masks", ("tril()", "eye()", "onehot()", "span()"), "masks are fp32 arithmetic on lane numbers"),
    ("core_grid", ("For",), "loops count indices of the kernel's own"),
    ("addresses", ("Read", "Store", "valid()", "index()"), "blocks of memory have addresses and extents"),
    ("addresses", ("narrow base",), "K101: a base is int64 before its first multiply"),
    ("addresses", ("wide block",), "K103: extents, strides and offsets of a block are int32"),
    ("tails", ("undecided bound",), "K303: each axis says whether it can end past its extent"),
    ("nan_rule", ("minimum without NaN rule",), "K605"),
)
# (pass, what no earlier pass makes)
MADE: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("clip_exponents", ("minimum()",)),
    ("slices", ("onehot()", "span()")),
    ("widen", ("Cast",)),
    ("masks", ("lanes()", "valid()")),
    ("core_grid", ("Loop", "Load", "program_id()", "cdiv()")),
    ("addresses", ("StoreTile",)),
)
FROM_PROGRAM = frozenset({"minimum()"})  # a program may say these too
MADE_HERE = ("b_", "i_", "m_", "o_", "bos", "boh", "T_cur")  # how names that passes give begin

_SHAPED = frozenset({"full", "eye", "index", "lanes", "valid", "onehot", "span", "program_id", "cdiv"})
_ARITHMETIC = build.ELEMENTWISE | {"sum", "max", "cumsum", "maximum", "minimum", "where", "tril"}


def verify(kernel: Kernel, after: str) -> None:
    """Raises KgenBug, with what and where, unless the kernel is one that pass `after` may leave."""
    Verifier().check(kernel, after)


@dataclass
class _Seen:
    """What was found in an expression: its node kinds with an example each, the names it reads, its blocks."""

    kinds: dict[str, Expr]
    names: tuple[Name, ...]
    accesses: tuple[Access, ...]
    expr: Expr  # kept, so that its id stays its own


@dataclass
class Verifier:
    """Checks one kernel after pass upon pass; what a pass left alone isn't looked into twice."""

    seen: dict[int, _Seen] = field(default_factory=dict)
    last: Kernel | None = None

    def check(self, kernel: Kernel, after: str) -> None:
        if after not in STAGES:
            raise KgenBug(f"no stage {after!r}: the tables of ir/verify.py don't know it")
        try:
            _Check(kernel, after, self).run()
        except _Breach as breach:
            line = f":{breach.line}" if breach.line else ""
            raise KgenBug(f"after {after}: kernel {kernel.name} ({kernel.path}{line}): {breach}") from None

    def look(self, e: Expr) -> _Seen:
        """Kinds, names and blocks of an expression, its types checked the first time."""
        found = self.seen.get(id(e))
        if found is None:
            found = self.seen[id(e)] = self._look(e)
        return found

    def _look(self, e: Expr) -> _Seen:
        _check_type(e)
        kinds = dict.fromkeys(_kinds(e), e)
        names = [e] if isinstance(e, Name) else []
        accesses: list[Access] = []
        for child in children(e):
            inner = self.look(child)
            for kind, where in inner.kinds.items():
                kinds.setdefault(kind, where)
            names.extend(inner.names)
            accesses.extend(inner.accesses)
        if isinstance(e, Load):
            accesses.append(e.access)
        return _Seen(kinds, tuple(names), tuple(accesses), e)


class _Breach(Exception):
    """An invariant that doesn't hold."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


# ---------------------------------------------------------------- one node


def _kinds(e: Expr) -> list[str]:
    """What the tables call a node."""
    out = [type(e).__name__]
    if isinstance(e, Part) and any(isinstance(i, At) for i in e.index):
        out.append("slab")
    if isinstance(e, Call):
        out.append(f"{e.fn}()")
        if e.fn == "dot" and _storage(e.args[0]) != _storage(e.args[1]):
            out.append("dot of two types")
        if e.fn in {"minimum", "maximum"} and e.type.rank and not e.option("nan"):
            out.append("minimum without NaN rule")
    arithmetic = isinstance(e, (Binary, Unary)) or (isinstance(e, Call) and e.fn in _ARITHMETIC)
    if arithmetic and not _is_copy(e) and any(c.type.dtype.startswith("@") for c in children(e)):
        out.append("16-bit arithmetic")
    return out


def _storage(e: Expr) -> str:
    """Element type as far as it is known without the spec: tensors of one list of types differ only in name."""
    return e.type.dtype[:1] if e.type.dtype.startswith("@") else e.type.dtype


def _is_copy(e: Expr) -> bool:
    """`x + 0.0`, a copy of a dot's left operand, has x's own type."""
    return isinstance(e, Binary) and e.op == "+" and isinstance(e.b, Num) and e.b.value == 0 and e.type == e.a.type


def _block_kinds(access: Access, kernel: Kernel) -> list[str]:
    """Faults of a block in memory."""
    out = []
    own = access.tensor in kernel.params  # tables hold one entry a sequence or chunk: int32 reaches all of them
    base = access.base
    zero = isinstance(base, Num) and base.value == 0
    if own and not zero and (base.type.dtype != "int64" or _widened_late(base)):
        out.append("narrow base")
    fields = [x for a in access.axes for x in (a.extent, a.stride, a.offset)]
    if any(x.type.dtype != "int32" for x in fields):
        out.append("wide block")
    if any(a.check is None for a in access.axes):
        out.append("undecided bound")
    return out


def _widened_late(e: Expr) -> bool:
    """Whether some product was made in int32 and widened then."""
    if isinstance(e, Cast) and e.type.dtype == "int64" and isinstance(e.x, Binary) and e.x.op == "*":
        return True
    return any(_widened_late(c) for c in children(e) if not isinstance(e, Load))


def _check_type(e: Expr) -> None:
    try:
        want = _expected(e)
    except KgenError as error:
        raise _Breach(f"{error.message} in {show_expr(e)}", e.span.line) from None
    if want is not None and want.type != e.type:
        raise _Breach(f"{show_expr(e)} is {e.type}, its operands make {want.type}", e.span.line)


def _expected(e: Expr) -> Expr | None:
    """The node as `build` would make it from its operands, where that says anything."""
    if isinstance(e, Binary) and not _is_copy(e):
        return build.binary(e.op, e.a, e.b)
    if isinstance(e, Transpose):
        return Transpose(e.x, type=Type(e.x.type.axes[::-1], e.x.type.dtype))
    if isinstance(e, Expand):
        return build.expand(e.x, e.axis)
    if isinstance(e, Cast):
        return Cast(e.x, type=Type(e.x.type.axes, e.type.dtype))
    if isinstance(e, Call) and e.fn not in _SHAPED:
        return build.call(e.fn, e.args, dict(e.options))
    if isinstance(e, Load) and [a.size for a in e.access.axes] != [a.size for a in e.type.axes]:
        raise _Breach(f"{show_expr(e)} doesn't have the sizes of {e.type}", e.span.line)
    return None


# ---------------------------------------------------------------- one kernel


class _Check:
    """A walk over one kernel in program order."""

    def __init__(self, kernel: Kernel, after: str, verifier: Verifier) -> None:
        self.kernel, self.verifier = kernel, verifier
        stage = STAGES.index(after)
        done = [(p, kinds, why) for p, kinds, why in GONE if STAGES.index(p) <= stage]
        self.gone = {k: f"{p} leaves none: {why}" for p, kinds, why in done for k in kinds}
        early = [(p, kinds) for p, kinds in MADE if STAGES.index(p) > stage]
        self.gone |= {k: f"only {p} makes it" for p, kinds in early for k in kinds if k not in FROM_PROGRAM}
        self.dtypes = stage >= STAGES.index("widen")
        self.final = after == "signature"
        self.known = {"LN2", *kernel.scalars, *kernel.runtime, *kernel.constexprs}

    def run(self) -> None:
        body = self.kernel.body
        if len(body) != 1 or not isinstance(body[0], (For, Loop)):
            raise _Breach("the body isn't one loop over tasks")
        env = Env()
        self.block(self.kernel.prologue, env, frozenset(), ())
        before = set(env.names)
        self.block(body, env, frozenset(), ())
        carried = sorted(before & assigned(body))
        if carried:
            raise _Breach(f"{carried[0]!r} is carried from one task to the next (K502)")

    def block(self, block: tuple[Stmt, ...], env: Env, when: When, loops: tuple[str, ...]) -> None:
        for stmt in block:
            self.kind(type(stmt).__name__, stmt)
            if isinstance(stmt, PartAssign) and any(isinstance(i, At) for i in stmt.index):
                self.kind("slab", stmt)
            for e in stmt_exprs(stmt):
                self.expression(e, stmt, env, when)
            if isinstance(stmt, StoreTile):
                self.access(stmt.access, stmt)
            if isinstance(stmt, (Assign, PartAssign)):
                if stmt.target in loops:
                    raise _Breach(f"{stmt.target!r} is a loop's variable and assigned in it", stmt.span.line)
                if isinstance(stmt, Assign):
                    env.assign(stmt.target, stmt.value.type, when)
            elif isinstance(stmt, If):
                self.block(stmt.body, env, when | {(stmt.test, True)}, loops)
                self.block(stmt.orelse, env, when | {(stmt.test, False)}, loops)
            elif isinstance(stmt, (For, Loop)):
                self.loop(stmt, env, when, loops)

    def loop(self, stmt: For | Loop, env: Env, when: When, loops: tuple[str, ...]) -> None:
        names = stmt.vars if isinstance(stmt, For) else (stmt.var,)
        for name in names:
            if name in loops:
                raise _Breach(f"two loops, one inside the other, count {name!r}", stmt.span.line)
        inner = env.copy()
        for name in names:
            inner.assign(name, I32, when)
        self.block(stmt.body, inner, when, (*loops, *names))

    def kind(self, kind: str, stmt: Stmt, where: Expr | None = None) -> None:
        if kind in self.gone:
            text = f" in {show_expr(where)}" if where is not None else ""
            raise _Breach(f"{kind}{text}: {self.gone[kind]}", stmt.span.line)

    def expression(self, e: Expr, stmt: Stmt, env: Env, when: When) -> None:
        found = self.verifier.look(e)
        for kind, where in found.kinds.items():
            self.kind(kind, stmt, where)
        if "Read" in found.kinds and not _is_named_load(e, stmt):
            self.kind("read inside an expression", stmt, found.kinds["Read"])
        for name in found.names:
            self.name(name, stmt, env, when)
        for access in found.accesses:
            self.access(access, stmt)

    def access(self, access: Access, stmt: Stmt) -> None:
        for kind in _block_kinds(access, self.kernel):
            self.kind(kind, stmt, Load(access))

    def name(self, name: Name, stmt: Stmt, env: Env, when: When) -> None:
        local = name.id in env.names or name.id.startswith(MADE_HERE)
        if name.id in self.known or not (local or self.final):
            return
        problem = check_use(env, name, when, self.dtypes)
        if problem:
            raise _Breach(problem, stmt.span.line or name.span.line)


def _is_named_load(e: Expr, stmt: Stmt) -> bool:
    """A read alone, or with one factor on it, as the value of a name."""
    read = e.a if isinstance(e, Binary) and e.op == "*" and isinstance(e.b, Name) else e
    return isinstance(stmt, Assign) and isinstance(read, Read)
