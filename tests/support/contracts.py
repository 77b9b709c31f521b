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


def whole(source: CostSource) -> np.ndarray:
    """All costs of a source."""
    return read(source, np.arange(source.shape[0]))


def one_class_each(base: type, **attributes: dict[str, Any]) -> dict[str, type]:
    """Test classes of ``base`` that differ in their attributes, for the ``globals()`` of a module."""
    return {f"Test{name}": type(f"Test{name}", (base,), given) for name, given in attributes.items()}


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

    def test_reads(self, source: CostSource, expected: np.ndarray) -> None:
        """Shape and dtype are legal; any rows in any order, by ids of any integer kind."""
        n_rows, n_columns = expected.shape
        assert source.shape == expected.shape
        assert type(source.shape) is tuple
        assert all(type(n) is int for n in source.shape)
        assert isinstance(source.dtype, np.dtype)
        assert source.dtype in SCANNABLE
        assert source.dtype.isnative
        self.check(read(source, np.arange(n_rows)), expected)
        rows = np.random.default_rng(1).integers(0, n_rows, 3 * n_rows)
        self.check(read(source, rows), expected[rows])
        self.check(read(source, rows[::-1]), expected[rows[::-1]])
        assert read(source, []).shape == (0, n_columns)
        for kind in ("i4", "u4", "i8", "u8"):
            ids = np.array([n_rows - 1, 0], kind)
            ids.flags.writeable = False
            out = np.zeros((2, n_columns), source.dtype)
            source.read(ids, slice(0, n_columns), out)
            self.check(out, expected[[n_rows - 1, 0]])

    def test_every_column_slice(self, source: CostSource, expected: np.ndarray) -> None:
        """Rows of ``out`` are contiguous, ``out`` itself need not be: only what is asked is written."""
        n_rows, n_columns = expected.shape
        whole = read(source, np.arange(n_rows))
        rows = [n_rows - 1, 0, n_rows // 2]
        for start in range(n_columns + 1):
            for stop in range(start, n_columns + 1):
                # Parts must be the same bits as the whole row, tolerance or not.
                np.testing.assert_array_equal(read(source, rows, start, stop), whole[rows, start:stop])
        wide = np.full((2 * n_rows, n_columns + 5), 99, source.dtype)
        out = wide[::2, 2 : n_columns + 2]
        source.read(np.arange(n_rows), slice(0, n_columns), out)
        self.check(out, expected)
        assert (wide[1::2] == 99).all()
        assert (wide[:, :2] == 99).all()
        assert (wide[:, n_columns + 2 :] == 99).all()

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

    def test_abilities_equal_reading(self, source: CostSource, expected: np.ndarray) -> None:
        """What lies in memory, the transpose, the compiled filler and groups of rows."""
        n_rows, n_columns = expected.shape
        whole = read(source, np.arange(n_rows))
        if isinstance(source, Resident) and (there := source.resident()) is not None:
            assert there.dtype == source.dtype
            assert there.flags.c_contiguous
            assert there.ndim == 2
            assert len(there) == n_rows
            assert there.shape[1] >= n_columns
            np.testing.assert_array_equal(there[:, :n_columns], whole)
        if isinstance(source, Transposable) and (other := source.transposed()) is not None:
            assert other.shape == expected.T.shape
            assert other.dtype == source.dtype
            np.testing.assert_array_equal(read(other, np.arange(n_columns)), whole.T)
        if isinstance(source, Fillable) and (fill := source.fill()) is not None:
            call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 5)(fill.address)
            for row in range(n_rows):
                for start, stop in ((0, n_columns), (1, n_columns), (n_columns // 2, n_columns // 2)):
                    out = np.full(n_columns + 2, 99, source.dtype)
                    call(fill.context, row, start, stop, out[1:].ctypes.data)
                    np.testing.assert_array_equal(
                        out[1 : 1 + stop - start], read(source, [row], start, stop)[0]
                    )
                    assert out[0] == 99
                    assert (out[1 + stop - start :] == 99).all()
        if isinstance(source, Grouped):
            for row in range(n_rows):
                start, stop = source.rows_together(row)
                assert 0 <= start <= row < stop <= n_rows
                assert {source.rows_together(other) for other in range(start, stop)} == {(start, stop)}

    def test_prefetch_changes_no_answer(self, source: CostSource, expected: np.ndarray) -> None:
        if isinstance(source, Prefetching):
            rng = np.random.default_rng(3)
            for row in rng.integers(0, len(expected), 40):
                source.prefetch(int(rng.integers(0, len(expected))))
                self.check(read(source, [row]), expected[[row]])
            source.prefetch(-1)
            source.prefetch(len(expected))
            self.check(read(source, np.arange(len(expected))), expected)

    def test_fingerprint_follows_the_data(self, source: CostSource, expected: np.ndarray) -> None:
        if isinstance(source, Fingerprinted):
            first = source.fingerprint()
            assert isinstance(first, str)
            assert int(first, 16) >= 0
            read(source, [0])
            assert source.fingerprint() == first
            assert self.make(expected).fingerprint() == first
            assert self.changed(expected).fingerprint() != first
