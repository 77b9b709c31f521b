"""Python's parser, for threads that use it at the same time."""

from __future__ import annotations

import ast
import threading
from contextlib import suppress
from typing import Any

# Reentrant: a finalizer may run within it and parse, too.
_one_at_a_time = threading.RLock()
_ATTEMPTS = 10


def parsed(text: str | bytes, name: str = "<unknown>", mode: str = "exec") -> Any:
    """Call ``ast.parse``, by one thread at a time; same errors.

    CPython 3.11 counts the depth of a tree for all threads together. If one thread is interrupted
    while it builds its tree, by a finalizer say, and another begins, SystemError ("AST constructor
    recursion depth mismatch") is raised for valid text. The lock keeps our threads apart.
    Others do not take it (printing a traceback parses, too), so the text is read again after one.
    """
    with _one_at_a_time:
        for _ in range(_ATTEMPTS - 1):
            with suppress(SystemError):
                return ast.parse(text, name, mode=mode)
        return ast.parse(text, name, mode=mode)
