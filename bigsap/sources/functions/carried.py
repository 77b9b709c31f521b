"""Pickling of a function source: the content of the pickle, and how the source is rebuilt.

Functions that can be imported are pickled by name. Others, including lambdas, are pickled with
their code if cloudpickle is installed. A lambda's formula is read from the text of its file, which
is pickled too, so that the costs are computed in the same way on the receiving side.
"""

from __future__ import annotations

import functools
import importlib.util
import linecache
import pickle
import sys
import types
from typing import Any

from bigsap.errors import OptionError
from bigsap.sources.functions.probing import name_of

#: Fields that belong to one object in one process.
LOCAL = ("_lock", "_failed", "_waiting", "_interrupt", "_translation", "_python")


def state_of(source: Any) -> dict[str, Any]:
    """Return the fields of a function source, without compiled code."""
    state = {name: value for name, value in vars(source).items() if name not in LOCAL}
    state["_decided"] = source._decided and source._translation is None
    state["_expected"] = source.evaluated_by
    return state


def text_of(source: Any) -> tuple[str, list[str]] | None:
    """Return the file of a lambda and its lines: its formula is, or may be, read from them."""
    function = source.function
    if not isinstance(function, types.FunctionType):
        return None
    if source.evaluated_by not in ("expression", None):
        return None
    name = function.__code__.co_filename
    return name, linecache.getlines(name)


def carried(source: Any) -> tuple[dict[str, Any], tuple[str, list[str]] | None]:
    """Return the pickled content of the source. Raises PicklingError if the function cannot be pickled."""
    state = state_of(source)
    if not _importable(source.function):
        if importlib.util.find_spec("cloudpickle") is None:
            raise pickle.PicklingError(
                f"the costs of {name_of(source.function)} cannot be pickled: it is no function that"
                " can be imported by name; define it at the top of a module, with its data in"
                " args=, or install cloudpickle"
            )
        state["function"] = _ByValue(source.function)
    return state, text_of(source)


class _ByValue:
    """A function that is pickled with its code, and is a plain function after unpickling."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __reduce__(self) -> tuple[Any, ...]:
        import cloudpickle

        return pickle.loads, (cloudpickle.dumps(self._function),)


def _importable(function: Any) -> bool:
    """Return whether pickle itself can pickle a function."""
    if isinstance(function, functools.partial):
        return all(map(_importable, (function.func, *function.args, *function.keywords.values())))
    if isinstance(function, types.MethodType):
        return True
    if not isinstance(function, types.FunctionType):
        return True
    found: Any = sys.modules.get(function.__module__)
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is function


def filled(source: Any, state: dict[str, Any], text: tuple[str, list[str]] | None) -> Any:
    """Fill an empty source with the output of ``carried``."""
    state = dict(state)
    expected = state.pop("_expected")
    if text is not None:
        # The code has no file name, and a file of that name here may have another text.
        name, lines = f"<sent: {text[0]}>", text[1]
        linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
        function = state["function"]
        if not function.__code__.co_filename.startswith("<sent: "):
            function.__code__ = function.__code__.replace(co_filename=name)
    vars(source).update(state, _python=state["function"])
    if expected is not None:
        source.translation()
        if source.evaluated_by != expected:
            raise OptionError(
                f"{source!r} is evaluated by {source.evaluated_by} here and by {expected}"
                " where it was pickled, which may round otherwise; are the same packages there?"
            )
    return source
