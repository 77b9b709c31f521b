"""Records: what kernels write Python reads, and the other way round."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from bigsap.compile.decorator import kernel
from bigsap.engine.core.atomics import adding
from bigsap.engine.core.record import numbers, record, set_numbers

PRICES = [np.dtype(np.float64), np.dtype(np.int64)]
add_count = adding("count")


class Fields:
    place: int
    count: int
    label: float


@kernel
def step(kept):
    kept.place += 1
    kept.label += kept.place + kept.label
    return kept.count


@kernel
def count(kept, n):
    for _ in range(n):
        add_count(kept, 2)


@pytest.mark.parametrize("price", PRICES, ids=str)
def test_kernels_and_python_share_a_record(price):
    kept = record(Fields, price)
    kept.place, kept.count, kept.label = 3, 7, 5
    assert step(kept) == 7
    assert (kept.place, kept.label) == (4, 14)
    assert type(kept.label) is price.type


@pytest.mark.parametrize("price", PRICES, ids=str)
def test_numbers_are_what_a_checkpoint_holds(price):
    kept, again = record(Fields, price), record(Fields, price)
    kept.place, kept.count, kept.label = 3, 1 << 62, 5
    saved = numbers(kept, Fields)
    assert {name: (part.dtype, part.tolist()) for name, part in saved.items()} == {
        "words": (np.int64, [3, 1 << 62]),
        "values": (price, [5]),
    }
    set_numbers(again, Fields, {**saved, "other": np.zeros(4)})
    assert again == kept
    with pytest.raises(ValueError, match="zip"):
        set_numbers(again, Fields, saved | {"words": np.zeros(3, np.int64)})


def test_no_addition_is_lost():
    kept = record(Fields, PRICES[0])
    count(kept, 0)
    threads = [threading.Thread(target=count, args=(kept, 200_000)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kept.count == 4 * 2 * 200_000
