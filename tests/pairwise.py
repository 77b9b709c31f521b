"""Every pair of values of any two parameters in few cases, in place of the full product.

Most mistakes need two circumstances to show, seldom three: a cover of all pairs finds what the
product finds, in about as many cases as the two largest parameters have combinations (Cohen,
Dalal, Fredman and Patton 1997). The rest of the product is marked ``slow``.
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
    """Every value of every parameter at least once, in turn; the rest of the product is slow."""
    longest = max(map(len, values.values()))
    needed = {tuple(k % len(some) for some in values.values()) for k in range(longest)}
    return _marked(values, needed)


def pairwise(**values: Collection[Any]) -> pytest.MarkDecorator:
    """As ``parametrize`` of each, one below the other; what no pair needs is slow.

    A name may stand for several arguments: ``**{"n, m": [(1, 2), (2, 1)]}``.
    """
    return _marked(values, set(cover([len(some) for some in values.values()])))


def _marked(values: dict[str, Collection[Any]], needed: set[tuple[int, ...]]) -> pytest.MarkDecorator:
    names = [name for group in values for name in group.replace(",", " ").split()]
    lists = [list(some) for some in values.values()]
    several = ["," in group for group in values]
    cases = []
    for case in itertools.product(*(range(len(some)) for some in lists)):
        flat: list[Any] = []
        for x, some, tuples in zip(case, lists, several, strict=True):
            flat.extend(some[x] if tuples else [some[x]])
        cases.append(pytest.param(*flat, marks=[] if case in needed else pytest.mark.slow))
    return pytest.mark.parametrize(names, cases)
