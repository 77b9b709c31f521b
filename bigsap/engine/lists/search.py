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

from bigsap.engine.core.atomics import prefetch
from bigsap.engine.core.fetch import Terms
from bigsap.engine.core.scan import LINE
from bigsap.engine.core.state import (
    DONE,
    GROUPED,
    INFEASIBLE,
    INVALID,
    PAUSE,
    POOL_FULL,
    REFIT,
    YIELD,
)
from bigsap.engine.lists.bounds import Blocks
from bigsap.engine.lists.hiding import leave_out, reveal, smallest_label
from bigsap.engine.lists.layout import Lists, Scratch
from bigsap.engine.lists.opening import RENEWED, renew
from bigsap.engine.lists.pool import NO_GROWTH, NO_ROOM, write_whole
from bigsap.engine.lists.workspace import (
    Frontier,
    clear,
    compact,
    pop,
    push,
)
from bigsap.native.kernel import kernel
from bigsap.sources.base import Array

# In place of a row: the virtual rows (n_rows < n_columns).
_VIRTUAL = -2
# The lists of so many rows that may be next are fetched while one is scanned.
_NEXT = 3
_MOST_AHEAD = 256


@kernel(nrt=True)
def _lower_cap(
    old: float, cap: float, n_virtual: int, v: Array, open_price: Array, row_of_column: Array
) -> int:
    """Bring the free columns from the old cap, or above the new one, down to the new one.

    Returns how many free columns there are at it beyond those that the virtual rows hold.
    """
    surplus = -n_virtual
    for j in range(v.size):
        if row_of_column[j] < 0:
            if v[j] == old or v[j] > cap:
                v[j] = cap
                open_price[j] = cap
            if v[j] == cap:
                surplus += 1
    return surplus


@kernel(nrt=True)
def _look_ahead(
    keys: Array, items: Array, n_heap: int, dist: Array, row_of_column: Array, lists: Lists
) -> None:
    """Fetch the lists of the rows at the front of the queue: they lie anywhere in the pool,
    and would be waited for. 3 to 7 % of a phase at 128,000 rows."""
    ids, costs = lists.ids, lists.costs
    for place in range(min(n_heap, _NEXT)):
        item = items[place]
        if item >= 0 and dist[item] == keys[place]:
            row = row_of_column[item]
            start, size = lists.start[row], min(lists.size[row], _MOST_AHEAD)
            # An address taken in the loops would cost more than all this gains.
            at = ids.ctypes.data + start * ids.itemsize
            for line in range(size * ids.itemsize // LINE + 1):
                prefetch(at + line * LINE)
            at = costs.ctypes.data + start * costs.itemsize
            for line in range(size * costs.itemsize // LINE + 1):
                prefetch(at + line * LINE)


@kernel(nrt=True)
def run_searches(
    v: Array, open_price: Array, column_of_row: Array, row_of_column: Array, match_cost: Array,
    group: Array, f: Frontier, lists: Lists, blocks: Blocks, order: Array, epsilon: float,
    postpone: float, immediate: bool, slots: Array, from_fill: bool, terms: Terms, seed: int,
    scratch: Scratch, gather: int, most_requests: int, longest: int, unit: float, refit: int,
    budget: int,
) -> int:  # fmt: skip
    """Augment every row of ``order`` that is still ahead.

    immediate: evaluate rows here when an event asks for it (rows in ``slots``, or from
    the filler); otherwise the row joins the requests and its root the abandoned, with
    nothing changed, for another run after the evaluations; PAUSE as soon as there are
    ``most_requests``. postpone: added to the key of every event.
    gather: scans for which a search goes on that will be abandoned, for the rows it may ask
    for next; as many again as it made before. 0: none.
    match_cost: P (n_rows,) signed cost of each row's pair. group: rows holding virtual
    columns. longest: entries a list may have. unit: the rounding of P. refit: evaluations,
    of all so far, at which to return REFIT, and budget: scans at which to return YIELD, both
    between two searches; within one at.stop makes it return YIELD. A row whose list may
    not grow is scanned as a whole for the event.

    The virtual rows hold free columns at the cap. While there are more than they need
    (at.surplus) each of these is a sink; after that a search that comes to one comes
    to all of them, and from there to every column at the label plus ``cap - v``.
    """
    infinity, blocked = terms.infinity, terms.blocked
    zero = terms.sign - terms.sign
    one = terms.sign * terms.sign
    n_columns = terms.n_columns
    n_group = group.size
    n_virtual = max(0, n_columns - column_of_row.size)
    dist, pred, pred_cost = f.dist, f.pred, f.pred_cost
    keys, items = f.heap_key, f.heap_item
    touched, settled, settled_dist = f.touched, f.settled, f.settled_dist
    h_of, reached = f.h, f.reached
    at = f.at
    ids, costs, theta = lists.ids, lists.costs, lists.theta
    starts, sizes = lists.start, lists.size
    capacity = keys.size
    scans_at_entry = at.scans
    position = at.position

    while position < order.size:
        at.position = position
        if lists.counts.evaluations >= refit:
            return REFIT
        if at.scans - scans_at_entry >= budget:
            return YIELD
        root = order[position]
        first_scan = at.scans
        n_heap, n_touched, n_settled = 0, 0, 0
        best_free, sink, sink_row = infinity, -1, -1
        sink_cost = zero
        group_label, group_row, group_settled = infinity, -1, False
        group_at = infinity
        cap, surplus = at.cap, at.surplus
        held_label, held_row, held_by, held_settled = infinity, -1, -1, False
        held_cost, held_at = zero, infinity
        label = -infinity
        row, h = root, zero
        member = 0
        status = DONE
        abandoned = False
        last_scan = 0
        skip_scan = whole = False
        while True:
            if at.stop != 0:
                status = YIELD
                break
            # -- scan the row at h: relax its list, queue its event
            if skip_scan:
                start, size, event = 0, 0, infinity
            else:
                at.scans += 1
                h_of[row] = h
                start, size = starts[row], sizes[row]
                event = h + theta[row]
                if whole:
                    start, size, event = ids.size - n_columns, n_columns, infinity
                    whole = False
            _look_ahead(keys, items, n_heap, dist, row_of_column, lists)
            for k in range(size):
                reached[k] = h + (costs[start + k] - v[ids[start + k]])
            for k in range(size):
                g = reached[k]
                if g < best_free:
                    j = ids[start + k]
                    old = dist[j]
                    if g < old:
                        if row_of_column[j] < 0:
                            if n_virtual > 0 and surplus == 0 and v[j] == cap:
                                if g < held_label and not held_settled:
                                    held_label, held_row, held_by = g, row, j
                                    held_cost = costs[start + k]
                            else:
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
                                n_heap = compact(keys, items, n_heap, dist)
                            n_heap = push(keys, items, n_heap, g, j)
            if n_group > 0 and not group_settled and not skip_scan:
                g = h + ((zero - lists.reference[row]) - at.group_price)
                if g < group_label:
                    group_label, group_row = g, row
            skip_scan = False
            # Not limited by the group's label: once the group is settled, keys beyond it
            # count again.
            if event < best_free:
                event += postpone + f.delay[row]
                if event < best_free or best_free == infinity:
                    event = min(event, infinity - one)  # int64: none may pass for infinity
                    if n_heap == capacity:
                        n_heap = compact(keys, items, n_heap, dist)
                    n_heap = push(keys, items, n_heap, event, -1 - row)
            if group_settled and member < at.group_size:
                row = group[member]
                h = label - ((zero - lists.reference[row]) - at.group_price)
                member += 1
                continue

            # -- the next column, event or sink
            found = False
            while n_heap > 0:
                key, item = keys[0], items[0]
                if key >= best_free or (not group_settled and key >= group_label):
                    break
                if not held_settled and key >= held_label:
                    break
                n_heap = pop(keys, items, n_heap)
                if item >= 0:
                    if dist[item] != key:
                        continue
                    label = max(label, key)
                    dist[item] = blocked
                    settled[n_settled] = item
                    settled_dist[n_settled] = key
                    n_settled += 1
                    if at.n_hidden > 0:
                        leave_out(item, key, blocked, f)
                    row = row_of_column[item]
                    h = label - (match_cost[row] - v[item])
                    found = True
                    break
                row = -1 - item
                h = h_of[row]
                if immediate:
                    renewed = renew(
                        row, slots, from_fill, terms, v, open_price, blocks, seed, scratch, lists,
                        longest, f, n_settled, label,
                    )  # fmt: skip
                    if renewed == NO_GROWTH:
                        whole = write_whole(row, slots, from_fill, terms, scratch.near, lists)
                        status = DONE if whole else INVALID
                    elif renewed != RENEWED:
                        status = POOL_FULL if renewed == NO_ROOM else INVALID
                    elif f.slack[row] < infinity and postpone > zero:
                        f.delay[row] = min(2 * f.delay[row] + postpone, max(label, postpone))
                    found = status == DONE
                    break
                if f.requested[row] == 0:
                    f.requested[row] = 1
                    f.requests[at.n_requests] = row
                    at.n_requests += 1
                if not abandoned:
                    last_scan = at.scans + (gather + at.scans - first_scan if gather else 0)
                abandoned = True
                if at.scans >= last_scan:
                    break
            if status != DONE or (abandoned and (not found or at.scans >= last_scan)):
                break
            if found:
                continue
            if not held_settled and held_label < best_free:
                # The virtual rows are interchangeable: all that they hold is settled.
                held_settled = True
                label = max(label, held_label)
                held_at = label
                for j in range(n_columns):
                    g = label + (cap - v[j])
                    if g < best_free and g < dist[j]:
                        if row_of_column[j] >= 0:
                            if dist[j] == infinity:
                                touched[n_touched] = j
                                n_touched += 1
                            dist[j] = g
                            pred[j] = _VIRTUAL
                            pred_cost[j] = zero
                            if n_heap == capacity:
                                n_heap = compact(keys, items, n_heap, dist)
                            n_heap = push(keys, items, n_heap, g, j)
                        elif v[j] != cap:
                            best_free, sink, sink_row, sink_cost = g, j, _VIRTUAL, zero
                skip_scan = True
                continue
            if not group_settled and group_label < best_free:
                label = max(label, group_label)
                if at.group_size < n_group:
                    sink = GROUPED
                    break
                group_settled = True
                group_at = label
                member = 1
                row = group[0]
                h = label - ((zero - lists.reference[row]) - at.group_price)
                continue
            if sink < 0:
                status = INFEASIBLE
            else:
                label = max(label, best_free)
            break

        if at.n_hidden > 0:
            # A search that is given up changes no price.
            final = label if status == DONE else smallest_label(n_settled, f)
            reveal(n_settled, final, infinity, unit, v, f, lists)
        if status != DONE:
            clear(n_touched, touched, dist, infinity)
            at.position, at.root = position, root
            at.n_settled = n_settled
            if status == INVALID:
                at.root = row
            return status
        clear(n_touched, touched, dist, infinity)
        if abandoned:
            f.abandoned[at.n_abandoned] = root
            at.n_abandoned += 1
            position += 1
            # Searches that wait for the same row are likely to have more such company.
            if at.n_requests >= most_requests or at.n_abandoned > at.n_requests + 2:
                at.position = position
                return PAUSE
            continue

        # -- lower the prices of the settled columns, flip the path
        for k in range(n_settled):
            j = settled[k]
            fall = label - settled_dist[k]
            at.drops += fall
            v[j] -= fall + epsilon
        at.n_drops += n_settled
        if group_settled:
            at.group_price -= (label - group_at) + epsilon
        took, at_cap = -1, False
        position += 1
        row, cost, column = sink_row, sink_cost, sink
        if sink == GROUPED:
            place = at.group_size
            at.group_size = place + 1
            row, column = group_row, GROUPED - place
            cost = zero - lists.reference[row]
            group[place] = row
        else:
            at_cap = v[sink] == cap
            fall = label - best_free
            at.drops += fall
            at.n_drops += 1
            v[sink] -= fall + epsilon
            open_price[sink] = blocked
        while True:
            if row == _VIRTUAL:
                # They give up the column they were reached by and take this one.
                row_of_column[column] = -1
                took = column
                open_price[held_by] = blocked
                column, row, cost = held_by, held_row, held_cost
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
        if held_settled:
            at.drops += n_virtual * (label - held_at)
            at.n_drops += n_virtual
            lower = cap - ((label - held_at) + epsilon)
            if took >= 0:
                # The same number but for rounding, by which no price may rise.
                lower = min(lower, v[took])
                open_price[took] = v[took]
                v[held_by] = lower
            at.cap = lower
            at.surplus = _lower_cap(cap, lower, n_virtual, v, open_price, row_of_column)
        elif n_virtual > 0 and at_cap:
            at.surplus -= 1
    at.position = position
    return DONE
