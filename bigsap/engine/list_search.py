"""Shortest augmenting paths on compressed rows, exact through threshold events.

Dijkstra over the lists. Besides columns, the queue holds *events*: a scanned row whose
threshold lies below the best free column found so far is queued at the key
``h + theta``; when it comes to the front, the row is evaluated anew and scanned again.
An unlisted column's label is never below its row's event, so no column is settled too
early: with epsilon 0 this is Dijkstra on the full graph. In phases with epsilon > 0
events may be postponed by some epsilons, since any prices are a legal start for the next
phase; labels found late may then lie below settled ones, which is why all that follows
uses the running maximum of the keys, lest a price rise.

One thread searches; evaluations of many rows at once use the whole team.
"""

from __future__ import annotations

from typing import NamedTuple

from numba import njit

from bigsap.engine.bounds import Blocks
from bigsap.engine.fetch import Terms
from bigsap.engine.lists import (
    DOUBLED,
    EVALUATIONS,
    PAIRS,
    POOL_USED,
    Lists,
    Scratch,
    evaluate_row,
    offset_of,
)
from bigsap.engine.state import GROUPED
from bigsap.sources.base import Array

# What run_searches returns.
DONE, YIELD, POOL_FULL, INFEASIBLE, BAD_COST = range(5)

# Words of Frontier.words.
(
    POSITION,  # next place in the order
    N_HEAP,
    N_TOUCHED,
    N_SETTLED,
    SCANS,
    N_DROPS,
    N_REQUESTS,  # rows waiting for an evaluation that only Python can do
    N_ABANDONED,  # roots to be searched again after those evaluations
    ROOT,
    N_CUT,  # searches given up because their tree grew too large
    GROUP_SIZE,
    WORD_COUNT,
) = range(12)

# Words of Frontier.values.
DROPS, GROUP_PRICE, VALUE_COUNT = range(3)


class Frontier(NamedTuple):
    """Search workspace. P is the price type.

    dist: P (n_columns,) label; infinity where unreached, the blocked price where
    settled. pred, pred_cost: row the label came from and its signed cost there.
    heap_key, heap_item: the queue; item >= 0 a column, < 0 the event of row -1 - item.
    Entries whose key is no longer the column's label are stale and skipped.
    h: P (n_rows,) for scanned rows, the number to which ``c - v`` adds up to a label.
    """

    dist: Array
    pred: Array
    pred_cost: Array
    heap_key: Array
    heap_item: Array
    touched: Array
    settled: Array
    settled_dist: Array
    h: Array
    reached: Array  # P (CHUNK or more,) labels of one list
    requests: Array  # ID (n_rows,)
    requested: Array  # uint8 (n_rows,)
    abandoned: Array  # ID (n_rows,)
    words: Array
    values: Array


@njit(nogil=True, cache=True)
def _push(keys: Array, items: Array, n: int, key: float, item: int) -> int:
    """Queue an item; among equal keys columns come before events. The new size."""
    place = n
    while place > 0:
        parent = (place - 1) // 2
        above = keys[parent]
        if above < key or (above == key and not (items[parent] < 0 and item >= 0)):
            break
        keys[place] = above
        items[place] = items[parent]
        place = parent
    keys[place] = key
    items[place] = item
    return n + 1


@njit(nogil=True, cache=True)
def _pop(keys: Array, items: Array, n: int) -> int:
    """Drop the first item of a queue of n; the new size."""
    n -= 1
    key, item = keys[n], items[n]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= n:
            break
        right = child + 1
        if right < n and (
            keys[right] < keys[child]
            or (keys[right] == keys[child] and items[right] >= 0 and items[child] < 0)
        ):
            child = right
        if key < keys[child] or (key == keys[child] and not (items[child] >= 0 and item < 0)):
            break
        keys[place] = keys[child]
        items[place] = items[child]
        place = child
    if n > 0:
        keys[place] = key
        items[place] = item
    return n


@njit(nogil=True, cache=True)
def _compact(keys: Array, items: Array, n: int, dist: Array) -> int:
    """Rebuild the queue without its stale entries; the new size."""
    kept = 0
    for place in range(n):
        item = items[place]
        if item < 0 or dist[item] == keys[place]:
            kept = _push(keys, items, kept, keys[place], item)
    return kept


@njit(nogil=True, cache=True)
def _clear(n_touched: int, touched: Array, dist: Array, infinity: float) -> None:
    for k in range(n_touched):
        dist[touched[k]] = infinity


@njit(nogil=True, cache=True)
def run_searches(
    v: Array, open_price: Array, column_of_row: Array, row_of_column: Array, match_cost: Array,
    group: Array, f: Frontier, lists: Lists, blocks: Blocks, order: Array, backward: bool,
    epsilon: float, postpone: float, immediate: bool, slots: Array, from_fill: bool, terms: Terms,
    seed: int, scratch: Scratch, cut: int, budget: int,
) -> int:  # fmt: skip
    """Augment every row of ``order`` that is still ahead.

    immediate: evaluate rows here when an event asks for it (rows in ``slots``, or from
    the filler); otherwise the row joins the requests and its root the abandoned, with
    nothing changed, for another run after the evaluations. postpone: added to the key
    of every event. cut: settled columns after which a search is given up, its price
    changes kept and its root left free (phases with epsilon > 0 only; 0: never).
    match_cost: P (n_rows,) signed cost of each row's pair. group: rows holding virtual
    columns. budget: scans before returning YIELD, between two searches.
    """
    infinity, blocked = terms.infinity, terms.blocked
    zero = terms.sign - terms.sign
    n_columns = terms.n_columns
    n_group = group.size
    dist, pred, pred_cost = f.dist, f.pred, f.pred_cost
    keys, items = f.heap_key, f.heap_item
    touched, settled, settled_dist = f.touched, f.settled, f.settled_dist
    h_of, reached = f.h, f.reached
    words, values = f.words, f.values
    ids, costs, theta = lists.ids, lists.costs, lists.theta
    starts, sizes, widths = lists.start, lists.size, lists.width
    counters = lists.counters
    capacity = keys.size
    scans_at_entry = words[SCANS]
    position = words[POSITION]

    while position < order.size:
        if words[SCANS] - scans_at_entry >= budget:
            words[POSITION] = position
            return YIELD
        root = order[order.size - 1 - position] if backward else order[position]
        n_heap, n_touched, n_settled = 0, 0, 0
        best_free, sink, sink_row = infinity, -1, -1
        sink_cost = zero
        group_label, group_row, group_settled = infinity, -1, False
        group_at = infinity
        label = -infinity
        row, h = root, zero
        member = 0
        status = DONE
        abandoned = False
        given_up = False
        while True:
            # -- scan the row at h: relax its list, queue its event
            words[SCANS] += 1
            h_of[row] = h
            start, size = starts[row], sizes[row]
            for k in range(size):
                reached[k] = h + (costs[start + k] - v[ids[start + k]])
            for k in range(size):
                g = reached[k]
                if g < best_free:
                    j = ids[start + k]
                    old = dist[j]
                    if g < old:
                        if row_of_column[j] < 0:
                            best_free, sink, sink_row = g, j, row
                            sink_cost = costs[start + k]
                        else:
                            if old == infinity:
                                touched[n_touched] = j
                                n_touched += 1
                            dist[j] = g
                            pred[j] = row
                            pred_cost[j] = costs[start + k]
                            if n_heap == capacity:
                                n_heap = _compact(keys, items, n_heap, dist)
                            n_heap = _push(keys, items, n_heap, g, j)
            if n_group > 0 and not group_settled:
                g = h + ((zero - lists.reference[row]) - values[GROUP_PRICE])
                if g < group_label:
                    group_label, group_row = g, row
            event = h + theta[row]
            # Not limited by the group's label: once the group is settled, keys beyond it
            # count again.
            if event < best_free:
                event += postpone
                if event < best_free:
                    if n_heap == capacity:
                        n_heap = _compact(keys, items, n_heap, dist)
                    n_heap = _push(keys, items, n_heap, event, -1 - row)
            if group_settled and member < words[GROUP_SIZE]:
                row = group[member]
                h = label - ((zero - lists.reference[row]) - values[GROUP_PRICE])
                member += 1
                continue

            # -- the next column, event or sink
            found = False
            while n_heap > 0:
                key, item = keys[0], items[0]
                if key >= best_free or (not group_settled and key >= group_label):
                    break
                n_heap = _pop(keys, items, n_heap)
                if item >= 0:
                    if dist[item] != key:
                        continue
                    label = max(label, key)
                    dist[item] = blocked
                    settled[n_settled] = item
                    settled_dist[n_settled] = key
                    n_settled += 1
                    row = row_of_column[item]
                    h = label - (match_cost[row] - v[item])
                    found = True
                    break
                row = -1 - item
                h = h_of[row]
                if immediate:
                    before = theta[row]
                    while True:
                        counters[EVALUATIONS] += 1
                        pairs = evaluate_row(
                            row, widths[row], slots[0 if from_fill else row], from_fill, terms, v,
                            open_price, blocks, offset_of(row, seed, n_columns), scratch, lists,
                        )  # fmt: skip
                        if pairs < 0:
                            status = BAD_COST
                            break
                        counters[PAIRS] += pairs
                        if theta[row] > before:
                            break
                        # As many columns tie at the threshold as the list holds.
                        width = min(2 * widths[row], n_columns)
                        if counters[POOL_USED] + width > ids.size or width > reached.size:
                            status = POOL_FULL
                            break
                        starts[row] = counters[POOL_USED]
                        sizes[row] = 0
                        widths[row] = width
                        counters[POOL_USED] += width
                        counters[DOUBLED] += 1
                    found = status == DONE
                    break
                if f.requested[row] == 0:
                    f.requested[row] = 1
                    f.requests[words[N_REQUESTS]] = row
                    words[N_REQUESTS] += 1
                abandoned = True
                break
            if status != DONE or abandoned:
                break
            if found:
                if cut > 0 and n_settled >= cut and epsilon > zero:
                    given_up = True
                    break
                continue
            if not group_settled and group_label < best_free:
                label = max(label, group_label)
                if words[GROUP_SIZE] < n_group:
                    sink = GROUPED
                    break
                group_settled = True
                group_at = label
                member = 1
                row = group[0]
                h = label - ((zero - lists.reference[row]) - values[GROUP_PRICE])
                continue
            if sink < 0:
                status = INFEASIBLE
            else:
                label = max(label, best_free)
            break

        if status != DONE:
            _clear(n_touched, touched, dist, infinity)
            words[POSITION], words[ROOT] = position, root
            words[N_SETTLED] = n_settled
            if status == BAD_COST:
                words[ROOT] = row
            return status
        _clear(n_touched, touched, dist, infinity)
        if abandoned:
            f.abandoned[words[N_ABANDONED]] = root
            words[N_ABANDONED] += 1
            position += 1
            continue

        # -- lower the prices of the settled columns, flip the path
        for k in range(n_settled):
            j = settled[k]
            fall = label - settled_dist[k]
            values[DROPS] += fall
            v[j] -= fall + epsilon
        words[N_DROPS] += n_settled
        if group_settled:
            values[GROUP_PRICE] -= (label - group_at) + epsilon
        position += 1
        if given_up:
            words[N_CUT] += 1
            continue
        row, cost, column = sink_row, sink_cost, sink
        if sink == GROUPED:
            place = words[GROUP_SIZE]
            words[GROUP_SIZE] = place + 1
            row, column = group_row, GROUPED - place
            cost = zero - lists.reference[row]
            group[place] = row
        else:
            fall = label - best_free
            values[DROPS] += fall
            words[N_DROPS] += 1
            v[sink] -= fall + epsilon
            open_price[sink] = blocked
        while True:
            old = column_of_row[row]
            column_of_row[row] = column
            match_cost[row] = cost
            if column >= 0:
                row_of_column[column] = row
            if row == root:
                break
            if old <= GROUPED:
                # The row leaves the virtual columns; the row that reached them enters.
                column, row = old, group_row
                cost = zero - lists.reference[row]
                group[GROUPED - old] = row
            else:
                column, cost, row = old, pred_cost[old], pred[old]
    words[POSITION] = position
    return DONE
