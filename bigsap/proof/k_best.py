"""Proof of the subspaces that an enumeration of the k best assignments solved, by exact duals.

A subspace keeps the slots of some agents and excludes some of the listed pairs. Duals u, v prove that
its assignment is the cheapest: ``u[i] + v[j] <= c[i, j]`` for each pair of a free agent and a slot that
is not kept, with equality for the pairs of the assignment. Slots that stay spare have dummies, whose
dual is minus ``top``. Numbers are integers of two limbs, ``high * 2**60 + low``. The code shares nothing
with the enumeration but the layout of its arrays, see ``engine/k_best/state.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.errors import CertificateError
from bigsap.types import Array

# What ``owner`` says of slots that no free agent has: spare, kept.
_SPARE, _KEPT = -1, -2
_REST = (1 << 60) - 1
# Entries of subspaces that are checked between two calls of ``check``.
_ENTRIES = 1 << 25


def prove_duals(graph: Any, nodes: Any, solved: Array, check: Callable[[], None] | None = None) -> None:
    """Check the duals of these subspaces.

    check: called now and then; it may raise. Raises CertificateError for duals that prove nothing.
    """
    n_slots = len(graph.spare_cost)
    owner, off = np.empty(n_slots, np.int64), np.zeros(len(graph.slot), np.bool_)
    step = max(1, len(solved) if check is None else _ENTRIES // (len(graph.slot) + n_slots + 1))
    for start in range(0, len(solved), step):
        wrong = _first_wrong(graph, nodes, solved[start : start + step], owner, off)
        if wrong >= 0:
            raise CertificateError(f"the duals of subspace {wrong} do not prove its assignment the cheapest")
        if check is not None:
            check()


def prove_order(nodes: Any, answers: Array, left: Array) -> None:
    """Check the order of subspaces by the costs of their assignments, which their duals prove.

    answers: the subspaces of the assignments, in order. left: others that were solved. Raises
    CertificateError for costs that fall, and a subspace that was left out although it costs less than the
    last assignment.
    """
    high, low = nodes.cost[answers], nodes.cost_low[answers]
    falls = (high[1:] < high[:-1]) | ((high[1:] == high[:-1]) & (low[1:] < low[:-1]))
    if falls.any():
        raise CertificateError(f"assignment {int(np.argmax(falls)) + 1} costs less than the one before")
    if answers.size:
        other, other_low = nodes.cost[left], nodes.cost_low[left]
        if ((other < high[-1]) | ((other == high[-1]) & (other_low < low[-1]))).any():
            raise CertificateError("an assignment that was left out costs less than the last one")


@kernel
def _first_wrong(graph: Any, nodes: Any, checked: Array, owner: Array, off: Array) -> int:
    """Return the first subspace whose duals do not prove its cost, -1 if all do. owner, off: workspace."""
    for position in range(checked.size):
        node = checked[position]
        _mark(nodes, node, owner, off, True)
        good = _costs(graph, nodes, node, owner) and _feasible(graph, nodes, node, owner, off)
        _mark(nodes, node, owner, off, False)
        if not good:
            return int(node)
    return -1


@kernel
def _mark(nodes: Any, node: int, owner: Array, off: Array, on: bool) -> None:
    """Set what a subspace keeps, has and excludes. owner: of a free agent's slot, its row."""
    if on:
        for j in range(owner.size):
            owner[j] = _SPARE
        for i in range(nodes.slot_of.shape[1]):
            owner[nodes.slot_of[node, i]] = _KEPT
        first = nodes.offset[node]
        for row in range(first, first + nodes.n_free[node]):
            owner[nodes.rows[row, 1]] = row
    while nodes.parent[node] >= 0:
        off[nodes.barred[node]] = on
        node = nodes.parent[node]


@kernel
def _sign(a: int, a_low: int, b: int, b_low: int, c: int, c_low: int) -> int:
    low = a_low - b_low - c_low
    high = a - b - c + (low >> 60)
    if high == 0:
        return 1 if low & _REST else 0
    return 1 if high > 0 else -1


@kernel
def _costs(graph: Any, nodes: Any, node: int, owner: Array) -> bool:
    """Check that the assignment consists of different slots and listed pairs, and its cost."""
    n_agents = nodes.slot_of.shape[1]
    high, low = np.int64(0), np.int64(0)
    n_spare = 0
    for j in range(owner.size):
        if owner[j] == _SPARE:
            n_spare += 1
            low += graph.spare_cost_low[j]
            high += graph.spare_cost[j] + (low >> 60)
            low &= _REST
    if n_spare != owner.size - n_agents:
        return False
    for i in range(n_agents):
        found = False
        for e in range(graph.first[i], graph.first[i + 1]):
            if graph.slot[e] == nodes.slot_of[node, i]:
                found = True
                low += graph.cost_low[e]
                high += graph.cost[e] + (low >> 60)
                low &= _REST
        if not found:
            return False
    return bool(high == nodes.cost[node] and low == nodes.cost_low[node])


@kernel
def _feasible(graph: Any, nodes: Any, node: int, owner: Array, off: Array) -> bool:
    """Check that no pair of the subspace violates the duals, and that pairs of the assignment are tight."""
    top, top_low = nodes.top[node], nodes.top_low[node]
    first = nodes.offset[node]
    for row in range(first, first + nodes.n_free[node]):
        i, mine = nodes.rows[row, 0], nodes.rows[row, 1]
        u, u_low, v, v_low = nodes.rows[row, 2], nodes.rows[row, 3], nodes.rows[row, 4], nodes.rows[row, 5]
        if nodes.slot_of[node, i] != mine:
            return False
        # The dual of dummies is -top.
        spare = _sign(graph.spare_cost[mine], graph.spare_cost_low[mine], v, v_low, -top, -top_low)
        if spare < 0 and owner.size > nodes.slot_of.shape[1]:
            return False
        tight = False
        for e in range(graph.first[i], graph.first[i + 1]):
            j = graph.slot[e]
            if owner[j] == _KEPT or off[e]:
                continue
            if owner[j] == _SPARE:
                low = graph.spare_cost_low[j] + top_low
                price, price_low = graph.spare_cost[j] + top + (low >> 60), low & _REST
            else:
                price, price_low = nodes.rows[owner[j], 4], nodes.rows[owner[j], 5]
            sign = _sign(graph.cost[e], graph.cost_low[e], u, u_low, price, price_low)
            if sign < 0:
                return False
            tight = tight or (j == mine and sign == 0)
        if not tight:
            return False
    return True
