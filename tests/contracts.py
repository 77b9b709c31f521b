"""What every cost source must do, whatever it reads from.

A source's test inherits ``SourceContract`` in a class whose name starts with
``Test`` and says how to make one::

    class TestArraySource(SourceContract):
        def make(self, matrix):
            return ArraySource(matrix)

A source that computes its costs overrides ``matrix`` (the expected values) too and
may ignore the argument of ``make``; ``changed`` gives a source with other costs.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from bigsap.sources.base import (
    SCANNABLE,
    CostSource,
    Fillable,
    Fingerprinted,
    Grouped,
    Prefetching,
    Resident,
    Transposable,
)

N_ROWS, N_COLUMNS = 13, 9


def read(source: CostSource, rows: Any, start: int = 0, stop: int | None = None) -> np.ndarray:
    """``cost[rows, start:stop]`` as a fresh array, through ``source.read``."""
    stop = source.shape[1] if stop is None else stop
    ids = np.asarray(rows, dtype=np.int64)
    if source.dtype.kind == "f":
        out = np.full((ids.size, stop - start), np.nan, source.dtype)
    else:
        out = np.full((ids.size, stop - start), 77, source.dtype)
    source.read(ids, slice(start, stop), out)
    return out


class SourceContract:
    """Inherited by each source's test class."""

    #: Relative tolerance against the expected values; 0 means bit for bit.
    rtol = 0.0

    def make(self, matrix: np.ndarray) -> CostSource:
        """A fresh source of the costs ``matrix``."""
        raise NotImplementedError

    def matrix(self) -> np.ndarray:
        """The costs that ``make`` is given, and that its source must present."""
        return np.random.default_rng(5).uniform(-3, 7, (N_ROWS, N_COLUMNS))

    def changed(self, matrix: np.ndarray) -> CostSource:
        """A source of the same shape that differs in the last pair."""
        other = matrix.copy()
        other[-1, -1] += 1
        return self.make(other)

    @pytest.fixture
    def expected(self) -> np.ndarray:
        return self.matrix()

    @pytest.fixture
    def source(self, expected: np.ndarray) -> Iterator[CostSource]:
        source = self.make(expected)
        yield source
        if hasattr(source, "close"):
            source.close()

    def check(self, got: np.ndarray, expected: np.ndarray) -> None:
        assert got.shape == expected.shape
        if self.rtol:
            np.testing.assert_allclose(got, expected, rtol=self.rtol, atol=self.rtol)
        else:
            np.testing.assert_array_equal(got, expected)

    def test_shape_and_dtype_are_legal(self, source: CostSource, expected: np.ndarray) -> None:
        assert source.shape == expected.shape
        assert type(source.shape) is tuple
        assert all(type(n) is int for n in source.shape)
        assert isinstance(source.dtype, np.dtype)
        assert source.dtype in SCANNABLE
        assert source.dtype.isnative

    def test_all_rows(self, source: CostSource, expected: np.ndarray) -> None:
        self.check(read(source, np.arange(len(expected))), expected)

    def test_rows_in_any_order_with_repeats(self, source: CostSource, expected: np.ndarray) -> None:
        rows = np.random.default_rng(1).integers(0, len(expected), 3 * len(expected))
        self.check(read(source, rows), expected[rows])
        self.check(read(source, rows[::-1]), expected[rows[::-1]])

    @pytest.mark.parametrize("kind", ["i4", "u4", "i8", "u8"])
    def test_any_integer_ids(self, source: CostSource, expected: np.ndarray, kind: str) -> None:
        rows = np.array([len(expected) - 1, 0], kind)
        out = np.zeros((2, expected.shape[1]), source.dtype)
        source.read(rows, slice(0, expected.shape[1]), out)
        self.check(out, expected[[len(expected) - 1, 0]])

    def test_no_rows(self, source: CostSource, expected: np.ndarray) -> None:
        assert read(source, []).shape == (0, expected.shape[1])

    def test_every_column_slice(self, source: CostSource, expected: np.ndarray) -> None:
        whole = read(source, np.arange(len(expected)))
        n_columns = expected.shape[1]
        rows = [len(expected) - 1, 0, len(expected) // 2]
        for start in range(n_columns + 1):
            for stop in range(start, n_columns + 1):
                # Parts must be the same bits as the whole row, tolerance or not.
                np.testing.assert_array_equal(read(source, rows, start, stop), whole[rows, start:stop])

    def test_only_the_asked_items_of_out_are_written(self, source: CostSource, expected: np.ndarray) -> None:
        """Rows of ``out`` are contiguous, ``out`` itself need not be."""
        n_rows, n_columns = expected.shape
        wide = np.full((2 * n_rows, n_columns + 5), 99, source.dtype)
        out = wide[::2, 2 : n_columns + 2]
        source.read(np.arange(n_rows), slice(0, n_columns), out)
        self.check(out, expected)
        assert (wide[1::2] == 99).all()
        assert (wide[:, :2] == 99).all()
        assert (wide[:, n_columns + 2 :] == 99).all()

    def test_reads_do_not_write_ids(self, source: CostSource, expected: np.ndarray) -> None:
        rows = np.array([1, 0, 1])
        rows.flags.writeable = False
        self.check(read(source, rows), expected[[1, 0, 1]])

    def test_two_threads_read_at_once(self, source: CostSource, expected: np.ndarray) -> None:
        wrong: list[object] = []
        gate = threading.Barrier(2)

        def reader(seed: int) -> None:
            rng = np.random.default_rng(seed)
            gate.wait()
            try:
                for _ in range(40):
                    rows = rng.integers(0, len(expected), 4)
                    start = int(rng.integers(0, expected.shape[1]))
                    self.check(read(source, rows, start), expected[rows, start:])
            except BaseException as error:  # noqa: BLE001  reported below
                wrong.append(error)

        threads = [threading.Thread(target=reader, args=(seed,)) for seed in (1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []

    def test_resident_equals_read(self, source: CostSource, expected: np.ndarray) -> None:
        if not isinstance(source, Resident) or (whole := source.resident()) is None:
            pytest.skip("not resident")
        assert whole.dtype == source.dtype
        assert whole.flags.c_contiguous
        assert whole.ndim == 2
        assert len(whole) == len(expected)
        assert whole.shape[1] >= expected.shape[1]
        np.testing.assert_array_equal(whole[:, : expected.shape[1]], read(source, np.arange(len(expected))))

    def test_transposed_equals_read(self, source: CostSource, expected: np.ndarray) -> None:
        if not isinstance(source, Transposable) or (other := source.transposed()) is None:
            pytest.skip("not transposable")
        assert other.shape == expected.T.shape
        assert other.dtype == source.dtype
        whole = read(source, np.arange(len(expected)))
        np.testing.assert_array_equal(read(other, np.arange(expected.shape[1])), whole.T)

    def test_fill_equals_read(self, source: CostSource, expected: np.ndarray) -> None:
        if not isinstance(source, Fillable) or (fill := source.fill()) is None:
            pytest.skip("not fillable")
        call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 5)(fill.address)
        n_columns = expected.shape[1]
        for row in range(len(expected)):
            for start, stop in ((0, n_columns), (1, n_columns), (n_columns // 2, n_columns // 2)):
                out = np.full(n_columns + 2, 99, source.dtype)
                call(fill.context, row, start, stop, out[1:].ctypes.data)
                np.testing.assert_array_equal(out[1 : 1 + stop - start], read(source, [row], start, stop)[0])
                assert out[0] == 99
                assert (out[1 + stop - start :] == 99).all()

    def test_groups_partition_the_rows(self, source: CostSource, expected: np.ndarray) -> None:
        if not isinstance(source, Grouped):
            pytest.skip("not grouped")
        for row in range(len(expected)):
            start, stop = source.rows_together(row)
            assert 0 <= start <= row < stop <= len(expected)
            assert {source.rows_together(other) for other in range(start, stop)} == {(start, stop)}

    def test_prefetch_changes_no_answer(self, source: CostSource, expected: np.ndarray) -> None:
        if not isinstance(source, Prefetching):
            pytest.skip("does not prefetch")
        rng = np.random.default_rng(3)
        for row in rng.integers(0, len(expected), 40):
            source.prefetch(int(rng.integers(0, len(expected))))
            self.check(read(source, [row]), expected[[row]])
        source.prefetch(-1)
        source.prefetch(len(expected))
        self.check(read(source, np.arange(len(expected))), expected)

    def test_fingerprint_follows_the_data(self, source: CostSource, expected: np.ndarray) -> None:
        if not isinstance(source, Fingerprinted):
            pytest.skip("no fingerprint")
        first = source.fingerprint()
        assert isinstance(first, str)
        assert int(first, 16) >= 0
        read(source, [0])
        assert source.fingerprint() == first
        assert self.make(expected).fingerprint() == first
        assert self.changed(expected).fingerprint() != first
