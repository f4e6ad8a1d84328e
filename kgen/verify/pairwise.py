"""Covering arrays of strength two: few rows that together show every pair of values of every two factors.

The greedy, one-row-at-a-time method of AETG (Cohen, Dalal, Fredman and Patton, "The AETG System", 1997) with its random
choices replaced by fixed ones: the same factors give the same rows in any process. Torch isn't needed.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
Partial = dict[int, int]  # factor -> value, both by index
Pair = tuple[int, int, int, int]  # factor, value, later factor, value

CANDIDATES = 24  # rows tried for each one kept: more makes fewer rows, slowly


def pairwise(
    factors: Mapping[str, Sequence[T]],
    constraint: Callable[[dict[str, T]], bool] | None = None,
    minimum: int = 0,
) -> list[dict[str, T]]:
    """Distinct rows that show each pair of values which some allowed row holds; at least `minimum` of them.

    `constraint` also sees rows with factors still missing, and then returns False only if no completion is allowed.
    Rows beyond the cover show pairs a second time, then a third. Fewer than `minimum` come back only if no more exist.
    """
    if len(factors) < 2:
        singles = [{name: value} for name, values in factors.items() for value in values]
        return [row for row in singles if constraint is None or constraint(row)]
    search = _Search(factors, constraint)
    possible = search.cover(search.all_pairs(), limit=None)
    while len(search.rows) < minimum:
        before = len(search.rows)
        search.cover(possible, limit=minimum)
        if len(search.rows) == before:
            break
    return [search.named(row) for row in search.rows]


class _Search(Generic[T]):
    """The rows found so far and the pairs of this round that none of its rows shows yet."""

    def __init__(self, factors: Mapping[str, Sequence[T]], constraint: Callable[[dict[str, T]], bool] | None) -> None:
        self.names = list(factors)
        self.factors = [list(factors[name]) for name in self.names]
        self.constraint = constraint
        self.order = sorted(range(len(self.names)), key=lambda factor: -len(self.factors[factor]))
        self.rows: list[Partial] = []
        self.seen: set[tuple[int, ...]] = set()
        self.used: Counter[tuple[int, int]] = Counter()
        self.open: dict[Pair, None] = {}  # a set that keeps its order

    def all_pairs(self) -> list[Pair]:
        """Every pair of values of two factors, allowed or not."""
        return [
            (a, x, b, y)
            for a, b in itertools.combinations(range(len(self.names)), 2)
            for x, y in itertools.product(range(len(self.factors[a])), range(len(self.factors[b])))
        ]

    def cover(self, pairs: list[Pair], limit: int | None) -> list[Pair]:
        """Add rows until they show all of `pairs` or `limit` rows exist; returns the pairs that some row can show."""
        self.open = dict.fromkeys(pairs)
        impossible: set[Pair] = set()
        while self.open and (limit is None or len(self.rows) < limit):
            candidates: list[tuple[int, Partial]] = []
            for turn, pair in enumerate(list(self.open)[:: max(1, len(self.open) // CANDIDATES)]):
                order = self.order[turn % len(self.order) :] + self.order[: turn % len(self.order)]
                row = next(self._completions({pair[0]: pair[1], pair[2]: pair[3]}, order), None)
                if row is None:
                    impossible.add(pair)
                    del self.open[pair]
                else:
                    candidates.append((self._shown(row), row))
            if candidates:
                self._keep(max(candidates, key=lambda candidate: candidate[0])[1])
        return [pair for pair in pairs if pair not in impossible]

    def named(self, row: Partial) -> dict[str, T]:
        """A row, whole or not, as the caller knows it: factors in the caller's order."""
        return {name: self.factors[f][row[f]] for f, name in enumerate(self.names) if f in row}

    def _completions(self, row: Partial, order: list[int]) -> Iterator[Partial]:
        """New allowed rows that extend this one, factors in `order`, the greedily best first; in the end all."""
        if self.constraint is not None and not self.constraint(self.named(row)):
            return
        missing = [factor for factor in order if factor not in row]
        if not missing:
            if tuple(row[factor] for factor in range(len(self.names))) not in self.seen:
                yield row
            return
        factor = missing[0]

        def rank(value: int) -> tuple[int, int, int]:
            return -self._gain(row, factor, value), self.used[factor, value], value

        for value in sorted(range(len(self.factors[factor])), key=rank):
            yield from self._completions({**row, factor: value}, order)

    def _gain(self, row: Partial, factor: int, value: int) -> int:
        """How many open pairs this value would make with the values already chosen."""
        return sum(_pair(factor, value, other, chosen) in self.open for other, chosen in row.items())

    def _shown(self, row: Partial) -> int:
        return sum(_pair(*a, *b) in self.open for a, b in itertools.combinations(row.items(), 2))

    def _keep(self, row: Partial) -> None:
        self.rows.append(row)
        self.seen.add(tuple(row[factor] for factor in range(len(self.names))))
        self.used.update(row.items())
        for a, b in itertools.combinations(row.items(), 2):
            self.open.pop(_pair(*a, *b), None)


def _pair(a: int, x: int, b: int, y: int) -> Pair:
    return (a, x, b, y) if a < b else (b, y, a, x)
