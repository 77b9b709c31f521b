"""What a solve costs beyond its kernels: Python's part, counted in calls, which no clock blurs."""

import sys
from typing import Protocol, runtime_checkable

import numpy as np
import pytest

import bigsap
from bigsap.sources.base import Ability, Fillable, Foreseeing, Resident


@runtime_checkable
class TwoMembers(Protocol, metaclass=Ability):
    number: int

    def ask(self) -> int: ...


@runtime_checkable
class Both(TwoMembers, Resident, Protocol, metaclass=Ability):
    """Of other abilities."""


class Has:
    """What it takes, without a word of it."""

    number = 0

    def ask(self):
        return 1


class Named(TwoMembers):
    """By its name one of them, with nothing that a protocol looks for."""


def calls(function):
    """How many functions, of Python and C, a second call of ``function`` makes."""
    function()
    count = 0

    def count_calls(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(count_calls)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(("method", "most"), [("ssp", 2000), ("auto", 2200)])
def test_a_small_general_solve_makes_few_calls(method, most):
    """1,660 and 1,800 when this was written; 3,000 where ``typing`` looks protocols up."""
    cost = np.random.default_rng(0).random((100, 100))
    assert calls(lambda: bigsap.solve(cost, method=method, certify=False, threads=1)) < most


def test_an_ability_is_told_by_its_members():
    class Changed(Has):
        pass

    class Lacks:
        number = 0

    one = Lacks()
    assert isinstance(Changed(), TwoMembers)
    assert not isinstance(one, TwoMembers)
    one.ask = lambda: 1  # of the instance alone
    assert isinstance(one, TwoMembers)
    Changed.ask = None  # how a class says that it has none
    assert not isinstance(Changed(), TwoMembers)


def test_a_class_derived_from_an_ability_is_told_by_its_name():
    assert isinstance(Named(), Named)
    assert not isinstance(Has(), Named)


def test_an_ability_made_of_others_has_their_members():
    class HasAll(Has):
        def resident(self):
            return None

    assert isinstance(HasAll(), Both)
    assert not isinstance(Has(), Both)
    assert not isinstance(object(), Both)


def test_the_abilities_of_sources():
    class Ahead:
        foresees = 0

        def predict_slot(self, rows):
            pass

    matrix = bigsap.sources.as_source(np.zeros((2, 2)))
    assert isinstance(matrix, Resident)
    assert not isinstance(matrix, Foreseeing)
    assert isinstance(bigsap.points(np.zeros((3, 2)), np.zeros((3, 2))), Fillable)
    assert isinstance(Ahead(), Foreseeing)
    assert not any(isinstance(thing, Resident) for thing in (None, 3, object()))
