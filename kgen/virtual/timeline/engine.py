"""Lets time pass for the cores of one block: a cube core with its vector cores, or a vector core alone.

Nothing here depends on the order in which cores are looked at: a wait needs the time that its flag was set, so a core
that finds none is left until another has gone further.

A round is one iteration of each core's outer loop. What a round does depends only on the state before it (how far each
pipe is from the block's clock, flags under way, queues) and on its events, so a round met again in the same state takes
the same time and leaves the same state: it is looked up, not run again. That is exact, never an estimate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from kgen.errors import KgenError
from kgen.virtual.timeline.core import Core, State
from kgen.virtual.timeline.price import (
    BARRIER,
    CROSS_SET,
    CROSS_WAIT,
    ELEMENTS,
    FIXPIPE,
    ISSUE,
    PRODUCT,
    SCALAR,
    SET,
    WAIT,
    S,
    Step,
)


class Block:
    """The cores of one block and the flags between them."""

    def __init__(self, kinds: Sequence[str], steps: Sequence[Step], depth: int) -> None:
        self.cores = [Core(kind, depth) for kind in kinds]
        self.steps = steps
        self.crossing: dict[tuple[int, int], deque[int]] = {}  # (core that waits or sets to cube, flag)
        self._vectors = [i for i, kind in enumerate(kinds) if kind == "aiv"]
        self._memo: dict[State, tuple[State, int, State]] = {}

    # ------------------------------------------------------------ running

    def run(self, traces: Sequence[Sequence[int]]) -> None:
        """Let each core go through its events. Raises when they wait for each other for ever."""
        places = [0] * len(traces)
        while True:
            moved = False
            for number, trace in enumerate(traces):
                before = places[number]
                if before < len(trace):
                    places[number] = self._advance(number, trace, before)
                    moved |= places[number] > before
            if all(place == len(trace) for place, trace in zip(places, traces, strict=True)):
                return
            if not moved:
                raise DeadlockError

    def round(self, traces: Sequence[tuple[int, ...]]) -> None:
        """`run`, looked up where the same events were met in the same state."""
        origin = self.cores[0].clock
        before = (self._state(origin), tuple(traces))
        found = self._memo.get(before)
        if found is None:
            counts = [(c.unmatched, tuple(c.stalled), c.scalar_busy) for c in self.cores]
            self.run(traces)
            ends = self.cores[0].clock
            changes: State = tuple(
                (c.unmatched - u, tuple(a - b for a, b in zip(c.stalled, s, strict=True)), c.scalar_busy - busy)
                for c, (u, s, busy) in zip(self.cores, counts, strict=True)
            )
            self._memo[before] = (self._state(ends), ends - origin, changes)
            return
        state, passed, changes = found
        self._restore(state, origin + passed)
        for core, (unmatched, stalled, busy) in zip(self.cores, changes, strict=True):
            core.unmatched += unmatched
            core.stalled = [a + b for a, b in zip(core.stalled, stalled, strict=True)]
            core.scalar_busy += busy

    def _state(self, origin: int) -> State:
        crossing = []
        for (core, flag), times in sorted(self.crossing.items()):
            if times:
                # A time before the waiting core's clock is as good as the clock.
                clock = self.cores[0].clock if self.cores[core].kind == "aic" or core < 0 else self.cores[core].clock
                crossing.append(((core, flag), tuple([max(t, clock) - origin for t in times])))
        return (tuple([core.state(origin) for core in self.cores]), tuple(crossing))

    def _restore(self, state: State, origin: int) -> None:
        cores, crossing = state
        for core, own in zip(self.cores, cores, strict=True):
            core.restore(own, origin)
        self.crossing = {key: deque([t + origin for t in times]) for key, times in crossing}

    # ------------------------------------------------------------ one core

    def _advance(self, number: int, trace: Sequence[int], place: int) -> int:
        """Go on until the end or a flag of another core that isn't set; the new place."""
        core, steps = self.cores[number], self.steps
        end, log = len(trace), core.log
        while place < end:
            event = trace[place]
            step = steps[event]
            kind = step.kind
            if kind == CROSS_WAIT and not self._can_wait(number, step.number):
                return place
            if log is not None and step.scalar:
                log.append((S, event, core.clock, core.clock + step.scalar))
            core.clock += step.scalar
            core.scalar_busy += step.scalar
            if kind == ISSUE:
                core.issue(step, event)
            elif kind == SET:
                core.set(step)
            elif kind == WAIT:
                core.wait_for(step.pipe, step.target, step.number)
            elif kind == BARRIER:
                core.barrier(step.pipe)
            elif kind == PRODUCT:
                core.product(step, event)
            elif kind == FIXPIPE:
                core.fixpipe(step, event)
            elif kind == CROSS_SET:
                self._cross_set(number, step, core.given(step.pipe))
            elif kind == ELEMENTS:
                core.elements(step, event)
            elif kind == CROSS_WAIT:
                core.wait(S, self._cross_wait(number, step.number))
            else:
                assert kind == SCALAR
            place += 1
        return place

    def _cross_set(self, number: int, step: Step, when: int) -> None:
        if self.cores[number].kind == "aic":
            for vector in self._vectors:
                self.crossing.setdefault((vector, step.number), deque()).append(when + step.latency)
        else:  # kept apart by who set it: the cube waits for all of its vector cores
            self.crossing.setdefault((-1 - number, step.number), deque()).append(when + step.latency)

    def _can_wait(self, number: int, flag: int) -> bool:
        if self.cores[number].kind == "aiv":
            return bool(self.crossing.get((number, flag)))
        return all(self.crossing.get((-1 - vector, flag)) for vector in self._vectors)

    def _cross_wait(self, number: int, flag: int) -> int:
        if self.cores[number].kind == "aiv":
            return self.crossing[number, flag].popleft()
        return max(self.crossing[-1 - vector, flag].popleft() for vector in self._vectors)

    def finish(self) -> int:
        """When everything that the cores were given is finished."""
        return max(max(core.clock, *core.ready, *core.done) for core in self.cores)


class DeadlockError(Exception):
    """Every core waits for another."""


def deadlock() -> KgenError:
    """What to tell when even the whole traces don't get to an end."""
    return KgenError(
        "the cores of a block wait for each other for ever: a cross-core flag is waited for that nobody sets",
        code="timeline-deadlock",
        hint="the compiled kernel would hang; look at its sync_block_set and sync_block_wait",
    )
