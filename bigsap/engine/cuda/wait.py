"""Waiting for long-running kernels, and the flags by which host and kernels communicate."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bigsap.sources.cuda.device_kernels import attributes_of, load_cupy, on

# As in kernels_agree.cu and kernels_post.cu.
STOP_FLAG, AT_POSITION, AT_SCANS, ABORT_FLAG, HOST_WORDS = range(5)
#: How often the host checks its limits.
_TICK_SECONDS = 0.05
#: A launch of a persistent grid ends after this time, to let others use the device; kHz and
#: processors of a device that does not report them.
_LAUNCH_SECONDS = 0.25
_USUAL_CLOCK, _USUAL_CHIPS = 2_000_000, 4


class Wait:
    """Waits for a launch while serving the monitor; holds the flags of the host and the kernel.

    An exception while waiting (a limit, Ctrl-C) raises the stop flag, waits for the kernel to
    finish, and is returned.
    """

    def __init__(self, device: int) -> None:
        cupy = load_cupy()
        self.cupy = cupy
        with on(device):
            self._memory = cupy.cuda.alloc_pinned_memory(8 * HOST_WORDS)
        self.flags = np.frombuffer(self._memory, np.int64, HOST_WORDS)
        self.flags[:] = 0
        self.address = np.int64(self._memory.ptr)

    def mark(self) -> Any:
        """Return an event on the current stream."""
        event = self.cupy.cuda.Event(disable_timing=True)
        event.record()
        return event

    def until_done(self, serve: Any, events: list[Any] | None = None) -> BaseException | None:
        """Wait for the events, or the current stream; return the exception of ``serve``, or None.

        Always waits until the kernels have finished.
        """
        waiting = [self.mark()] if events is None else events
        raised: BaseException | None = None
        clock = served = time.perf_counter()
        while not all(event.done for event in waiting):
            try:
                now = time.perf_counter()
                if raised is None and now - served > _TICK_SECONDS:
                    served = now
                    serve()
                if now - clock > 0.002:
                    time.sleep(0.0002)
            except BaseException as error:  # noqa: BLE001 - raised again by the caller
                raised = raised or error
                self.flags[STOP_FLAG] = 1
        self.flags[STOP_FLAG] = self.flags[ABORT_FLAG] = 0
        return raised


def run_in_launches(
    device: int,
    kernel: Any,
    side: int,
    args: tuple[Any, ...],
    serve: Callable[[], None],
    over: Callable[[], bool],
) -> None:
    """Launch a kernel whose blocks wait for one another, repeatedly, until all work is done.

    side: threads of a block; every processor runs one block. args: all except the last two, the
    clock cycles of a launch and the host's flags. serve: called regularly, between launches and
    while one runs; its exceptions end the launch. over: called after each launch; returns whether
    it was the last, and prepares the next one.
    """
    wait = Wait(device)
    with on(device):
        attributes = attributes_of(device)
        blocks = attributes.get("MultiProcessorCount", _USUAL_CHIPS)
        cycles = int(1000 * _LAUNCH_SECONDS * attributes.get("ClockRate", _USUAL_CLOCK))
        while True:
            kernel((blocks,), (side,), (*args, np.int64(cycles), wait.address))
            raised = wait.until_done(serve)
            is_over = over()
            if raised is not None:
                raise raised
            if is_over:
                return
            serve()
