"""Matching of largest size, whatever the pairs cost: whether a complete assignment exists.

Breadth-first layers from all unmatched rows, then disjoint paths through them, depth first
(Hopcroft and Karp 1973).
"""

from __future__ import annotations

from bigsap.compile.decorator import kernel
from bigsap.engine.core.state import FREE
from bigsap.engine.sparse.pairs import Pairs
from bigsap.types import Array


@kernel
def layers(
    p: Pairs, infinite: bool, column_of_row: Array, row_of_column: Array, depth: Array, queue: Array
) -> int:
    """Number the layers of rows reached from unmatched rows, up to the first with a free column.

    depth: int32 (n_rows,), -1 for rows not reached. queue: ID (n_rows,), the rows reached, in order.
    infinite: whether entries may be infinite, that is, forbidden. Returns how many rows were
    reached if no free column was, else -1. O(entries).
    """
    n, count = depth.size, 0
    for row in range(n):
        if column_of_row[row] == FREE:
            depth[row] = 0
            queue[count] = row
            count += 1
        else:
            depth[row] = -1
    position, found = 0, -1
    while position < count:
        row = queue[position]
        position += 1
        if found >= 0 and depth[row] >= found:
            break
        for k in range(p.start[row], p.start[row + 1]):
            if infinite and not p.sign * p.costs[k] < p.infinity:
                continue
            other = row_of_column[p.ids[k]]
            if other < 0:
                if found < 0:
                    found = depth[row] + 1
            elif depth[other] < 0:
                depth[other] = depth[row] + 1
                queue[count] = other
                count += 1
    return count if found < 0 else -1


@kernel
def augment_layers(
    p: Pairs,
    infinite: bool,
    column_of_row: Array,
    row_of_column: Array,
    depth: Array,
    place: Array,
    stack: Array,
) -> int:
    """Augment along disjoint paths through the layers; return how many rows were matched.

    place: int64 (n_rows,), stack: ID (n_rows + 1,): workspace. O(entries).
    """
    n, matched = depth.size, 0
    for row in range(n):
        place[row] = p.start[row]
    for root in range(n):
        if column_of_row[root] != FREE or depth[root] != 0:
            continue
        top = 0
        stack[0] = root
        while top >= 0:
            row = stack[top]
            if place[row] == p.start[row + 1]:
                depth[row] = -1
                top -= 1
                continue
            k = place[row]
            place[row] += 1
            if infinite and not p.sign * p.costs[k] < p.infinity:
                continue
            column = p.ids[k]
            other = row_of_column[column]
            if other >= 0:
                if depth[other] == depth[row] + 1:
                    top += 1
                    stack[top] = other
                continue
            while True:
                row = stack[top]
                old = column_of_row[row]
                column_of_row[row], row_of_column[column] = column, row
                depth[row] = -1
                if top == 0:
                    break
                column = old
                top -= 1
            matched += 1
            break
    return matched
