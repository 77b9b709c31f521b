"""numpy's warnings of overflows are not the user's business: what overflows is told by errors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numpy as np

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")


def quiet(function: Callable[_Given, _Found]) -> Callable[_Given, _Found]:
    """The same function, in which numpy does not warn of numbers that overflow."""

    @functools.wraps(function)
    def called(*args: _Given.args, **options: _Given.kwargs) -> _Found:
        with np.errstate(over="ignore", invalid="ignore"):
            return function(*args, **options)

    return called


def quiet_thread() -> None:
    """The same for the rest of this thread: each begins with numpy's own settings."""
    np.seterr(over="ignore", invalid="ignore")
