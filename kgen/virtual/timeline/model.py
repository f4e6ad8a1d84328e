"""The modelled time of a launch: cores by events, then the chip's bandwidths as floors. Nothing here is measured."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from kgen.virtual.hivm.nodes import PIPES, Module, Place
from kgen.virtual.hivm.types import element_bits
from kgen.virtual.launch import Buffer, Launch
from kgen.virtual.timeline.costs import Costs
from kgen.virtual.timeline.engine import Block, DeadlockError, deadlock
from kgen.virtual.timeline.events import Issue, Source, Work
from kgen.virtual.timeline.price import ELEMENTS, TICKS, Prices
from kgen.virtual.timeline.record import Trace
from kgen.virtual.timeline.recording import Recording, record
from kgen.virtual.timeline.rounds import rounds

_SCALARS = Source("scalar operations", None, 0)


@dataclass(frozen=True)
class CostLine:
    """Time of one kind of work at one place, on a core of the busiest block. `share` is of that block's time, `count`
    over its cores. Scalar operations that stand before nothing else have no place."""

    label: str
    pipe: str
    place: Place | None
    ir_line: int
    us: float
    share: float
    count: int


@dataclass(frozen=True)
class CoreUse:
    """One core of the busiest block: the share of its time that each pipe is busy, and that it waits."""

    core: str  # aic, aiv0, aiv1
    busy: dict[str, float]
    stalled: dict[str, float]


@dataclass(frozen=True)
class Timeline:
    """Modelled microseconds and what they are made of. `us` is None where an unknown operation was met, or where what
    is done hangs on an integer that isn't known."""

    us: float | None
    core_us: float  # the cores, with blocks queued where there are more than cores
    hbm_us: float  # each tensor once, at the chip's bandwidth
    l2_us: float  # all traffic
    launch_us: float
    bound: Literal["core", "hbm", "l2"]
    blocks: int
    cores: int
    recorded_blocks: int
    read_bytes: float
    written_bytes: float
    uses: tuple[CoreUse, ...]
    costs: tuple[CostLine, ...]
    unknown: dict[str, int]
    undecided: tuple[str, ...]  # such integers: their type and where they are read
    warnings: tuple[str, ...]


def model(module: Module, launch: Launch, costs: Costs) -> Timeline:
    """Record and price one launch."""
    return evaluate(record(module, launch, costs), costs)


def evaluate(recording: Recording, costs: Costs) -> Timeline:
    """The time of a recorded launch with these constants."""
    prices = Prices(recording.table, costs)
    ran = [run_block(recording.kinds, traces, prices, costs) for traces in recording.classes]
    ends = [block.finish() for block in ran]
    cores = costs.cube_cores if "aic" in recording.kinds else costs.vector_cores
    to_us = 1 / (TICKS * costs.clock_ghz * 1e3)
    core_us = _schedule([ends[c] * to_us for c in recording.blocks], cores, costs.block_us)
    read, written, unique = _traffic(recording, prices)
    hbm_us, l2_us = unique / costs.hbm_tb_per_s / 1e6, (read + written) / costs.l2_tb_per_s / 1e6
    total = max(core_us, hbm_us, l2_us)
    launch_us = costs.launch_cube_us if "aic" in recording.kinds else costs.launch_us
    bound: Literal["core", "hbm", "l2"] = "core" if total == core_us else "hbm" if total == hbm_us else "l2"
    busiest = max(range(len(ends)), key=lambda c: ends[c])
    unknown = Counter(recording.notes.unknown)
    unknown.update(_met_unknown(recording, prices))
    return Timeline(
        us=None if unknown or recording.notes.undecided else total + launch_us,
        core_us=core_us, hbm_us=hbm_us, l2_us=l2_us, launch_us=launch_us, bound=bound,
        blocks=len(recording.blocks), cores=cores,
        recorded_blocks=recording.recorded, read_bytes=read, written_bytes=written,
        uses=_uses(recording, busiest, ran[busiest], prices, ends[busiest]),
        costs=_cost_lines(recording, busiest, prices, ends[busiest], to_us), unknown=dict(unknown),
        undecided=tuple(sorted(recording.notes.undecided)),
        warnings=(*_borrowed(costs), *_warnings(recording, ran, prices, cores, ends)),
    )  # fmt: skip


def run_block(kinds: tuple[str, ...], traces: tuple[Trace, ...], prices: Prices, costs: Costs) -> Block:
    """A block after all its events."""
    block = Block(kinds, prices.steps, costs.queue_depth)
    try:
        for each in rounds(traces):
            block.round(each)
        return block
    except DeadlockError:
        pass
    block = Block(kinds, prices.steps, costs.queue_depth)
    try:
        block.run([trace.events for trace in traces])
    except DeadlockError:
        raise deadlock() from None
    return block


def _schedule(times: list[float], cores: int, start_us: float) -> float:
    """Blocks in order, each on the core that is free first; a core that has run one pays to start another."""
    free = [(0.0, 0.0)] * min(cores, len(times))  # when, and what starting another costs
    for time in times:
        begin, start = heapq.heappop(free)
        heapq.heappush(free, (begin + start + time, start_us))
    return max(end for end, _ in free)


def _traffic(recording: Recording, prices: Prices) -> tuple[float, float, float]:
    """Bytes read, written, and of the tensors that they touch, each at most once."""
    per_class = []
    for counts in recording.counts:
        sums: dict[int | str | None, list[float]] = {}
        for event, count in counts.items():
            traffic = prices.traffic.get(event)
            if traffic is not None:
                entry = sums.setdefault(traffic.base, [0.0, 0.0])
                entry[0] += count * traffic.read
                entry[1] += count * traffic.written
        per_class.append(sums)
    total: dict[int | str | None, list[float]] = {}
    for class_, blocks in Counter(recording.blocks).items():
        for base, (read, written) in per_class[class_].items():
            entry = total.setdefault(base, [0.0, 0.0])
            entry[0] += blocks * read
            entry[1] += blocks * written
    unique = 0.0
    for base, (read, written) in total.items():
        buffer = recording.launch.arguments[base] if isinstance(base, int) else None
        if isinstance(buffer, Buffer):
            size = buffer.count * element_bits(buffer.element) / 8
            unique += min(read, size) + min(written, size)
    return sum(x[0] for x in total.values()), sum(x[1] for x in total.values()), unique


def _met_unknown(recording: Recording, prices: Prices) -> Counter[str]:
    """Templates without a cost that some block runs."""
    if not prices.unknown:
        return Counter()
    met: Counter[str] = Counter()
    for class_, blocks in Counter(recording.blocks).items():
        for event, count in recording.counts[class_].items():
            issue = recording.table.events[event]
            if isinstance(issue, Issue) and issue.template.form in prices.unknown:
                met[issue.template.form] += blocks * count
    return met


def core_names(kinds: tuple[str, ...]) -> list[str]:
    """`aic`, `aiv0`, `aiv1`, or `aiv` for a vector core alone."""
    vectors = iter(range(len(kinds)))
    many = kinds.count("aiv") > 1
    return [kind if kind == "aic" or not many else f"aiv{next(vectors)}" for kind in kinds]


def _uses(recording: Recording, class_: int, block: Block, prices: Prices, end: int) -> tuple[CoreUse, ...]:
    uses = []
    names = core_names(recording.kinds)
    for name, counts, core in zip(names, recording.core_counts[class_], block.cores, strict=True):
        busy: Counter[str] = Counter({"S": core.scalar_busy})
        for event, count in counts.items():
            for pipe, time in _pipe_times(prices, event):
                if pipe != "S":
                    busy[pipe] += count * time
        whole = max(1, end)
        stalled = {p: core.stalled[i] / whole for i, p in enumerate(PIPES) if core.stalled[i]}
        uses.append(CoreUse(name, {p: busy[p] / whole for p in PIPES if busy[p]}, stalled))
    return tuple(uses)


def _pipe_times(prices: Prices, event: int) -> list[tuple[str, int]]:
    """Time on each pipe but the scalar one."""
    step = prices.steps[event]
    if step.kind == ELEMENTS:
        return [("S", step.busy)]
    times = [(PIPES[step.pipe], step.busy)] if step.busy else []
    if len(step.product) > 1:
        times.append(("MTE1", step.product[0] * step.product[1]))
    return times


def _cost_lines(recording: Recording, class_: int, prices: Prices, end: int, to_us: float) -> tuple[CostLine, ...]:
    """What takes time on a pipe, by place; of two vector cores the mean, so that shares of a pipe add up to its use."""
    spent: dict[tuple[str, int | None], tuple[float, int]] = {}  # ticks on a core, and how often on all
    for kind, counts in zip(recording.kinds, recording.core_counts[class_], strict=True):
        cores = recording.kinds.count(kind)
        for event, count in counts.items():
            source, step = recording.table.events[event], prices.steps[event]
            site = None if isinstance(source, Work) else source.site
            times = Counter({"S": step.scalar})
            for pipe, time in _pipe_times(prices, event):
                times[pipe] += time
            for pipe, time in times.items():
                if time:
                    ticks, met = spent.get((pipe, site), (0.0, 0))
                    spent[pipe, site] = ticks + count * time / cores, met + count
    lines = []
    for (pipe, site), (ticks, met) in spent.items():
        where = recording.table.sources[site] if site is not None else _SCALARS
        us, share = ticks * to_us, ticks / max(1, end)
        lines.append(CostLine(where.label, pipe, where.place, where.line, us, share, met))
    return tuple(sorted(lines, key=lambda line: (-line.us, line.ir_line, line.pipe)))


def _doubtful_shares(recording: Recording, prices: Prices, ends: list[int]) -> tuple[float, float]:
    """Of the block that has most of it: the share of its time in which elements move one by one, and the share of its
    moves' time in runs of less than 32 bytes."""
    gathers = small = 0.0
    for counts, end in zip(recording.counts, ends, strict=True):
        one_by_one = sum(count * prices.gathers[event] for event, count in counts.items() if event in prices.gathers)
        moves = {event: count * prices.steps[event].busy for event, count in counts.items() if event in prices.traffic}
        short = sum(time for event, time in moves.items() if event in prices.small)
        gathers = max(gathers, one_by_one / max(1, end))
        small = max(small, short / max(1, sum(moves.values())))
    return gathers, small


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.005 else "less than 1%"


def _borrowed(costs: Costs) -> Iterator[str]:
    if costs.borrowed_by:
        yield f"guesses: every cost constant of {costs.borrowed_by} is a guess taken from another chip"


def _warnings(recording: Recording, ran: list[Block], prices: Prices, cores: int, ends: list[int]) -> list[str]:
    """What the number can't be trusted for."""
    out = []
    gathers, small = _doubtful_shares(recording, prices, ends)
    if gathers:
        out.append(f"strided gather: for {_percent(gathers)} of a block's time the scalar unit moves single elements")
    if small:
        out.append(f"small bursts: {_percent(small)} of a block's time of moves goes into runs of less than 32 bytes")
    if len(recording.blocks) > cores:
        out.append(f"grid over the cores: {len(recording.blocks)} blocks on {cores} cores, queued in order")
    if recording.recorded < len(recording.blocks):
        out.append(f"sampled: {recording.recorded} of {len(recording.blocks)} blocks recorded, spread over the grid")
    for what in sorted(recording.notes.data):
        out.append(f"data-dependent: an integer ({what}) isn't known; addresses hang on it alone")
    unmatched = sum(core.unmatched for block in ran for core in block.cores)
    if unmatched:
        out.append(f"unmatched flags: {unmatched} waits for a flag that nothing had set")
    return out
