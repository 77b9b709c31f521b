"""Alternating trees from all free rows at once, under one clock, on rows' lists.

The alternating-tree variant of the Hungarian method (Date and Nagi 2016, section 2.3 and
algorithms 4 to 9) with three changes:

* *A clock instead of dual updates.* ``key[j]`` is the time at which column j becomes tight;
  the row that makes it tight is stored too. In the forest the clock D implies the duals: a row's is
  ``u + (D - since)``, a column's price ``v - (D - entered)``. Stored duals change when a column
  leaves the forest. A dual update scans only the keys.
* *Grafting.* After an augmentation the trees without a path stay: their slacks are unchanged. The
  clock never goes back, so it never exceeds the total rise of one root's dual.
* *Lists.* A row consists of its cheapest columns and a threshold (``engine.lists.layout``). Prices
  only fall, so no other column can become tight before ``ends[i]``. Then the row is evaluated again.

This module defines the forest, its start on lists, its end, and the implied prices; ``grow`` has
the growth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.engine.core import state as S
from bigsap.engine.core.record import numbers, record, set_numbers
from bigsap.engine.core.state import ID
from bigsap.engine.lists.layout import Lists
from bigsap.errors import CheckpointError
from bigsap.types import Array

#: Positions up to which a sorted list may be scanned, before all of it is.
CUTS = np.array([6, 16, 64])
WHOLE = 4
# Lists up to this length are sorted by insertion.
_INSERTED = 128
#: List entries sorted between two polls.
_ARRANGED = 1 << 22

# State of a column: untouched, waiting for its time, tight now, in the forest.
FAR, WAITING, TIGHT, REACHED = range(4)

# Steps of ``run_forest``. AMIDST: ADVANCE, after the kernel has returned in the middle of it.
EXPAND, TAKE, ADVANCE, EVALUATE, AMIDST = range(5)


class ForestStanding:
    """Progress of the forest: ``Forest.at``; includes the counts of ``Result.stats["trees"]``."""

    step: int
    position: int  # in the frontier
    n_rows: int
    n_columns: int
    n_touched: int
    n_tight: int
    n_frontier: int
    n_leaves: int
    left: int  # free rows
    stages: int  # joint augmentations
    paths: int  # single augmentations
    levels: int  # breadth-first
    clock_steps: int
    expansions: int  # of rows
    list_events: int  # exhausted lists
    work: int  # entries and keys processed
    roots: int  # free rows at the beginning
    mark: int  # work when ``left`` was ``mark_left``
    mark_left: int
    clock: float  # never goes back


class Forest(NamedTuple):
    """Arrays of the forest. P is the price type, see ``State``.

    key: P (n_columns,) the time at which a column outside the forest becomes tight, infinity if
    unknown; pred, pred_cost: the row that makes it tight, and the cost of the pair. kind: uint8
    (n_columns,). entered: P (n_columns,) the clock when it was reached. u, since, ends: P (n_rows,)
    a forest row's dual when it was reached, the clock then, and the time at which the rest of its
    list, or of all columns, can become tight. place: uint8 (n_rows,) parts of the list processed,
    WHOLE for all; bounds: P (n_rows, CUTS), see ``arrange``. root: ID (n_rows,).
    leaf: ID (n_rows,) smallest free column of the root's tree, n_columns if there is none.
    rows, columns: members of the forest; touched: columns with a key; tight: those to take next;
    frontier: rows to expand next; roots: those with a leaf.
    """

    key: Array
    pred: Array
    pred_cost: Array
    kind: Array
    entered: Array
    u: Array
    since: Array
    ends: Array
    place: Array
    bounds: Array
    root: Array
    leaf: Array
    rows: Array
    columns: Array
    touched: Array
    tight: Array
    frontier: Array
    roots: Array
    at: ForestStanding


def forest(n: int, m: int, price: np.dtype[Any]) -> Forest:
    """Allocate a forest without trees. Fourteen vectors."""
    return Forest(
        key=np.full(m, S.infinity(price), price),
        pred=np.zeros(m, ID),
        pred_cost=np.zeros(m, price),
        kind=np.zeros(m, np.uint8),
        entered=np.zeros(m, price),
        u=np.zeros(n, price),
        since=np.zeros(n, price),
        ends=np.zeros(n, price),
        place=np.zeros(n, np.uint8),
        bounds=np.zeros((n, CUTS.size), price),
        root=np.zeros(n, ID),
        leaf=np.full(n, m, ID),
        rows=np.zeros(n, ID),
        columns=np.zeros(m, ID),
        touched=np.zeros(m, ID),
        tight=np.zeros(m, ID),
        frontier=np.zeros(n, ID),
        roots=np.zeros(n, ID),
        at=record(ForestStanding, price),
    )


def kept(f: Forest) -> dict[str, Array]:
    """Return the data to continue the forest later: its own arrays, and copies of its numbers."""
    stored = numbers(f.at, ForestStanding)
    arrays = {name: array for name, array in f._asdict().items() if name not in ("at", "entered")}
    return arrays | {"at": f.entered, "words": stored["words"], "clock": stored["values"]}


def continued(f: Forest, saved: dict[str, Array]) -> None:
    """Restore the data of ``kept``. Raises CheckpointError if it belongs to another problem."""
    for name, here in kept(f).items():
        there = saved[name]
        if there.dtype != here.dtype or there.shape != here.shape:
            raise CheckpointError(f"the checkpoint's forest does not fit: {name}")
        here[:] = there
    set_numbers(f.at, ForestStanding, {"words": saved["words"], "values": saved["clock"]})


@kernel(nrt=True)
def arrange(lists: Lists, rows: Array, v: Array, f: Forest, infinity: float) -> None:
    """Sort the lists of ``rows``, just evaluated under the prices v, by ``c - v``.

    As prices fall, these numbers only grow. Neither entries behind a cut nor columns outside the
    list can become tight before the cut's bound does: the smaller of the cut's entry and the
    threshold, which may lie below entries. O(entries log(entries)).
    """
    longest = 1
    for p in range(rows.size):
        longest = max(longest, lists.size[rows[p]])
    tau = np.empty(longest, v.dtype)
    ids, costs = np.empty(longest, ID), np.empty(longest, v.dtype)
    for p in range(rows.size):
        row = rows[p]
        start, size = lists.start[row], lists.size[row]
        f.place[row] = 0
        if size > _INSERTED:
            for k in range(size):
                ids[k], costs[k] = lists.ids[start + k], lists.costs[start + k]
                tau[k] = costs[k] - v[ids[k]]
            order = np.argsort(tau[:size], kind="mergesort")
            for k in range(size):
                lists.ids[start + k] = ids[order[k]]
                lists.costs[start + k] = costs[order[k]]
            for c in range(CUTS.size):
                f.bounds[row, c] = min(tau[order[CUTS[c]]], lists.theta[row]) if CUTS[c] < size else infinity
            continue
        for k in range(size):
            j, cost = lists.ids[start + k], lists.costs[start + k]
            g = cost - v[j]
            place = k
            while place > 0 and tau[place - 1] > g:
                tau[place] = tau[place - 1]
                lists.ids[start + place] = lists.ids[start + place - 1]
                lists.costs[start + place] = lists.costs[start + place - 1]
                place -= 1
            tau[place] = g
            lists.ids[start + place], lists.costs[start + place] = j, cost
        for c in range(CUTS.size):
            f.bounds[row, c] = min(tau[CUTS[c]], lists.theta[row]) if CUTS[c] < size else infinity


def arrange_all(lists: Lists, v: Array, f: Forest, infinity: Any, look: Callable[[], None]) -> None:
    """Sort all lists. look: called about every tenth of a second; it may raise."""
    n = lists.start.size
    step = max(1, _ARRANGED // max(1, int(lists.counts.first_width)))
    for start in range(0, n, step):
        arrange(lists, np.arange(start, min(start + step, n), dtype=ID), v, f, infinity)
        look()


@kernel
def plant(lists: Lists, v: Array, column_of_row: Array, f: Forest, infinity: float) -> None:
    """Make every free row a root, at time 0. O(entries)."""
    at = f.at
    count = 0
    for row in range(column_of_row.size):
        if column_of_row[row] >= 0:
            continue
        low = infinity
        for k in range(lists.start[row], lists.start[row] + lists.size[row]):
            low = min(low, lists.costs[k] - v[lists.ids[k]])
        # If ties fill a list, or all pairs are forbidden, the threshold may be the minimum.
        low = min(low, lists.theta[row])
        f.u[row] = low if low < infinity else 0
        f.since[row] = 0
        f.root[row] = row
        f.rows[count] = row
        f.frontier[count] = row
        count += 1
    at.n_rows = at.n_frontier = count
    at.left = at.roots = at.mark_left = count
    at.step, at.position = EXPAND, 0


@kernel
def judge(lists: Lists, f: Forest, infinity: float) -> int:
    """Count the lists of the frontier that are exhausted now; move their rows first. O(frontier)."""
    ended = 0
    for p in range(f.at.n_frontier):
        row = f.frontier[p]
        theta = lists.theta[row]
        ends = infinity
        if theta < infinity:
            ends = (theta - f.u[row]) + f.since[row]
        f.place[row] = 0
        if ends <= f.at.clock:
            f.frontier[p] = f.frontier[ended]
            f.frontier[ended] = row
            ended += 1
    return ended


def true_prices(v: Array, f: Forest) -> Array:
    """Return a copy of the prices, with the implied prices of the forest. O(n_columns)."""
    prices: Array = v.copy()
    columns = f.columns[: f.at.n_columns]
    prices[columns] -= f.at.clock - f.entered[columns]
    return prices


@kernel
def rebase(v: Array, f: Forest) -> None:
    """Store the implied duals: nothing changes, and v equals ``true_prices``.

    Must never depend on elapsed time: real sums would be rounded at other moments.
    """
    now = f.at.clock
    for p in range(f.at.n_rows):
        row = f.rows[p]
        f.u[row] += now - f.since[row]
        f.since[row] = now
    for p in range(f.at.n_columns):
        j = f.columns[p]
        v[j] -= now - f.entered[j]
        f.entered[j] = now


@kernel
def uproot(v: Array, f: Forest, infinity: float) -> None:
    """Discard the forest: store the true prices in v, without trees. O(forest, touched)."""
    rebase(v, f)
    at = f.at
    for p in range(at.n_columns):
        f.kind[f.columns[p]] = FAR
        f.key[f.columns[p]] = infinity
    for p in range(at.n_touched):
        j = f.touched[p]
        f.key[j] = infinity
        f.kind[j] = FAR
    for p in range(at.n_tight):
        f.kind[f.tight[p]] = FAR
    at.n_rows = at.n_columns = at.n_touched = 0
    at.n_tight = at.n_frontier = at.position = 0
