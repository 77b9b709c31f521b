"""The row cache against a plain-Python model of each policy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigsap.errors import OptionError
from bigsap.row_cache import ABSENT, RowCache, Rows, claim, parse_bytes, touch
from cache_models import LfuModel, SlruModel
from examples_of import examples


def use(rows: Rows, row: int, sweeping: bool) -> None:
    """What a kernel does with a row it needs."""
    slot = rows.table.slot_of_row[row]
    if slot == ABSENT:
        slot = claim(rows.table, row, sweeping)
        rows.table.slots[slot] = row
    elif not sweeping:
        touch(rows.table, slot)


def resident(rows: Rows) -> set[int]:
    return set(np.flatnonzero(rows.table.slot_of_row != ABSENT).tolist())


@examples(150)
@given(
    st.sampled_from(["slru", "lfu"]),
    st.integers(1, 6),
    st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=60),
)
def test_policies_follow_their_models(policy: str, n_slots: int, uses: list[tuple[int, bool]]) -> None:
    follow(policy, n_slots, uses)


@pytest.mark.parametrize("policy", ["slru", "lfu"])
@pytest.mark.parametrize("n_slots", [2, 4, 6])
def test_policies_follow_their_models_for_long(policy: str, n_slots: int) -> None:
    generator = np.random.default_rng(n_slots)
    # Most uses are of few rows: segments fill up, and rows move between them.
    often = np.minimum(generator.geometric(0.3, 600) - 1, 8).tolist()
    follow(policy, n_slots, list(zip(often, (generator.random(600) < 0.05).tolist(), strict=True)))


def follow(policy: str, n_slots: int, uses: list[tuple[int, bool]]) -> None:
    rows = Rows.cached((9, 2), np.dtype("f8"), RowCache(policy=policy), n_slots * 16)
    model = SlruModel(n_slots) if policy == "slru" else LfuModel(n_slots)
    for row, sweeping in uses:
        use(rows, row, sweeping)
        model.use(row, sweeping)
        assert resident(rows) == model.rows()
        for other in model.rows():
            slot = rows.table.slot_of_row[other]
            assert rows.table.row_of_slot[slot] == other
            assert rows.table.slots[slot].tolist() == [other, other]


@pytest.mark.parametrize("policy", ["slru", "lfu"])
def test_a_sweep_does_not_flush_the_cache(policy: str) -> None:
    rows = Rows.cached((100, 1), np.dtype("f8"), RowCache(policy=policy), 10 * 8)
    for _ in range(2):
        for row in range(10):
            use(rows, row, sweeping=False)
    for row in range(100):
        use(rows, row, sweeping=True)
    assert len(resident(rows) & set(range(10))) == 9


def test_a_cache_of_one_row_works_and_counts() -> None:
    rows = Rows.cached((5, 3), np.dtype("f4"), RowCache(policy="slru"), 12)
    for row in (0, 1, 1, 2, 0):
        use(rows, row, sweeping=False)
    assert (rows.n_slots, rows.hits, rows.misses, rows.bytes) == (1, 1, 4, 12)


def test_auto_takes_lfu_from_a_quarter_on() -> None:
    def chosen(slots: int) -> str:
        return Rows.cached((100, 1), np.dtype("f8"), RowCache(), slots * 8).policy

    assert chosen(24) == "slru"
    assert chosen(25) == "lfu"


def test_less_than_one_row_is_refused() -> None:
    with pytest.raises(OptionError, match=r"does not hold one row of 4 columns \(32 bytes\)"):
        Rows.cached((5, 4), np.dtype("f8"), RowCache(), 31)


def test_in_place_shares_memory_even_when_read_only() -> None:
    matrix = np.arange(6.0).reshape(2, 3)
    matrix.flags.writeable = False
    rows = Rows.in_place(matrix)
    assert np.shares_memory(rows.table.slots, matrix)
    assert rows.bytes == 0


@pytest.mark.parametrize(
    ("text", "size"),
    [("4GiB", 4 << 30), ("500 MB", 500_000_000), ("1e6", 1_000_000), ("2k", 2000), (7, 7), ("0.5KiB", 512)],
)
def test_byte_sizes(text: str | int, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("bad", ["", "many", "4 XB", -1, 1.5, True, None, "nan", "-3", "1e400", "1e308TiB"])
def test_bad_byte_sizes(bad: object) -> None:
    with pytest.raises(OptionError):
        parse_bytes(bad)  # type: ignore[arg-type]


def test_bad_options() -> None:
    with pytest.raises(OptionError, match="policy"):
        RowCache(policy="fifo")
    with pytest.raises(OptionError, match="cache bytes"):
        RowCache(bytes="lots")
