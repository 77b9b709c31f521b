"""Some thousands of the million random texts of ``make test-all``, and that errors are noticed."""

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


def test_thousands_of_texts(fuzz):
    sys.addaudithook(Watch.hook)
    bigsap.expression("i", (N, M), **ARRAYS)  # what is imported once is imported now
    for _ in range(3000):
        fuzz.one()
    fuzz.compiled()
    assert fuzz.found == []
    assert fuzz.counts["accepted"] > 1000
    assert fuzz.counts["values"] > 2000
    assert fuzz.counts["by eval"] > 100
    assert fuzz.counts["by C"] > 20 or not fuzz.counts["by numba"]
    for kind in ("valid", "wrong", "soup", "hostile"):
        assert fuzz.counts[kind] > 200


def broken(fuzz):
    for _ in range(300):
        fuzz.one()
    return " ".join(fuzz.found)


def test_wrong_values_are_noticed(fuzz, monkeypatch):
    monkeypatch.setattr(ExpressionSource, "sample", lambda self, i, j: np.full(len(i), 0.125))
    assert "0.125 in place of" in broken(fuzz)


def test_other_errors_are_noticed(fuzz, monkeypatch):
    def refuse(*args, **given):
        raise RecursionError("too deep")

    monkeypatch.setattr(bigsap, "expression", refuse)
    assert "RecursionError too deep" in broken(fuzz)


def test_words_of_the_user_are_noticed(fuzz, monkeypatch):
    monkeypatch.setattr(ExpressionSource, "c_source", lambda self: f"double cost = {self.code};")
    assert "C text has ['x'" in broken(fuzz)


def test_what_runs_is_noticed(fuzz, monkeypatch):
    def runs(*args, **given):
        exec("1")
        raise bigsap.ExpressionError("no", 1)

    sys.addaudithook(Watch.hook)
    monkeypatch.setattr(bigsap, "expression", runs)
    assert "ran ['exec" in broken(fuzz)
