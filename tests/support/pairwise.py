"""Few cases in place of a full product of parameters.

Most mistakes need one circumstance to show, or two, seldom three (Cohen, Dalal, Fredman and Patton
1997). ``make test`` takes each value once, ``make test-deep`` every pair of values, which is about
as many cases as the two largest parameters have combinations.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from typing import Any

import pytest


def cover(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Cases, as positions in each parameter's values, in which every pair occurs: greedily.

    The same for the same ``sizes``. Work grows with the product, which is small in tests.
    """
    cases = list(itertools.product(*map(range, sizes)))

    def pairs(case: tuple[int, ...]) -> set[tuple[tuple[int, int], ...]]:
        return set(itertools.combinations(enumerate(case), 2))

    if len(sizes) < 2:
        return cases
    left = set().union(*map(pairs, cases))
    chosen = []
    while left:
        best = max(cases, key=lambda case: len(pairs(case) & left))
        chosen.append(best)
        left -= pairs(best)
    return chosen


def each(**values: Collection[Any]) -> pytest.MarkDecorator:
    """Every value of every parameter at least once, in turn; pairs that this leaves out are slow.

    A name may stand for several arguments: ``**{"n, m": [(1, 2), (2, 1)]}``.
    """
    sizes = [len(some) for some in values.values()]
    needed = dict.fromkeys(tuple(k % size for size in sizes) for k in range(max(sizes)))
    names = [name for group in values for name in group.replace(",", " ").split()]
    lists = [list(some) for some in values.values()]
    several = ["," in group for group in values]
    cases = []
    for case in dict.fromkeys([*needed, *cover(sizes)]):
        flat: list[Any] = []
        for x, some, tuples in zip(case, lists, several, strict=True):
            flat.extend(some[x] if tuples else [some[x]])
        cases.append(pytest.param(*flat, marks=[] if case in needed else pytest.mark.slow))
    return pytest.mark.parametrize(names, cases)
