"""Compressed zarr stores: what is decoded, when and by whom; stores written anew with other chunks."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigsap.errors import OptionError, SourceError, StoreError
from bigsap.sources import ArraySource, from_zarr
from bigsap.sources.zarr.decoded import DecodedZarrSource
from bigsap.sources.zarr.zarr_store import rechunk
from contracts import N_COLUMNS, N_ROWS, read
from gate import HANG_S, until
from zarr_files import COSTS, write

zarr = pytest.importorskip("zarr")


class Calls:
    """A zarr array that notes which rows are decoded, and by which thread."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.asked: list[tuple[int, int]] = []
        self.threads: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.array, name)

    def __getitem__(self, where: Any) -> Any:
        self.asked.append((where[0].start, where[0].stop))
        self.threads.add(threading.current_thread().name)
        return self.array[where]


@pytest.fixture
def counted(tmp_path: Path) -> tuple[DecodedZarrSource, Calls]:
    write(tmp_path / "c", COSTS, compressors="auto")
    source = from_zarr(tmp_path / "c")
    calls = Calls(source._layout.array)
    object.__setattr__(source._layout, "array", calls)
    return source, calls


class TestDecoding:
    def test_a_chunk_is_decoded_once(self, counted: tuple[DecodedZarrSource, Calls]) -> None:
        source, calls = counted
        for row in range(N_ROWS):
            read(source, [row])
        assert calls.asked == [(0, 4), (4, 8), (8, 12), (12, 13)]
        assert calls.threads == {"bigsap-read"}

    def test_the_same_with_reading_ahead(self, counted: tuple[DecodedZarrSource, Calls]) -> None:
        source, calls = counted
        for row in range(N_ROWS):
            read(source, [row])
            for ahead in range(row, N_ROWS):
                source.prefetch(ahead)
        assert calls.asked == [(0, 4), (4, 8), (8, 12), (12, 13)]

    def test_neighbours_are_decoded_by_one_call(self, counted: tuple[DecodedZarrSource, Calls]) -> None:
        source, calls = counted
        np.testing.assert_array_equal(read(source, [12, 0, 5, 1]), COSTS[[12, 0, 5, 1]])
        assert calls.asked == [(0, 8), (12, 13)]

    def test_what_is_held_is_not_decoded_again(self, counted: tuple[DecodedZarrSource, Calls]) -> None:
        source, calls = counted
        source.prefetch(5)
        np.testing.assert_array_equal(read(source, np.arange(8)), COSTS[:8])
        assert sorted(calls.asked) == [(0, 4), (4, 8)]

    def test_but_not_beyond_the_limit(
        self, counted: tuple[DecodedZarrSource, Calls], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("bigsap.sources.zarr.decoded.CALL_BYTES", 8 * 8 * N_COLUMNS)
        source, calls = counted
        np.testing.assert_array_equal(read(source, np.arange(N_ROWS)), COSTS)
        assert calls.asked == [(0, 8), (8, 13)]

    def test_errors_of_reading_ahead_wait_for_the_reader(
        self, counted: tuple[DecodedZarrSource, Calls], tmp_path: Path
    ) -> None:
        source, _ = counted
        (tmp_path / "c/c/1/0").write_bytes(b"")
        source.prefetch(5)
        read(source, [0])
        for _ in range(2):
            with pytest.raises(StoreError, match="rows 4 to 7"):
                read(source, [6])
        read(source, [8])

    def test_the_thread_ends_with_its_source(self, tmp_path: Path) -> None:
        write(tmp_path / "c", COSTS, compressors="auto")
        source = from_zarr(tmp_path / "c")
        before = set(threading.enumerate())
        read(source, [0])
        (thread,) = set(threading.enumerate()) - before
        assert thread.daemon
        del source
        gc.collect()
        thread.join(HANG_S)
        assert not thread.is_alive()

    def test_the_thread_does_not_keep_the_interpreter(self, tmp_path: Path) -> None:
        write(tmp_path / "c", COSTS, compressors="auto")
        code = (
            "import threading, time, sys\n"
            "from bigsap.sources import from_zarr\n"
            "source = from_zarr(sys.argv[1])\n"
            "class Slow:\n"
            "    def __getitem__(self, where): time.sleep(1000)\n"
            "object.__setattr__(source._layout, 'array', Slow())\n"
            "source.prefetch(0)\n"
            "print(threading.active_count())\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "c")],
            timeout=HANG_S,
            capture_output=True,
            text=True,
            check=True,
        )
        assert int(done.stdout) >= 2

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows does not fork")
    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_after_a_fork_it_says_so_instead_of_hanging(self, tmp_path: Path) -> None:
        write(tmp_path / "c", COSTS, compressors="auto")
        source = from_zarr(tmp_path / "c")
        read(source, [0])
        source.prefetch(4)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                source.prefetch(8)
                read(source, [12])
            except SourceError as error:
                code = 0 if "forked" in str(error) else 2
            finally:
                os._exit(code)
        _, how = until(lambda: (ended := os.waitpid(pid, os.WNOHANG)) != (0, 0) and ended)
        assert os.waitstatus_to_exitcode(how) == 0


class TestRechunk:
    @pytest.mark.parametrize("compress", [False, True])
    @pytest.mark.parametrize("rows", [None, 1, 4, 100])
    def test_from_npy(self, tmp_path: Path, rows: int | None, compress: bool) -> None:
        np.save(tmp_path / "a.npy", COSTS)
        target = rechunk(tmp_path / "a.npy", tmp_path / "b.zarr", rows=rows, compress=compress)
        assert target == tmp_path / "b.zarr"
        array = zarr.open(target, mode="r")
        assert array.metadata.zarr_format == 3
        assert array.chunks == (min(rows or N_ROWS, N_ROWS), N_COLUMNS)
        np.testing.assert_array_equal(array[...], COSTS)
        source = from_zarr(target)
        assert isinstance(source, DecodedZarrSource) == compress
        np.testing.assert_array_equal(read(source, np.arange(N_ROWS)), COSTS)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npy", "b.zarr"]

    @pytest.mark.parametrize("zarr_format", [2, 3])
    @pytest.mark.parametrize("dtype", [">i2", "f4", "u1", "u4"])
    def test_from_tiles(self, tmp_path: Path, dtype: str, zarr_format: int) -> None:
        matrix = np.random.default_rng(3).integers(0, 99, COSTS.shape).astype(dtype)
        write(tmp_path / "a", matrix, chunks=(5, 4), compressors="auto", zarr_format=zarr_format)
        seen: list[tuple[int, int]] = []
        rechunk(tmp_path / "a", tmp_path / "b", rows=3, progress=lambda *at: seen.append(at))
        assert seen == [(3, 13), (6, 13), (9, 13), (12, 13), (13, 13)]
        source = from_zarr(tmp_path / "b")
        assert source.dtype == ArraySource(matrix).dtype
        np.testing.assert_array_equal(read(source, np.arange(N_ROWS)), matrix)

    def test_chunks_are_a_few_mebibytes(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", np.zeros((700, 2000)))
        rechunk(tmp_path / "a.npy", tmp_path / "b")
        rows, columns = zarr.open(tmp_path / "b", mode="r").chunks
        assert columns == 2000
        assert 1 << 20 <= rows * columns * 8 <= 8 << 20

    def test_nan_and_inf_are_copied(self, tmp_path: Path) -> None:
        matrix = COSTS.copy()
        matrix[4:8] = np.nan
        matrix[8:10] = np.inf
        np.save(tmp_path / "a.npy", matrix)
        rechunk(tmp_path / "a.npy", tmp_path / "b", rows=2, compress=True)
        np.testing.assert_array_equal(read(from_zarr(tmp_path / "b"), np.arange(N_ROWS)), matrix)

    def test_an_existing_target_is_left_alone(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", COSTS)
        (tmp_path / "b").mkdir()
        (tmp_path / "c").symlink_to(tmp_path / "nowhere")
        for target in ("a.npy", "b", "c"):
            with pytest.raises(OptionError, match="exists already"):
                rechunk(tmp_path / "a.npy", tmp_path / target)
        assert list((tmp_path / "b").iterdir()) == []

    def test_a_failure_leaves_nothing(self, tmp_path: Path) -> None:
        write(tmp_path / "a", COSTS, compressors="auto")
        (tmp_path / "a/c/2/0").unlink()
        with pytest.raises(StoreError, match=r"rows 8 to 11.*is missing"):
            rechunk(tmp_path / "a", tmp_path / "b", rows=2)
        assert [p.name for p in tmp_path.iterdir()] == ["a"]

    def test_an_interruption_leaves_nothing(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", COSTS)

        def interrupt(done: int, total: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            rechunk(tmp_path / "a.npy", tmp_path / "b", rows=2, progress=interrupt)
        assert [p.name for p in tmp_path.iterdir()] == ["a.npy"]

    def test_where_it_cannot_be_written(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", COSTS)
        with pytest.raises(StoreError, match="cannot be written"):
            rechunk(tmp_path / "a.npy", tmp_path / "a.npy" / "b")

    @pytest.mark.parametrize("rows", [0, -1, 1.5, True, "3"])
    def test_bad_rows(self, tmp_path: Path, rows: Any) -> None:
        np.save(tmp_path / "a.npy", COSTS)
        with pytest.raises(OptionError, match="rows must be a positive integer"):
            rechunk(tmp_path / "a.npy", tmp_path / "b", rows=rows)

    def test_only_local_targets(self, tmp_path: Path) -> None:
        with pytest.raises(OptionError, match="local path"):
            rechunk(tmp_path / "a.npy", "s3://bucket/b")
