"""Lookups of rows that workers have kept, without Dask tasks.

During searches a wave has a few rows, which workers look up within microseconds. A task for each
worker then costs more than all else: it passes through the scheduler, and its answer takes another
message. A lookup is one message to each worker, and the reply is the answer. It names rows that the
worker should have kept and a version of the prices, sent as changes to the version that the worker
was sent last (see ``sharing``). If the worker lacks a row or that version, it declines, and the
rows are requested by tasks, which Dask watches. A worker that lacked the version is sent the whole
prices the next time.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsap.sources.base import Task
from bigsap.sources.cluster import on_worker
from bigsap.sources.cluster.connection import ClusterConnection
from bigsap.sources.cluster.sharing import Shared
from bigsap.types import Array

#: Seconds until an unanswered lookup is replaced by a task.
_PATIENCE = 2.0


@dataclass
class Lookup:
    """One lookup on one worker.

    args: of the task's function, its rows first. body: the answer; None if the worker declined or
    could not be reached.
    """

    seat: str
    positions: Array
    args: tuple[Any, ...]
    body: Any = None


def look_up(
    crew: ClusterConnection, token: str, task: Task, shared: Shared | None, lookups: Sequence[Lookup]
) -> None:
    """Send all lookups at the same time; store the answers in ``lookups``."""
    client = crew.client
    direct = bool(client.direct_to_workers)
    function, nothing = pickle.dumps(on_worker.looked_up), pickle.dumps({})

    async def ask(lookup: Lookup) -> None:
        version = None if shared is None else shared.message(lookup.seat)
        there = {} if shared is None else shared.line.there
        # Until the worker answers, it is unknown whether the new version has arrived.
        there.pop(lookup.seat, None)
        args = pickle.dumps((token, task, version, lookup.args), pickle.HIGHEST_PROTOCOL)
        crew.counts.sent_bytes += len(args) + len(function) + len(nothing)
        message = {"function": function, "args": args, "kwargs": nothing}
        try:
            if direct:
                reply = await client.rpc(lookup.seat).run(**message)
            else:
                reply = await client.scheduler.proxy(worker=lookup.seat, msg={"op": "run", **message})
        except Exception:  # noqa: BLE001 - a worker can be lost in many ways; the task then reports it
            return
        answer = reply["result"] if reply.get("status") == "OK" else None
        if isinstance(answer, np.ndarray):
            if shared is not None:
                there[lookup.seat] = shared.serial, shared.values
            # An empty body means that the worker has the prices, but not all of the rows.
            lookup.body = answer if answer.size else None

    async def ask_all() -> None:
        asked = [asyncio.ensure_future(ask(lookup)) for lookup in lookups]
        _, late = await asyncio.wait(asked, timeout=_PATIENCE)
        for one in late:
            one.cancel()

    client.sync(ask_all)
