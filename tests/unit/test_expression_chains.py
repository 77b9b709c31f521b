"""Sums, differences and products of many terms are one level of an expression."""

from __future__ import annotations

import linecache
import sys

import numpy as np
import pytest

import bigsap
from bigsap.sources.expression.lambdas import lambda_expression


def make(code, shape):
    return bigsap.expression(code, shape)


CHAINS = [("+", 250), ("-", 250), ("*", 250), (" + ", 32), (" - 2 * ", 120), (" + j*i* ", 80)]


@pytest.mark.some(2)
@pytest.mark.parametrize(("operator", "terms"), CHAINS)
def test_chains_are_one_level(operator, terms):
    """Sums, differences and products go on for as long as there are nodes."""
    code = operator.join(["0.5"] * terms)
    expected = np.array([[eval(code, {"i": i, "j": j}) for j in range(3)] for i in range(2)])
    source = make(code, (2, 3))
    read = np.empty((2, 3))
    source.read(np.arange(2), slice(0, 3), read)
    assert np.array_equal(read, expected)
    low, high = source.cost_range()
    assert low <= expected.min() <= expected.max() <= high
    assert source.c_source().count(";") > terms


def test_a_chain_recurses_nowhere():
    """Not even near the end of the stack."""
    code = "+".join(["i"] * 249)

    def at_depth(k):
        return at_depth(k - 1) if k else make(code, (2, 3))

    assert at_depth(sys.getrecursionlimit() - 250).shape == (2, 3)


def test_a_long_sum_in_a_lambda():
    text = "lambda i, j: " + " + ".join(["i * 1.5"] * 60) + "\n"
    name = "<long sum>"
    linecache.cache[name] = (len(text), None, [text], name)
    f = eval(compile(text, name, "eval"))
    source = lambda_expression(f, (3, 4))
    assert source is not None
    read = np.empty((3, 4))
    source.read(np.arange(3), slice(0, 4), read)
    assert read[2, 3] == f(2, 3)
