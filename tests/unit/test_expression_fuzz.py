"""Some hundreds of the million random texts of ``make test-all``, and that errors are noticed."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import bigsap
from bigsap.sources.expression.formula import ExpressionSource
from expression_fuzz import Fuzz, Watch
from expression_oracle import ARRAYS, M, N


@pytest.fixture
def fuzz(tmp_path):
    return Fuzz(11, tmp_path, 40)


def test_hundreds_of_texts(fuzz):
    sys.addaudithook(Watch.hook)
    bigsap.expression("i", (N, M), **ARRAYS)  # what is imported once is imported now
    for _ in range(500):
        fuzz.one()
    fuzz.compiled()
    assert fuzz.found == []
    assert fuzz.counts["accepted"] > 150
    assert fuzz.counts["values"] > 300
    assert fuzz.counts["by eval"] > 15
    assert fuzz.counts["by C"] > 2 or not fuzz.counts["by numba"]
    for kind in ("valid", "wrong", "soup", "hostile"):
        assert fuzz.counts[kind] > 40


def broken(fuzz):
    for _ in range(300):
        fuzz.one()
    return " ".join(fuzz.found)


def test_wrong_values_are_noticed(fuzz, monkeypatch):
    monkeypatch.setattr(ExpressionSource, "sample", lambda self, i, j: np.full(len(i), 0.125))
    assert "0.125 in place of" in broken(fuzz)


def test_what_runs_is_noticed(fuzz, monkeypatch):
    def runs(*args, **given):
        exec("1")
        raise bigsap.ExpressionError("no", 1)

    sys.addaudithook(Watch.hook)
    monkeypatch.setattr(bigsap, "expression", runs)
    assert "ran ['exec" in broken(fuzz)
