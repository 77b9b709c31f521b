"""scipy's own test file, run with BigSAP's function in the place of scipy's.

The file is loaded from the installed scipy, nothing of it is copied; its tests appear
here under their own names.
"""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path

import pytest
import scipy.optimize

import bigsap

PATH = Path(scipy.optimize.__file__).parent / "tests" / "test_linear_assignment.py"


def loaded_with(function):
    """The module of scipy's tests, calling ``function``."""
    spec = importlib.util.spec_from_file_location("scipys_test_linear_assignment", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.linear_sum_assignment is scipy.optimize.linear_sum_assignment
    module.linear_sum_assignment = function
    return module


if not PATH.exists():
    pytest.skip("this scipy comes without its tests", allow_module_level=True)


def with_lists(test):
    """Its parameters as lists: scipy gives an iterator, of which pytest warns."""
    marks = getattr(test, "pytestmark", [])
    test.pytestmark = []
    for mark in reversed(marks):
        assert mark.name == "parametrize"
        names, values = mark.args
        test = pytest.mark.parametrize(names, list(values), **mark.kwargs)(test)
    return test


globals().update(
    {
        name: with_lists(test)
        for name, test in vars(loaded_with(bigsap.linear_sum_assignment)).items()
        if name.startswith("test_")
    }
)


def test_it_is_bigsap_that_was_tested_above():
    own = [f for n, f in globals().items() if n.startswith("test_") and inspect.isfunction(f)]
    parameters = test_linear_sum_assignment_small_inputs.pytestmark[0].args[1]  # noqa: F821
    assert len(parameters) >= 10
    scipys = [f for f in own if f.__globals__ is not globals()]
    assert {f.__name__ for f in scipys} >= {"test_constant_cost_matrix"}
    assert len(scipys) >= 10
    for test in scipys:
        assert test.__globals__["linear_sum_assignment"] is bigsap.linear_sum_assignment


def test_a_wrong_function_would_not_pass():
    def wrong(cost_matrix, maximize=False):
        return [0], [0]

    module = loaded_with(wrong)
    with pytest.raises(AssertionError):
        module.test_constant_cost_matrix()
