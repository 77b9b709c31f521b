"""Zarr arrays that tests write and read."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from bigsap.sources import from_zarr
from bigsap.sources.base import CostSource
from contracts import N_COLUMNS, N_ROWS

zarr = pytest.importorskip("zarr")

COSTS = np.random.default_rng(4).uniform(1, 9, (N_ROWS, N_COLUMNS))


def write(path: Any, matrix: np.ndarray, **options: Any) -> Any:
    """A zarr array with every chunk written. ``path``: a path or a store."""
    options = {"chunks": (4, N_COLUMNS), "compressors": None, "dtype": matrix.dtype, **options}
    array = zarr.create_array(store=path, shape=matrix.shape, config={"write_empty_chunks": True}, **options)
    array[...] = matrix
    return array


def quiet(path: Any) -> CostSource:
    """``from_zarr`` without the warning about chunks that split columns."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*bigsap rechunk.*")
        return from_zarr(path)
