"""Turns a device function into Python that runs its scalar program and tells a machine the rest.

A launch runs millions of scalar operations, so they become straight Python instead of being interpreted. What is known
before the launch is folded: constants, buffers at constant addresses and views of them. Identifiers and numbers of the
result are made here, none is taken from the text of the IR.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from kgen.errors import KgenBug
from kgen.virtual.hivm import nodes as n
from kgen.virtual.hivm.affine import AffineExpr, AffineMap, Binary
from kgen.virtual.hivm.errors import HivmError
from kgen.virtual.hivm.types import MemRef
from kgen.virtual.machine import arithmetic
from kgen.virtual.machine.endless import turns
from kgen.virtual.machine.lost import lost_values
from kgen.virtual.machine.protocol import Machine, Operand, Scalars, Site
from kgen.virtual.machine.view_code import ViewCode
from kgen.virtual.machine.views import expanded, transposed

Running = Generator[None, None, None]


@dataclass(frozen=True)
class Program:
    """A translated function: `start` takes the values of its arguments and runs until it must wait for another core."""

    start: Callable[..., Running]
    source: str  # the Python it became


def translate(function: n.Function, machine: Machine) -> Program:
    """Translate one function for one machine."""
    writer = _Writer(function, machine)
    source = writer.write()
    namespace = dict(writer.namespace)
    exec(compile(source, f"<{function.name}>", "exec"), namespace)
    start = namespace["run"]
    assert callable(start)
    return Program(start, source)


class _Writer:
    """Writes the Python of one function."""

    def __init__(self, function: n.Function, machine: Machine) -> None:
        self._function = function
        self._machine = machine
        self._lines: list[str] = []
        self._indent = 1
        self._depth = 0
        self._cheap = self._slow = 0
        self.namespace: dict[str, object] = {
            **arithmetic.NAMESPACE, "_expanded": expanded, "_transposed": transposed,
        }  # fmt: skip
        self._names: dict[n.Value, str] = {}  # value -> Python expression that stands for it
        self.views = ViewCode(self._names, self.namespace)
        self._lost = lost_values(function)

    def write(self) -> str:
        """The whole text."""
        arguments = []
        for argument in self._function.arguments:
            name = self._new(argument.name)
            arguments.append(name)
            if isinstance(argument.type, MemRef):
                self.views.know(argument.name, argument.type)
        self._block(self._function.body)
        self._flush()
        body = "\n".join(self._lines) or "    pass"
        return f"def run({', '.join(arguments)}):\n    if 0: yield\n{body}\n"

    # ------------------------------------------------------------ pieces

    def _new(self, value: n.Value) -> str:
        name = f"v{len(self._names)}"
        self._names[value] = name
        return name

    def _emit(self, text: str) -> None:
        self._lines.append("    " * self._indent + text)

    def _assign(self, value: n.Value, text: str) -> None:
        self._emit(f"{self._new(value)} = {text}")

    def _of(self, operand: n.Operand) -> str:
        return str(operand) if isinstance(operand, int) else self._names[operand]

    def _all(self, operands: Sequence[n.Operand]) -> list[str]:
        return [self._of(operand) for operand in operands]

    def _site(self, operation: n.Operation) -> Site:
        """A bound operation, which takes the scalar operations before it."""
        before = Scalars(self._cheap, self._slow)
        self._cheap = self._slow = 0
        return Site(operation, before)

    def _keep(self, thing: object) -> str:
        """A name under which translated code finds a callable."""
        name = f"c{len(self.namespace)}"
        self.namespace[name] = thing
        return name

    def _flush(self) -> None:
        """Scalar operations after the last bound one of a block."""
        if self._cheap or self._slow:
            handle = self._machine.bind_scalars(Scalars(self._cheap, self._slow))
            self._cheap = self._slow = 0
            if handle is not None:
                self._emit(f"{self._keep(handle)}()")

    # ------------------------------------------------------------ blocks

    def _block(self, block: n.Block) -> tuple[n.Value, ...]:
        """Write a block; the values that it yields."""
        yielded: tuple[n.Value, ...] = ()
        for operation in block:
            if isinstance(operation, n.Yield):
                yielded = operation.values
            else:
                writer = _WRITERS.get(type(operation))
                if writer is None:
                    raise KgenBug(f"no translation for {type(operation).__name__}")
                writer(self, operation)
        return yielded

    def _region(self, block: n.Block) -> tuple[n.Value, ...]:
        """A nested block, with its trailing scalar operations."""
        self._indent += 1
        begin = len(self._lines)
        yielded = self._block(block)
        self._flush()
        if len(self._lines) == begin:
            self._emit("pass")
        self._indent -= 1
        return yielded

    def _let(self, targets: Sequence[n.Value], values: Sequence[n.Value]) -> None:
        """Simultaneous assignment of values to names that exist or are new."""
        texts = self._all(values)
        names = [self._names.get(target) or self._new(target) for target in targets]
        if names:
            self._emit(f"{', '.join(names)} = {', '.join(texts)}")

    def _for(self, o: n.For) -> None:
        self._flush()
        for inner, initial in o.carried:
            self.views.same(inner, initial)
        self._let([inner for inner, _ in o.carried], [initial for _, initial in o.carried])
        variable = self._new(o.variable)
        lower, upper, step = self._all((o.lower, o.upper, o.step))
        known = self.views.fixed(o.step) and None not in (self.views.fixed(o.lower), self.views.fixed(o.upper))
        counts = "range" if known else "_range"
        self._emit(f"for {variable} in {counts}({lower}, {upper}, {step}):")
        mark = self._machine.bind_iteration(self._depth)
        self._indent += 1
        if mark is not None:
            self._emit(f"{self._keep(mark)}()")
        self._indent -= 1
        self._depth += 1
        self._cheap += 2  # count and compare
        yielded = self._region((*o.body,))
        self._depth -= 1
        if yielded:
            self._indent += 1
            self._let([inner for inner, _ in o.carried], yielded)
            self._indent -= 1
        for result, (inner, _) in zip(o.results, o.carried, strict=True):
            self._names[result] = self._names[inner]
            self.views.same(result, inner)

    def _while(self, o: n.While) -> None:
        self._flush()
        for inner, initial in o.carried:
            self.views.same(inner, initial)
        self._let([inner for inner, _ in o.carried], [initial for _, initial in o.carried])
        self._emit("while 1:")
        self._emit(f"    {self._keep(turns())}()")
        *before, condition = o.before
        if not isinstance(condition, n.Condition):
            raise HivmError("a while loop without a condition", o.line)
        self._region(tuple(before))
        for number, value in enumerate(condition.values):
            for name in (*o.results[number : number + 1], *o.arguments[number : number + 1]):
                self.views.same(name, value)
        self._indent += 1
        self._let(o.results, condition.values)
        self._emit(f"if not {self._of(condition.condition)}: break")
        self._let(o.arguments, condition.values)
        self._indent -= 1
        yielded = self._region(o.after)
        self._indent += 1
        self._let([inner for inner, _ in o.carried], yielded)
        self._indent -= 1

    def _if(self, o: n.If) -> None:
        self._flush()
        results = [self._new(result) for result in o.results]
        for number, (head, block) in enumerate(((f"if {self._of(o.condition)}:", o.then), ("else:", o.orelse))):
            if number and not block:
                continue
            self._emit(head)
            yielded = self._region(block)
            if results:
                self._indent += 1
                self._emit(f"{', '.join(results)} = {', '.join(self._all(yielded))}")
                self._indent -= 1
            for result, value in zip(o.results, yielded, strict=True):
                self.views.same(result, value)

    # ------------------------------------------------------------ scalars

    def _constant(self, o: n.Constant) -> None:
        text = repr(o.value)
        if isinstance(o.value, float) and text.lstrip("-") in ("inf", "nan"):
            text = f"float({text!r})"
        self._names[o.result] = f"({text})" if text.startswith("-") else text
        self.views.constant(o.result, o.value)

    def _arith(self, o: n.Arith) -> None:
        text = arithmetic.expression(o, self._all(o.operands))
        if text is None:
            self._unknown_name(o, f"{o.name} on {o.type[1 if isinstance(o.type, MemRef) else 0]}", (o.result,))
            return
        if isinstance(o.to, MemRef):
            self.views.same(o.result, o.operands[1])
        if o.name in arithmetic.SLOW:
            self._slow += 1
        elif o.name not in arithmetic.FREE:
            self._cheap += 1
        if text.isidentifier() or text.isdigit():
            self._names[o.result] = text  # a cast that changes nothing
        else:
            self._assign(o.result, text)

    def _affine(self, o: n.Affine) -> None:
        results = o.map.python(tuple(self._all(o.operands)))
        self._cheap += _size(o.map)
        text = results[0] if len(results) == 1 else f"{o.name}({', '.join(results)})"
        self._assign(o.result, text)

    def _query(self, o: n.Query) -> None:
        self._cheap += 1
        site = Site(o, Scalars(0, 0))  # no event of its own: what was counted goes to the next
        self._assign(o.result, f"{self._keep(self._machine.bind_query(site, o))}()")

    def _skip(self, o: n.Operation) -> None:
        """Nothing to do."""

    def _return(self, o: n.Return) -> None:
        if o.values:
            raise HivmError("a device function that returns a value", o.line)

    # ------------------------------------------------------------ bound operations

    def _call(self, o: n.Call) -> None:
        if o.results:
            self._unknown_name(o, f"call @{o.callee} with results", o.results)
            return
        buffers = [v for v, t in zip(o.operands, o.types, strict=False) if isinstance(t, MemRef)]
        if self._without(o, f"call @{o.callee}", buffers, ()):
            return
        fixed = [self.views.fixed(v) for v in o.operands]
        site = self._site(o)
        if all(value is not None for value in fixed):
            known: tuple[Operand, ...] = tuple(value for value in fixed if value is not None)
            self._emit(f"{self._keep(self._machine.bind_call(site, o, known))}()")
        else:
            handle = self._keep(self._machine.bind_call(site, o, None))
            self._emit(f"{handle}({', '.join(self._all(o.operands))})")

    def _load(self, o: n.Load) -> None:
        if self._without(o, "memref.load", (o.source,), (o.result,)):
            return
        handle = self._keep(self._machine.bind_load(self._site(o), o))
        self._assign(o.result, f"{handle}({self._of(o.source)}, {_tuple(self._all(o.indices))})")

    def _store(self, o: n.Store) -> None:
        if self._without(o, "memref.store", (o.target,), ()):
            return
        handle = self._keep(self._machine.bind_store(self._site(o), o))
        self._emit(f"{handle}({self._of(o.value)}, {self._of(o.target)}, {_tuple(self._all(o.indices))})")

    def _flag(self, o: n.SetFlag | n.WaitFlag) -> None:
        event = o.event if isinstance(o.event, int) else self.views.fixed(o.event)
        known = int(event) if isinstance(event, int) else None
        handle = self._keep(self._machine.bind_flag(self._site(o), o, known))
        self._emit(f"{handle}()" if known is not None else f"{handle}({self._of(o.event)})")

    def _barrier(self, o: n.Barrier) -> None:
        self._emit(f"{self._keep(self._machine.bind_barrier(self._site(o), o))}()")

    def _block_set(self, o: n.BlockSet) -> None:
        self._emit(f"{self._keep(self._machine.bind_block_set(self._site(o), o))}({self._of(o.flag)})")

    def _block_wait(self, o: n.BlockWait) -> None:
        handle = self._keep(self._machine.bind_block_wait(self._site(o), o))
        self._emit(f"while {handle}({self._of(o.flag)}): yield")

    def _unknown(self, o: n.Unknown) -> None:
        self._unknown_name(o, o.name, o.results)

    def _unknown_name(self, o: n.Operation, name: str, results: Sequence[n.Value]) -> None:
        self._emit(f"{self._keep(self._machine.bind_unknown(self._site(o), name))}()")
        for result in results:
            self._names[result] = "0"

    def _without(self, o: n.Operation, name: str, operands: Sequence[n.Value], results: Sequence[n.Value]) -> bool:
        """Whether an operation works on a buffer that an unknown one made: then it is unknown as well."""
        if not self._lost.intersection(operands):
            return False
        self._unknown_name(o, f"{name} of something unknown", results)
        return True

    # ------------------------------------------------------------ views

    def _view(self, o: n.Operation) -> None:
        source = getattr(o, "source", None)
        if source in self._lost:
            self._names[getattr(o, "result", "")] = "0"
            return
        text = self.views.write(o)
        if text is not None:
            result, expression = text
            self._assign(result, expression)

    def _dim(self, o: n.Dim) -> None:
        if self._without(o, "memref.dim", (o.source,), (o.result,)):
            return
        self._assign(o.result, f"{self._of(o.source)}[2][{self._of(o.axis)}]")

    def _metadata(self, o: n.Metadata) -> None:
        if self._without(o, "extract_strided_metadata", (o.source,), (o.base, o.offset, *o.sizes, *o.strides)):
            return
        source = self._of(o.source)
        start = self.views.origin(o.source)
        bits = o.type.bits
        self._assign(o.base, f"({source}[0], {start}, (), ())")
        self.views.know(o.base, MemRef((), o.type.element, o.type.space))
        self._assign(o.offset, f"({source}[1] - {start}) // {bits}")
        for axis, (size, stride) in enumerate(zip(o.sizes, o.strides, strict=True)):
            self._assign(size, f"{source}[2][{axis}]")
            self._assign(stride, f"{source}[3][{axis}]")


def _tuple(texts: Sequence[str]) -> str:
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def _size(map_: AffineMap) -> int:
    """Operations of a map."""

    def count(expr: AffineExpr) -> int:
        return 1 + count(expr.left) + count(expr.right) if isinstance(expr, Binary) else 0

    return sum(count(result) for result in map_.results) + len(map_.results) - 1


_WRITERS: dict[type, Callable[..., None]] = {
    n.Constant: _Writer._constant, n.Arith: _Writer._arith, n.Affine: _Writer._affine, n.Query: _Writer._query,
    n.Setting: _Writer._skip, n.Return: _Writer._return, n.For: _Writer._for, n.While: _Writer._while,
    n.If: _Writer._if, n.Call: _Writer._call, n.Load: _Writer._load, n.Store: _Writer._store,
    n.SetFlag: _Writer._flag, n.WaitFlag: _Writer._flag, n.Barrier: _Writer._barrier,
    n.BlockSet: _Writer._block_set, n.BlockWait: _Writer._block_wait, n.Unknown: _Writer._unknown,
    n.PointerCast: _Writer._view, n.View: _Writer._view, n.Reinterpret: _Writer._view, n.Subview: _Writer._view,
    n.Collapse: _Writer._view, n.Expand: _Writer._view, n.Transpose: _Writer._view, n.Alias: _Writer._view,
    n.Dim: _Writer._dim, n.Metadata: _Writer._metadata,
}  # fmt: skip
