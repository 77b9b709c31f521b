"""All rows' lists in device memory, laid out as the host's pool is."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigsap.engine.lists.layout import Lists
from bigsap.engine.lists.pool import left_places
from bigsap.sources.base import Array
from bigsap.sources.device.device_kernels import load_cupy
from bigsap.sources.device.device_memory import empty

#: Room beyond what lists take, as a part of it, when a pool is made or made anew.
_SPARE = 16


class DevicePool:
    """A copy of the lists. P is the price type.

    ids, costs: (room,) entries; start: int64 (n,), size: int32 (n,), theta: P (n,), as in
    ``Lists``. Where lists lie and how wide they are is the host's to say.
    """

    def __init__(self, lists: Lists) -> None:
        n, price = lists.start.size, lists.costs.dtype
        self.ids: Any = None
        self.costs: Any = None
        self._make_room(lists, 0)
        self.start = empty((n,), np.int64, "lists")
        self.size = empty((n,), np.int32, "lists")
        self.theta = empty((n,), price, "lists")

    def _make_room(self, lists: Lists, kept: int) -> None:
        used = int(lists.counts.pool_used)
        room = used + used // _SPARE + 1
        ids, costs = empty((room,), np.int32, "lists"), empty((room,), lists.costs.dtype, "lists")
        if kept:
            ids[:kept], costs[:kept] = self.ids[:kept], self.costs[:kept]
        self.ids, self.costs = ids, costs

    def take(self, lists: Lists) -> None:
        """Become what the host has."""
        used = int(lists.counts.pool_used)
        if used > self.ids.size:
            self._make_room(lists, 0)
        if lists.counts.evaluations:
            self.ids[:used].set(lists.ids[:used])
            self.costs[:used].set(lists.costs[:used])
        self.start.set(lists.start)
        self.size.set(lists.size)
        self.theta.set(lists.theta)

    def give(self, lists: Lists) -> None:
        """Make the host's lists what is here."""
        used = int(lists.counts.pool_used)
        left = left_places(lists)
        links = lists.costs[left]
        self.ids[:used].get(out=lists.ids[:used])
        self.costs[:used].get(out=lists.costs[:used])
        lists.costs[left] = links  # of the host only
        self.size.get(out=lists.size)
        self.theta.get(out=lists.theta)

    def follow(self, lists: Lists, rows: Array) -> None:
        """These rows' lists were given other places; they are to be evaluated next."""
        if lists.counts.pool_used > self.ids.size:
            self._make_room(lists, self.ids.size)
        cupy = load_cupy()
        self.start[cupy.asarray(rows)] = cupy.asarray(lists.start[rows])

    def keep(self, rows: Any, sizes: Any, theta: Any) -> None:
        """What an evaluation found besides the entries, which it wrote in place."""
        self.size[rows], self.theta[rows] = sizes, theta
