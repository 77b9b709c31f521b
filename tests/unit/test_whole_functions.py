"""Compiled cost functions compute integers as Python does, also at a single pair in thousands.

The pairs that ``_compare`` samples show nothing of what is tested here: numbers leave 64 bits, or
the width of a small numpy integer, at a rare pair only.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import bigsap
from bigsap.errors import CallbackError
from bigsap.sources.functions.callbacks import from_function
from contracts import read

SHAPE = (70, 60)
ROW, COLUMN = 41, 37  # no pair that is sampled


def rare(i, j):
    return i == 41 and j == 37


def product(i, j):
    return (2**40 if rare(i, j) else i) * (2**41 if rare(i, j) else j)


def in_place(i, j):
    found = 2**62 if rare(i, j) else i
    found += found
    found *= 3
    found -= 2 * j
    return found


def square_of_a_large_one(i, j):
    return (2**33 if rare(i, j) else i - j) ** 2


def shift(i, j):
    return (i + 1) << (70 if rare(i, j) else 3)


def sign(i, j):
    return -(-(2**63) if rare(i, j) else i - j)


def quotient(i, j):
    return (-(2**63) if rare(i, j) else i) // (-1 if rare(i, j) else j + 1)


def remainder_of_a_product(i, j):
    return (i + 1) ** (12 if rare(i, j) else 2) % 97


def floor(i, j):
    return math.floor(1e25 if rare(i, j) else i / 2)


def loop(i, j):
    found = 1
    for k in range(60 if rare(i, j) else 5):
        found = found * 3 + k
    return found % 1009


def fourth(a):
    return a * a * a * a


def helper(i, j):
    return fourth(2**20 if rare(i, j) else i) % 1013


PLAIN = [
    product,
    in_place,
    square_of_a_large_one,
    shift,
    sign,
    quotient,
    remainder_of_a_product,
    floor,
    loop,
    helper,
]


def same_as_python(function, args=()):
    source = from_function(function, SHAPE, args, compiled=True)
    costs = read(source, np.arange(SHAPE[0]))
    assert source.evaluated_by == "numba"
    with np.errstate(over="ignore"):
        expected = np.array(
            [[float(function(i, j, *args)) for j in range(SHAPE[1])] for i in range(SHAPE[0])]
        )
    np.testing.assert_array_equal(costs, expected)
    return costs


@pytest.mark.some(3)
@pytest.mark.parametrize("function", PLAIN)
def test_pythons_integers(function):
    same_as_python(function)


def test_the_pair_decides():
    """The optimum takes or leaves the pair as its true cost says."""

    def cost(i, j):
        return -((i * j) ** 7) if rare(i, j) else abs(i - j)

    result = bigsap.solve(from_function(cost, SHAPE, compiled=True))
    assert result.col4row[ROW] == COLUMN
    assert result.fun < -1e22
    result.verify(from_function(cost, SHAPE, compiled=False))


def numbers(dtype, rest):
    """Numbers of which those of the rare pair are as large as they can be."""
    found = np.full(max(SHAPE), rest, dtype)
    found[[ROW, COLUMN]] = np.iinfo(dtype).max
    return found


def added(i, j, x):
    return x[i] + x[j]


def multiplied(i, j, x):
    return x[i] * x[j]


def subtracted(i, j, x):
    return x[i] - x[j] if i < 41 or j < 38 else x[j] - x[i] - x[i]


def chained(i, j, x):
    d = x[i] // 2
    e = d + d
    return e * e


def summed(i, j, x):
    found = x[i]
    for k in range(2):
        found = found + x[j] - k
    return found


def with_a_number(i, j, x):
    return x[i] * 2 if rare(i, j) else x[j] * 1


@pytest.mark.some(3)
@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "i4", "u4", "i8", "u8"])
@pytest.mark.parametrize("function", [added, multiplied])
def test_numpys_integers(function, dtype):
    same_as_python(function, (numbers(dtype, 3),))


@pytest.mark.some(2)
@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("dtype", ["i1", "u2", "i4"])
@pytest.mark.parametrize("function", [subtracted, chained, with_a_number])
def test_small_integers_stay_small(function, dtype):
    same_as_python(function, (numbers(dtype, 4),))


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_small_integers_in_loops():
    same_as_python(summed, (numbers("i1", 4),))


def test_booleans():
    def cost(i, j, b):
        return (b[i] + b[j]) * 1.0 + (i > 40) * (j > 30)

    found = np.zeros(max(SHAPE), np.bool_)
    found[[ROW, COLUMN]] = True
    same_as_python(cost, (found,))


def test_what_cannot_be_checked_is_python():
    """Loops of numba's own, arrays of small integers, functions compiled elsewhere."""
    small = np.arange(60, dtype=np.uint8)
    for function, args, kind in (
        (lambda i, j: sum([i, j, 2**62, 2**62]), (), "value"),
        (lambda i, x: np.maximum(x - 30, i), (small,), "row"),
        (lambda i, j, x: x[i] + j, (np.arange(70, dtype=np.uint64),), "value"),
        (summed, (np.arange(9, 79, dtype=np.uint16),), "value"),
    ):
        source = from_function(function, (60, 60), args, kind=kind)
        with pytest.raises(bigsap.OptionError, match="cannot be compiled"):
            from_function(function, (60, 60), args, kind=kind, compiled=True)
        assert source.fill() is None


def test_blocks_of_integers():
    """numpy refuses a number that an array cannot hold; numba would cut it off."""

    def block(rows, out):
        for k in range(rows.size):
            for j in range(out.shape[1]):
                out[k, j] = 2**40 if rare(rows[k], j) else rows[k] + j

    source = from_function(block, SHAPE, kind="block", dtype="i4", compiled=True)
    assert read(source, [0])[0].tolist() == list(range(60))
    with pytest.raises(CallbackError, match="OverflowError"):
        read(source, [ROW])


def test_functions_that_mostly_leave_64_bits_are_not_compiled():
    def cost(i, j):
        return (i + 3) ** 40 + j

    with pytest.raises(bigsap.OptionError, match="beyond the integers of compiled code"):
        from_function(cost, SHAPE, compiled=True)
