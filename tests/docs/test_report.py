"""Results as text and as JSON."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest

from bigsap.display import text as report
from bigsap.memory import peak_bytes
from bigsap.result import Result, Status


def test_plain_has_only_what_json_has():
    value = {
        1: np.float64("inf"),
        "a": [math.nan, -math.inf, np.int64(3), True, None],
        "b": np.array([1.5, np.inf]),
        "c": (Status.OPTIMAL, {np.str_("k"): np.float32(0.5)}),
    }
    assert report.plain(value) == {
        "1": None,
        "a": [None, None, 3, True, None],
        "b": [1.5, None],
        "c": ["optimal", {"k": 0.5}],
    }
    json.dumps(report.plain(value), allow_nan=False)


def test_text_of_a_result_with_everything():
    result = Result.from_assignment(
        [1, 0],
        [0.0, 0.0],
        shape=(2, 2),
        status=Status.TIME_LIMIT,
        fun=12345.5,
        bound=12340.0,
        stats={
            "rows_evaluated": 5,
            "rows_scanned": 1234,
            "cache_hits": 3,
            "cache_misses": 1,
            "seconds": {"total": 1.5, "search": 1.25},
            "peak_bytes": 3 * 2**20,
            "method": "ssp",
            "threads": 1,
        },
    )
    lines = dict(report.result_lines(result))
    assert lines["cost"] == "12345.5"
    assert lines["bound"] == "12,340"
    assert lines["gap"] == "5.51 (4.5e-04 of the cost)"  # it is 5.5 rounded up already
    assert lines["rows evaluated"] == "5 (2.50 per row)"
    assert lines["rows scanned"] == "1,234"
    assert lines["cache hit rate"] == "75.0%"
    assert lines["seconds"] == "1.50 (search 1.25)"
    assert lines["peak memory"] == "3.0 MiB"
    assert lines["method"] == "ssp, 1 thread"
    text = report.result_text(result)
    starts = {line.index(value) for line, value in zip(text.split("\n"), lines.values(), strict=True)}
    assert len(starts) == 1  # one column of values


def test_peak_is_more_than_what_is_held():
    block = np.ones(2**22)  # 32 MiB, touched
    assert peak_bytes() > block.nbytes


def test_bounds_and_gaps_as_text_are_still_bounds():
    rng = np.random.default_rng(3)
    values = (rng.normal(size=500) * 10.0 ** rng.uniform(-200, 200, 500)).tolist()
    for value in [1 / 3, -1 / 3, 0.1, 2**53 + 2.0, *values]:
        below, above = (
            float(report.bound_text(value, None, above=side).replace(",", "")) for side in (False, True)
        )
        assert below <= value <= above
        assert below == pytest.approx(value, rel=1e-11)
        assert above == pytest.approx(value, rel=1e-11)
        assert abs(value) <= float(report.gap_text(abs(value), None)) <= 1.02 * abs(value)
    # The cost itself is no news.
    assert report.bound_text(2 / 3, 2 / 3, above=False) == report.number(2 / 3) == "0.666666666667"
    assert report.bound_text(7, 8, above=True) == "7"
    assert report.bound_text(math.inf, None, above=True) == "inf"
    assert report.gap_text(0.0, 3.0) == "0"
    assert report.gap_text(1.2341e-7, 3.0) == "1.24e-07 (4.2e-08 of the cost)"


def test_integers_as_bounds_are_exact_and_shares_of_the_cost_no_less_than_they_are():
    assert report.bound_text(2**53 + 1, None, above=False) == "9,007,199,254,740,993"
    assert report.bound_text(-(10**18) + 1, 5, above=True) == "-999,999,999,999,999,999"
    assert report.gap_text(10**18 + 1, None) == "1.01e+18"
    rng = np.random.default_rng(4)
    costs = [int(10**e) + 1 for e in range(16, 30)] + (10.0 ** rng.uniform(-9, 9, 300)).tolist()
    for fun in costs:
        for gap in (1, 3, 0.1, fun // 2 + 1, fun / 4):
            share = report.gap_text(gap, -fun).partition("(")[2].partition(" ")[0]
            assert Fraction(share) >= Fraction(gap) / Fraction(fun), (gap, fun)
    assert report.gap_text(1.0, 2.0) == "1 (5.0e-01 of the cost)"
