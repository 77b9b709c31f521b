"""Many rows at once: the bits of rows filled one by one."""

from __future__ import annotations

import numpy as np
import pytest

import bigsap

SOURCES = {
    "sqeuclidean": lambda x, y: bigsap.points(x, y),
    "weighted": lambda x, y: bigsap.points(x, y, w=np.linspace(0, 3, x.shape[1])),
    "euclidean": lambda x, y: bigsap.points(x, y, "euclidean"),
    "cosine": lambda x, y: bigsap.points(x, y, "cosine"),
    "lowrank": lambda x, y: bigsap.lowrank(x, y, row_terms=x[:, 0], column_terms=2 * y[:, 0]),
}


@pytest.mark.parametrize("kind", list(SOURCES))
@pytest.mark.parametrize("d", [9, 50])
def test_the_bits_are_those_of_single_rows(kind, d):
    rng = np.random.default_rng(d)
    for n, m in ((1, 1), (7, 15), (50, 64), (9, 200)):
        x = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-9, 9, (n, d))
        y = rng.normal(size=(m, d)) * 10.0 ** rng.integers(-9, 9, (m, d))
        x[0, :2] = y[0, :2] = -0.0
        source = SOURCES[kind](x, y)
        many = source.fill().many
        assert many is not None
        for start, stop in ((0, m), (m // 3, m - m // 4)):
            rows = rng.integers(0, n, 11)
            found = np.full((11, m + 5), np.nan)
            many(rows, start, stop, found[:, 2 : 2 + stop - start])
            single = np.empty((1, stop - start))
            for k, row in enumerate(rows):
                source.read(np.array([row]), slice(start, stop), single)
                assert np.array_equal(found[k, 2 : 2 + stop - start].view(np.int64), single[0].view(np.int64))
            assert np.isnan(found[:, :2]).all()
            assert np.isnan(found[:, 2 + stop - start :]).all()


def test_with_memory_for_all_rows_every_pair_is_evaluated_once():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(400, 60)), rng.normal(size=(400, 60))
    kept = bigsap.solve(bigsap.points(x, y), method="compressed")
    assert kept.stats["rows_evaluated"] == 400
    assert kept.stats["pairs_evaluated"] == 400 * 400
    few = bigsap.solve(bigsap.points(x, y), method="compressed", cache=20 * 400 * 8)
    assert few.stats["rows_evaluated"] > 400
    assert np.array_equal(kept.col4row, few.col4row)
    assert kept.fun == few.fun


def test_few_dimensions_are_filled_row_by_row():
    assert bigsap.points(np.zeros((3, 2)), np.zeros((3, 2))).fill().many is None
