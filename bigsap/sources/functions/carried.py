"""A source of a function in a pickle: what goes into it, and how it is made again.

Functions that can be imported go by their names. Others, lambdas among them, go with their code
where cloudpickle is installed. A lambda's formula is read from the text of its file, which comes
along, so that it is computed in the same way where it arrives.
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

#: What belongs to one object in one process.
LOCAL = ("_lock", "_failed", "_waiting", "_interrupt", "_translation", "_python")


def state_of(source: Any) -> dict[str, Any]:
    """The fields of a source of a function, but for what was compiled."""
    state = {name: value for name, value in vars(source).items() if name not in LOCAL}
    state["_decided"] = source._decided and source._translation is None
    state["_expected"] = source.evaluated_by
    return state


def text_of(source: Any) -> tuple[str, list[str]] | None:
    """The file of a lambda and its lines: its formula is, or may be, read from them."""
    function = source.function
    if not isinstance(function, types.FunctionType):
        return None
    if source.evaluated_by not in ("expression", None):
        return None
    name = function.__code__.co_filename
    return name, linecache.getlines(name)


def carried(source: Any) -> tuple[dict[str, Any], tuple[str, list[str]] | None]:
    """What a pickle of the source holds. Raises PicklingError for a function that cannot go."""
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
    """A function that is pickled with its code, and arrives as the function itself."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __reduce__(self) -> tuple[Any, ...]:
        import cloudpickle

        return pickle.loads, (cloudpickle.dumps(self._function),)


def _importable(function: Any) -> bool:
    """Whether pickle can do by itself what a function is."""
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
    """An empty source, filled with what ``carried`` gave."""
    state = dict(state)
    expected = state.pop("_expected")
    if text is not None:
        # The code comes without the name of its file, and this machine's may have another text.
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
