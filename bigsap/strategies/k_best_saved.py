"""Checkpoint of a ranking: the solve before it, and the enumeration as it stands.

The lists of pairs are not in it: they are a function of the costs and the duals, and so are the
shorter enumerations before the one that was interrupted, which are repeated.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from bigsap import checkpoint
from bigsap.checkpoint import Saved
from bigsap.engine.k_best.state import (
    ANSWERS,
    NODES,
    QUEUE,
    ROWS,
    Graph,
    Nodes,
    Queue,
    Work,
    new_queue,
    new_work,
)
from bigsap.errors import CheckpointError
from bigsap.progress import Monitor, Snapshot
from bigsap.result import Result, Status
from bigsap.types import Array

# What a ranking needs of the solve: arrays, and plain values.
_ARRAYS, _VALUES, _OF_SOLVE = ("col4row", "u", "v"), ("fun", "bound", "status"), "solved_"


#: Subspaces, queue, workspace, and room for the answers, of which ``Work.counts`` says how many there are.
State: TypeAlias = tuple[Nodes, Queue, Work, Array]


@dataclass(frozen=True)
class Solved:
    """Result of the solve before a ranking, as far as that needs it. See ``Result``."""

    fun: Any
    bound: Any
    status: Status
    col4row: Array
    u: Array
    v: Array

    @classmethod
    def of(cls, result: Result) -> Solved:
        """Return the part of a result."""
        return cls(*(getattr(result, name) for name in (*_VALUES, *_ARRAYS)))

    def is_same(self, other: Solved) -> bool:
        """Whether both are equal, bit for bit."""
        arrays = ((getattr(self, name), getattr(other, name)) for name in _ARRAYS)
        plain = all(getattr(self, name) == getattr(other, name) for name in _VALUES)
        return plain and all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in arrays)


def solved_in(saved: Saved) -> Solved | None:
    """Return the solve that a checkpoint holds; None if that had not ended."""
    if _OF_SOLVE + "status" not in saved.snapshot:
        return None
    fun, bound, status, *arrays = (saved.snapshot[_OF_SOLVE + name] for name in (*_VALUES, *_ARRAYS))
    return Solved(fun, bound, Status(status), *arrays)


class Kept:
    """Enumerations of a ranking by number, which checkpoints are taken of, and one of which may continue.

    monitor: writes the checkpoints. saved: that to continue, None for none.
    """

    def __init__(self, monitor: Monitor, saved: Saved | None) -> None:
        self._saving, self._saved = monitor.saving, {} if saved is None else saved.snapshot
        self._number, self._first = 0, int(self._saved.get("number", 0))

    def next(self, graph: Graph, answers: Array) -> tuple[Nodes, Queue, Work] | None:
        """Return the state from which the next enumeration continues; None: it begins.

        answers: room for these, which is filled. Raises CheckpointError if it is of other costs.
        """
        self._number += 1
        return restored(self._saved, graph, answers) if self._number == self._first else None

    def saving(self, state: Callable[[], State]) -> AbstractContextManager[None]:
        """Take checkpoints of the enumeration within the context; not of one that is only repeated."""
        number = self._number
        if number < self._first:
            return nullcontext()

        def snapshot() -> Snapshot:
            found = snapshot_of(state())
            return {"number": number, **found} if found["nodes_cost"].size else {}

        return self._saving(snapshot)


def snapshot_of(state: State) -> Snapshot:
    """Return an enumeration as arrays by name, without the contents of room that is not used.

    How much room there is belongs to the state: where it ends, children are looked at once more.
    """
    nodes, queue, work, answers = state
    counts = work.counts
    used = {name: getattr(nodes, name)[: counts[NODES]] for name in Nodes._fields[:-1]}
    used["rows"] = nodes.rows[: counts[ROWS]]
    heap = {name: getattr(queue, name)[: counts[QUEUE]] for name in Queue._fields[:3]}
    heap |= {name: getattr(queue, name) for name in Queue._fields[3:]}
    return {
        **{"nodes_" + name: array for name, array in used.items()},
        **{"queue_" + name: array for name, array in heap.items()},
        **{"work_" + name: array for name, array in work._asdict().items()},
        "answers": answers[: counts[ANSWERS]],
        "room": [len(nodes.offset), len(nodes.rows)],
    }


def restored(saved: Snapshot, graph: Graph, answers: Array) -> tuple[Nodes, Queue, Work]:
    """Return the enumeration of ``snapshot_of`` on the same graph, and fill ``answers``.

    Raises CheckpointError if the graph or the number of answers is another.
    """
    n_nodes, n_rows = (int(size) for size in saved["room"])
    used = {name: saved["nodes_" + name] for name in Nodes._fields}
    sizes = {name: n_rows if name == "rows" else n_nodes for name in used}
    nodes = Nodes._make(np.empty((sizes[name], *a.shape[1:]), a.dtype) for name, a in used.items())
    for name, array in nodes._asdict().items():
        _fill(array, used[name])
    work = Work._make(saved["work_" + name] for name in Work._fields)
    queue = new_queue(n_nodes, len(answers))
    _fill(answers, saved["answers"])
    for name, array in queue._asdict().items():
        _fill(array, saved["queue_" + name])
    if any(a.shape != b.shape for a, b in zip(work, new_work(graph), strict=True)):
        raise _foreign()
    return nodes, queue, work


def _fill(room: Array, array: Array) -> None:
    if len(array) > len(room):
        raise _foreign()
    room[: len(array)] = array


def _foreign() -> CheckpointError:
    return CheckpointError("the checkpoint of the ranking is of other costs: rank anew")


def begin(
    monitor: Monitor, path: str | os.PathLike[str], facts: dict[str, Any], solved: Solved, saved: Saved | None
) -> None:
    """Write the first checkpoint of a ranking, and let the monitor write the others.

    saved: the checkpoint to continue, which is copied if it is elsewhere.
    """
    of_solve = {_OF_SOLVE + name: getattr(solved, name) for name in (*_VALUES, *_ARRAYS)}

    def save(snapshot: Snapshot) -> None:
        checkpoint.write(path, facts, {**of_solve, **snapshot})

    if saved is None or Path(path) != saved.path:
        save({} if saved is None else saved.snapshot)
    monitor.save = save


def of_same(path: str | os.PathLike[str], facts: dict[str, Any], solved: Solved) -> Saved | None:
    """Return the checkpoint at ``path`` if it is of this ranking; else None."""
    try:
        saved = checkpoint.read(path)
        saved.refuse_unless(facts)
    except (FileNotFoundError, CheckpointError):
        return None
    before = solved_in(saved)
    return saved if before is not None and solved.is_same(before) else None
