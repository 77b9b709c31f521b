"""The devices' shares of a dense solve: kernels, memory, and their exchange of letters.

Each part owns a slab of the columns. One part needs no exchange. With several, a group of blocks on
each device writes letters into the others' inboxes (``kernels_post.cu``): in device memory if the
devices can access each other's, else in host memory that all of them can access.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from bigsap.engine.cuda import kernel_texts
from bigsap.errors import BigsapError, OptionError
from bigsap.sources.cuda.device_kernels import Settings, attributes_of, compiled, load_cupy, on
from bigsap.sources.cuda.device_memory import empty
from bigsap.sources.cuda.slabs import DeviceSlab

_USUAL_CLOCK = 1_500_000  # kHz
#: How long a group waits for the other devices' groups.
PATIENCE_SECONDS = 10.0
#: Words of a letter, as in kernels_post.cu; and the words that bigsap_greet writes.
LETTER = 10
GREETING = 0x600D
#: Limit of devices: one warp reads their letters in a few turns.
MOST_DEVICES = 16
_ALREADY_ENABLED = 704  # cudaErrorPeerAccessAlreadyEnabled


def geometry(n_columns: int, major: int) -> dict[str, int]:
    """Return the blocks, threads and columns per thread of the group that runs the dense kernels.

    major: of the device's compute capability. Clusters exist from 9.0 on, of 8 blocks;
    data centre chips take 16. Measured on an H200 at n = 16384, us a scan: 16 blocks of 512
    threads 1.72, 16 of 256 1.90, 8 of 512 2.04, 8 of 256 2.20, 4 of 512 2.76.
    """
    group, threads = 16 if major in (9, 10) else 8, 512
    while group > 1 and group * threads >= 2 * n_columns:
        group //= 2
    while threads > 128 and group * threads >= 2 * n_columns:
        threads //= 2
    columns = 1
    while group * threads * columns < n_columns:
        columns *= 2
    return {"GROUP": group, "THREADS": threads, "COLS": columns, "USE_CLUSTER": int(major >= 9)}


class DevicePart:
    """One device's slab of columns, with its kernels and memory.

    n_columns: of all slabs. basic: macros that all parts share. Device memory besides the costs: some
    vectors.
    """

    def __init__(self, slab: DeviceSlab, n_columns: int, basic: dict[str, int]) -> None:
        cupy = load_cupy()
        self.source, self.start, self.stop = slab.source, slab.start, slab.stop
        self.device, self.width = slab.source.device, slab.stop - slab.start
        several = basic["DEVICES"] > 1
        with on(self.device):
            # The default stream may still be copying costs.
            self.stream = cupy.cuda.Stream(non_blocking=True) if several else None
            chip = cupy.cuda.Device(self.device)
            if several:
                chip.synchronize()
            self.cycles = 1000.0 * attributes_of(self.device).get("ClockRate", _USUAL_CLOCK)
            shape = geometry(self.width, int(chip.compute_capability[:-1]))
        self.group, self.threads = shape["GROUP"], shape["THREADS"]
        code = slab.source.code()
        dense = {"WIDTH": min(code.width, shape["COLS"])} | basic | shape
        self.cluster = bool(dense["USE_CLUSTER"])
        settings: Settings = tuple(sorted(dense.items()))
        with self.here():
            self._dense = compiled(
                self.device, code, kernel_texts.DENSE, settings, cooperative=not self.cluster
            )
            batch = {"SPAN": 8, "ROWS": 8, "WITH_FREE": 0, "WIDTH": code.width}
            batch |= {name: basic[name] for name in ("PRICE_IS_INT", "SIGN")}
            self.batch = compiled(self.device, code, kernel_texts.ROWS, tuple(sorted(batch.items())))
            words = 2 + 2 * self.group + 2 * self.group * (self.threads // 32) * 4
            self.board = cupy.zeros(words, np.uint64)
            self.spill_size = n_columns + 1
            self.spill = empty((self.group * self.spill_size, 4), np.int32, "the notes of searches")
        self.post: Any = np.intp(0)

    @contextmanager
    def here(self) -> Iterator[None]:
        """Make the part's device and stream the current ones."""
        with on(self.device):
            if self.stream is None:
                yield
            else:
                with self.stream:
                    yield

    def columns(self, array: Any) -> Any:
        """Return the slab's part of a vector of columns."""
        return array[self.start : self.stop]

    def kernel(self, name: str, shared_bytes: int = 0) -> Any:
        wide = self.cluster and self.group > 8
        with self.here():  # a kernel's attributes are set on the current device
            return self._dense.get(name, shared_bytes, wide_cluster=wide)

    def synchronize(self) -> None:
        """Wait until all work of the part is done."""
        with self.here():
            load_cupy().cuda.get_current_stream().synchronize()


class Exchange:
    """The inboxes of several parts.

    way: their location, ``"device"`` or ``"host"``; ``"none"`` with one part.
    """

    def __init__(self, parts: list[DevicePart], way: str | None = None) -> None:
        self.parts = parts
        self.way = "none"
        self._device: list[Any] = []
        self._host: Any = None
        self._seen: Any = None
        if len(parts) == 1:
            return
        if len(parts) > MOST_DEVICES:
            raise OptionError(f"at most {MOST_DEVICES} devices share a problem, got {len(parts)}")
        self._words = 2 * len(parts) * LETTER
        if way != "host" and _reachable({part.device for part in parts}):
            self._in_device_memory()
            if self._greet():
                self.way = "device"
                return
        self._in_host_memory()
        if not self._greet():
            raise BigsapError("the devices cannot exchange messages, not even through host memory")
        self.way = "host"

    def _in_device_memory(self) -> None:
        # Separate memory: a pool's may not be accessible to other devices.
        cupy = load_cupy()
        self._device = []
        for part in self.parts:
            with part.here():
                room = cupy.cuda.MemoryPointer(cupy.cuda.Memory(8 * self._words), 0)
                self._device.append(cupy.ndarray((self._words,), np.uint64, room))
        self._address([int(inbox.data.ptr) for inbox in self._device])

    def _in_host_memory(self) -> None:
        cupy = load_cupy()
        total = self._words * len(self.parts)
        self._device = []
        with on(self.parts[0].device):
            self._host = cupy.cuda.alloc_pinned_memory(8 * total)
        self._seen = np.frombuffer(self._host, np.uint64, total)
        first = int(self._host.ptr)
        self._address([first + 8 * self._words * k for k in range(len(self.parts))])

    def _address(self, inboxes: list[int]) -> None:
        """Give each part its index and the addresses of all inboxes."""
        cupy = load_cupy()
        for me, part in enumerate(self.parts):
            with part.here():
                patience = int(part.cycles * PATIENCE_SECONDS)
                part.post = cupy.asarray(np.array([me, part.start, patience, *inboxes], np.uint64))

    def clear(self) -> None:
        """Empty the inboxes; call it before each launch, while no group runs."""
        if self._seen is not None and not self._device:
            self._seen[:] = 0
        for part, inbox in zip(self.parts, self._device, strict=False):
            with part.here():
                inbox[:] = 0

    def _greet(self) -> bool:
        """Check that the parts receive each other's writes."""
        self.clear()
        for part in self.parts:
            part.synchronize()
        for part in self.parts:
            with part.here():
                part.kernel("bigsap_greet")((1,), (32,), (part.post,))
        for part in self.parts:
            part.synchronize()
        count = len(self.parts)
        for me, part in enumerate(self.parts):
            if self._device:
                with part.here():
                    found = self._device[me].get()
            else:
                found = self._seen[me * self._words : (me + 1) * self._words]
            if not np.array_equal(found.reshape(2, count, LETTER)[0, :, 0], greetings(me, count)):
                return False
        return True


def greetings(me: int, count: int) -> Any:
    """Return the words that ``bigsap_greet`` leaves in the inbox of part ``me``: see kernels_post.cu."""
    found = np.arange(count, dtype=np.uint64) + np.uint64(GREETING)
    found[me] = 0
    return found


def _reachable(devices: set[int]) -> bool:
    """Enable access to every device's memory from every other; return whether that is possible."""
    runtime = load_cupy().cuda.runtime
    for a in devices:
        for b in devices - {a}:
            if not runtime.deviceCanAccessPeer(a, b):
                return False
    for a in devices:
        with on(a):
            for b in devices - {a}:
                try:
                    runtime.deviceEnablePeerAccess(b)
                except runtime.CUDARuntimeError as error:
                    if error.status != _ALREADY_ENABLED:
                        return False
    return True
