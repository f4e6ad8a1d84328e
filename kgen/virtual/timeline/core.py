"""One core's clocks: its scalar unit goes through the program and hands work to six pipes, which take it in order."""

from __future__ import annotations

from collections import deque
from typing import Any

from kgen.virtual.timeline.price import ALL, FIX, MTE1, MTE2, M, S, Step

_PIPES = 7
Interval = tuple[int, int, int, int]  # pipe, event, start, end
State = tuple[Any, ...]  # times relative to an origin


class Core:
    """One core's clocks. Times are ticks since the block began."""

    def __init__(self, kind: str, depth: int) -> None:
        self.kind = kind  # aic or aiv
        self.clock = 0  # of the scalar unit
        self.ready = [0] * _PIPES  # when a pipe can start the next thing
        self.done = [0] * _PIPES  # when all that a pipe was given is finished
        self.flags: dict[tuple[int, int, int], deque[int]] = {}
        self.waiting: list[deque[int]] = [deque() for _ in range(_PIPES)]  # starts of what is still queued
        self.accumulators: dict[int, tuple[int, int, int]] = {}  # L0C address: product's last block, its end, fixpipe's
        self.unmatched = 0  # waits for flags that nobody had set
        self.stalled = [0] * _PIPES
        self.scalar_busy = 0
        self.depth = depth
        self.log: list[Interval] | None = None

    def take(self, pipe: int) -> int:
        """The scalar unit hands something to a pipe, when its queue has room; the time it can start."""
        queue = self.waiting[pipe]
        while queue and queue[0] <= self.clock:
            queue.popleft()
        if len(queue) >= self.depth:
            self.stalled[S] += queue[0] - self.clock
            self.clock = queue.popleft()
        start = self.ready[pipe]
        if start < self.clock:
            start = self.clock
        queue.append(start)
        return start

    def state(self, origin: int) -> State:
        """All that the future depends on, relative to `origin`; what lies before the clock doesn't matter."""
        clock = self.clock
        return (
            clock - origin,
            tuple([(t if t > clock else clock) - origin for t in self.ready]),
            tuple([(t if t > clock else clock) - origin for t in self.done]),
            tuple(
                [
                    (key, tuple([(t if t > clock else clock) - origin for t in times]))
                    for key, times in sorted(self.flags.items())
                    if times
                ]
            ),
            tuple([tuple([t - origin for t in queue if t > clock]) for queue in self.waiting]),
            tuple(
                [
                    (key, tuple([(t if t > clock else clock) - origin for t in times]))
                    for key, times in sorted(self.accumulators.items())
                ]
            ),
        )

    def restore(self, state: State, origin: int) -> None:
        """Become what `state` was, with `origin` in place of its own."""
        clock, ready, done, flags, waiting, accumulators = state
        self.clock = clock + origin
        self.ready = [t + origin for t in ready]
        self.done = [t + origin for t in done]
        self.flags = {key: deque([t + origin for t in times]) for key, times in flags}
        self.waiting = [deque([t + origin for t in queue]) for queue in waiting]
        self.accumulators = {key: (a + origin, b + origin, c + origin) for key, (a, b, c) in accumulators}

    def issue(self, step: Step, event: int) -> None:
        """One thing for one pipe."""
        pipe = step.pipe
        start = self.take(pipe)
        finish = self.ready[pipe] = start + step.busy
        if finish + step.latency > self.done[pipe]:
            self.done[pipe] = finish + step.latency
        if self.log is not None:
            self.log.append((pipe, event, start, finish))

    def elements(self, step: Step, event: int) -> None:
        """A move that the scalar unit makes itself, when the pipe whose place it takes has finished what came before;
        what comes after on that pipe waits for it."""
        self.wait(S, self.given(step.pipe))
        if self.log is not None:
            self.log.append((S, event, self.clock, self.clock + step.busy))
        self.clock += step.busy
        self.scalar_busy += step.busy
        self.ready[step.pipe] = self.done[step.pipe] = self.clock

    def given(self, pipe: int) -> int:
        """When all that a pipe was given so far is finished; of `ALL`, every pipe."""
        if pipe == ALL:
            return max(self.given(each) for each in range(_PIPES))
        return max(self.done[pipe], self.ready[pipe], self.clock) if pipe != S else self.clock

    def set(self, step: Step) -> None:
        """A flag from one pipe to another."""
        key = (step.pipe, step.target, step.number)
        self.flags.setdefault(key, deque()).append(self.given(step.pipe) + step.latency)

    def wait_for(self, source: int, target: int, event: int) -> None:
        """A pipe waits for a flag, which it clears."""
        times = self.flags.get((source, target, event))
        if times:
            self.wait(target, times.popleft())
        else:
            self.unmatched += 1

    def wait(self, pipe: int, when: int) -> None:
        """A pipe does nothing before `when`."""
        if pipe == S:
            if when > self.clock:
                self.stalled[S] += when - self.clock
                self.clock = when
        elif when > self.ready[pipe]:
            self.stalled[pipe] += max(0, when - max(self.ready[pipe], self.clock))
            self.ready[pipe] = when

    def barrier(self, pipe: int) -> None:
        """A pipe waits for what it was given; `ALL`: everything waits for everything."""
        if pipe == ALL:
            when = max(self.clock, *self.ready, *self.done)
            self.stalled[S] += when - self.clock
            self.clock = when
            self.ready = [when] * _PIPES
        else:
            self.wait(pipe, self.done[pipe])

    def product(self, step: Step, event: int) -> None:
        """Steps along k, the loads of one while another is multiplied; flags for the operands come with the call."""
        steps, load, multiply, last, unit, halves, exclusive = step.product
        for number in step.waits:
            if number >= 0:
                self.wait_for(MTE2, MTE1, number)
        if unit and step.number in self.accumulators:  # the fixpipe before must have read what this writes
            self.wait(M, self.accumulators[step.number][2])
        finished: list[int] = []
        for index in range(steps):
            start = self.take(MTE1)
            if index >= halves:
                start = self.waiting[MTE1][-1] = max(start, finished[index - halves])
            loaded = self.ready[MTE1] = start + load
            self.done[MTE1] = max(self.done[MTE1], loaded + step.latency)
            begin = max(self.take(M), loaded + step.latency)
            self.waiting[M][-1] = begin
            end = self.ready[M] = begin + multiply
            self.done[M] = max(self.done[M], end + step.latency)
            finished.append(end)
            if self.log is not None:
                self.log += [(MTE1, event, start, loaded), (M, event, begin, end)]
        for number in step.releases:
            if number >= 0:
                self.flags.setdefault((MTE1, MTE2, number), deque()).append(self.given(MTE1) + step.release)
        end = self.ready[M]
        if exclusive:
            self.wait(MTE1, end)
        if unit:
            self.accumulators[step.number] = (end - multiply + last, end + step.latency, end)

    def fixpipe(self, step: Step, event: int) -> None:
        """With the unit flag it starts when the product's last pass has written a block, and ends no earlier than that
        pass."""
        start = self.take(FIX)
        finish = start + step.busy
        if step.product[0] and step.number in self.accumulators:
            first, end, _ = self.accumulators[step.number]
            start = self.waiting[FIX][-1] = max(start, first)
            finish = max(start + step.busy, end)
            self.accumulators[step.number] = (first, end, finish)
        self.ready[FIX] = finish
        self.done[FIX] = max(self.done[FIX], finish + step.latency)
        if self.log is not None:
            self.log.append((FIX, event, start, finish))
