"""Messages say what is wrong in words of their reader's, and nothing that he did not write."""

from __future__ import annotations

import functools
import os
import warnings
from pathlib import Path

import numpy as np
import pytest

import bigsap
from bigsap.display.text import result_lines
from bigsap.errors import StoreError
from bigsap.sources.constant import infinities, why_infinite
from bigsap.sources.functions.speed import PerformanceWarning


@pytest.mark.parametrize("name", ["costs.csv", "costs", "costs.txt"])
def test_a_file_that_is_no_matrix(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("1,2\n3,4\n")
    with pytest.raises(StoreError) as caught:
        bigsap.as_source(tmp_path / name)
    text = str(caught.value)
    assert name in text
    assert "neither a .npy file" in text
    assert ".npz file" in text
    assert "Group" not in text
    assert "StorePath" not in text


def test_a_matrix_of_numpy_is_no_zarr_store(tmp_path: Path) -> None:
    np.save(tmp_path / "costs.npy", np.eye(3))
    with pytest.raises(StoreError, match=r"is no zarr store but a \.npy file; use bigsap\.from_npy"):
        bigsap.from_zarr(tmp_path / "costs.npy")


def test_results_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    result = bigsap.solve(np.eye(3))
    with pytest.raises(FileNotFoundError) as caught:
        result.save(tmp_path / "missing" / "out.npz")
    assert "the folder does not exist" in str(caught.value)
    assert caught.value.filename == str(tmp_path / "missing")
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken") as other:
        result.save(tmp_path / "taken")
    assert ".tmp" not in str(other.value.filename)
    assert os.listdir(tmp_path) == ["taken"]


def test_a_partial_keeps_its_arrays_to_itself() -> None:
    data = np.full((200, 200), 123456.0)

    def pair(data: np.ndarray, i: int, j: int) -> float:
        return float(eval("1.0"))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bigsap.solve(functools.partial(pair, data), shape=data.shape)
    told = [str(w.message) for w in caught if w.category is PerformanceWarning]
    assert told
    assert "a partial of" in told[0]
    assert "pair" in told[0]
    assert "123456" not in told[0]

    class Odd:
        def __repr__(self) -> str:
            return "secret"

        def __call__(self, i: int, j: int) -> float:
            return float(eval("1"))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bigsap.solve(Odd(), shape=data.shape)
    assert not any("secret" in str(w.message) for w in caught)


def test_one_row_is_a_row() -> None:
    cost = np.ones((4, 4))
    cost[2] = np.inf
    result = bigsap.solve(cost)
    assert "row 2 has no column that is not forbidden" in result.message
    assert dict(result_lines(result))["violator"].startswith("1 row whose")
    cost[3] = np.inf
    cost[2:, 0] = 1
    assert "together, the 2 rows [2, 3]" in bigsap.solve(cost).message


# -- infinite costs ----------------------------------------------------------------------


def test_an_infeasible_result_tells_of_overflow() -> None:
    result = bigsap.solve(bigsap.expression("exp(800 + i + j)", (6, 6)))
    assert result.status == "infeasible"
    assert "costs 36 are infinite" not in result.message  # of the violating rows only
    assert "are infinite: the expression says inf nowhere" in result.message
    assert "exceed float64" in result.message


@pytest.mark.parametrize("method", ["ssp", "compressed"])
def test_inf_that_was_meant_is_counted_without_a_reason(method: str) -> None:
    code = "where(i < 2, where(j == 0, 1, inf), i + j)"
    result = bigsap.solve(bigsap.expression(code, (5, 5)), method=method)
    assert "Of 10 of their costs 8 are infinite." in result.message
    matrix = np.ones((5, 5))
    matrix[:2, 1:] = np.inf
    result = bigsap.solve(matrix, method=method)
    assert "Of 10 of their costs 8 are infinite." in result.message
    tall = bigsap.solve(np.ascontiguousarray(matrix.T), method=method)
    assert tall.status == "infeasible"
    assert "are infinite." in tall.message


def test_whose_infinities_they_are() -> None:
    far = bigsap.expression("exp(800 + i)", (3, 3))
    meant = bigsap.expression("where(i == j, inf, exp(800 + i))", (3, 3))
    given = bigsap.expression("x[i] + j", (2, 2), x=np.array([np.inf, 1]))
    near = np.zeros((3, 3))
    assert why_infinite(far)
    assert why_infinite(bigsap.sum_of([far, near]))
    assert why_infinite(bigsap.as_source(far, dtype="f4"))
    for source in (meant, given, bigsap.as_source(near), bigsap.scaled(near, 2.0)):
        assert why_infinite(source) is None
    assert infinities(bigsap.as_source(near), [0, 1]) == ""
    assert infinities(bigsap.as_source(near.astype(int)), [0, 1]) == ""
