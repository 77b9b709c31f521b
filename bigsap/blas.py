"""Number of threads of the library that multiplies matrices for numpy."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import threadpoolctl

_lock = threading.Lock()
_n_within = 0
_limit: Any = None


@cache
def _controller() -> Any:
    return threadpoolctl.ThreadpoolController().select(user_api="blas")


@contextmanager
def one_thread() -> Iterator[None]:
    """Multiply matrices on the calling thread alone within the context, in the whole process.

    Threads of our own then multiply side by side; the library's would compete with them for the cores,
    and a solve with ``threads=1`` must use one. The number of before is restored when the last
    context ends.
    """
    global _n_within, _limit
    with _lock:
        if not _n_within:
            _limit = _controller().limit(limits=1)
        _n_within += 1
    try:
        yield
    finally:
        with _lock:
            _n_within -= 1
            if not _n_within:
                _limit.restore_original_limits()
                _limit = None
