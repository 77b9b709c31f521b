"""Checkpoint of a ranking: the solve before it, and the enumeration as it stands.

The lists of pairs are not in it: they are a function of the costs and the duals, and so are the
shorter enumerations before the one that was interrupted, which are repeated.
"""

from __future__ import annotations

import hashlib
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
    WORST,
    Graph,
    Nodes,
    Queue,
    Work,
    new_queue,
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
        self._saving, self._saved = monitor.saving, saved
        self._number, self._first = 0, 0 if saved is None else int(saved.snapshot.get("number", 0))
        self._of = ""

    def next(self, graph: Graph, answers: Array) -> tuple[Nodes, Queue, Work] | None:
        """Return the state from which the next enumeration continues; None: it begins.

        answers: room for these, which is filled. Raises CheckpointError if it is of other costs.
        """
        self._number += 1
        if self._number < self._first:
            return None
        self._of = digest_of(graph, len(answers))
        if self._saved is None or self._number > self._first:
            return None
        if self._saved.snapshot["of"] != self._of:
            raise CheckpointError(f"{self._saved.path}: the checkpoint of the ranking is of other costs")
        state = restored(self._saved.snapshot, answers)
        self._saved.snapshot.clear()  # not twice in memory as long as the ranking lasts
        return state

    def saving(self, state: Callable[[], State]) -> AbstractContextManager[None]:
        """Take checkpoints of the enumeration within the context; not of one that is only repeated."""
        number, of = self._number, self._of
        if number < self._first:
            return nullcontext()

        def snapshot() -> Snapshot:
            found = snapshot_of(state())
            return {"number": number, "of": of, **found} if found["nodes_cost"].size else {}

        return self._saving(snapshot)


def digest_of(graph: Graph, count: int) -> str:
    """Return what identifies an enumeration of ``count`` assignments of a graph.

    What was dropped is in no state, so no proof would notice that it was dropped in another graph.
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in (count, *graph):
        digest.update(part.data if isinstance(part, np.ndarray) else f"{int(part)} ".encode())
    return digest.hexdigest()


def snapshot_of(state: State) -> Snapshot:
    """Return an enumeration as arrays by name, without the contents of room that is not used.

    How much room there is belongs to the state: where it ends, children are looked at once more.
    """
    nodes, queue, work, answers = state
    counts = work.counts
    used = {name: getattr(nodes, name)[: counts[NODES]] for name in Nodes._fields[:-1]}
    used["rows"] = nodes.rows[: counts[ROWS]]
    heap = {name: getattr(queue, name)[: counts[QUEUE]] for name in Queue._fields[:3]}
    heap |= {name: getattr(queue, name)[: counts[WORST]] for name in Queue._fields[3:]}
    return {
        **{"nodes_" + name: array for name, array in used.items()},
        **{"queue_" + name: array for name, array in heap.items()},
        **{"work_" + name: array for name, array in work._asdict().items()},
        "answers": answers[: counts[ANSWERS]],
        "room": [len(nodes.offset), len(nodes.rows)],
    }


def restored(saved: Snapshot, answers: Array) -> tuple[Nodes, Queue, Work]:
    """Return the enumeration of ``snapshot_of``, of the same graph, and fill ``answers``, as many as then."""
    n_nodes, n_rows = (int(size) for size in saved["room"])
    used = {name: saved["nodes_" + name] for name in Nodes._fields}
    sizes = {name: n_rows if name == "rows" else n_nodes for name in used}
    nodes = Nodes._make(np.empty((sizes[name], *a.shape[1:]), a.dtype) for name, a in used.items())
    queue = new_queue(n_nodes, len(answers))
    rooms = [*nodes._asdict().items()], [*queue._asdict().items()]
    for kind, named in zip(("nodes_", "queue_"), rooms, strict=True):
        for name, room in named:
            _fill(room, saved[kind + name])
    _fill(answers, saved["answers"])
    return nodes, queue, Work._make(saved["work_" + name] for name in Work._fields)


def _fill(room: Array, array: Array) -> None:
    room[: len(array)] = array


def begin(
    monitor: Monitor, path: str | os.PathLike[str], facts: dict[str, Any], solved: Solved, saved: Saved | None
) -> None:
    """Write the first checkpoint of a ranking, and let the monitor write the others.

    saved: the checkpoint to continue, which is copied if it is elsewhere. Raises CheckpointError as
    ``checkpoint.write_first``.
    """
    of_solve = {_OF_SOLVE + name: getattr(solved, name) for name in (*_VALUES, *_ARRAYS)}

    if saved is None or Path(path) != saved.path:
        checkpoint.write_first(path, facts, {**of_solve, **({} if saved is None else saved.snapshot)})
    monitor.save = lambda snapshot: checkpoint.write(path, facts, {**of_solve, **snapshot})


def of_same(path: str | os.PathLike[str], facts: dict[str, Any], solved: Solved) -> Saved | None:
    """Return the checkpoint at ``path`` if it is of this ranking; else None."""
    try:
        saved = checkpoint.read(path)
        saved.refuse_unless(facts)
    except (FileNotFoundError, CheckpointError):
        return None
    before = solved_in(saved)
    return saved if before is not None and solved.is_same(before) else None
