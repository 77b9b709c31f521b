"""Rows that workers have kept, asked for without tasks.

In searches a wave is a few rows, which workers look up within microseconds. A task for each worker
then costs more than all else: it goes by the scheduler to the worker and back, and its answer is
fetched by another message. Here each worker is sent one message, and its answer is the reply: for
rows that it says it has, under prices that it has or is sent. For anything else it declines, and
the rows are asked for by tasks, which Dask watches over.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bigsap.sources.base import Array
from bigsap.sources.spread import on_worker
from bigsap.sources.spread.roster import Roster, Shared

#: A worker that has not answered after so many seconds is asked by a task.
_PATIENCE = 2.0


@dataclass
class Lookup:
    """What one worker is asked for. args: of the task's function, its rows first. body: the
    answer; None where it declined, or could not be reached."""

    seat: str
    positions: Array
    args: tuple[Any, ...]
    body: Any = None


def look_up(
    crew: Roster, token: str, name: str, shared: Shared | None, lookups: Sequence[Lookup]
) -> None:
    """Ask all workers at the same time; what they answer is in ``lookups`` then."""
    client = crew.client
    direct = bool(client.direct_to_workers)
    function = pickle.dumps(on_worker.looked_up)

    async def ask(lookup: Lookup) -> None:
        values = None if shared is None or lookup.seat in shared.there else shared.values
        serial = None if shared is None else shared.serial
        args = token, name, serial, values, lookup.args
        message = {"function": function, "args": pickle.dumps(args), "kwargs": pickle.dumps({})}
        try:
            if direct:
                reply = await client.rpc(lookup.seat).run(**message)
            else:
                reply = await client.scheduler.proxy(
                    worker=lookup.seat, msg={"op": "run", **message}
                )
        except Exception:  # noqa: BLE001 - however a worker is lost: tasks will tell
            return
        if reply.get("status") == "OK":
            lookup.body = reply["result"]
            if shared is not None:
                if values is not None:
                    crew.counts.sent_bytes += values.nbytes
                shared.there.add(lookup.seat)

    async def ask_all() -> None:
        asked = [asyncio.ensure_future(ask(lookup)) for lookup in lookups]
        _, late = await asyncio.wait(asked, timeout=_PATIENCE)
        for one in late:
            one.cancel()

    client.sync(ask_all)
