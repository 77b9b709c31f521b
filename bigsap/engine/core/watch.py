"""Kernels that may run for long, watched by the thread that waits for them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

#: Seconds between two looks, and those that a kernel gets to return by itself.
_EVERY = 0.1
_PATIENCE = 0.25


def watched(
    executor: ThreadPoolExecutor, look: Callable[[], None], stop: Callable[[], None],
    kernel: Callable[..., int], *args: Any,
) -> int:  # fmt: skip
    """``kernel(*args)`` on the executor's thread, while this one looks every tenth of a second.

    What ``look`` raises, or a signal's handler, is raised here once the kernel has returned:
    by itself, or, after a quarter of a second, because ``stop()`` told it to. In a kernel
    that this thread runs itself, no signal would be heard before its end.
    """
    future: Future[int] | None = None
    raised: BaseException | None = None
    try:
        future = executor.submit(kernel, *args)
        while not wait([future], _EVERY).done:
            look()
    except BaseException as error:  # noqa: BLE001 - raised again below
        raised = error
    stopping = False
    while future is not None and not future.done():
        try:
            if not wait([future], _EVERY if stopping else _PATIENCE).done and not stopping:
                stop()
                stopping = True
        except BaseException as error:  # noqa: BLE001 - a second interrupt
            raised = error
    if raised is not None:
        try:
            raise raised
        finally:
            del raised  # a frame that holds its own error waits for the collector, with all it has
    assert future is not None
    return future.result()
