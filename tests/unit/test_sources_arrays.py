"""Arrays, files and other things that hold a matrix; and ``as_source``."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from bigsap.errors import (
    DtypeError,
    InputError,
    InvalidCostError,
    OptionError,
    OverflowRiskError,
    ShapeError,
    SourceError,
    StoreError,
)
from bigsap.sources import ArraySource, SliceableSource, as_source, from_npy, from_zarr
from bigsap.sources.base import SCANNABLE
from bigsap.sources.convert import FINGERPRINT_BYTES
from contracts import N_COLUMNS, N_ROWS, SourceContract, read


def numbers(dtype: str, shape: tuple[int, int] = (N_ROWS, N_COLUMNS)) -> np.ndarray:
    rng = np.random.default_rng(8)
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if kind == "f":
        return rng.uniform(-9, 9, shape).astype(dtype)
    low = 0 if kind == "u" else -100
    return rng.integers(low, 100, shape).astype(dtype)


class TestArraySource(SourceContract):
    def make(self, matrix: np.ndarray) -> ArraySource:
        return ArraySource(matrix)

    def test_scanned_in_place(self) -> None:
        for dtype in SCANNABLE:
            matrix = numbers(dtype.str)
            source = ArraySource(matrix)
            assert source.dtype == dtype
            whole = source.resident()
            assert whole is not None
            assert whole.ctypes.data == matrix.ctypes.data


class TestFortranArray(SourceContract):
    def make(self, matrix: np.ndarray) -> ArraySource:
        return ArraySource(np.asfortranarray(matrix))

    def test_gives_the_transpose_in_place(self) -> None:
        matrix = np.asfortranarray(numbers("f4"))
        source = ArraySource(matrix)
        assert source.resident() is None
        other = source.transposed()
        assert other is not None
        whole = other.resident()
        assert whole is not None
        assert whole.ctypes.data == matrix.ctypes.data


class TestColumnsOfAWiderArray(SourceContract):
    def make(self, matrix: np.ndarray) -> ArraySource:
        wide = np.full((2 * len(matrix), matrix.shape[1] + 7), -1.0)
        wide[::2, 3 : 3 + matrix.shape[1]] = matrix
        return ArraySource(wide[::2, 3 : 3 + matrix.shape[1]])

    def test_resident_is_wider(self, source: ArraySource) -> None:
        whole = source.resident()
        assert whole is not None
        assert whole.shape == (N_ROWS, 2 * (N_COLUMNS + 7))
        assert np.shares_memory(whole[0], source.array[0])


class TestReversedArray(SourceContract):
    def make(self, matrix: np.ndarray) -> ArraySource:
        backwards = np.ascontiguousarray(matrix[::-1, ::-1])
        return ArraySource(backwards[::-1, ::-1])

    def test_is_not_resident(self, source: ArraySource) -> None:
        assert source.resident() is None


class TestOverlappingRows(SourceContract):
    """A sliding window: rows share memory, so no C-contiguous view has them."""

    def matrix(self) -> np.ndarray:
        signal = np.random.default_rng(6).uniform(0, 1, N_ROWS + N_COLUMNS - 1)
        return np.lib.stride_tricks.sliding_window_view(signal, N_COLUMNS)

    def make(self, matrix: np.ndarray) -> ArraySource:
        return ArraySource(matrix)

    def test_is_not_resident(self, source: ArraySource) -> None:
        assert source.resident() is None
        assert ArraySource(np.broadcast_to(np.arange(4.0), (3, 4))).resident() is None


class TestUnaligned(SourceContract):
    def make(self, matrix: np.ndarray) -> ArraySource:
        memory = np.zeros(matrix.nbytes + 1, np.uint8)
        array = memory[1:].view(np.float64).reshape(matrix.shape)
        array[...] = matrix
        return ArraySource(array)

    def test_is_not_resident(self, source: ArraySource) -> None:
        assert source.resident() is None


class TestBool(SourceContract):
    def matrix(self) -> np.ndarray:
        return numbers("?")

    def changed(self, matrix: np.ndarray) -> ArraySource:
        other = matrix.copy()
        other[-1, -1] ^= True
        return self.make(other)

    def make(self, matrix: np.ndarray) -> ArraySource:
        return ArraySource(matrix)

    def test_seen_in_place(self, source: ArraySource, expected: np.ndarray) -> None:
        assert source.dtype == np.uint8
        whole = source.resident()
        assert whole is not None
        assert whole.ctypes.data == expected.ctypes.data


@pytest.mark.parametrize(
    ("given", "offered"),
    [
        ("?", "u1"),
        ("i1", "i4"),
        ("i2", "i4"),
        ("i4", "i4"),
        ("i8", "i8"),
        ("u1", "u1"),
        ("u2", "u2"),
        ("u4", "i8"),
        ("u8", "i8"),
        ("f2", "f4"),
        ("f4", "f4"),
        ("f8", "f8"),
        ("g", "f8"),
        (">f8", "f8"),
        (">f4", "f4"),
        (">i4", "i4"),
        (">u2", "u2"),
        (">i2", "i4"),
    ],
)
def test_every_real_dtype(given: str, offered: str) -> None:
    matrix = numbers(given)
    source = ArraySource(matrix)
    assert source.dtype == np.dtype(offered)
    assert source.dtype.isnative
    np.testing.assert_array_equal(read(source, np.arange(N_ROWS)), matrix)
    np.testing.assert_array_equal(read(source, [3, 3, 0], 2, 5), matrix[[3, 3, 0], 2:5])
    assert (source.resident() is None) == (source.dtype != matrix.dtype and given != "?")


def test_conversion_is_done_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bigsap.sources.arrays.matrix.CONVERSION_BYTES", 100)
    matrix = numbers("i2")
    np.testing.assert_array_equal(read(ArraySource(matrix), np.arange(N_ROWS)), matrix)


def test_uint64_beyond_int64_names_row_and_column() -> None:
    matrix = np.zeros((5, 4), np.uint64)
    matrix[0, 0] = 2**63 - 1
    source = ArraySource(matrix)
    assert read(source, [0])[0, 0] == 2**63 - 1
    matrix[3, 2] = 2**63
    read(source, [3], 3, 4)
    with pytest.raises(OverflowRiskError, match=r"cost\[3, 2\] = 9223372036854775808") as caught:
        read(source, [4, 3], 1, 4)
    assert (caught.value.row, caught.value.column) == (3, 2)


def test_longdouble_beyond_float64_is_not_forbidden() -> None:
    matrix = np.ones((3, 3), np.longdouble)
    matrix[1, 1] = np.inf
    source = ArraySource(matrix)
    assert read(source, [1])[0, 1] == np.inf
    matrix[2, 0] = np.longdouble("1e400")
    with pytest.raises(InvalidCostError, match=r"cost\[2, 0\]"):
        read(source, [0, 2])


def test_nan_and_infinities_are_passed_on() -> None:
    matrix = np.array([[np.nan, np.inf], [-np.inf, 0.0]], np.float16)
    np.testing.assert_array_equal(read(ArraySource(matrix), [0, 1]), matrix)


def test_rows_outside_are_refused() -> None:
    for source in (ArraySource(numbers("f8")), ArraySource(numbers("i2"))):
        for row in (-1, N_ROWS):
            with pytest.raises(SourceError, match=f"row {row} is outside"):
                read(source, [0, row])


def test_fingerprint_of_a_large_matrix_is_sampled() -> None:
    matrix = np.zeros((64, FINGERPRINT_BYTES // 8 // 4))
    before = ArraySource(matrix).fingerprint()
    matrix[-1, -1] = 1
    assert ArraySource(matrix).fingerprint() != before
    wide = np.zeros((2, FINGERPRINT_BYTES))
    before = ArraySource(wide).fingerprint()
    wide[1, -1] = 1
    assert ArraySource(wide).fingerprint() != before


def test_fingerprint_tells_shapes_and_dtypes_apart() -> None:
    zeros = [np.zeros(s, d) for s in ((4, 6), (6, 4), (0, 4), (4, 0)) for d in ("f8", "i8")]
    assert len({ArraySource(z).fingerprint() for z in zeros}) == len(zeros)


class OnlySlices:
    """What h5py and its like offer, and nothing more; says when two threads are in."""

    def __init__(self, matrix: np.ndarray) -> None:
        self._matrix = matrix
        self.shape = matrix.shape
        self.dtype = matrix.dtype
        self.asked: list[object] = []
        self._busy = threading.Lock()

    @contextmanager
    def _busy_or_fail(self) -> Iterator[None]:
        assert self._busy.acquire(blocking=False), "asked by two threads at once"
        try:
            yield
        finally:
            self._busy.release()

    def __getitem__(self, where: object) -> np.ndarray:
        with self._busy_or_fail():
            self.asked.append(where)
            return self._matrix[where].copy()


class TestSliceable(SourceContract):
    def make(self, matrix: np.ndarray) -> SliceableSource:
        source = as_source(OnlySlices(matrix))
        assert isinstance(source, SliceableSource)
        return source


class TestSliceableBigEndian(TestSliceable):
    def make(self, matrix: np.ndarray) -> SliceableSource:
        return super().make(matrix.astype(">f8"))


def test_sliceable_runs_are_asked_together() -> None:
    given = OnlySlices(numbers("u1"))
    read(as_source(given), [2, 3, 4, 4, 1], 1, 6)
    assert given.asked == [(slice(2, 5), slice(1, 6)), (slice(4, 5), slice(1, 6)), (slice(1, 2), slice(1, 6))]


def test_sliceable_is_asked_by_one_thread_at_a_time() -> None:
    class Slow(OnlySlices):
        def __getitem__(self, where: object) -> np.ndarray:
            with self._busy_or_fail():
                time.sleep(0.002)
                return self._matrix[where]

    matrix = numbers("f4")
    source = as_source(Slow(matrix))
    with ThreadPoolExecutor(4) as pool:
        for got in pool.map(lambda _: read(source, [1, 5]), range(12)):
            np.testing.assert_array_equal(got, matrix[[1, 5]])


def test_sliceable_that_fails_or_lies() -> None:
    class Failing(OnlySlices):
        def __getitem__(self, where: object) -> np.ndarray:
            raise OSError("disk on fire")

    class Short(OnlySlices):
        def __getitem__(self, where: object) -> np.ndarray:
            return self._matrix[where][:, 1:]

    class OtherDtype(OnlySlices):
        def __getitem__(self, where: object) -> np.ndarray:
            return self._matrix[where].astype("f4")

    matrix = numbers("f8")
    with pytest.raises(SourceError, match=r"rows 3 to 4.*disk on fire") as caught:
        read(as_source(Failing(matrix)), [3, 4])
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(ShapeError, match=r"shape \(1, 8\) for rows 3 to 3.*expected \(1, 9\)"):
        read(as_source(Short(matrix)), [3])
    with pytest.raises(DtypeError, match=r"gave dtype float32.*promised float64"):
        read(as_source(OtherDtype(matrix)), [3])


class TestNpy(SourceContract):
    order = "C"

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self._folder = tmp_path

    def make(self, matrix: np.ndarray) -> ArraySource:
        path = self._folder / "costs.npy"
        # A new file each time: truncating one that is mapped would kill the test.
        path.unlink(missing_ok=True)
        np.save(path, np.asarray(matrix, order=self.order))
        return from_npy(path)

    def test_is_mapped(self, source: ArraySource) -> None:
        whole = source.resident() if self.order == "C" else source.transposed().resident()
        assert isinstance(whole.base, np.memmap) or isinstance(whole.base.base, np.memmap)
        assert not whole.flags.writeable


class TestFortranNpy(TestNpy):
    order = "F"


class TestBadNpy:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "costs.npy"
        np.save(path, numbers("f8"))
        return path

    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match=r"nowhere\.npy.*does not exist"):
            as_source(str(tmp_path / "nowhere.npy"))

    @pytest.mark.parametrize("keep", [0, 3, 8, 40, 127, 128, 500])
    def test_truncated(self, path: Path, keep: int) -> None:
        path.write_bytes(path.read_bytes()[:keep])
        with pytest.raises(StoreError, match=r"costs\.npy"):
            from_npy(path)

    def test_truncated_says_so(self, path: Path) -> None:
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(StoreError, match=r"truncated: 1063 bytes, but shape \(13, 9\)"):
            from_npy(path)

    def test_too_long(self, path: Path) -> None:
        path.write_bytes(path.read_bytes() + b"x")
        with pytest.raises(StoreError, match="longer than its header says"):
            from_npy(path)

    @pytest.mark.parametrize("at", range(0, 128, 3))
    def test_damaged_header_never_crashes(self, path: Path, at: int) -> None:
        data = bytearray(path.read_bytes())
        data[at] ^= 0xFF
        path.write_bytes(bytes(data))
        try:
            source = from_npy(path)
        except InputError:
            return
        assert source.shape == (N_ROWS, N_COLUMNS)

    def test_not_npy_at_all(self, path: Path) -> None:
        path.write_text("1,2\n3,4\n")
        with pytest.raises(StoreError, match=r"not a readable \.npy file"):
            from_npy(path)

    def test_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="not a readable"):
            from_npy(tmp_path)

    def test_pickles_are_refused_unread(self, path: Path) -> None:
        np.save(path, np.array([[1, None]], dtype=object), allow_pickle=True)
        with pytest.raises(DtypeError, match=r"costs\.npy.* dtype object"):
            from_npy(path)

    def test_structured(self, path: Path) -> None:
        np.save(path, np.zeros((2, 2), [("a", "f8")]))
        with pytest.raises(DtypeError, match="real numbers"):
            from_npy(path)

    @pytest.mark.parametrize("shape", [(), (4,), (2, 2, 2)])
    def test_not_a_matrix(self, path: Path, shape: tuple[int, ...]) -> None:
        np.save(path, np.zeros(shape))
        with pytest.raises(ShapeError, match=r"costs\.npy.*a cost matrix has 2"):
            from_npy(path)

    @pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
    def test_empty_is_fine(self, path: Path, shape: tuple[int, int]) -> None:
        np.save(path, np.zeros(shape, "i4"))
        source = from_npy(path)
        assert source.shape == shape
        assert source.dtype == np.int32

    def test_the_third_format(self, tmp_path: Path) -> None:
        with (tmp_path / "third.npy").open("wb") as file:
            np.lib.format.write_array(file, numbers("f8"), version=(3, 0))
        assert np.array_equal(from_npy(tmp_path / "third.npy").array, numbers("f8"))

    def test_recognised_by_its_first_bytes(self, path: Path) -> None:
        other = path.with_name("costs.dat")
        path.rename(other)
        assert as_source(other).shape == (N_ROWS, N_COLUMNS)


class TestAsSource:
    def test_lists_and_matrices(self) -> None:
        for given in ([[1, 2], [3, 4]], ((1, 2), (3, 4)), [np.array([1, 2]), range(3, 5)]):
            source = as_source(given)
            assert source.dtype == np.int64
            np.testing.assert_array_equal(read(source, [1, 0]), [[3, 4], [1, 2]])
        with pytest.warns(PendingDeprecationWarning):
            matrix = np.matrix([[1.0, 2.0], [3.0, 4.0]])
        np.testing.assert_array_equal(read(as_source(matrix), [1]), [[3, 4]])

    def test_an_array_is_not_copied(self) -> None:
        matrix = numbers("i4")
        source = as_source(matrix)
        assert isinstance(source, ArraySource)
        assert source.resident().ctypes.data == matrix.ctypes.data

    def test_empty(self) -> None:
        for shape in ((0, 0), (0, 3), (3, 0)):
            assert as_source(np.empty(shape)).shape == shape

    @pytest.mark.parametrize(
        ("given", "error", "words"),
        [
            ([[1, 2], [3]], ShapeError, "equally long"),
            ([1, 2], ShapeError, r"1 dimension\(s\), shape \(2,\)"),
            (3.0, ShapeError, "0 dimension"),
            (np.zeros((2, 2, 2)), ShapeError, "3 dimension"),
            (np.zeros((2, 2), complex), DtypeError, "complex128"),
            (np.zeros((2, 2), object), DtypeError, "dtype object"),
            (np.zeros((2, 2), "M8[s]"), DtypeError, "datetime64"),
            (np.zeros((2, 2), "m8[s]"), DtypeError, "timedelta64"),
            ([["a", "b"], ["c", "d"]], DtypeError, "<U1"),
            (np.array([["a"]], np.dtypes.StringDType()), DtypeError, "real numbers"),
            ([[1, None], [2, 3]], InvalidCostError, r"cost\[0, 1\] is missing"),
            (None, DtypeError, "the costs are None"),
            ([[1, 2], [3, 2**1024]], InvalidCostError, r"at \[1, 1\] that float64 cannot"),
            ({1: 2}, DtypeError, "dict"),
            (np.ma.masked_array([[1.0, 2.0]], mask=[[0, 1]]), InvalidCostError, r"\[0, 1\] is m"),
        ],
    )
    def test_what_is_no_matrix(self, given: object, error: type, words: str) -> None:
        with pytest.raises(error, match=words):
            as_source(given)

    def test_shape_must_agree(self) -> None:
        assert as_source(np.zeros((2, 3)), shape=(2, 3)).shape == (2, 3)
        with pytest.raises(ShapeError, match=r"shape=\(3, 2\) contradicts.*\(2, 3\)"):
            as_source(np.zeros((2, 3)), shape=(3, 2))
        with pytest.raises(ShapeError, match="negative"):
            as_source(np.zeros((2, 3)), shape=(-2, 3))

    def test_args_are_for_callables(self) -> None:
        with pytest.raises(OptionError, match="args= is for callables"):
            as_source(np.zeros((2, 3)), args=(1,))
        with pytest.raises(OptionError, match=r"args=\(x,\)"):
            as_source(lambda i, j, x: 0.0, shape=(2, 2), args=np.zeros(3))  # type: ignore[arg-type]

    def test_callables_need_a_shape(self) -> None:
        with pytest.raises(OptionError, match="needs shape"):
            as_source(lambda i, j: 0.0)

    def test_callables(self) -> None:
        source = as_source(lambda i, j, k: float(i * k + j), shape=(4, 5), args=(10,))
        np.testing.assert_array_equal(read(source, [3, 1], 2, 4), [[32, 33], [12, 13]])

    def test_a_ready_source_is_itself(self) -> None:
        source = ArraySource(numbers("f8"))
        assert as_source(source) is source

    def test_a_source_that_breaks_its_promises(self) -> None:
        class Mine:
            shape = (2, 2)
            dtype = np.dtype("i2")

            def read(self, rows: object, columns: object, out: object) -> None: ...

        with pytest.raises(DtypeError, match="Mine has dtype int16"):
            as_source(Mine())
        Mine.dtype = np.dtype("f8")
        assert isinstance(as_source(Mine()), Mine)
        Mine.shape = [2, 2]
        with pytest.raises(ShapeError, match="tuple of two ints"):
            as_source(Mine())

    def test_dtype_converts_row_by_row(self) -> None:
        source = as_source([[1, 2], [3, 4]], dtype="f4")
        assert source.dtype == np.float32
        np.testing.assert_array_equal(read(source, [1]), np.array([[3, 4]], "f4"))

    def test_device_arrays(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "cupy", None)  # nor where it is installed

        class OnDevice:
            shape = (2, 2)
            dtype = np.dtype("f8")
            __cuda_array_interface__: dict[str, object] = {}  # noqa: RUF012

            def __getitem__(self, where: object) -> float:
                raise AssertionError("a silent copy")

        with pytest.raises(InputError, match='device="cuda"'):
            as_source(OnDevice())

    def test_dlpack(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "cupy", None)

        class Tensor:
            dtype = "tensor.float64"

            def __init__(self, array: np.ndarray, device: int) -> None:
                self._array, self._device, self.shape = array, device, array.shape

            def __dlpack__(self, **options: object) -> object:
                return self._array.__dlpack__(**options)

            def __dlpack_device__(self) -> tuple[int, int]:
                return self._device, 0

            def __getitem__(self, where: object) -> float:
                raise AssertionError("asked one by one")

        matrix = numbers("f8")
        source = as_source(Tensor(matrix, 1))
        assert source.resident().ctypes.data == matrix.ctypes.data
        with pytest.raises(InputError, match='device="cuda"'):
            as_source(Tensor(matrix, 2))

    def test_xarray_gives_its_data(self) -> None:
        kind = type("DataArray", (), {"__module__": "xarray.core.dataarray"})
        array = kind()
        array.data = numbers("u2")
        assert as_source(array).dtype == np.uint16

    def test_dask(self) -> None:
        class Dask:
            __module__ = "dask.array.core"

            def __init__(self, nbytes: float) -> None:
                self.nbytes, self.shape, self.dtype = nbytes, (2, 2), np.dtype("f8")

            def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
                return np.eye(2)

            def __getitem__(self, where: object) -> float:
                raise AssertionError("a graph a row")

        assert read(as_source(Dask(32)), [0])[0, 0] == 1
        with pytest.raises(InputError, match="write to zarr first"):
            as_source(Dask(65 << 20))
        with pytest.raises(ShapeError, match="compute_chunk_sizes"):
            as_source(Dask(float("nan")))

    def test_dask_frames(self) -> None:
        pandas, frames = import_module("pandas"), import_module("dask.dataframe")
        matrix = numbers("f8")
        frame = frames.from_pandas(pandas.DataFrame(matrix), npartitions=2)
        source = as_source(frame)
        np.testing.assert_array_equal(read(source, np.arange(len(matrix))), matrix)

    def test_paths(self, tmp_path: Path) -> None:
        np.save(tmp_path / "c.npy", numbers("f4"))
        for path in (tmp_path / "c.npy", str(tmp_path / "c.npy")):
            assert as_source(path).dtype == np.float32
        pytest.importorskip("zarr")
        with pytest.raises(StoreError, match="does not exist"):
            as_source(tmp_path / "nowhere.zarr")
        (tmp_path / "text").write_text("hello")
        with pytest.raises(StoreError, match=r"neither a \.npy file .* nor a zarr store"):
            as_source(tmp_path / "text")

    def test_without_zarr_the_extra_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(__import__("sys").modules, "zarr", None)
        with pytest.raises(InputError, match=r"pip install \"bigsap\[zarr\]\""):
            from_zarr(tmp_path)
