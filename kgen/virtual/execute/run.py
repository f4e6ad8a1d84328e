"""Runs the final IR of a kernel on the CPU, block by block, at the compiler's own addresses.

Memories start poisoned, so that what is read before it is written shows. Cores of a block run in turns and wait for
each other's flags as the hardware's counters would make them. Within a core everything happens in program order: a
missing flag between pipes is not seen as wrong data, but flags that nobody waits for or sets are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from kgen.virtual.execute.calls import handler
from kgen.virtual.execute.errors import ExecutionError
from kgen.virtual.execute.memory import CoreMemory, GlobalMemory
from kgen.virtual.hivm import Module, parse_module
from kgen.virtual.hivm import nodes as n
from kgen.virtual.launch import Launch
from kgen.virtual.machine.arguments import arguments_of
from kgen.virtual.machine.protocol import Number, Operand, Scalars, Site, own_number
from kgen.virtual.machine.translate import Program, Running, translate
from kgen.virtual.machine.views import View

_CROSS_LIMIT = 15  # a cross-core flag is a counter of four bits
_MMA_EVENTS = (7, 8, 9, 10)  # operands of mma_tile: waits for A and B in L1, then what frees them


@dataclass(frozen=True)
class Sizes:
    """Bytes of a core's memories."""

    ub: int
    l1: int
    l0c: int


@dataclass
class Report:
    """What an execution met beside its numbers."""

    unmatched: Counter[str] = field(default_factory=Counter)  # waits for a flag that nobody had set
    left: Counter[str] = field(default_factory=Counter)  # flags set and never waited for, twice or at the end
    unknown: Counter[str] = field(default_factory=Counter)  # operations without a meaning here

    @property
    def faults(self) -> str:
        """Flags that don't match, with their counts, or nothing: the cores would hang or run into each other."""
        kinds = {"waited for and never set": self.unmatched, "set and not waited for": self.left}
        return "; ".join(
            f"flags {kind}: " + ", ".join(f"{name} ({count})" for name, count in sorted(found.items()))
            for kind, found in kinds.items()
            if found
        )


class Execution:
    """A kernel made ready to run; `run` may be called for many launches."""

    def __init__(self, module: Module, sizes: Sizes) -> None:
        self._sizes = sizes
        self._cores = [_Core(f, self) for f in sorted(module.device(), key=lambda f: f.core != "aic")]
        self._workspace = _workspace_bytes(module)
        self.launch = Launch((1, 1, 1), ())
        self.report = Report()
        self.block = 0
        self.crossing: Counter[tuple[int, int]] = Counter()  # (waiting core, or -1 - setting vector core; flag)

    def run(self, launch: Launch) -> Report:
        """Run every block; tensors of the launch are read and written in place. Raises on what isn't known."""
        self.launch, self.report = launch, Report()
        memory = GlobalMemory(launch, self._workspace * launch.blocks)
        for core in self._cores:
            core.begin(launch)
        for self.block in range(launch.blocks):
            self._run_block(memory)
        if self.report.unknown:
            raise ExecutionError(
                f"operations without a meaning here: {', '.join(sorted(self.report.unknown))}",
                hint="give them one in kgen/virtual/execute/",
            )
        return self.report

    def _run_block(self, memory: GlobalMemory) -> None:
        self.crossing.clear()
        running: list[tuple[_Core, _State, Running]] = []
        number = 0
        for core in self._cores:
            for sub in core.subs:
                state = _State(number, sub, CoreMemory(memory, self._sizes.ub, self._sizes.l1, self._sizes.l0c))
                running.append((core, state, core.start(state)))
                number += 1
        waiting = list(running)
        while waiting:
            still = []
            for core, state, steps in waiting:
                core.state = state
                if next(steps, self) is not self:
                    still.append((core, state, steps))
            if len(still) == len(waiting) and not any(state.moved for _, state, _ in still):
                raise ExecutionError(
                    "the cores of a block wait for each other for ever",
                    hint="a cross-core flag is waited for and never set",
                )
            for _, state, _ in still:
                state.moved = False
            waiting = still
        for _, state, _ in running:
            state.finish(self.report)
        for (_, flag), count in self.crossing.items():
            if count:
                self.report.left[f"cross-core flag {flag}"] += count


@dataclass
class _State:
    """One core of one block."""

    number: int
    sub: int
    memory: CoreMemory
    moved: bool = False
    flags: Counter[tuple[str, str, int]] = field(default_factory=Counter)

    def set(self, key: tuple[str, str, int], report: Report) -> None:
        """A flag is one bit: set twice, the first is lost."""
        if self.flags[key]:
            report.left[_flag_text(key)] += 1
        self.flags[key] = 1

    def wait(self, key: tuple[str, str, int], report: Report) -> None:
        """A wait clears the flag."""
        if not self.flags[key]:
            report.unmatched[_flag_text(key)] += 1
        self.flags[key] = 0

    def finish(self, report: Report) -> None:
        """Flags that are still set when the core is done."""
        for key, count in self.flags.items():
            if count:
                report.left[_flag_text(key)] += 1


def _flag_text(key: tuple[str, str, int]) -> str:
    return f"{key[0]} -> {key[1]} event {key[2]}"


class _Core:
    """The machine of one device function."""

    def __init__(self, function: n.Function, execution: Execution) -> None:
        self._function = function
        self._execution = execution
        self.cube = function.core == "aic"
        self.subs = (0, 1) if function.core == "aiv" and function.mixed else (0,)
        self.vectors = (1, 2)  # numbers of the vector cores of a mixed block, whose cube core is number 0
        self.state = _State(0, 0, None)  # type: ignore[arg-type]
        self._arguments: list[Operand] = []
        self._program: Program = translate(function, self)

    def begin(self, launch: Launch) -> None:
        """Take a launch's arguments."""
        self._arguments = arguments_of(self._function, launch)

    def start(self, state: _State) -> Running:
        """Begin one core of one block."""
        self.state = state
        return self._program.start(*self._arguments)

    # ------------------------------------------------------------ bindings

    def bind_call(self, site: Site, call: n.Call, fixed: tuple[Operand, ...] | None) -> Callable[..., None]:
        """The template's meaning, on this core's memories."""
        found = handler(call.callee, call.types)
        if found is None:
            return self.bind_unknown(site, f"@{call.callee}")
        run, events = found, call.callee.startswith("mma_tile")

        def at(values: tuple[Operand, ...]) -> None:
            self.state.moved = True
            if events:
                self._product_flags(values, waits=True)
            run(self.state.memory, values)
            if events:
                self._product_flags(values, waits=False)

        if fixed is not None:
            return lambda: at(fixed)
        return lambda *values: at(values)

    def _product_flags(self, values: tuple[Operand, ...], *, waits: bool) -> None:
        """The flags for operands in L1 that a product waits for before its loads and sets after them."""
        report = self._execution.report
        for place in _MMA_EVENTS[:2] if waits else _MMA_EVENTS[2:]:
            event = values[place]
            if isinstance(event, int) and event >= 0:
                if waits:
                    self.state.wait(("MTE2", "MTE1", event), report)
                else:
                    self.state.set(("MTE1", "MTE2", event), report)

    def bind_load(self, site: Site, load: n.Load) -> Callable[[View, tuple[int, ...]], Number]:
        """One element of a memory."""
        element = load.type.element
        return lambda view, indices: self.state.memory.load(view, element, indices)

    def bind_store(self, site: Site, store: n.Store) -> Callable[[Number, View, tuple[int, ...]], None]:
        """One element of a memory."""
        element = store.type.element
        return lambda value, view, indices: self.state.memory.store(view, element, indices, value)

    def bind_flag(self, site: Site, flag: n.SetFlag | n.WaitFlag, event: int | None) -> Callable[..., None]:
        """Flags are only matched: pipes run in program order here."""
        is_set = isinstance(flag, n.SetFlag)

        def at(number: int) -> None:
            key = (flag.source, flag.target, number)
            (self.state.set if is_set else self.state.wait)(key, self._execution.report)

        return at if event is None else lambda: at(event)

    def bind_barrier(self, site: Site, barrier: n.Barrier) -> Callable[[], None]:
        """Nothing to wait for."""
        return lambda: None

    def bind_block_set(self, site: Site, flag: n.BlockSet) -> Callable[[int], None]:
        """A cube core sets the flag for both vector cores; the cube's counts when both vector cores have set it."""

        def at(number: int) -> None:
            self.state.moved = True
            crossing = self._execution.crossing
            for key in self.vectors if self.cube else (-1 - self.state.number,):
                crossing[key, number] += 1
                if crossing[key, number] > _CROSS_LIMIT:
                    self._execution.report.left[f"cross-core flag {number}, over {_CROSS_LIMIT} times"] += 1

        return at

    def bind_block_wait(self, site: Site, flag: n.BlockWait) -> Callable[[int], bool]:
        """True while the flag isn't there."""

        def at(number: int) -> bool:
            crossing = self._execution.crossing
            keys = [-1 - v for v in self.vectors] if self.cube else [self.state.number]
            if not all(crossing[key, number] for key in keys):
                return True
            for key in keys:
                crossing[key, number] -= 1
            self.state.moved = True
            return False

        return at

    def bind_query(self, site: Site, query: n.Query) -> Callable[[], int]:
        """The core's own numbers."""
        known: dict[str, Callable[[], int]] = {
            "get_block_idx": lambda: self._execution.block,
            "get_sub_block_idx": lambda: self.state.sub,
            "get_block_num": lambda: self._execution.launch.blocks,
            "get_sub_block_num": lambda: 2 if self._function.mixed else 1,
        }
        return own_number(self, site, query, known)

    def bind_unknown(self, site: Site, name: str) -> Callable[..., None]:
        """Counted when it is met; the run then ends with an error."""

        def met(*_operands: object) -> None:
            self._execution.report.unknown[name] += 1

        return met

    def bind_scalars(self, before: Scalars) -> Callable[[], None] | None:
        """Scalar operations take no time here."""
        return None

    def bind_iteration(self, depth: int) -> Callable[[], None] | None:
        """Nobody asks."""
        return None


def _workspace_bytes(module: Module) -> int:
    """Bytes of workspace in global memory that one block needs, as the module's host function tells."""
    for function in module.functions:
        if function.core is None and "infer_workspace_shape" in function.name:
            constants = {o.result: o.value for o in function.body if isinstance(o, n.Constant)}
            for o in function.body:
                if isinstance(o, n.Return) and len(o.values) == 1 and o.values[0] in constants:
                    return int(constants[o.values[0]])
            raise ExecutionError("the size of the workspace isn't a constant")
    return 0


def prepare(text: str, sizes: Sizes) -> Execution:
    """A kernel from the text of its final IR."""
    return Execution(parse_module(text), sizes)
