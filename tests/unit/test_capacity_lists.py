"""The lists of rows that a column keeps for another: what is not listed has a rise beyond the limit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from bigsap.engine.capacity.columns import insert


class Lists(NamedTuple):
    """Of ``engine.capacity.columns.Columns``, what ``insert`` reads and writes."""

    limit: np.ndarray
    rise: np.ndarray
    row: np.ndarray
    size: np.ndarray


@pytest.mark.parametrize("width", [1, 2, 5])
def test_rows_beyond_the_list_have_rises_beyond_its_limit(width: int) -> None:
    rng = np.random.default_rng(width)
    for _ in range(200):
        lists = Lists(
            np.full((1, 1), np.inf),
            np.empty((1, 1, width)),
            np.full((1, 1, width), -1, np.int32),
            np.zeros((1, 1), np.int64),
        )
        here: dict[int, float] = {}
        for row in range(30):
            size = int(lists.size[0, 0])
            if size and rng.random() < 0.4:  # the row of least rise leaves
                lists.size[0, 0] = size - 1
                del here[int(lists.row[0, 0, size - 1])]
                continue
            here[row] = float(rng.integers(0, 20))
            if here[row] < lists.limit[0, 0]:
                insert(0, 0, row, here[row], lists)
            size = int(lists.size[0, 0])
            listed = dict(zip(lists.row[0, 0, :size].tolist(), lists.rise[0, 0, :size].tolist(), strict=True))
            assert listed == {one: here[one] for one in listed}
            assert sorted(listed.values(), reverse=True) == list(listed.values())
            assert all(rise >= lists.limit[0, 0] for one, rise in here.items() if one not in listed)
