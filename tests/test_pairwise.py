"""The cover of all pairs, and what becomes of the rest of the product."""

from __future__ import annotations

import itertools

import pytest

from pairwise import cover, each, pairwise


@pytest.mark.parametrize("sizes", [(3,), (2, 3), (2, 2, 2), (4, 4, 4, 4), (1, 5, 2, 3), (7, 2, 5)])
def test_every_pair_occurs(sizes):
    cases = cover(sizes)
    assert len(set(cases)) == len(cases)
    for a, b in itertools.combinations(range(len(sizes)), 2):
        assert {(case[a], case[b]) for case in cases} == set(
            itertools.product(range(sizes[a]), range(sizes[b]))
        )
    for a, size in enumerate(sizes):
        assert {case[a] for case in cases} == set(range(size))
    two = sorted(sizes)[-2:]
    assert len(cases) <= 1.6 * two[0] * two[-1]
    assert cases == cover(sizes)


def test_the_rest_is_slow():
    mark = pairwise(**{"a": "xy", "b, c": [(1, 2), (3, 4)], "d": [False, True]}).mark
    names, cases = mark.args
    assert names == ["a", "b", "c", "d"]
    assert len(cases) == 8
    needed = [case.values for case in cases if not case.marks]
    assert len(needed) == 4
    assert {value[1:3] for value in needed} == {(1, 2), (3, 4)}
    assert all(mark.name == "slow" for case in cases for mark in case.marks)


def test_each_value_once():
    _, cases = each(a="xyz", b=[1, 2]).mark.args
    needed = [case.values for case in cases if not case.marks]
    assert sorted(needed) == [("x", 1), ("y", 2), ("z", 1)]
    assert len(cases) == 6
