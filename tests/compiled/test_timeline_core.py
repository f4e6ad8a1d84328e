"""Clocks of the cores of a block: pipes, flags, products, queues, rounds. Times are ticks, worked out by hand."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest

from kgen.virtual.timeline.core import Core, Interval
from kgen.virtual.timeline.engine import Block, DeadlockError
from kgen.virtual.timeline.price import (
    ALL,
    BARRIER,
    CROSS_SET,
    CROSS_WAIT,
    ELEMENTS,
    FIX,
    FIXPIPE,
    ISSUE,
    MTE1,
    MTE2,
    MTE3,
    PRODUCT,
    SCALAR,
    SET,
    WAIT,
    M,
    S,
    Step,
    V,
)
from kgen.virtual.timeline.record import Trace
from kgen.virtual.timeline.rounds import rounds

MIX = ("aic", "aiv", "aiv")


def issue(pipe: int, busy: int, latency: int = 0, scalar: int = 0) -> Step:
    return Step(ISSUE, scalar, pipe, busy, latency)


def set_(source: int, target: int, event: int = 0, latency: int = 0, scalar: int = 0) -> Step:
    return Step(SET, scalar, source, latency=latency, target=target, number=event)


def wait(source: int, target: int, event: int = 0, scalar: int = 0) -> Step:
    return Step(WAIT, scalar, source, target=target, number=event)


def cross_set(flag: int, pipe: int = S, latency: int = 0, scalar: int = 0) -> Step:
    return Step(CROSS_SET, scalar, pipe, latency=latency, number=flag)


def cross_wait(flag: int, scalar: int = 0) -> Step:
    return Step(CROSS_WAIT, scalar, S, number=flag)


def product(
    steps: int,
    load: int,
    multiply: int,
    *,
    last: int = 1,
    unit: int = 0,
    halves: int = 2,
    exclusive: int = 0,
    scalar: int = 0,
    latency: int = 0,
    accumulator: int = 0,
    waits: tuple[int, ...] = (),
    releases: tuple[int, ...] = (),
) -> Step:
    shape = (steps, load, multiply, last, unit, halves, exclusive)
    return Step(
        PRODUCT, scalar, M, steps * multiply, latency, number=accumulator, product=shape, waits=waits, releases=releases
    )


def fixpipe(busy: int, *, unit: int = 0, accumulator: int = 0, latency: int = 0, scalar: int = 0) -> Step:
    return Step(FIXPIPE, scalar, FIX, busy, latency, number=accumulator, product=(unit,))


def scalar(ticks: int) -> Step:
    return Step(SCALAR, ticks)


Log = list[tuple[int, int, int]]  # pipe, start, end


def run(*steps: Step, depth: int = 32) -> tuple[Core, Log]:
    """One vector core that does these steps."""
    block, logs = run_block(("aiv",), [steps], depth)
    return block.cores[0], logs[0]


def run_block(kinds: Sequence[str], traces: Sequence[Sequence[Step]], depth: int = 32) -> tuple[Block, list[Log]]:
    """The cores of a block, each with its steps."""
    block, numbered = make_block(kinds, traces, depth)
    block.run(numbered)
    for core in block.cores:
        assert sum(end - start for p, _, start, end in core.log or () if p == S) == core.scalar_busy
    return block, [[(p, start, end) for p, _, start, end in to_pipes(core, block.steps)] for core in block.cores]


def to_pipes(core: Core, steps: Sequence[Step]) -> list[Interval]:
    """What the pipes were given and the elements that the scalar unit moved, without what it did before each."""
    return [
        (pipe, event, start, end)
        for pipe, event, start, end in core.log or ()
        if pipe != S or (steps[event].kind == ELEMENTS and end - start == steps[event].busy)
    ]


def make_block(kinds: Sequence[str], traces: Sequence[Sequence[Step]], depth: int) -> tuple[Block, list[list[int]]]:
    table = [step for trace in traces for step in trace]
    numbers = iter(range(len(table)))
    block = Block(kinds, table, depth)
    for core in block.cores:
        core.log = []
    return block, [[next(numbers) for _ in trace] for trace in traces]


# ------------------------------------------------------------ pipes, flags, barriers


def test_pipes_take_their_own_work_in_order_and_side_by_side() -> None:
    core, log = run(issue(V, 10, 3, scalar=2), issue(MTE2, 50, 5, scalar=2), issue(V, 4, 3, scalar=2), scalar(7))
    assert log == [(V, 2, 12), (MTE2, 4, 54), (V, 12, 16)]
    assert (core.clock, core.ready[V], core.done[V], core.done[MTE2], core.scalar_busy) == (13, 16, 19, 59, 13)
    assert core.stalled == [0] * 7


def test_a_pipe_is_done_when_its_slowest_result_is_there() -> None:
    core, _ = run(issue(MTE2, 10, 300), issue(MTE2, 10, 1))
    assert core.done[MTE2] == 310


def test_the_end_of_a_block_is_the_last_of_everything() -> None:
    block, _ = run_block(("aiv",), [[issue(V, 1, 100), scalar(5), issue(MTE3, 20)]])
    assert block.finish() == 101
    block, _ = run_block(("aic", "aiv"), [[scalar(5)], [issue(V, 1), scalar(50)]])
    assert block.finish() == 50


def test_a_flag_is_set_after_all_before_it_and_waited_for_by_what_follows() -> None:
    core, log = run(
        issue(MTE2, 10, 30), set_(MTE2, V, latency=5), issue(MTE2, 100), issue(V, 7), wait(MTE2, V), issue(V, 7)
    )
    assert log == [(MTE2, 0, 10), (MTE2, 10, 110), (V, 0, 7), (V, 45, 52)]
    assert core.stalled[V] == 38
    assert core.unmatched == 0
    assert core.clock == 0  # the scalar unit doesn't wait


def test_flags_differ_in_source_target_and_number() -> None:
    for waiting in (wait(MTE2, V, 1), wait(MTE2, MTE3, 0), wait(MTE1, V, 0), wait(V, MTE2, 0)):
        core, _ = run(issue(MTE2, 10), set_(MTE2, V, 0), waiting)
        assert core.unmatched == 1
    core, _ = run(issue(MTE2, 10), set_(MTE2, V, 0), wait(MTE2, V, 0), wait(MTE2, V, 0))
    assert core.unmatched == 1  # it was cleared


def test_a_wait_for_a_flag_set_later_is_not_matched_and_holds_nothing_up() -> None:
    core, log = run(wait(MTE2, V), issue(V, 5), issue(MTE2, 100), set_(MTE2, V), issue(V, 5))
    assert core.unmatched == 1
    assert log[-1] == (V, 5, 10)


def test_flags_of_the_scalar_unit() -> None:
    core, log = run(issue(MTE2, 10, 20), set_(MTE2, S, latency=4), wait(MTE2, S), issue(V, 1))
    assert (core.clock, core.stalled[S]) == (34, 34)
    assert log[-1] == (V, 34, 35)
    core, log = run(issue(V, 50), scalar(8), set_(S, MTE2, latency=4), wait(S, MTE2), issue(MTE2, 5))
    assert core.clock == 8
    assert log[-1] == (MTE2, 12, 17)


def test_barriers() -> None:
    _, log = run(issue(V, 10, 25), issue(V, 10, 25), Step(BARRIER, 0, V), issue(V, 10), issue(MTE2, 5))
    assert log == [(V, 0, 10), (V, 10, 20), (V, 45, 55), (MTE2, 0, 5)]
    core, log = run(issue(V, 10, 25), issue(MTE3, 90, 10), Step(BARRIER, 3, ALL), issue(V, 10), issue(MTE2, 5))
    assert log[-2:] == [(V, 100, 110), (MTE2, 100, 105)]
    assert (core.clock, core.stalled[S]) == (100, 97)


def test_a_barrier_of_a_pipe_with_nothing_under_way_takes_no_time() -> None:
    core, log = run(scalar(100), Step(BARRIER, 0, V), issue(V, 1), Step(BARRIER, 0, ALL))
    assert log == [(V, 100, 101)]
    assert core.clock == 101
    assert sum(core.stalled) == 1


def test_elements_go_through_the_scalar_unit() -> None:
    core, log = run(
        issue(MTE2, 10, 30), issue(V, 500), Step(ELEMENTS, 2, MTE2, 100), issue(MTE2, 5, 30),
        set_(MTE2, V), wait(MTE2, V), issue(V, 1),
    )  # fmt: skip
    assert log == [(MTE2, 0, 10), (V, 0, 500), (S, 40, 140), (MTE2, 140, 145), (V, 500, 501)]
    assert core.clock == 140
    assert core.scalar_busy == 102
    assert core.stalled[S] == 38
    assert core.done[MTE2] == 175


# ------------------------------------------------------------ queues


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_the_scalar_unit_waits_for_room_in_a_queue(depth: int) -> None:
    core, log = run(*[issue(V, 10, scalar=1)] * 20, depth=depth)
    starts = [start for _, start, _ in log]
    assert starts == [1 + 10 * i for i in range(20)]
    assert core.clock == starts[19 - depth]  # all but `depth` have begun
    assert core.stalled[S] == core.clock - 20


def test_queues_of_different_pipes_are_apart() -> None:
    core, _ = run(*[issue(V, 100), issue(MTE2, 100)] * 3, depth=3)
    assert core.clock == 0
    core, _ = run(*[issue(V, 100), issue(MTE2, 100)] * 4, depth=2)
    assert core.clock == 100


def _ahead(steps: Sequence[Step], depth: int) -> dict[int, int]:
    """The most that each pipe was ever given and hadn't begun, by what the log says."""
    block, (trace,) = make_block(("aiv",), [steps], depth)
    core = block.cores[0]
    handed: list[tuple[int, int]] = []  # entries in the log and the clock, when a step had been handed over
    for event in trace:
        block.run([[event]])
        handed.append((len(core.log or ()), core.clock))
    most: dict[int, int] = {}
    for count, clock in handed:
        for pipe in {p for p, *_ in core.log or ()}:
            waiting = sum(1 for p, _, start, _ in (core.log or ())[:count] if p == pipe and start > clock)
            most[pipe] = max(most.get(pipe, 0), waiting)
    return most


def test_the_scalar_unit_never_runs_ahead_of_a_pipe_by_more_than_its_queue() -> None:
    made = random.Random(1)
    for depth in (1, 2, 4):
        steps = [
            made.choice(
                [
                    issue(V, made.randrange(20), 5, scalar=made.randrange(3)),
                    issue(MTE2, made.randrange(20), 5),
                    set_(MTE2, V, 1),
                    wait(MTE2, V, 1),
                    Step(BARRIER, 0, V),
                    scalar(made.randrange(5)),
                ]
            )
            for _ in range(300)
        ]
        assert max(_ahead(steps, depth).values()) == depth


@pytest.mark.parametrize("load, multiply", [(10, 1), (1, 10), (7, 7)])
def test_products_keep_to_the_queues_of_their_pipes(load: int, multiply: int) -> None:
    """What waits for its operands, or for half of L0, hasn't begun and still has its place in the queue."""
    ahead = _ahead([product(1, load, multiply)] * 40 + [product(20, load, multiply)] * 3, 4)
    assert ahead[MTE1] <= 4
    assert ahead[M] <= 4


def test_a_fixpipe_that_waits_for_the_unit_flag_keeps_its_place_in_the_queue() -> None:
    steps = [
        x for i in range(20) for x in (product(1, 1, 100, unit=3, accumulator=i), fixpipe(1, unit=3, accumulator=i))
    ]
    assert _ahead(steps, 4)[FIX] <= 4


# ------------------------------------------------------------ products


def test_a_product_loads_one_half_while_the_other_is_multiplied() -> None:
    _, log = run(product(4, 10, 3))
    assert log == [
        (MTE1, 0, 10), (M, 10, 13), (MTE1, 10, 20), (M, 20, 23), (MTE1, 20, 30), (M, 30, 33), (MTE1, 30, 40),
        (M, 40, 43),
    ]  # fmt: skip
    _, log = run(product(4, 3, 10))
    assert [(start, end) for pipe, start, end in log if pipe == M] == [(3, 13), (13, 23), (23, 33), (33, 43)]
    assert [(start, end) for pipe, start, end in log if pipe == MTE1] == [(0, 3), (3, 6), (13, 16), (23, 26)]


def test_a_product_without_steps_hands_its_flags_on() -> None:
    """With m, k or n of 0: what frees the operands still comes after what says that they are there."""
    core, log = run(
        issue(MTE2, 40, 30), set_(MTE2, MTE1, 2), product(0, 5, 5, waits=(2, -1), releases=(5, -1)),
        wait(MTE1, MTE2, 5), issue(MTE2, 1),
    )  # fmt: skip
    assert core.unmatched == 0
    assert log == [(MTE2, 0, 40), (MTE2, 70, 71)]


def test_a_product_whose_parts_fill_l0_loads_and_multiplies_in_turn() -> None:
    _, log = run(product(3, 3, 10, halves=1))
    assert log == [(MTE1, 0, 3), (M, 3, 13), (MTE1, 13, 16), (M, 16, 26), (MTE1, 26, 29), (M, 29, 39)]


def test_an_operand_is_there_after_the_latency() -> None:
    core, log = run(product(1, 10, 5, latency=20))
    assert log == [(MTE1, 0, 10), (M, 30, 35)]
    assert core.done[M] == 55


@pytest.mark.parametrize("exclusive, second", [(1, 13), (0, 3)])
def test_an_exclusive_product_keeps_the_loads_of_the_next_back(exclusive: int, second: int) -> None:
    """Where the call gets no event of the matrix unit, the template waits for it at its end."""
    _, log = run(product(1, 3, 10, exclusive=exclusive), product(1, 3, 10, exclusive=exclusive))
    assert [start for pipe, start, _ in log if pipe == MTE1] == [0, second]


def test_flags_that_come_with_a_product() -> None:
    core, log = run(
        issue(MTE2, 40), set_(MTE2, MTE1, 2), issue(MTE2, 60), set_(MTE2, MTE1, 3),
        product(2, 5, 9, latency=1, waits=(2, 3), releases=(6, -1)),
        wait(MTE1, MTE2, 6), issue(MTE2, 1), product(1, 5, 9, waits=(-1, -1)),
    )  # fmt: skip
    assert core.unmatched == 0
    assert [start for pipe, start, _ in log if pipe == MTE1] == [100, 105, 110]
    assert [entry for entry in log if entry[0] == MTE2][-1] == (MTE2, 111, 112)
    _, log = run(product(1, 5, 9, releases=(6, -1))._replace(release=20), wait(MTE1, MTE2, 6), issue(MTE2, 1))
    assert log[-1] == (MTE2, 25, 26)  # the flag takes its time, as one of its own would
    core, _ = run(product(1, 5, 9, waits=(2, -1), releases=(-1, -1)), wait(MTE1, MTE2, 2))
    assert core.unmatched == 2


# ------------------------------------------------------------ the unit flag


def test_a_fixpipe_follows_the_last_pass_of_the_product() -> None:
    _, log = run(product(3, 1, 10, last=2, unit=3, latency=4), fixpipe(5, unit=3))
    assert [x for x in log if x[0] == M][-1] == (M, 25, 35)
    assert log[-1] == (FIX, 27, 39)  # begins when a block is written, ends with the last one
    _, log = run(product(3, 1, 10, last=2, unit=3, latency=4), fixpipe(50, unit=3))
    assert log[-1] == (FIX, 27, 77)


def test_without_the_unit_flag_flags_alone_hold_a_fixpipe_back() -> None:
    for p, f in ((0, 0), (0, 3), (3, 0)):
        _, log = run(product(3, 1, 10, unit=p), fixpipe(5, unit=f))
        assert log[-1] == (FIX, 0, 5)


def test_accumulators_are_told_apart() -> None:
    _, log = run(product(1, 0, 10, unit=3, accumulator=1), fixpipe(5, unit=3, accumulator=2))
    assert log[-1] == (FIX, 0, 5)


def test_the_next_product_into_the_same_accumulator_waits_for_the_fixpipe() -> None:
    first = product(1, 0, 10, last=1, unit=3)
    _, log = run(first, fixpipe(50, unit=3), first)
    assert log[-1] == (M, 51, 61)
    _, log = run(first, fixpipe(50, unit=3), product(1, 0, 10, unit=3, accumulator=9))
    assert log[-1] == (M, 10, 20)


def test_products_that_add_to_an_accumulator_do_not_wait_for_each_other() -> None:
    _, log = run(product(1, 2, 10, unit=2), product(1, 2, 10, unit=2), product(1, 2, 10, unit=3), fixpipe(5, unit=3))
    assert [(start, end) for pipe, start, end in log if pipe == M] == [(2, 12), (12, 22), (22, 32)]
    assert log[-1] == (FIX, 23, 32)


def test_the_unit_flag_holds_for_random_orders() -> None:
    """Never before the last pass has begun to write, never at an end before its end, never overwritten while read."""
    made = random.Random(3)
    for _ in range(200):
        steps: list[Step] = []
        for _ in range(12):
            accumulator = made.randrange(2)
            passes = made.randrange(1, 4)
            steps.append(
                product(
                    passes, made.randrange(8), made.randrange(1, 20), last=1, unit=3, accumulator=accumulator,
                    latency=made.randrange(3), exclusive=made.randrange(2), scalar=made.randrange(9),
                )
            )  # fmt: skip
            if made.random() < 0.8:
                steps.append(fixpipe(made.randrange(1, 60), unit=3, accumulator=accumulator))
        block, _ = run_block(("aic",), [steps])
        written: dict[int, tuple[int, int]] = {}  # accumulator: start and end of the last pass
        read: dict[int, int] = {}  # accumulator: end of the fixpipe
        for pipe, event, start, end in block.cores[0].log or ():
            accumulator = steps[event].number
            if pipe == M:
                assert start >= read.get(accumulator, 0)
                written[accumulator] = (start, end)
            elif pipe == FIX:
                assert start > written[accumulator][0]
                assert end >= written[accumulator][1]
                read[accumulator] = end


# ------------------------------------------------------------ flags between cores


def test_a_vector_core_waits_for_the_cube_core() -> None:
    block, (_, first, second) = run_block(
        MIX,
        [
            [issue(FIX, 100, 30), cross_set(4, FIX, 200), issue(FIX, 1000)],
            [issue(V, 50), cross_wait(4), issue(V, 1)],
            [scalar(900), cross_wait(4), issue(V, 1)],
        ],
    )
    assert first == [(V, 0, 50), (V, 330, 331)]
    assert second == [(V, 900, 901)]
    assert [core.stalled[S] for core in block.cores] == [0, 330, 0]


@pytest.mark.parametrize("late", [0, 1])
def test_the_cube_core_waits_for_both_vector_cores(late: int) -> None:
    vectors = [[issue(MTE3, 10), cross_set(1, MTE3, 5)], [issue(MTE3, 10), cross_set(1, MTE3, 5)]]
    vectors[late] = [scalar(500), *vectors[late]]
    _, (cube, *_) = run_block(MIX, [[cross_wait(1), issue(MTE2, 1)], *vectors])
    assert cube == [(MTE2, 515, 516)]


@pytest.mark.parametrize("setting", [(), (0,), (1,)])
def test_the_cube_core_waits_for_ever_where_a_vector_core_never_sets(setting: tuple[int, ...]) -> None:
    traces = [[cross_wait(1)], *([cross_set(1)] if i in setting else [] for i in range(2))]
    with pytest.raises(DeadlockError):
        run_block(MIX, traces)


def test_a_flag_between_cores_counts() -> None:
    """Sets before a wait aren't lost, and each lets one wait pass."""
    _, (_, vector, _) = run_block(
        MIX,
        [
            [cross_set(0, latency=1), scalar(100), cross_set(0, latency=1), scalar(100), cross_set(0, latency=1)],
            [x for _ in range(3) for x in (cross_wait(0), issue(V, 1))],
            [cross_wait(0)],
        ],
    )
    assert [start for _, start, _ in vector] == [1, 101, 201]
    with pytest.raises(DeadlockError):
        run_block(MIX, [[cross_set(0)], [cross_wait(0), cross_wait(0)], [cross_wait(0)]])


def test_flags_between_cores_have_numbers_and_directions() -> None:
    for traces in (
        [[cross_set(1)], [cross_wait(2)], []],
        [[], [cross_set(1)], [cross_wait(1)]],  # from one vector core to the other
        [[cross_set(1), cross_wait(1)], [], []],
    ):
        with pytest.raises(DeadlockError):
            run_block(MIX, traces)


def test_cores_that_wait_for_each_other() -> None:
    with pytest.raises(DeadlockError):
        run_block(MIX, [[cross_wait(0), cross_set(1)], [cross_wait(1), cross_set(0)], [cross_set(0)]])


def test_it_does_not_matter_which_core_is_looked_at_first() -> None:
    """The cube core is first in a block; a flag that comes late costs the same as one that was there."""
    ping = [x for i in range(5) for x in (issue(M, 7), cross_set(i % 2, M, 3), cross_wait(5 + i % 2), issue(MTE2, 4))]
    pong = [x for i in range(5) for x in (cross_wait(i % 2), issue(V, 6, scalar=1), cross_set(5 + i % 2, V, 3))]
    block, _ = run_block(MIX, [ping, pong, pong])
    # a turn: the cube's 7 and 3, the vector's 1, 6 and 3; its 7 begin with the clock, behind nothing but the wait
    assert block.cores[0].clock == 5 * 20
    assert block.finish() == 5 * 20 + 4


# ------------------------------------------------------------ rounds


def _end(block: Block) -> Any:
    """All that is told of a block."""
    return block.finish(), [
        (c.clock, c.unmatched, c.stalled, c.scalar_busy, [max(t, c.clock) for t in c.ready]) for c in block.cores
    ]


def test_rounds_that_are_alike_are_looked_up_and_change_nothing() -> None:
    cube = [issue(MTE2, 30, 5), set_(MTE2, MTE1, 1), product(2, 3, 11, waits=(1, -1), unit=3, exclusive=1),
            fixpipe(13, unit=3, latency=9), cross_set(2, FIX, 7), cross_wait(3), wait(V, S, 5)]  # fmt: skip
    vector = [cross_wait(2), issue(MTE2, 9, 20), issue(V, 6, 2), Step(BARRIER, 0, V), cross_set(3, V, 7)]
    traces = [cube, vector, vector]
    whole, numbered = make_block(MIX, traces, 3)
    whole.run([trace * 50 for trace in numbered])
    pieces, numbered = make_block(MIX, traces, 3)
    for _ in range(50):
        pieces.round([tuple(trace) for trace in numbered])
    assert _end(pieces) == _end(whole)
    assert len(pieces._memo) < 10


def test_a_round_in_another_state_is_not_looked_up() -> None:
    steps = [issue(V, 10), issue(V, 10, scalar=1), scalar(100)]
    block, ((first, second, third),) = make_block(("aiv",), [steps], 2)
    for trace in ((first,), (first,), (third,), (first,), (second,), (third,), (first,)):
        block.round([trace])
    whole, _ = make_block(("aiv",), [steps], 2)
    whole.run([[first, first, third, first, second, third, first]])
    assert _end(block) == _end(whole)


END = Step(BARRIER, 0, ALL)
KEPT: dict[str, tuple[tuple[str, ...], list[list[Step]], list[list[Step]]]] = {
    # what a round leaves behind: the round of each core, and what then comes
    "a pipe that is busy": (("aiv",), [[END, scalar(9), issue(V, 50)]], [[issue(V, 1)]]),
    "a result under way": (("aiv",), [[END, scalar(9), issue(V, 1, 50)]], [[Step(BARRIER, 0, V), issue(V, 1)]]),
    "a flag": (("aiv",), [[END, scalar(9), wait(MTE2, V), set_(MTE2, V, latency=50)]], [[wait(MTE2, V), issue(V, 1)]]),
    "a queue": (("aiv",), [[END, scalar(9), *[issue(V, 20)] * 4]], [[issue(V, 1), issue(V, 1), issue(MTE2, 1)]]),
    "an accumulator that is read": (
        ("aic",),
        [[END, scalar(9), product(1, 1, 1, unit=3), product(1, 1, 1, unit=3, accumulator=7), fixpipe(50, unit=3)]],
        [[product(1, 1, 1, unit=3, accumulator=7), product(1, 1, 1, unit=3)]],
    ),
    "an accumulator that is written": (
        ("aic",), [[END, scalar(9), product(1, 1, 50, unit=3)]], [[fixpipe(1, unit=3), fixpipe(1, unit=3)]],
    ),
    "a flag of the cube core": (
        MIX, [[cross_set(0, latency=50), scalar(5)], [cross_wait(0), issue(V, 1)], [cross_wait(0)]],
        [[], [cross_wait(0), issue(V, 1)], []],
    ),
    "flags of the vector cores": (
        MIX,
        [[cross_wait(0), issue(M, 1)], *([scalar(5), cross_set(0, latency=late)] for late in (50, 70))],
        [[cross_wait(0), issue(M, 1)], [], []],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", KEPT)
def test_what_a_looked_up_round_leaves_behind_is_there_for_what_follows(what: str) -> None:
    kinds, repeated, last = KEPT[what]
    # flags between cores that `last` will take, so that some are always under way
    first = [[step for step in steps if step.kind == CROSS_SET] for steps in repeated]
    table = [first, repeated, last]
    numbers = itertools.count()
    events = [[tuple(next(numbers) for _ in steps) for steps in piece] for piece in table]
    steps = [step for piece in table for trace in piece for step in trace]
    whole, parts = Block(kinds, steps, 2), Block(kinds, steps, 2)
    order = [0, 0, *[1] * 12, 2, 1, 2]
    whole.run([[e for piece in order for e in events[piece][core]] for core in range(len(kinds))])
    for piece in order:
        parts.round(events[piece])
    assert _end(parts) == _end(whole)
    assert len(parts._memo) < len(order)


def test_flags_under_way_tell_rounds_apart() -> None:
    """The cores are in the same state when they begin to wait, but the flag comes at another time."""
    settle = [[cross_wait(1), END], [END, cross_set(1)], [END, cross_set(1)]]
    waiting: list[list[Step]] = [[], [cross_wait(0), issue(V, 1)], [cross_wait(0)]]
    pieces = [[[cross_set(0, latency=late)], [], []] for late in (50, 500)] + [waiting, settle]
    numbers = itertools.count()
    events = [[tuple(next(numbers) for _ in steps) for steps in piece] for piece in pieces]
    steps = [step for piece in pieces for trace in piece for step in trace]
    whole, parts = Block(MIX, steps, 2), Block(MIX, steps, 2)
    order = [0, 2, 3, 0, 2, 3, 1, 2, 3, 1, 2, 3, 0, 2, 3]
    whole.run([[e for piece in order for e in events[piece][core]] for core in range(3)])
    for piece in order:
        parts.round(events[piece])
    assert _end(parts) == _end(whole)
    assert len(parts._memo) < len(order)


def trace(events: Sequence[int], *cuts: Sequence[int]) -> Trace:
    return Trace(tuple(events), (*(tuple(c) for c in cuts), *[()] * (2 - len(cuts))))


@pytest.mark.parametrize(
    "traces, count",
    [
        ([trace(range(10), [2, 4, 6, 8])], 5),
        ([trace(range(10), [0, 4, 6, 8])], 5),
        ([trace(range(10), [2, 4, 6, 10])], 5),
        ([trace(range(10))], 1),
        ([trace([])], 1),
        ([trace(range(10), [2, 6], [3, 4, 7, 8])], 7),  # few iterations of the outer loop: those of the inner one too
        ([trace(range(10), [2, 4, 6, 8], [5, 7])], 5),
        ([trace(range(10), [1, 2, 3, 4]), trace(range(6), [1, 2, 3, 4])], 5),
        ([trace(range(10), [1, 2, 3, 4]), trace(range(6))], 5),
        ([trace(range(10), [1, 2, 3, 4]), trace(range(6), [1, 2])], 1),  # they don't correspond
        ([trace(range(10), [1, 5], [2, 3, 6]), trace(range(6), [1, 2], [3])], 3),  # only the outer ones do
    ],
)
def test_traces_are_cut_where_the_cores_agree(traces: list[Trace], count: int) -> None:
    cut = rounds(traces)
    assert len(cut) == count
    for number, whole in enumerate(traces):
        assert tuple(itertools.chain.from_iterable(piece[number] for piece in cut)) == whole.events
