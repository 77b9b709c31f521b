"""The one-time warning that a cost function is slow because Python calls it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

from bigsap.errors import level_of_caller
from bigsap.sources.functions.probing import name_of

_logger = logging.getLogger("bigsap")


class PerformanceWarning(UserWarning):
    """A cost function is called from Python once a pair, which is slow."""


_noted: set[Any] = set()


def note_speed(f: Callable[..., Any], kind: str, reason: str) -> None:
    """Warn once for each function that it is called from Python, with the reason."""
    key = getattr(f, "__code__", None) or type(f)
    if key in _noted:
        return
    _noted.add(key)
    text = (
        f"{name_of(f)} could not be compiled and is called from Python, once a"
        f" {'pair, about 100 times slower' if kind == 'value' else 'row'}: {reason}."
    )
    if kind != "value":
        _logger.info(text)
        return
    warnings.warn(
        text + " Pass its data in args=, write a function of a whole row with numpy"
        ' (kind="row"), or see bigsap.points for distances. compiled=False silences this.',
        PerformanceWarning,
        stacklevel=level_of_caller(),
    )
